"""From rows of the vocabulary and a request to requirements: the one loop that most filters are."""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from os_prefilter.common.quoting import shown
from os_prefilter.conf.options import Options
from os_prefilter.errors import FlavorImageConflict, ImpossibleCombination, UnknownValue
from os_prefilter.request.extra_specs import trait_key
from os_prefilter.request.guest_platform import Guest, guest_of
from os_prefilter.request.requirements import NOTHING, ROOT, UNSUFFIXED, Note, Requirement, Requirements
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import BY_NAME, QUALIFIED, row_named, rows_asked_by
from os_prefilter.vocabulary.image_properties import BOOLEANS
from os_prefilter.vocabulary.model import Row, Trait

_LENIENT = Options(skip_all_unknown_values=True)
_IN_IMAGE = "image property"
_PLACES = ("image field {}".format, "flavor extra spec {}".format)
_DEFAULT_MACHINES = {family: Trait(str(term.trait)) for family, term in BY_NAME["default_machine"].values.items()}


class Chosen(NamedTuple):
    """What a request asks of one row."""

    value: str
    """The key of :attr:`os_prefilter.vocabulary.model.Row.values`."""
    source: str


class Questions:
    """Rows of the vocabulary that a filter asks a request about, found by what the request has.

    A request says nothing of most rows, and these cost it nothing.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(rows)
        # Name -> the numbers of the rows about it.
        self._properties: dict[str, set[int]] = {}
        self._extra_specs: dict[str, set[int]] = {}
        self._always: set[int] = set()
        self._by_traits: set[int] = set()
        for number, row in enumerate(self.rows):
            # Its default counts where what it depends on is asked for; and what a trait may switch reads that first.
            depends = row.only_with and (row.default or row.device)
            for each in (row, row_named(row.only_with)) if depends else (row,):
                if each.image_property:
                    self._properties.setdefault(each.image_property, set()).add(number)
                if each.extra_spec:
                    self._extra_specs.setdefault(each.extra_spec, set()).add(number)
            if row.image_attribute:
                self._always.add(number)
            if row.device:
                self._by_traits.add(number)

    def about(self, request: Request) -> list[Row]:
        """Return the rows of which a request may say something, in the order of the table."""
        numbers = set(self._always)
        # A view's intersection goes through the smaller of the two.
        for name in self._properties.keys() & request.image_properties.keys():
            numbers |= self._properties[name]
        for name in self._extra_specs.keys() & request.extra_specs.keys():
            numbers |= self._extra_specs[name]
        if self._by_traits and request.names_traits:
            numbers |= self._by_traits
        return [self.rows[number] for number in sorted(numbers)]


@cache
def questions_of(name: str) -> Questions:
    """Return what the request filter ``name`` asks a request about."""
    return Questions(rows_asked_by(name))


def ask(request: Request, questions: Questions, options: Options, scope: str = ROOT) -> Requirements:
    """Return what ``request`` asks for of the rows in ``questions``.

    A value that is not in the vocabulary, or a trait that no host reports, costs that one requirement and no other; it
    becomes a note.

    :raises UnknownValue: for a value that is not in the vocabulary, if ``unknown_values`` is ``reject``.
    :raises FlavorImageConflict: if flavor and image ask for different values of one row.
    :raises ImpossibleCombination: for a device that the machine type, or the architecture to emulate, never has.
    """
    asked: list[Requirement] = []
    notes: list[Note] = []
    guest: Guest | None = None
    for row in questions.about(request):
        found = chosen(request, row, options, notes)
        if not found or is_implied(request, row, found.value):
            continue
        trait = row.values[found.value].trait
        # Where Nova's query names the trait because the request does, it names it in the group that the request says.
        if trait is None or (scope == UNSUFFIXED and row.device and not _has_property(request, row)):
            continue
        guest = guest or guest_of(request)
        if row.per_architecture:
            trait = _of_guest(row, trait, found, guest, options)
        if _is_opt_in(row, trait, found.value) and not options.reports(trait):
            notes.append(Note(found.source, f"{trait} is not in [prefilter] reported_traits: not asked for"))
        else:
            asked.append(Requirement(trait, row.values[found.value].required, scope, found.source))
        if scope == ROOT:
            asked += _kept_off(guest, row, found, options, asked)
    return Requirements(tuple(asked), tuple(notes)) if asked or notes else NOTHING


def _has_property(request: Request, row: Row) -> bool:
    """Whether the image property, or the flavor extra spec, of a row is set."""
    in_image = request.image_property(row.image_property) if row.image_property else None
    return in_image is not None or bool(row.extra_spec and request.extra_spec(row.extra_spec))


def keep_off(request: Request, questions: Questions, options: Options) -> Requirements:
    """Return which machine types must not be the default of a host, for what others than filters ask for.

    :raises ImpossibleCombination: for a device that the machine type, or the architecture to emulate, never has.
    """
    asked: list[Requirement] = []
    for row in questions.about(request):
        found = chosen(request, row, options, [])
        if found:
            asked += _kept_off(guest_of(request), row, found, options, asked)
    return Requirements(tuple(asked)) if asked else NOTHING


def _is_opt_in(row: Row, trait: Trait, value: str) -> bool:
    term = row.values[value]
    return term.opt_in or trait != term.trait


def _of_guest(row: Row, trait: Trait, found: Chosen, guest: Guest, options: Options) -> Trait:
    """Return the trait for guests of the architecture that is to be emulated, where hosts report it.

    The plain trait speaks of guests of the host's own architecture, but for one of Nova's: that driver adds up what
    guests of any architecture have.
    """
    if not guest.architecture:
        return trait
    qualified = QUALIFIED.get((trait, guest.architecture))
    own = row.values[found.value].opt_in
    return qualified if qualified and (own or options.reports(qualified)) else trait


def _kept_off(
    guest: Guest, row: Row, found: Chosen, options: Options, asked: Iterable[Requirement]
) -> list[Requirement]:
    """Return the default machine types that hosts must not have, because those can never have the value.

    One that is among ``asked`` already is not repeated: many devices need a PCI bus.

    :raises ImpossibleCombination: if the request names such a machine type, or an architecture that has no other.
    """
    without = guest.families_without(row.name, found.value)
    if not without:
        return []
    ruled_out = guest.what_rules_out(row.name, found.value)
    if ruled_out:
        raise ImpossibleCombination(found.source, ruled_out)
    if guest.family or not guest.takes_default:
        return []
    known = {item.trait for item in asked}
    traits: list[Trait | None] = [_DEFAULT_MACHINES[family] for family in sorted(without)]
    if guest.default_architecture:
        traits = [QUALIFIED.get((trait, guest.default_architecture)) for trait in traits if trait]
    return [
        Requirement(trait, False, ROOT, found.source)
        for trait in traits
        if trait and trait not in known and options.reports(trait)
    ]


def chosen(request: Request, row: Row, options: Options, notes: list[Note]) -> Chosen | None:
    """Return the value that image and flavor give to ``row``; None if they give none.

    :raises UnknownValue: for a value that is not in the vocabulary, if ``unknown_values`` is ``reject``.
    :raises FlavorImageConflict: if they ask for different values, or for and against a device at once.
    :raises ImpossibleCombination: if it makes no sense beside what is asked of another row.
    """
    in_image = request.image_property(row.image_property) if row.image_property else None
    # An empty extra spec says nothing, as in Nova.
    in_flavor = (request.extra_spec(row.extra_spec) if row.extra_spec else None) or None
    of_image = request.image_attribute(row.image_attribute) if row.image_attribute else None
    device = row.device
    # Nearly every row of nearly every request: nothing there.
    if in_image is None and in_flavor is None and of_image is None and not device and not row.default:
        return None
    with_what = _gate(request, row, options) if row.only_with else None
    if row.only_with and not with_what:
        return None
    # Nothing is read of the image of an instance that boots from a volume.
    if of_image is not None and request.boots_from_volume:
        return None
    found = _said(row, (in_image, of_image, in_flavor), options, notes, request)
    if found:
        _check_beside(request, row, found)
    if device:
        return _switched(request, device, found)
    if with_what and row.default and in_image is None and in_flavor is None:
        return Chosen(row.default, f"{with_what.source} with the default {row.name} {row.default}")
    return found


def is_implied(request: Request, row: Row, value: str) -> bool:
    """Whether another row of the request asks for the value of a row, and for more."""
    # Of an emulated guest the trait says nothing: it is about guests of the host's own architecture.
    if value not in row.implied_by or guest_of(request).architecture:
        return False
    name, more = row.implied_by[value]
    other = chosen(request, row_named(name), _LENIENT, [])
    return other is not None and other.value == more


def _gate(request: Request, row: Row, options: Options) -> Chosen | None:
    """Return what is asked of the row without which ``row`` means nothing; None if that is not asked for."""
    gate = row_named(row.only_with)
    found = chosen(request, gate, options, [])
    if found and row.only_with_values:
        return found if found.value in row.only_with_values else None
    return found if found and gate.values[found.value].trait else None


def _said(
    row: Row, raws: tuple[object, object, object], options: Options, notes: list[Note], request: Request
) -> Chosen | None:
    """Return the one value that image and flavor agree on, or that the flavor overrides the image with."""
    found: Chosen | None = None
    names = (row.image_property, row.image_attribute, row.extra_spec)
    for raw, place_of, name in zip(raws, (request.place_of, *_PLACES), names, strict=True):
        if raw is None:
            continue
        place = place_of(str(name))
        value = _known(raw, place, row, options, notes)
        if value is None or (found and found.value == value):
            continue
        if found and row.image_overrides:
            continue
        if found and found.value not in row.flavor_overrides.get(value, ()):
            raise FlavorImageConflict(found.source, f"{place}={value}")
        found = Chosen(value, f"{place}={value}")
    return found


def _check_beside(request: Request, row: Row, found: Chosen) -> None:
    """Raise ImpossibleCombination if what is asked of other rows makes no sense beside ``found``."""
    if found.value in row.never_with:
        name, value = row.never_with[found.value]
        other = chosen(request, row_named(name), _LENIENT, [])
        if other and other.value == value:
            raise ImpossibleCombination(found.source, other.source)
    for name, value in row.needs.get(found.value, ()):
        needed = row_named(name)
        other = chosen(request, needed, _LENIENT, [])
        if other is None or other.value != value:
            without = other.source if other else f"an image without {needed.image_property}={value}"
            raise ImpossibleCombination(found.source, without)


def _switched(request: Request, device: Trait, found: Chosen | None) -> Chosen | None:
    """Return whether a device is to be there, by its property or by its trait (decision on traits as configuration)."""
    wanted, unwanted = explicit(request, device)
    if found:
        (wanted if found.value == "true" else unwanted).append(found.source)
    if wanted and unwanted:
        raise FlavorImageConflict(wanted[-1], unwanted[-1])
    return Chosen("true", " and ".join(wanted)) if wanted else found


def explicit(request: Request, trait: str) -> tuple[list[str], list[str]]:
    """Return the sources in image and flavor that require, and that forbid, a trait of the host by its name."""
    wanted = [f"image property trait:{trait}=required"] if trait in request.image_traits else []
    unwanted = []
    for suffix, group in request.flavor_groups.items():
        if not request.is_of_host(suffix or UNSUFFIXED):
            continue
        if trait in group.required:
            wanted.append(f"flavor extra spec {trait_key(trait, suffix)}=required")
        if trait in group.forbidden:
            unwanted.append(f"flavor extra spec {trait_key(trait, suffix)}=forbidden")
    return wanted, unwanted


def _known(raw: object, place: str, row: Row, options: Options, notes: list[Note]) -> str | None:
    value = row.canonical(raw)
    if value is None and row.image_property in BOOLEANS and place.startswith(_IN_IMAGE):
        # Nova's image makes False of whatever spells no boolean.
        notes.append(Note(place, f"{shown(raw)} is no boolean: taken for false, as in Nova", warn=True))
        return "false"
    if value is None:
        if options.reject_unknown_values or (row.refuses_unknown and not options.skip_all_unknown_values):
            raise UnknownValue(place, raw, row.values)
        notes.append(Note(place, f"unknown value {shown(raw)}: not asked for", warn=True))
    return value
