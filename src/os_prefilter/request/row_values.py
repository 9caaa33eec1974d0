"""The values that a request gives to rows of the vocabulary, and the traits that it names itself."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from os_prefilter.common.errors import FlavorImageConflict, ImpossibleCombination, UnknownValue
from os_prefilter.common.quoting import quote
from os_prefilter.common.trait_names import Trait, trait_named
from os_prefilter.request.extra_specs import trait_key
from os_prefilter.request.guest_platform import guest_of
from os_prefilter.request.requirements import UNSUFFIXED, Note, Requirement, Source
from os_prefilter.request.spec import RequestGroup
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import row_named
from os_prefilter.vocabulary.image_properties import BOOLEANS
from os_prefilter.vocabulary.model import Row, UnknownValues

_IN_IMAGE = "image property"
_PLACES = ("image field {}".format, "flavor extra spec {}".format)


class RowValue(NamedTuple):
    """The value that a request gives to a row."""

    value: str
    """The key of :attr:`os_prefilter.vocabulary.model.Row.values`."""
    source: Source


def row_value(request: Request, row: Row, unknown: UnknownValues, notes: list[Note]) -> RowValue | None:
    """Return the value that image and flavor give to ``row``; None if they give none.

    :raises UnknownValue: for a value that is not in the vocabulary, if ``unknown_values`` is ``reject``.
    :raises FlavorImageConflict: if they give different values, or require and forbid a device at once.
    :raises ImpossibleCombination: if it makes no sense beside the value of another row.
    """
    in_image = request.image_property(row.image_property) if row.image_property else None
    # An empty extra spec says nothing, as in Nova.
    in_flavor = (request.extra_spec(row.extra_spec) if row.extra_spec else None) or None
    of_image = request.image_attribute(row.image_attribute) if row.image_attribute else None
    device = row.device
    # Nearly every row of nearly every request: nothing there.
    if in_image is None and in_flavor is None and of_image is None and not device and not row.default:
        return None
    with_what = _gate(request, row, unknown) if row.only_with else None
    if row.only_with and not with_what:
        return None
    # Nothing is read of the image of an instance that boots from a volume.
    if of_image is not None and request.boots_from_volume:
        return None
    found = _agreed_value(row, (in_image, of_image, in_flavor), unknown, notes, request)
    if found:
        _check_beside(request, row, found)
    if device:
        return _device_switch(request, device, found)
    if with_what and row.default and in_image is None and in_flavor is None:
        return RowValue(row.default, with_what.source._replace(default=f"{row.name} {row.default}"))
    return found


def is_implied(request: Request, row: Row, value: str) -> bool:
    """Whether another row of the request requires the value of a row, and more."""
    # Of an emulated guest the trait says nothing: it is about guests of the host's own architecture.
    if value not in row.implied_by or guest_of(request).architecture:
        return False
    name, more = row.implied_by[value]
    other = row_value(request, row_named(name), UnknownValues.SKIP_ALL, [])
    return other is not None and other.value == more


def unknown_configurations(request: Request, rows: Sequence[Row]) -> list[str]:
    """Return the flavor's extra specs that start as a configuration (:attr:`Row.namespace`) and have no row."""
    namespaces = tuple([row.namespace for row in rows if row.namespace])
    found = [name for name in request.extra_specs if str(name).startswith(namespaces)]
    return [name for name in found if all(name != row.extra_spec for row in rows)] if found else found


def _gate(request: Request, row: Row, unknown: UnknownValues) -> RowValue | None:
    """Return the value of the row without which ``row`` means nothing; None if the request gives none."""
    gate = row_named(row.only_with)
    found = row_value(request, gate, unknown, [])
    if found and row.only_with_values:
        return found if found.value in row.only_with_values else None
    return found if found and gate.values[found.value].trait else None


def _agreed_value(
    row: Row, raws: tuple[object, object, object], unknown: UnknownValues, notes: list[Note], request: Request
) -> RowValue | None:
    """Return the one value that image and flavor agree on, or that of the source which overrides the other."""
    found: RowValue | None = None
    names = (row.image_property, row.image_attribute, row.extra_spec)
    sources = zip(raws, (request.place_of, *_PLACES), names, strict=True)
    for raw, place_of, name in reversed((*sources,)) if row.wins == "flavor" else sources:
        if raw is None:
            continue
        if found and row.wins:
            # Nova does not look at the other value, so that it may also be an unknown one.
            break
        place = place_of(str(name))
        value = _canonical(raw, place, row, unknown, notes)
        if value is None and row.wins:
            # Nova takes it all the same, and does not look at the other one either.
            return found
        if value is None or (found and found.value == value):
            continue
        if found and found.value not in row.flavor_overrides.get(value, ()):
            raise FlavorImageConflict(str(found.source), f"{place}={value}")
        found = RowValue(value, Source(place, value, name=str(name)))
    return found


