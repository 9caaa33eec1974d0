# SPDX-License-Identifier: Apache-2.0

"""Handle traits that the cloud's Placement does not have.

Placement refuses a query that names one, required or forbidden, with 400.

The fact ``known_traits`` has the names that it has. With it, a filter's
requirement for another one is left out with a note where that excludes no
capable host: a forbidden trait, as no host has it; a standard trait, as this
Placement is older than the trait; and a ``CUSTOM_`` trait of the vocabulary,
as the first host that reports creates it. A ``CUSTOM_`` trait that an
operator's rule forbids stays: it exists before the rule is used, and hosts may
have it since these names were read. Any other ``CUSTOM_`` trait is a decision
of the operator's or of a filter's author and stays required: without it, a
request would get hosts that they keep from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache

from os_prefilter.common.trait_names import CUSTOM_PREFIX, is_trait_name
from os_prefilter.pipeline.filter_calls import Adjust
from os_prefilter.request.requirements import Note, Requirement, Requirements
from os_prefilter.vocabulary import opt_in_traits

FACT = "known_traits"
"""The name of the fact; its value is a :class:`TraitNames`."""

# Of all rows; requests ask again and again.
_opt_in_traits = cache(opt_in_traits)


class TraitNames(frozenset[str]):
    """Names of all traits of a Placement; the log has their number."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self)} traits>"


def leave_out_unknown(
    known: Collection[str], rule_traits: Collection[str] = ()
) -> Adjust:
    """Return an adjustment that drops requirements for unknown traits.

    :param known: the names of the traits that it has
    :param rule_traits: the traits that the operator's rules name
    """
    return lambda _filter, result, _request: _without_unknown(
        result, known, rule_traits
    )


def _without_unknown(
    result: Requirements, known: Collection[str], rule_traits: Collection[str]
) -> Requirements:
    left_out = {
        item: None
        for item in find_unknown(result.requirements, known)
        if _may_be_left_out(item, rule_traits)
    }
    if not left_out:
        return result
    notes = tuple(
        Note(
            item.source,
            f"this cloud's Placement has no trait {item.trait}: not"
            f" {'required' if item.required else 'forbidden'}",
            warn=item.required,
        )
        for item in left_out
    )
    kept = tuple(item for item in result.requirements if item not in left_out)
    return replace(result, requirements=kept, notes=(*result.notes, *notes))


def find_unknown(
    requirements: Iterable[Requirement], known: Collection[str]
) -> list[Requirement]:
    """Return the requirements for traits that Placement does not have."""
    # What is no name of a trait is an error of the filter.
    return [
        item
        for item in requirements
        if is_trait_name(item.trait) and item.trait not in known
    ]


def _may_be_left_out(item: Requirement, rule_traits: Collection[str]) -> bool:
    """Return whether a requirement for an unknown trait may be left out.

    That excludes no capable host, and breaks no rule.
    """
    if not item.trait.startswith(CUSTOM_PREFIX):
        return True
    return (
        item.trait in _opt_in_traits()
        if item.required
        else item.trait not in rule_traits
    )
