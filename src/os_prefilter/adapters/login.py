"""The login of a keystoneauth session at Keystone, and what a refused request has to do with it."""

from typing import Any

from keystoneauth1 import exceptions
from keystoneauth1.identity.base import BaseIdentityPlugin

from os_prefilter.common.errors import ConfigurationError
from os_prefilter.common.quoting import describe_error, quote

_UNAUTHORIZED, _FORBIDDEN = 401, 403


def log_in(session: Any, cloud: str) -> None:
    """Log a session in, unless its plugin needs no login; a later failure would look like that of another service.

    :param cloud: its name, for messages
    :raises ConfigurationError: Keystone refuses, or does not answer
    """
    if not isinstance(session.auth, BaseIdentityPlugin):
        return
    try:
        # Each request reads when the token expires.
        session.auth.get_access(session).will_expire_soon()
    except (exceptions.ClientException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        # 404: a token that has been revoked; or another path than that of Keystone.
        is_refused = isinstance(error, exceptions.HTTPClientError)
        reason = "Keystone refused the login" if is_refused else "the login at Keystone failed"
        raise ConfigurationError(
            f"The cloud {quote(cloud)} cannot be used: {reason}: {describe_error(error).rstrip('.')}. Check auth_url, "
            "the user, the password, their domain and the project of its entry in clouds.yaml, and that Keystone runs. "
            "An application credential or a token may have expired, or been revoked: then create a new one."
        ) from error


def advice_on(status: int, roles: str) -> str:
    """Return what to do where a service answered 401 or 403; empty for another status.

    :param roles: the advice where the user lacks a role
    """
    if status == _UNAUTHORIZED:
        return (
            "Check the login: the token may have expired or been revoked, or the access rules of the application "
            "credential do not allow the request."
        )
    of_project = "The token must be for a project, not a domain or the system: log in with project_name."
    return f"{roles} {of_project}" if status == _FORBIDDEN else ""
