# SPDX-License-Identifier: Apache-2.0

"""Preferred traits of a flavor: hosts with them are weighed higher.

None is excluded.
"""

from __future__ import annotations

from os_prefilter.common.quoting import quote
from os_prefilter.common.trait_names import Trait
from os_prefilter.request.extra_specs import is_preference, preferred_trait
from os_prefilter.request.named_traits import forbid_several_models
from os_prefilter.request.requirements import (
    NOTHING,
    Note,
    Preference,
    Requirements,
)
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.model import canonical_boolean
from os_prefilter.vocabulary.options import Options

_ADVICE = (
    "not preferred: write trait:NAME=preferred or preferred_trait:NAME=true,"
    " with a NAME of A-Z, 0-9 and _"
)


def preferences(request: Request, *, options: Options) -> Requirements:
    """Prefer traits: trait:NAME=preferred and preferred_trait:NAME=true.

    They are extra specs of the flavor.
    """
    found: dict[str, Preference] = {}
    notes: list[Note] = []
    # Not those of the image, which is a tenant's.
    for key, value in request.extra_specs.items():
        if not is_preference(key, value):
            continue
        trait = preferred_trait(key, value)
        if trait:
            spelling = value if value == "preferred" else "true"
            found.setdefault(
                trait,
                Preference(
                    Trait(trait), f"flavor extra spec {key}={spelling}"
                ),
            )
        elif canonical_boolean(value) != "false":
            notes.append(
                Note(
                    "flavor extra specs",
                    f"{quote(key)}={quote(value)} is {_ADVICE}",
                    warn=True,
                )
            )
    if not (found or notes):
        return NOTHING
    preferred = tuple(found.values())
    return Requirements(
        notes=tuple(notes), preferences=preferred
    ) + forbid_several_models(request, preferred, options)
