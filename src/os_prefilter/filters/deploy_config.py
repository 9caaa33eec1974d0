# SPDX-License-Identifier: Apache-2.0

"""Require bare-metal nodes that can be configured.

As in the mail "Reset Configurations in Baremetals Post Provisioning".

Explicit config, implicit trait: ``deploy-config:hyperthreading=enabled``
requires a node on which hyperthreading can be switched; it says nothing about
whether it is on now. Which traits a configuration needs is in its template.
"""

from __future__ import annotations

from os_prefilter.common.errors import UnknownValue
from os_prefilter.common.quoting import quote
from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.requirements import (
    NOTHING,
    ROOT,
    Note,
    Preference,
    Requirement,
    Requirements,
)
from os_prefilter.request.values import unknown_configurations, value_of
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.model import UnknownValues
from os_prefilter.vocabulary.options import Options


@Declaration(traits=lambda options: options.templates.traits)
def deploy_config(request: Request, *, options: Options) -> Requirements:
    """Require the traits of the configuration templates that are requested.

    :raises UnknownValue: for an unknown value or configuration, if
        ``unknown_values`` is ``reject``.
    :raises FlavorImageConflict: if flavor and image request different
        configurations.
    """
    templates = options.templates
    unknown = unknown_configurations(request, templates.rows)
    if (
        unknown
        and options.unknown_values is UnknownValues.REJECT
        and request.asks_anew("flavor extra spec")
    ):
        raise UnknownValue(
            "flavor extra spec",
            unknown[0],
            (row.name for row in templates.rows),
        )
    notes = [
        Note(
            "flavor extra specs",
            f"unknown configuration {quote(key)}: not required",
            warn=True,
        )
        for key in unknown
    ]
    requirements: list[Requirement] = []
    preferences: list[Preference] = []
    for row in templates.rows:
        found = value_of(request, row, options.unknown_values, notes)
        if found:
            traits = row.values[found.value].traits
            if options.prefers(row):
                preferences += [
                    Preference(trait, str(found.source)) for trait in traits
                ]
                continue
            requirements += [
                found.source.requirement(trait, True, ROOT) for trait in traits
            ]
    if not (requirements or notes or preferences):
        return NOTHING
    return Requirements(
        tuple(requirements), tuple(notes), preferences=tuple(preferences)
    )
