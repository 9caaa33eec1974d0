"""A Placement client from what a nova.conf says in its section ``[placement]``, read as Nova reads it.

keystoneauth1 knows the options: ``auth_type`` and those of that type, of the session (``cafile``, ``timeout``, ...) and
of the adapter (``region_name``, ``valid_interfaces``, ``endpoint_override``, ...). What is missing or wrong is an error
that names the file, the section and the option, and never shows a password.
"""

from math import isfinite
from pathlib import Path
from typing import Any

from keystoneauth1 import loading
from keystoneauth1.exceptions import ClientException
from oslo_config import cfg

from os_prefilter.adapters.libvirt.nova_conf import reason_of
from os_prefilter.adapters.placement.client import TIMEOUT, PlacementClient
from os_prefilter.adapters.time_limit import limit
from os_prefilter.common.quoting import escape_line, quote
from os_prefilter.conf import options_from, refused, register_opts
from os_prefilter.conf.options import Options
from os_prefilter.documents.files import check_readable
from os_prefilter.errors import ConfigurationError

SECTION = "placement"

# What is needed beyond what keystoneauth1 demands; one of each group, except where Placement's URL is given elsewhere.
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
_FILES = ("cafile", "certfile", "keyfile")


def load_conf(path: str | Path) -> cfg.ConfigOpts:
    """Return what a nova.conf says; options are registered by whoever reads them.

    :raises DocumentError: if it is a named pipe or a device, which could keep its reader waiting.
    :raises ConfigurationError: if the file cannot be read as one.
    """
    check_readable(path)
    conf = cfg.ConfigOpts()
    try:
        conf([], project="nova", default_config_files=[str(path)], default_config_dirs=[], use_env=False)
    except (cfg.Error, OSError, ValueError) as error:
        # Without its cause, which has the line, in which a password may be.
        raise ConfigurationError(
            f"{escape_line(str(path))}: it cannot be read as a nova.conf: {reason_of(error)}"
        ) from None
    return conf


def client_from(conf: cfg.ConfigOpts, path: str | Path) -> PlacementClient:
    """Return the client that the section ``[placement]`` describes.

    :param path: the file that ``conf`` was read from, for messages
    :raises ConfigurationError: if it lacks something, or has a value that makes no sense.
    """
    return _Section(conf, escape_line(str(path))).client()


def prefilter_options(conf: cfg.ConfigOpts) -> Options:
    """Return the section ``[prefilter]``: the owner's trait, and how its providers are recognized.

    :raises ConfigurationError: if one of its options makes no sense.
    """
    register_opts(conf)
    try:
        return options_from(conf)
    except cfg.Error as error:
        raise refused(error) from error


class _Section:
    """The options of ``[placement]``, or of the section that its ``auth_section`` names."""

    def __init__(self, conf: cfg.ConfigOpts, where: str) -> None:
        self._conf = conf
        self._where = where
        if SECTION not in conf.list_all_sections():
            raise ConfigurationError(
                f"{where}: it has no section [{SECTION}]. Give the nova.conf of a compute service, which has one."
            )
        self._options = (*loading.get_session_conf_options(), *_adapter_options())
        conf.register_opts(self._options, group=SECTION)
        conf.register_opts(loading.get_auth_common_conf_options(), group=SECTION)
        self._auth = self._value("auth_section") or SECTION
        conf.register_opts(loading.get_auth_common_conf_options(), group=self._auth)

    def client(self) -> PlacementClient:
        auth_type = self._register_auth_type()
        self._check(auth_type)
        try:
            auth = loading.load_auth_from_conf_options(self._conf, SECTION)
            session = loading.load_session_from_conf_options(self._conf, SECTION, auth=auth)
            adapter = loading.load_adapter_from_conf_options(
                self._conf, SECTION, session=session, auth=auth, **_NO_VERSIONS
            )
        except (ClientException, cfg.Error, TypeError, ValueError) as error:
            raise ConfigurationError(f"{self._where}: [{SECTION}] cannot be used: {reason_of(error)}") from error
        # It holds for Keystone's answers too, which a service must not wait for without end.
        session.timeout = session.timeout or TIMEOUT
        limit(session)
        return PlacementClient(adapter, timeout=session.timeout)

    def _register_auth_type(self) -> str:
        """Make the options of the authentication known; return its type."""
        auth_type = self._value("auth_type", self._auth)
        if not auth_type:
            raise self._wrong("auth_type", "it is not set. The usual one is password.", self._auth)
        try:
            options = loading.get_auth_plugin_conf_options(auth_type)
        except ClientException as error:
            problem = f"there is no type {quote(auth_type)} installed. The usual one is password."
            raise self._wrong("auth_type", problem, self._auth) from error
        self._conf.register_opts(options, group=self._auth)
        for option in options:
            self._value(option.dest, self._auth)
        required = {option.dest for option in loading.get_plugin_loader(auth_type).get_options() if option.required}
        for names in (*((name,) for name in sorted(required)), *_NEEDED.get(auth_type, ())):
            self._need(names, auth_type)
        return str(auth_type)

    def _need(self, names: tuple[str, ...], auth_type: str) -> None:
        if not any(self._value(name, self._group_of(name)) for name in names):
            others = f", nor is {names[1]}" if names[1:] else ""
            raise self._wrong(names[0], f"it is not set{others}; auth_type {auth_type} needs it.", self._auth)

    def _check(self, auth_type: str) -> None:
        """Check what would otherwise fail at the first request, or in words that name no option."""
        for option in self._options:
            self._value(option.dest)
        known = {option.dest for option in loading.get_auth_plugin_conf_options(auth_type)}
        for name in (name for name in _URLS if name in known or name == "endpoint_override"):
            url = self._value(name, self._group_of(name))
            if url and not url.startswith(("http://", "https://")):
                raise self._wrong(name, "it is not a URL that begins with http:// or https://.", self._group_of(name))
        timeout = self._value("timeout") or TIMEOUT
        if not (isfinite(timeout) and timeout > 0):
            raise self._wrong("timeout", "it is not a number of seconds above 0.")
        for name in _FILES:
            path = self._value(name)
            if path and not Path(path).is_file():
                raise self._wrong(name, f"there is no file {escape_line(path)}.")
        interfaces = self._value("valid_interfaces") or ()
        if not set(interfaces) <= {"internal", "public", "admin"}:
            raise self._wrong("valid_interfaces", "its values are internal, public and admin.")

    def _group_of(self, option: str) -> str:
        return SECTION if option == "endpoint_override" else self._auth

    def _value(self, option: str, group: str = SECTION) -> Any:
        try:
            return self._conf[group][option]
        except cfg.ConfigSourceValueError as error:
            raise self._wrong(option, reason_of(error), group) from error
        except (cfg.Error, RecursionError):
            problem = "a $ in its value refers to nothing, or to itself. Write $$ where a $ is meant."
            # Without its cause, which has what follows the $: the rest of a password.
            raise self._wrong(option, problem, group) from None

    def _wrong(self, option: str, problem: str, group: str = SECTION) -> ConfigurationError:
        return ConfigurationError(f"{self._where}: [{escape_line(group)}] {option}: {problem}")


def _adapter_options() -> list[cfg.Opt]:
    """Return keystoneauth1's options of an adapter with Nova's defaults (``nova/conf/utils.py``)."""
    options = loading.get_adapter_conf_options(include_deprecated=False)
    cfg.set_defaults(options, valid_interfaces=["internal", "public"], service_type="placement")
    return options
