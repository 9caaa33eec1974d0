"""The middleware in Keystone's place: a token is the name of a role."""

from collections.abc import Callable, Iterable
from typing import Any

_Application = Callable[[dict[str, Any], Any], Iterable[bytes]]

ROLES = {"admin": "admin,member,reader", "member": "member,reader", "reader": "reader"}
_PROJECT = "0" * 31 + "1"


def trusting(_global_conf: object, **_local_conf: str) -> Callable[[_Application], _Application]:
    """Return a filter, as Paste calls it, that believes each token."""

    def filtered(application: _Application) -> _Application:
        def serve(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            token = environ.get("HTTP_X_AUTH_TOKEN", "")
            if token not in ROLES:
                start_response("401 Unauthorized", [("Content-Type", "text/plain")])
                return [b"no such token"]
            environ |= {
                "HTTP_X_IDENTITY_STATUS": "Confirmed",
                "HTTP_X_USER_ID": "2" * 32,
                "HTTP_X_PROJECT_ID": _PROJECT,
                "HTTP_X_ROLES": ROLES[token],
            }
            return application(environ, start_response)

        return serve

    return filtered
