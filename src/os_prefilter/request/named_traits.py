"""Traits that flavor, image and request groups name themselves."""

from collections.abc import Iterator
from typing import NamedTuple

from os_prefilter.request.extra_specs import Group, trait_key
from os_prefilter.request.requirements import UNSUFFIXED, Requirement, Source
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.model import Trait, trait_named


class NamedTrait(NamedTuple):
    """A trait that a request requires or forbids by its name."""

    trait: Trait
    required: bool
    scope: str
    source: Source


def written_requirements(request: Request) -> tuple[Requirement, ...]:
    """Return the traits that a request names: in its flavor, its image, and the groups that it was given."""
    return tuple(Requirement(*each[:3], str(each.source)) for each in named_traits(request))


def named_traits(request: Request) -> Iterator[NamedTrait]:
    """Yield the same with each source as data."""
    for suffix, group in request.flavor_groups.items():
        for trait, required in _traits_of(group):
            source = Source(f"flavor extra spec {trait_key(trait, suffix)}", "required" if required else "forbidden")
            yield NamedTrait(trait, required, suffix or UNSUFFIXED, source)
    for name in request.image_traits:
        yield NamedTrait(trait_named(name), True, UNSUFFIXED, Source(f"image property trait:{name}", "required"))
    for suffix, group in request.requested_groups.items():
        for trait, required in _traits_of(group):
            yield NamedTrait(trait, required, suffix, Source(f"request group {suffix}"))


def _traits_of(group: Group) -> Iterator[tuple[Trait, bool]]:
    for required, traits in ((True, group.required), (False, group.forbidden)):
        for name in sorted(traits):
            yield trait_named(name), required