def _check_beside(request: Request, row: Row, found: RowValue) -> None:
    """Raise ImpossibleCombination if the values of other rows make no sense beside ``found``."""
    if found.value in row.never_with:
        name, value = row.never_with[found.value]
        other = row_value(request, row_named(name), UnknownValues.SKIP_ALL, [])
        if other and other.value == value:
            raise ImpossibleCombination(str(found.source), str(other.source))
    for name, value in row.needs.get(found.value, ()):
        needed = row_named(name)
        other = row_value(request, needed, UnknownValues.SKIP_ALL, [])
        if other is None or other.value != value:
            without = str(other.source) if other else f"an image without {needed.image_property}={value}"
            raise ImpossibleCombination(str(found.source), without)


def _device_switch(request: Request, device: Trait, found: RowValue | None) -> RowValue | None:
    """Return whether a device is to be there, by its property or by its trait (decision on traits as configuration)."""
    wanted, unwanted = sources_naming(request, device)
    if found:
        (wanted if found.value == "true" else unwanted).append(found.source)
    if wanted and unwanted:
        raise FlavorImageConflict(str(wanted[-1]), str(unwanted[-1]))
    return RowValue("true", wanted[0]._replace(beside=tuple(wanted[1:]))) if wanted else found


def sources_naming(request: Request, trait: str) -> tuple[list[Source], list[Source]]:
    """Return the sources in image and flavor that require, and that forbid, a trait of the host by its name."""
    wanted = [_trait_of_image(trait)] if trait in request.image_traits else []
    unwanted = []
    for suffix, group in request.flavor_groups.items():
        if not request.is_of_host(suffix or UNSUFFIXED):
            continue
        if trait in group.required_traits:
            wanted.append(_trait_of_flavor(trait, suffix, required=True))
        if trait in group.forbidden_traits:
            unwanted.append(_trait_of_flavor(trait, suffix, required=False))
    return wanted, unwanted


def _trait_of_image(trait: str) -> Source:
    return Source(f"image property trait:{trait}", "required", name=f"trait:{trait}")


def _trait_of_flavor(trait: str, suffix: str, *, required: bool) -> Source:
    key = trait_key(trait, suffix)
    return Source(f"flavor extra spec {key}", "required" if required else "forbidden", name=key)


def _canonical(raw: object, place: str, row: Row, unknown: UnknownValues, notes: list[Note]) -> str | None:
    value = row.canonical(raw)
    if value is None and row.image_property in BOOLEANS and place.startswith(_IN_IMAGE):
        # Nova's image makes False of whatever spells no boolean.
        notes.append(Note(place, f"{quote(raw)} is not a boolean: taken as false, as in Nova", warn=True))
        return "false"
    if value is None:
        if unknown is UnknownValues.REJECT or (row.refuses_unknown and unknown is UnknownValues.SKIP):
            raise UnknownValue(place, raw, row.values)
        notes.append(Note(place, f"unknown value {quote(raw)}: not required", warn=True))
    return value


class NamedTrait(NamedTuple):
    """A trait that a request requires or forbids by its name."""

    trait: Trait
    required: bool
    scope: str
    source: Source


def written_requirements(request: Request) -> tuple[Requirement, ...]:
    """Return the traits that a request names: in its flavor, its image, and the groups that it was given."""
    return tuple(each.source.requirement(*each[:3]) for each in named_traits(request))


def named_traits(request: Request) -> Iterator[NamedTrait]:
    """Yield the same with each source as data."""
    for suffix, group in request.flavor_groups.items():
        for trait, required in _traits_of(group):
            yield NamedTrait(trait, required, suffix or UNSUFFIXED, _trait_of_flavor(trait, suffix, required=required))
    for name in request.image_traits:
        yield NamedTrait(trait_named(name), True, UNSUFFIXED, _trait_of_image(name))
    for suffix, group in request.requested_groups.items():
        for trait, required in _traits_of(group):
            yield NamedTrait(trait, required, suffix, Source(f"request group {suffix}"))


def _traits_of(group: RequestGroup) -> Iterator[tuple[Trait, bool]]:
    for required, traits in ((True, group.required_traits), (False, group.forbidden_traits)):
        for name in sorted(traits):
            yield trait_named(name), required
