# SPDX-License-Identifier: Apache-2.0

"""Connection to a live cloud of ``clouds.yaml``, through openstacksdk.

Nothing is written to the cloud here.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import openstack
import yaml
from keystoneauth1.exceptions import ClientException, HTTPClientError
from keystoneauth1.identity.base import BaseIdentityPlugin
from openstack.config import loader
from openstack.exceptions import SDKException

from os_prefilter.adapters.cloud_service import proxy_of
from os_prefilter.adapters.placement.client import TIMEOUT, PlacementClient
from os_prefilter.adapters.session_limits import limit
from os_prefilter.common.errors import ConfigurationError, PlacementUnavailable
from os_prefilter.common.quoting import describe_error, escape_line, quote
from os_prefilter.documents.files import check_readable


def connect(name: str) -> Any:
    """Return a connection to a cloud, after the login at its Keystone.

    It is an ``openstack.connection.Connection``.

    :raises ConfigurationError: there is no such cloud, its entry or a file
        cannot be used, or the login fails
    """
    for path in _configuration_files():
        check_readable(path)
        # The pipe of a shell can be read only once.
        if path.resolve().is_file():
            _check_syntax(path)
    logging.getLogger("openstack.config").addFilter(_without_error_text)
    try:
        # Without the timeout, a service that hangs would keep the command
        # forever.
        connection = openstack.connect(
            cloud=name, api_timeout=TIMEOUT, app_name="os-prefilter"
        )
    except yaml.YAMLError:
        # openstacksdk 4.5 does not catch it. Without the cause: it shows what
        # was read, and so perhaps a password.
        raise ConfigurationError(
            f"The cloud {quote(name)} cannot be used: a file of its"
            " configuration is not YAML. Correct it."
        ) from None
    except (
        SDKException,
        ClientException,
        OSError,
        ValueError,
        TypeError,
        AttributeError,
    ) as error:
        raise ConfigurationError(
            f"The cloud {quote(name)} cannot be used:"
            f" {describe_error(error).rstrip('.')}. Name a cloud of"
            " clouds.yaml in this folder, in ~/.config/openstack or in"
            " /etc/openstack, and check its entry."
        ) from error
    limit(connection.session)
    log_in(connection.session, name)
    return connection


def placement_of(connection: Any) -> PlacementClient:
    """Return the client of a cloud's Placement.

    :raises CloudError: the service catalogue has no endpoint of it
    :raises PlacementUnavailable: Keystone refuses, or the service does not
        show its versions
    """
    try:
        return PlacementClient(proxy_of(connection, "placement"))
    except (SDKException, ClientException) as error:
        raise PlacementUnavailable("GET /", describe_error(error)) from error


def _configuration_files() -> Iterator[Path]:
    """Yield the files that openstacksdk will read.

    Of clouds.yaml, secure.yaml and the vendors' file, each the first one that
    can be read.
    """
    own = (
        os.environ.get("OS_CLIENT_CONFIG_FILE"),
        os.environ.get("OS_CLIENT_SECURE_FILE"),
        None,
    )
    for override, names in zip(
        own, (loader.CONFIG_FILES, loader.SECURE_FILES, loader.VENDOR_FILES)
    ):
        for name in (override, *names):
            if name and os.access(name, os.R_OK):
                yield Path(name)
                break


def _check_syntax(path: Path) -> None:
    """Check that a file can be parsed.

    openstacksdk skips one that cannot, and logs the text at which parsing
    failed.

    :raises ConfigurationError: it cannot; the message has the line but no
        text, which may be a password
    """
    syntax = "JSON" if path.suffix == ".json" else "YAML"
    try:
        # openstacksdk reports a file that cannot be read.
        with suppress(OSError), path.open() as file:
            # As openstacksdk reads it.
            if syntax == "JSON":
                json.load(file)
            else:
                yaml.safe_load(file)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else getattr(error, "lineno", None)
        raise ConfigurationError(
            f"{escape_line(str(path))}{f': line {line}' if line else ''}: this"
            f" is not {syntax}. Correct it; put a value that begins with a"
            " sign such as * or ! in quotes."
        ) from None


def _without_error_text(record: logging.LogRecord) -> bool:
    """Replace parser errors in openstacksdk's log by their type.

    Their text may have a password.
    """
    if isinstance(record.args, tuple):
        record.args = tuple(
            type(each).__name__ if isinstance(each, Exception) else each
            for each in record.args
        )
    return True


def log_in(session: Any, cloud: str) -> None:
    """Log a session in, unless its plugin needs no login.

    A later failure would look like that of another service.

    :param cloud: its name, for messages
    :raises ConfigurationError: Keystone refuses, or does not respond
    """
    if not isinstance(session.auth, BaseIdentityPlugin):
        return
    try:
        # Each request reads when the token expires.
        session.auth.get_access(session).will_expire_soon()
    except (
        ClientException,
        OSError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
    ) as error:
        # 404: a token that has been revoked; or another path than that of
        # Keystone.
        is_refused = isinstance(error, HTTPClientError)
        reason = (
            "Keystone refused the login"
            if is_refused
            else "the login at Keystone failed"
        )
        raise ConfigurationError(
            f"The cloud {quote(cloud)} cannot be used: {reason}:"
            f" {describe_error(error).rstrip('.')}. Check auth_url, the user,"
            " the password, their domain and the project of its entry in"
            " clouds.yaml, and that Keystone runs. An application credential"
            " or a token may have expired, or been revoked: then create a new"
            " one."
        ) from error
