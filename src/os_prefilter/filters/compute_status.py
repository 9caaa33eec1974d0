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

"""Disabled compute services."""

import os_traits

from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.requirements import Requirements, forbid
from os_prefilter.request.view import Request

_ANSWER = forbid(os_traits.COMPUTE_STATUS_DISABLED, "every request: no disabled compute service")


@Declaration(only_new=True, other_traits=lambda _options: (os_traits.COMPUTE_STATUS_DISABLED,))
def compute_status(request: Request) -> Requirements:  # noqa: ARG001
    """Forbid COMPUTE_STATUS_DISABLED, which Nova puts on the provider of a disabled compute service."""
    return _ANSWER
