"""A program: serves the WSGI application that its arguments name, on a loopback port; and a stand-in for Keystone."""

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import waitress

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


if __name__ == "__main__":
    program, module, port = sys.argv
    # Nova would read them as its own.
    sys.argv = [program]
    application = import_module(module).application
    waitress.serve(application, host="127.0.0.1", port=int(port), threads=4)
