# SPDX-License-Identifier: Apache-2.0

"""Ports whose network backend runs on a SmartNIC."""

from __future__ import annotations

import os_traits

from os_prefilter.common.quoting import quote
from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.requirements import (
    NOTHING,
    Note,
    Requirements,
    require,
)
from os_prefilter.request.view import Request

# nova/network/model.py: VNIC_TYPE_REMOTE_MANAGED.
_REMOTE_MANAGED = "remote-managed"
_TRAIT = os_traits.COMPUTE_REMOTE_MANAGED_PORTS


@Declaration(other_traits=lambda _options: (_TRAIT,), reads=("networks",))
def remote_managed_ports(request: Request) -> Requirements:
    """Require COMPUTE_REMOTE_MANAGED_PORTS for ports that are remote-managed.

    That is the VNIC type of a port that the user named.
    """
    notes: list[Note] = []
    for each in request.networks:
        if each.port_id and each.vnic_type == _REMOTE_MANAGED:
            return require(
                _TRAIT,
                f"port {quote(each.port_id)} with the VNIC type"
                f" {_REMOTE_MANAGED}",
            )
        if each.port_id and each.vnic_type is None:
            reason = "the request spec has no VNIC type of it: not required"
            notes.append(
                Note(f"port {quote(each.port_id)}", reason, warn=True)
            )
    return Requirements(notes=tuple(notes)) if notes else NOTHING
