# SPDX-License-Identifier: Apache-2.0

"""Require nothing: the worked example of a filter."""

from __future__ import annotations

from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.requirements import NOTHING, Requirements
from os_prefilter.request.view import Request


@Declaration(by_default=False)
def noop(request: Request) -> Requirements:  # noqa: ARG001
    """Require nothing, whatever the request says."""
    return NOTHING
