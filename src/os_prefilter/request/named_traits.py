# SPDX-License-Identifier: Apache-2.0

"""Traits that a request names itself: in flavor, image and groups."""

from collections.abc import Iterator
from typing import NamedTuple

from os_prefilter.common.trait_names import Trait
from os_prefilter.request.extra_specs import trait_key
from os_prefilter.request.requirements import UNSUFFIXED, Requirement, Source
from os_prefilter.request.spec import RequestGroup
from os_prefilter.request.view import Request


class NamedTrait(NamedTuple):
    """A trait that a request requires or forbids by its name."""

    trait: Trait
    required: bool
    scope: str
    source: Source


def named_traits(request: Request) -> Iterator[NamedTrait]:
    """Yield the traits that flavor, image and groups require or forbid.

    Each with its source.
    """
    for suffix, group in request.flavor_groups.items():
        for trait, required in _traits_of(group):
            yield NamedTrait(
                trait,
                required,
                suffix or UNSUFFIXED,
                source_in_flavor(trait, suffix, required=required),
            )
    for name in request.image_traits:
        yield NamedTrait(Trait(name), True, UNSUFFIXED, source_in_image(name))
    for suffix, group in request.requested_groups.items():
        for trait, required in _traits_of(group):
            yield NamedTrait(
                trait, required, suffix, Source(f"request group {suffix}")
            )


def written_requirements(request: Request) -> tuple[Requirement, ...]:
    """Return the traits that the request names, as requirements."""
    return tuple(
        each.source.requirement(*each[:3]) for each in named_traits(request)
    )


def _traits_of(group: RequestGroup) -> Iterator[tuple[Trait, bool]]:
    for required, traits in (
        (True, group.required_traits),
        (False, group.forbidden_traits),
    ):
        for name in sorted(traits):
            # The view refuses a group with a name that Placement cannot have.
            yield Trait(name), required


def source_in_image(trait: str) -> Source:
    """Return the image as the source of a trait that it names."""
    return Source(
        f"image property trait:{trait}", "required", name=f"trait:{trait}"
    )


def source_in_flavor(trait: str, suffix: str, *, required: bool) -> Source:
    """Return a group of the flavor as the source of a trait that it names."""
    key = trait_key(trait, suffix)
    return Source(
        f"flavor extra spec {key}",
        "required" if required else "forbidden",
        name=key,
    )
