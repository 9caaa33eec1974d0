# SPDX-License-Identifier: Apache-2.0

"""Device models and guest types of an image, as traits of the host.

By the spec image-metadata-prefiltering.
"""

from __future__ import annotations

from functools import partial

from os_prefilter.common.errors import NeverStartsWith
from os_prefilter.request.named_traits import (
    forbid_several_models,
    named_traits,
    written_requirements,
)
from os_prefilter.request.requirements import (
    NOTHING,
    ROOT,
    Note,
    Requirements,
)
from os_prefilter.request.row_requirements import (
    forbid_incapable_hosts,
    require_rows,
)
from os_prefilter.request.values import (
    address_bits_of,
    never_start_in_nova,
    rows_of,
    value_of,
)
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import BY_NAME, LACKING, ROWS
from os_prefilter.vocabulary.machine_types import families_without
from os_prefilter.vocabulary.options import Options

_ADDRESS_SPACE = BY_NAME["maxphysaddr_mode"]
# Nova requires their traits, which say nothing of the machine type.
_ROWS_OF_NOVA = frozenset(
    row
    for row in ROWS
    if "query" in row.required_by
    and any(map(partial(families_without, row.name), row.values))
)


def image_metadata(request: Request, *, options: Options) -> Requirements:
    """Require what the host must emulate, such as VIF, video and buses.

    Also architecture, vIOMMU, sound, USB, firmware and machine type.

    :raises ImpossibleCombination: for a device that the requested machine type
        can never have.
    :raises NeverStartsWith: for a value that no guest of Nova has, if Nova
        builds the guests.
    """
    for place, value, reason in (
        never_start_in_nova(request) if options.nova_builds_guests else ()
    ):
        raise NeverStartsWith(f"{place}={value}", reason)
    requirements = require_rows(
        request, rows_of(request, "image_metadata"), options
    ) + _forbid_lacking(request, options)
    others = [row for row in rows_of(request, "query") if row in _ROWS_OF_NOVA]
    if not others:
        return requirements
    return (
        requirements
        + _note_missing_bits(request, options)
        + forbid_incapable_hosts(request, others, options)
    )


def _forbid_lacking(request: Request, options: Options) -> Requirements:
    """Forbid hosts that may lack what the request names by its trait."""
    if not request.names_traits:
        return NOTHING
    found = [
        item.source.requirement(LACKING[item.trait], False, ROOT)
        for item in named_traits(request)
        if item.required
        and options.forbids_lacking(item.trait)
        and request.is_of_host(item.scope)
    ]
    named = written_requirements(request)
    return Requirements(tuple(found)) + forbid_several_models(
        request, named, options
    )


def _note_missing_bits(request: Request, options: Options) -> Requirements:
    mode = value_of(request, _ADDRESS_SPACE)
    if (
        not options.nova_builds_guests
        or not mode
        or mode.value != "emulate"
        or address_bits_of(request).value
    ):
        return NOTHING
    reason = (
        "without hw_maxphysaddr_bits it starts with libvirt 9.2 and newer"
        " alone, which no trait shows; set it"
    )
    return Requirements(notes=(Note(str(mode.source), reason, warn=True),))
