# SPDX-License-Identifier: Apache-2.0

"""Traits that a request names itself: in flavor, image and groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from os_prefilter.common.trait_names import Trait
from os_prefilter.request.extra_specs import trait_key
from os_prefilter.request.requirements import (
    NOTHING,
    ROOT,
    UNSUFFIXED,
    Note,
    Preference,
    Requirement,
    Requirements,
    Source,
)
from os_prefilter.request.spec import RequestGroup
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.filter_rows import SEVERAL_CPU_MODELS
from os_prefilter.vocabulary.options import Options

MAY_LACK_FEATURE = (
    "on a host with several [libvirt] cpu_models, of which Nova chooses by the"
    " flavor, the guest may lack the feature; name it in the flavor"
)
"""The reason of a note, where it is not known whether there is such a host."""
_CPU_FEATURE = "HW_CPU_X86_"
# No features of a CPU model.
_OF_MEMORY = BY_NAME["mem_encryption_model"].traits


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


def forbid_several_models(
    request: Request,
    items: Iterable[Requirement | Preference],
    options: Options,
) -> Requirements:
    """Forbid hosts where a guest may lack a CPU feature.

    Nova's libvirt driver reports the features of several models, and chooses
    the model of a new guest by the traits that the flavor requires. For a
    preference, which excludes no host, there is a note.
    """
    if not options.nova_builds_guests:
        return NOTHING
    groups = request.flavor_groups.values()
    in_flavor = {trait for each in groups for trait in each.required_traits}
    lacking: dict[tuple[str, bool], list[Requirement | Preference]] = {}
    for item in items:
        if (
            not item.trait.startswith(_CPU_FEATURE)
            or item.trait in _OF_MEMORY
            or item.trait in in_flavor
            or not request.asks_anew(item.source)
        ):
            continue
        if isinstance(item, Requirement) and not (
            item.required and request.is_of_host(item.scope)
        ):
            continue
        # A rule requires all features of a level of x86-64 at once.
        key = item.source, isinstance(item, Preference)
        lacking.setdefault(key, []).append(item)
    forbidden: list[Requirement] = []
    notes: list[Note] = []
    for (source, _), same_source in lacking.items():
        names = dict.fromkeys(
            f"trait:{item.trait}=required" for item in same_source
        )
        # Where no host is left, its author reads what to set.
        missing = f"without {', '.join(names)} in the flavor"
        source_and_missing = f"{source} {missing}"
        first = same_source[0]
        if isinstance(first, Preference) or not options.forbids(
            SEVERAL_CPU_MODELS
        ):
            note = Note(source_and_missing, MAY_LACK_FEATURE, warn=True)
            notes.append(note)
            continue
        # A server's fault has 80 bytes for each property.
        short = missing
        if len(names) > 1:
            short = "without its traits in the flavor"
        properties = [f"{each} {short}" for each in first.properties]
        public = f"{first.public} {missing}" if first.public else ""
        several = Requirement(
            SEVERAL_CPU_MODELS,
            False,
            ROOT,
            source_and_missing,
            properties=tuple(properties),
            public=public,
        )
        forbidden.append(several)
    return Requirements(tuple(forbidden), tuple(notes))


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
