# SPDX-License-Identifier: Apache-2.0

"""A filter for the Paste file of Nova's API, in place of keystonemiddleware:
the token "admin" is an administrator's.

Programs that log in send it; who makes a request that says so itself is in its
headers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_ADMIN = {
    "HTTP_X_USER_ID": "admin",
    "HTTP_X_PROJECT_ID": "a" * 32,
    "HTTP_X_ROLES": "admin,member,reader",
}
_Application = Callable[[dict[str, Any], Any], Any]


def login(
    _globals: object, **_options: object
) -> Callable[[_Application], _Application]:
    """Return the filter, as Paste loads it."""

    def around(application: _Application) -> _Application:
        def answer(environ: dict[str, Any], start_response: Any) -> Any:
            is_admin = environ.get("HTTP_X_AUTH_TOKEN") == "admin"
            return application(
                {**(_ADMIN if is_admin else {}), **environ}, start_response
            )

        return answer

    return around
