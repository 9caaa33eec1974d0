#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""Advice on a request that a service refused because of its login."""

_UNAUTHORIZED, _FORBIDDEN = 401, 403


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
