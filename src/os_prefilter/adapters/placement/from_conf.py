"""A Placement client from the section ``[placement]`` of a nova.conf, read as Nova reads it.

keystoneauth1 defines the options: ``auth_type`` and those of that type, of the session (``cafile``, ``timeout``, ...)
and of the adapter (``region_name``, ``valid_interfaces``, ``endpoint_override``, ...). It reports a missing or wrong
value at the first request, or without the option's name; here the error names the file, the section and the option, and
never shows a password.
"""

from math import isfinite
from pathlib import Path
from typing import Any

from keystoneauth1 import loading
from keystoneauth1.exceptions import ClientException
from oslo_config import cfg

from os_prefilter.adapters.nova_conf import invalid_option, read_option, reason_of
from os_prefilter.adapters.placement.client import TIMEOUT, PlacementClient
from os_prefilter.adapters.session_limits import limit
from os_prefilter.common.errors import ConfigurationError
from os_prefilter.common.quoting import escape_line, quote

SECTION = "placement"

# Needed beyond the options that keystoneauth1 requires; one of each group, "endpoint" only without endpoint_override.
_NEEDED: dict[str, tuple[tuple[str, ...], ...]] = {
    "password": (("username", "user_id"), ("password",)),
    "v3password": (("username", "user_id"), ("password",)),
    "admin_token": (("endpoint", "endpoint_override"), ("token",)),
    "http_basic": (("endpoint", "endpoint_override"), ("username",), ("password",)),
    "none": (("endpoint", "endpoint_override"),),
}
_URLS = ("auth_url", "endpoint", "endpoint_override")
# Nova ignores them in nova.conf.
_NO_VERSIONS = {"version": None, "min_version": None, "max_version": None}


def client_from(conf: cfg.ConfigOpts, path: str | Path) -> PlacementClient:
    """Return the client that the section ``[placement]`` describes.

    :param path: the file that ``conf`` was read from, for messages
    :raises ConfigurationError: if an option is missing or has an invalid value.
    """
    return _Section(conf, escape_line(str(path))).client()


class _Section:
    """The options of ``[placement]``, or of the section that its ``auth_section`` names."""

    def __init__(self, conf: cfg.ConfigOpts, where: str) -> None:
        self._conf = conf
        self._where = where
        if SECTION not in conf.list_all_sections():
            raise ConfigurationError(
                f"{where}: it has no section [{SECTION}]. Give that of nova-compute or nova-scheduler."
            )
        adapter_options = loading.get_adapter_conf_options(include_deprecated=False)
        # As in nova/conf/utils.py.
        cfg.set_defaults(adapter_options, valid_interfaces=["internal", "public"], service_type="placement")
        self._options = (*loading.get_session_conf_options(), *adapter_options)
        conf.register_opts((*self._options, *loading.get_auth_common_conf_options()), group=SECTION)
        self._auth = self._value("auth_section") or SECTION
        conf.register_opts(loading.get_auth_common_conf_options(), group=self._auth)

    def client(self) -> PlacementClient:
        self._check_auth()
        self._check_connection()
        try:
            auth = loading.load_auth_from_conf_options(self._conf, SECTION)
            session = loading.load_session_from_conf_options(self._conf, SECTION, auth=auth)
            adapter = loading.load_adapter_from_conf_options(
                self._conf, SECTION, session=session, auth=auth, **_NO_VERSIONS
            )
        except (ClientException, cfg.Error, TypeError, ValueError) as error:
            raise ConfigurationError(f"{self._where}: [{SECTION}] cannot be used: {reason_of(error)}") from error
        # It also limits Keystone's responses, for which a service must not wait forever.
        session.timeout = session.timeout or TIMEOUT
        limit(session)
        return PlacementClient(adapter, timeout=session.timeout)

    def _check_auth(self) -> None:
        """Register and check the options of the authentication."""
        auth_type = self._value("auth_type", self._auth)
        if not auth_type:
            raise self._wrong("auth_type", "it is not set. The usual one is password.", self._auth)
        try:
            options = loading.get_plugin_loader(auth_type).get_options()
        except ClientException as error:
            problem = f"there is no type {quote(auth_type)} installed. The usual one is password."
            raise self._wrong("auth_type", problem, self._auth) from error
        self._conf.register_opts(loading.get_auth_plugin_conf_options(auth_type), group=self._auth)
        for option in options:
            self._value(option.dest, self._auth)
        required = sorted({option.dest for option in options if option.required})
        for names in (*((name,) for name in required), *_NEEDED.get(auth_type, ())):
            if not any(self._value(name, self._group_of(name)) for name in names):
                others = f", nor is {names[1]}" if names[1:] else ""
                raise self._wrong(names[0], f"it is not set{others}; auth_type {auth_type} needs it.", self._auth)
        for name in _URLS:
            known = name == "endpoint_override" or any(option.dest == name for option in options)
            url = self._value(name, self._group_of(name)) if known else None
            if url and not url.startswith(("http://", "https://")):
                raise self._wrong(name, "it is not a URL that begins with http:// or https://.", self._group_of(name))

    def _check_connection(self) -> None:
        """Check the options of the session and the adapter."""
        for option in self._options:
            self._value(option.dest)
        timeout = self._value("timeout") or TIMEOUT
        if not (isfinite(timeout) and timeout > 0):
            raise self._wrong("timeout", "it is not a number of seconds above 0.")
        for name in ("cafile", "certfile", "keyfile"):
            path = self._value(name)
            if path and not Path(path).is_file():
                raise self._wrong(name, f"there is no file {escape_line(path)}.")
        if not set(self._value("valid_interfaces") or ()) <= {"internal", "public", "admin"}:
            raise self._wrong("valid_interfaces", "its values are internal, public and admin.")

    def _group_of(self, option: str) -> str:
        return SECTION if option == "endpoint_override" else self._auth

    def _value(self, option: str, group: str = SECTION) -> Any:
        return read_option(self._conf, self._where, option, group)

    def _wrong(self, option: str, problem: str, group: str = SECTION) -> ConfigurationError:
        return invalid_option(self._where, option, problem, group)
