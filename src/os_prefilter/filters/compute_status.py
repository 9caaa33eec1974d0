# SPDX-License-Identifier: Apache-2.0

"""Disabled compute services."""

import os_traits

from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.requirements import Requirements, forbid
from os_prefilter.request.view import Request

_ANSWER = forbid(
    os_traits.COMPUTE_STATUS_DISABLED,
    "every request: no disabled compute service",
)


@Declaration(
    only_new=True,
    other_traits=lambda _options: (os_traits.COMPUTE_STATUS_DISABLED,),
)
def compute_status(request: Request) -> Requirements:  # noqa: ARG001
    """Forbid COMPUTE_STATUS_DISABLED: hosts with a disabled compute service.

    Nova puts the trait on their provider.
    """
    return _ANSWER
