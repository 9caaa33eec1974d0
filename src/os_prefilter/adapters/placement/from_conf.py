# SPDX-License-Identifier: Apache-2.0

"""Placement client from the section ``[placement]`` of a nova.conf.

keystoneauth1 defines the options: ``auth_type`` and those of that type, of the
session (``cafile``, ``timeout``, ...) and of the adapter (``region_name``,
``valid_interfaces``, ``endpoint_override``, ...). It reports a missing or
wrong value at the first request, or without the option's name; here the error
names the file, the section and the option, and never shows a password.
"""

from __future__ import annotations

from math import isfinite
from pathlib import Path

from keystoneauth1 import loading
from keystoneauth1.exceptions import ClientException
from oslo_config import cfg

from os_prefilter.adapters.nova_conf import (
    invalid_option,
    read_option,
    reason_of,
)
from os_prefilter.adapters.placement.client import TIMEOUT, PlacementClient
from os_prefilter.adapters.session_limits import limit
from os_prefilter.common.errors import ConfigurationError
from os_prefilter.common.quoting import escape_line, quote

SECTION = "placement"

# Needed beyond the options that keystoneauth1 requires; one of each group,
# "endpoint" only without endpoint_override.
_NEEDED: dict[str, tuple[tuple[str, ...], ...]] = {
    "password": (("username", "user_id"), ("password",)),
    "v3password": (("username", "user_id"), ("password",)),
    "admin_token": (("endpoint", "endpoint_override"), ("token",)),
    "http_basic": (
        ("endpoint", "endpoint_override"),
        ("username",),
        ("password",),
    ),
    "none": (("endpoint", "endpoint_override"),),
}
# Nova ignores them in nova.conf.
_NO_VERSIONS = {"version": None, "min_version": None, "max_version": None}


def client_from(conf: cfg.ConfigOpts, path: str | Path) -> PlacementClient:
    """Return the client of the section ``[placement]``.

    :param path: the file that ``conf`` was read from, for messages
    :raises ConfigurationError: if an option is missing or has an invalid
        value.
    """
    where = escape_line(str(path))
    if SECTION not in conf.list_all_sections():
        raise ConfigurationError(
            f"{where}: it has no section [{SECTION}]. Give that of"
            " nova-compute or nova-scheduler."
        )
    adapter_options = loading.get_adapter_conf_options(
        include_deprecated=False
    )
    # As in nova/conf/utils.py.
    cfg.set_defaults(
        adapter_options,
        valid_interfaces=["internal", "public"],
        service_type="placement",
    )
    options = (*loading.get_session_conf_options(), *adapter_options)
    conf.register_opts(
        (*options, *loading.get_auth_common_conf_options()), group=SECTION
    )
    _check_auth(conf, where)
    for option in options:
        read_option(conf, where, option.dest, SECTION)
    timeout = read_option(conf, where, "timeout", SECTION) or TIMEOUT
    if not (isfinite(timeout) and timeout > 0):
        raise invalid_option(
            where, "timeout", "it is not a number of seconds above 0.", SECTION
        )
    try:
        auth = loading.load_auth_from_conf_options(conf, SECTION)
        session = loading.load_session_from_conf_options(
            conf, SECTION, auth=auth
        )
        adapter = loading.load_adapter_from_conf_options(
            conf, SECTION, session=session, auth=auth, **_NO_VERSIONS
        )
    except (ClientException, cfg.Error, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{where}: [{SECTION}] cannot be used: {reason_of(error)}"
        ) from error
    # It also limits Keystone's responses, for which a service must not wait
    # forever.
    session.timeout = timeout
    limit(session)
    return PlacementClient(adapter, timeout=timeout)


def _check_auth(conf: cfg.ConfigOpts, where: str) -> None:
    """Register and check the options of the authentication.

    They may be in the section that ``auth_section`` names.
    """
    section = read_option(conf, where, "auth_section", SECTION) or SECTION
    conf.register_opts(loading.get_auth_common_conf_options(), group=section)
    auth_type = read_option(conf, where, "auth_type", section)
    if not auth_type:
        raise invalid_option(
            where,
            "auth_type",
            "it is not set. The usual one is password.",
            section,
        )
    try:
        options = loading.get_plugin_loader(auth_type).get_options()
    except ClientException as error:
        problem = (
            f"there is no type {quote(auth_type)} installed. The usual one is"
            " password."
        )
        raise invalid_option(where, "auth_type", problem, section) from error
    conf.register_opts(
        loading.get_auth_plugin_conf_options(auth_type), group=section
    )
    values = {
        option.dest: read_option(conf, where, option.dest, section)
        for option in options
    }
    values["endpoint_override"] = read_option(
        conf, where, "endpoint_override", SECTION
    )
    required = {option.dest for option in options if option.required}
    needed: list[tuple[str, ...]] = [(name,) for name in sorted(required)]
    needed += _NEEDED.get(auth_type, ())
    for names in needed:
        if not any(map(values.get, names)):
            others = f", nor is {names[1]}" if names[1:] else ""
            raise invalid_option(
                where,
                names[0],
                f"it is not set{others}; auth_type {auth_type} needs it.",
                section,
            )
    for name in ("auth_url", "endpoint", "endpoint_override"):
        url = values.get(name)
        if url and not url.startswith(("http://", "https://")):
            group = SECTION if name == "endpoint_override" else section
            raise invalid_option(
                where,
                name,
                "it is not a URL that begins with http:// or https://.",
                group,
            )
