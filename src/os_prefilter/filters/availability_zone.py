# SPDX-License-Identifier: Apache-2.0

"""The availability zone that the user chose."""

from __future__ import annotations

from typing import Any

from os_prefilter.common.errors import UnknownValue
from os_prefilter.common.quoting import quote
from os_prefilter.filters.host_aggregates import HostAggregates
from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.requirements import (
    NOTHING,
    Note,
    Requirements,
    require_aggregates,
)
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.model import UnknownValues
from os_prefilter.vocabulary.options import Options

_SOURCE = "availability zone"


@Declaration(takes_unknown=True, reads=("availability_zone",))
def availability_zone(
    request: Request, *, options: Options, aggregates: Any
) -> Requirements:
    """Require a host in an aggregate of the user's availability zone."""
    zone = request.availability_zone
    if not zone:
        return NOTHING
    known = HostAggregates.of(aggregates)
    if uuids := known.by_zone.get(zone):
        return require_aggregates(
            uuids, f"{_SOURCE} {quote(zone)}", known.describe(uuids)
        )
    if options.unknown_values is UnknownValues.REJECT:
        raise UnknownValue(_SOURCE, zone, ())
    # Nova's API refuses the request before, except for the default zone, which
    # is that of no aggregate.
    return Requirements(
        notes=(
            Note(
                f"{_SOURCE} {quote(zone)}",
                "no host aggregate has it: not required",
                warn=True,
            ),
        )
    )
