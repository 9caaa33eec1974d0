"""Translate a request into required traits by rows of the vocabulary: the logic of most request filters."""

from collections.abc import Iterable
from functools import cache

from os_prefilter.common.errors import ImpossibleCombination
from os_prefilter.common.trait_names import Trait
from os_prefilter.conf.options import Options
from os_prefilter.request.guest_platform import Guest, guest_of
from os_prefilter.request.requirements import NOTHING, ROOT, UNSUFFIXED, Note, Preference, Requirement, Requirements
from os_prefilter.request.row_values import RowValue, is_implied, row_value
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import (
    BY_NAME,
    QUALIFIED,
    TRAITS_OF_EMULATION,
    row_named,
    rows_required_by,
    trait_of_platform,
)
from os_prefilter.vocabulary.model import Row

_EMULATION = BY_NAME["emulation_architecture"]
_DEFAULT_MACHINES = {family: Trait(str(term.trait)) for family, term in BY_NAME["default_machine"].values.items()}


class RowIndex:
    """Rows of the vocabulary that a filter looks at, indexed by the names of image properties and extra specs.

    A request has values for few rows; the others cost nothing.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(rows)
        # Name -> the numbers of the rows about it.
        self._properties: dict[str, set[int]] = {}
        self._extra_specs: dict[str, set[int]] = {}
        self._always: set[int] = set()
        self._by_traits: set[int] = set()
        for number, row in enumerate(self.rows):
            # Its default counts where what it depends on is requested; and what a trait may switch reads that first.
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
        """Return the rows for which a request may have a value, in the order of the table."""
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
def rows_of(name: str) -> RowIndex:
    """Return the rows of the request filter ``name``."""
    return RowIndex(rows_required_by(name))


def require_rows(request: Request, index: RowIndex, options: Options, scope: str = ROOT) -> Requirements:
    """Return the requirements that follow from the values that a request gives to rows.

    A value that is not in the vocabulary, or a trait that no host reports, costs that one requirement and no other; it
    becomes a note. What a row in ``[prefilter] preferred_properties`` would require becomes a preference.

    :raises UnknownValue: for a value that is not in the vocabulary, if ``unknown_values`` is ``reject``.
    :raises FlavorImageConflict: if flavor and image request different values of one row.
    :raises ImpossibleCombination: for a device that the machine type, or the architecture to emulate, never has.
    """
    requirements: list[Requirement] = []
    notes: list[Note] = []
    preferences: list[Preference] = []
    guest: Guest | None = None
    for row in index.about(request):
        found = row_value(request, row, options.unknown_values, notes)
        if not found or is_implied(request, row, found.value):
            continue
        trait = row.values[found.value].trait
        # Where Nova's query names the trait because the request does, it names it in the group that the request says.
        if trait is None or (scope == UNSUFFIXED and row.device and not _has_property(request, row)):
            continue
        guest = guest or guest_of(request)
        if row.per_architecture:
            trait = _of_guest(row, trait, found, guest, options)
        opt_in = row.values[found.value].opt_in or trait != row.values[found.value].trait
        if row is _EMULATION and not options.emulates(found.value) and (of_platform := trait_of_platform(found.value)):
            trait, opt_in = of_platform, False
        if options.prefers(row):
            # Nor does a default machine type that lacks the device exclude a host.
            preferences.append(Preference(trait, str(found.source)))
            continue
        if opt_in and not options.reports(trait):
            notes.append(Note(str(found.source), f"{_why_not_reported(trait, options)}: not required"))
        else:
            requirements.append(found.source.requirement(trait, row.values[found.value].required, scope))
        if scope == ROOT:
            requirements += _forbid_incapable_defaults(guest, row, found, options, requirements)
    if not (requirements or notes or preferences):
        return NOTHING
    return Requirements(tuple(requirements), tuple(notes), preferences=tuple(preferences))


def _has_property(request: Request, row: Row) -> bool:
    """Whether the image property, or the flavor extra spec, of a row is set."""
    in_image = request.image_property(row.image_property) if row.image_property else None
    return in_image is not None or bool(row.extra_spec and request.extra_spec(row.extra_spec))


def forbid_default_machines(request: Request, index: RowIndex, options: Options) -> Requirements:
    """Return which machine types must not be the default of a host, for what others than filters require.

    :raises ImpossibleCombination: for a device that the machine type, or the architecture to emulate, never has.
    """
    requirements: list[Requirement] = []
    for row in index.about(request):
        found = row_value(request, row, options.unknown_values, [])
        if found:
            requirements += _forbid_incapable_defaults(guest_of(request), row, found, options, requirements)
    return Requirements(tuple(requirements)) if requirements else NOTHING


def _why_not_reported(trait: Trait, options: Options) -> str:
    emulated = TRAITS_OF_EMULATION.get(trait)
    if emulated and not options.emulates(emulated):
        return f"{emulated} is not in [prefilter] emulated_architectures"
    return f"{trait} is not in [prefilter] reported_traits"


def _of_guest(row: Row, trait: Trait, found: RowValue, guest: Guest, options: Options) -> Trait:
    """Return the trait for guests of the architecture that is to be emulated, where hosts report it.

    The plain trait speaks of guests of the host's own architecture, but for one of Nova's: that driver adds up what
    guests of any architecture have.
    """
    if not _has_own_traits(guest, options):
        return trait
    qualified = QUALIFIED.get((trait, guest.architecture))
    own = row.values[found.value].opt_in or not options.emulates(guest.architecture)
    return qualified if qualified and (own or options.reports(qualified)) else trait


def _has_own_traits(guest: Guest, options: Options) -> bool:
    """Whether hosts say of such an emulated guest what it can have by separate traits, or not at all.

    Where the cloud does not offer to emulate the architecture, only a host of that architecture can run the guest, and
    the trait of its platform says which one that is. For some Nova has no such trait: any host may run the guest then,
    and what a host's own guests can have says nothing of it.
    """
    if options.emulates(guest.architecture):
        return True
    return guest.has_own_traits and trait_of_platform(guest.architecture) is None


def _forbid_incapable_defaults(
    guest: Guest, row: Row, found: RowValue, options: Options, requirements: Iterable[Requirement]
) -> list[Requirement]:
    """Return the default machine types that hosts must not have, because those can never have the value.

    One that is among ``requirements`` already is not repeated: many devices need a PCI bus.

    :raises ImpossibleCombination: if the request names such a machine type, or an architecture that has no other.
    """
    without = guest.families_without(row.name, found.value)
    if not without:
        return []
    ruled_out = guest.what_rules_out(row.name, found.value)
    if ruled_out:
        raise ImpossibleCombination(str(found.source), ruled_out)
    if guest.family or not guest.takes_default:
        return []
    known = {item.trait for item in requirements}
    traits: list[Trait | None] = [_DEFAULT_MACHINES[family] for family in sorted(without)]
    if guest.default_architecture == "i686" or _has_own_traits(guest, options):
        traits = [QUALIFIED.get((trait, guest.default_architecture)) for trait in traits if trait]
    return [
        found.source.requirement(trait, False, ROOT)
        for trait in traits
        if trait and trait not in known and options.reports(trait)
    ]
