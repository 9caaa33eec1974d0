# SPDX-License-Identifier: Apache-2.0

"""As little of Keystone as a login needs, for tests that have it refuse, keep
silent or wait; and without services.

Where Keystone has to decide anything, it is the real one
(:mod:`tests.services.cloud`).
"""

from __future__ import annotations

from typing import Any


class Logins:
    """What it answers: each login succeeds."""

    def __init__(self) -> None:
        self.url = ""
        self.catalog: dict[str, str] = {}
        """Service type -> URL."""

    def answer(self, method: str, path: str) -> tuple[int, object]:
        """Return the status and the JSON of an answer; the token itself
        belongs into the header X-Subject-Token.
        """
        if (method, path.partition("?")[0].strip("/")) == (
            "POST",
            "v3/auth/tokens",
        ):
            return 201, {"token": self._token()}
        if path == "/":
            version = {
                "id": "v3.0",
                "status": "CURRENT",
                "version": "3.71",
                "min_version": "3.0",
            }
            return 200, {
                "versions": [
                    {
                        **version,
                        "links": [{"rel": "self", "href": f"{self.url}/v3/"}],
                    }
                ]
            }
        return 404, {
            "error": {
                "code": 404,
                "title": "Not Found",
                "message": f"no {path}",
            }
        }

    def _token(self) -> dict[str, Any]:
        endpoint = {"interface": "public", "region": "one", "region_id": "one"}
        catalog = [
            {
                "type": kind,
                "name": kind,
                "endpoints": [{**endpoint, "url": url}],
            }
            for kind, url in self.catalog.items()
        ]
        domain = {"id": "default", "name": "Default"}
        return {
            "methods": ["password"],
            "expires_at": "2099-01-01T00:00:00.000000Z",
            "issued_at": "2026-01-01T00:00:00.000000Z",
            "user": {"id": "2" * 32, "name": "operator", "domain": domain},
            "project": {"id": "1" * 32, "name": "project", "domain": domain},
            "roles": [{"id": "3" * 32, "name": "admin"}],
            "catalog": catalog,
        }
