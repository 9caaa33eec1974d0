# SPDX-License-Identifier: Apache-2.0

"""Advice on a request that a service refused because of its login."""

from __future__ import annotations

_UNAUTHORIZED, _FORBIDDEN = 401, 403


def advice_on(status: int, roles: str) -> str:
    """Return advice on a response 401 or 403; empty for another status.

    :param roles: the advice where the user lacks a role
    """
    if status == _UNAUTHORIZED:
        return (
            "Check the login: the token may have expired or been revoked, or"
            " the access rules of the application credential do not allow the"
            " request."
        )
    project_advice = (
        "The token must be for a project, not a domain or the system: log in"
        " with project_name."
    )
    return f"{roles} {project_advice}" if status == _FORBIDDEN else ""
