"""Traits that flavor, image and request groups name themselves."""

from collections.abc import Iterable

from os_prefilter.request.extra_specs import trait_key
from os_prefilter.request.requirements import UNSUFFIXED, Requirement
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.model import trait_named


def written_requirements(request: Request) -> tuple[Requirement, ...]:
    """Return the traits that a request names: in its flavor, its image, and the groups that it was given."""
    return (*_written_in_flavor(request), *_written_in_image(request), *_brought_by_groups(request))


def _written_in_flavor(request: Request) -> Iterable[Requirement]:
    for suffix, group in request.flavor_groups.items():
        for required, traits in ((True, group.required), (False, group.forbidden)):
            for trait in sorted(traits):
                source = f"flavor extra spec {trait_key(trait, suffix)}={'required' if required else 'forbidden'}"
                yield Requirement(trait_named(trait), required, suffix or UNSUFFIXED, source)


def _written_in_image(request: Request) -> Iterable[Requirement]:
    for trait in request.image_traits:
        yield Requirement(trait_named(trait), True, UNSUFFIXED, f"image property trait:{trait}=required")


def _brought_by_groups(request: Request) -> Iterable[Requirement]:
    for suffix, group in request.requested_groups.items():
        for required, traits in ((True, group.required), (False, group.forbidden)):
            for trait in sorted(traits):
                yield Requirement(trait_named(trait), required, suffix, f"request group {suffix}")
