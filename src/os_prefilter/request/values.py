# SPDX-License-Identifier: Apache-2.0

"""Values that a request gives to rows of the vocabulary.

Each row is read once for a request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import NamedTuple

from os_prefilter.common.errors import (
    ContradictingSources,
    FlavorImageConflict,
    ImpossibleCombination,
    UnknownValue,
)
from os_prefilter.common.placement_values import resource_amount
from os_prefilter.common.quoting import escape_line, quote
from os_prefilter.common.trait_names import Trait
from os_prefilter.request.guest_platform import Guest
from os_prefilter.request.named_traits import (
    source_in_flavor,
    source_in_image,
)
from os_prefilter.request.requirements import UNSUFFIXED, Note, Source
from os_prefilter.request.view import Request, cached_per_request
from os_prefilter.vocabulary import enabling_values, row_named, table
from os_prefilter.vocabulary.image_properties import BOOLEANS
from os_prefilter.vocabulary.model import (
    Constraints,
    Incompatible,
    Row,
    UnknownValues,
)


class RowValue(NamedTuple):
    """The value that a request gives to a row."""

    value: str
    """The key of :attr:`os_prefilter.vocabulary.model.Row.values`."""
    source: Source


class UnknownRowValue(NamedTuple):
    """A value that is not in the vocabulary."""

    row: Row
    place: str
    """``image property hw_vif_model``."""
    raw: object


class Resolved(NamedTuple):
    """The reading of a row: a value, unknown values, or a contradiction.

    It is the same for all who read the row; each decides itself what an
    unknown value is to it.
    """

    value: RowValue | None = None
    unknown: tuple[UnknownRowValue, ...] = ()
    """Unknown values of this row, and of the row on which it depends.

    They were left out.
    """
    notes: tuple[Note, ...] = ()
    problem: Callable[[], ContradictingSources] | None = None
    """Makes the error to raise in place of a value.

    Image and flavor, or two rows, contradict each other.

    None for what a server that exists has lived with: there is a note on it.

    A new one each time: an error that was raised holds the frames of that
    call, and this is kept.
    """


_NOT_SET = Resolved()
_NO_CONSTRAINTS = Constraints()
ADDRESS_BITS = range(32, 53)
"""The numbers of address bits that QEMU takes."""
TAKEN_ADDRESS_BITS = (
    f"QEMU takes a whole number from {ADDRESS_BITS[0]} to {ADDRESS_BITS[-1]}"
)
# With 0 in the image, that of the flavor counts.
_EQUAL_PORTS = Incompatible(
    "usb_redirection", "", unless=(("usb_redirection", ("0",)),)
)


def value_of(
    request: Request,
    row: Row,
    unknown_values: UnknownValues | None = None,
    notes: list[Note] | None = None,
) -> RowValue | None:
    """Return the value that image and flavor give to a row; None if none.

    :param unknown_values: None to leave unknown ones out: the filter of their
        row notes or rejects them
    :param notes: takes notes on values that are left out
    :raises UnknownValue: for a value that is not in the vocabulary, if
        ``unknown_values`` is ``reject``.
    :raises FlavorImageConflict: if they give different values, or require and
        forbid a device at once.
    :raises ImpossibleCombination: if it is incompatible with the value of
        another row.

    None is raised for what a server that exists has lived with
    (:meth:`os_prefilter.Request.asks_anew`).
    """
    resolved = resolve(request, row)
    for each in resolved.unknown if unknown_values else ():
        is_refused = (
            each.row.refuses_unknown or unknown_values is UnknownValues.REJECT
        )
        if is_refused and request.asks_anew(each.place):
            raise UnknownValue(each.place, each.raw, each.row.values)
    if notes is not None and resolved.notes:
        notes += resolved.notes
    if resolved.problem:
        raise resolved.problem()
    return resolved.value


def value_named(request: Request, name: str) -> RowValue | None:
    """Return the value of a row by the row's name; None if none.

    :raises ContradictingSources: as :func:`value_of` does.
    """
    resolved = _resolve_named(request, name)
    if resolved.problem:
        raise resolved.problem()
    return resolved.value


def raw_values(request: Request, row: Row) -> tuple[object, object]:
    """Return the raw values of a row in image and flavor, or None for each."""
    in_image = (
        request.image_property(row.image_property)
        if row.image_property
        else None
    )
    # An empty extra spec says nothing, as in Nova.
    return (
        in_image,
        (request.extra_spec(row.extra_spec) if row.extra_spec else None)
        or None,
    )


def resolve(request: Request, row: Row) -> Resolved:
    """Return what a request says of a row; read once for each request.

    :raises MalformedRequest: if the row may be switched by a trait, and one in
        image or flavor is malformed.
    """
    found: Resolved | None = request.cache.get(row)
    if found is None:
        found = request.cache[row] = _read(request, row)
    return found


def _resolve_named(request: Request, name: str) -> Resolved:
    return resolve(request, row_named(name))


def rows_of(request: Request, name: str) -> Sequence[Row]:
    """Return the rows of a filter for which a request may have a value.

    They are in the order of the table.

    A request sets a few of some hundred properties and extra specs: rows are
    found by these, not asked in turn.
    """
    rows = _rows_by_filter(request).get(name, ())
    switched = _index().switched.get(name)
    # Not for each filter: only those with such a row reject a request for a
    # malformed trait.
    if switched and request.names_traits:
        return sorted({*rows, *switched}, key=table().index)
    return rows


@cached_per_request
def _rows_by_filter(request: Request) -> Mapping[str, Sequence[Row]]:
    index = _index()
    rows = table()
    numbers = [*index.always]
    for names in (request.image_properties, request.extra_specs):
        # The intersection of two views goes through the smaller one: a tenant
        # may set thousands of names.
        for name in index.by_name.keys() & names.keys():
            numbers += index.by_name[name]
    found: dict[str, list[Row]] = {}
    for number in sorted(set(numbers)):
        row = rows[number]
        for name in row.required_by:
            found.setdefault(name, []).append(row)
    return found


class _Index(NamedTuple):
    """Rows of the table by their number, to find those of a request."""

    by_name: dict[str, list[int]]
    """Rows by image property and by extra spec in one mapping.

    A false match has no value and is skipped.
    """
    always: list[int]
    """Rows about a field of the image."""
    switched: dict[str, list[Row]]
    """Rows that a trait switches as well, by filter."""


@cache
def _index() -> _Index:
    index = _Index({}, [], {})
    for number, row in enumerate(table()):
        names = [*row.request_names]
        # Its default counts where what it depends on is requested; and what a
        # trait may switch reads that first.
        if row.depends_on and (row.depends_on.default or row.device):
            names += row_named(row.depends_on.row).request_names
        for name in names:
            index.by_name.setdefault(name, []).append(number)
        if row.image_attribute:
            index.always.append(number)
        if row.device:
            for name in row.required_by:
                index.switched.setdefault(name, []).append(row)
    return index


class Relations(NamedTuple):
    """Relations of a row's value to the other values of its request.

    What contradicts it on every host, or is needed and missing, is the
    :attr:`Resolved.problem` of the row: then there is no value.
    """

    is_implied: bool = False
    """True if another value requires it, and more."""
    incompatible: tuple[tuple[Incompatible, str], ...] = ()
    """Values with which Nova builds no guest that has it, with their sources.

    None that a server has lived with.
    """
    uncertain: tuple[tuple[Incompatible, str], ...] = ()
    """Values that may be incompatible in Nova; no request says whether."""
    lives_without: bool = False
    """True if a server has lived without what Nova's query requires for it.

    So has one with ``os_secure_boot=required`` and a BIOS: on its next host,
    it needs nothing for Secure Boot.
    """


_UNRELATED = Relations()


def relations_of(
    request: Request,
    guest: Guest,
    row: Row,
    found: RowValue,
    *,
    by_nova: bool,
) -> Relations:
    """Return the relations of a value; computed once for each request.

    :param guest: that of the request
    :param by_nova: True if Nova's drivers build it
    :raises ContradictingSources: if a value to compare with is contradictory.
    """
    constraints = row.constraints.get(found.value)
    if not constraints:
        return _UNRELATED
    key = (row, found.value, by_nova)
    relations: Relations | None = request.cache.get(key)
    if relations is None:
        relations = _relate(request, guest, row, found, by_nova=by_nova)
        request.cache[key] = relations
    return relations


def _relate(
    request: Request,
    guest: Guest,
    row: Row,
    found: RowValue,
    *,
    by_nova: bool,
) -> Relations:
    implied_by = row.constraints[found.value].implied_by
    is_implied = False
    # Of a guest of i686 the other row's trait says nothing: it is about guests
    # of the host's own architecture.
    if implied_by and not guest.is_i686:
        name, more = implied_by
        other = value_named(request, name)
        is_implied = other is not None and other.value == more
    incompatible: list[tuple[Incompatible, str]] = []
    uncertain: list[tuple[Incompatible, str]] = []
    lives_without = False
    pairs = (
        _incompatible_in_nova(request, guest, row, found) if by_nova else ()
    )
    for pair, source in pairs:
        if not pair.is_certain:
            uncertain.append((pair, source))
        elif request.asks_anew(str(found.source), source):
            incompatible.append((pair, source))
        else:
            lives_without = "query" in row.required_by
    return Relations(
        is_implied, tuple(incompatible), tuple(uncertain), lives_without
    )


def _incompatible_in_nova(
    request: Request, guest: Guest, row: Row, found: RowValue
) -> Iterator[tuple[Incompatible, str]]:
    if (
        row.name == _EQUAL_PORTS.row
        and found.source.name == row.image_property
        and raw_values(request, row)[1]
    ):
        # Nova compares the image's number with the flavor's text. It takes 0
        # for no number, and so does the row.
        yield _EQUAL_PORTS, f"flavor extra spec {row.extra_spec}"
    # How Nova builds emulated guests is not known here.
    if guest.emulated:
        return
    for pair in row.constraints[found.value].incompatible_in_nova:
        other = value_named(request, pair.row)
        value = other.value if other else ""
        if value == pair.value and not _is_excused(request, guest, pair):
            without = f"an image without {row_named(pair.row).image_property}"
            yield pair, str(other.source) if other else without


class AddressBits(NamedTuple):
    """The number of address bits of a request: row ``maxphysaddr_mode``."""

    place: str
    value: object
    """None if it has none."""
    number: int
    """0 if the value is no number."""


def address_bits_of(request: Request) -> AddressBits:
    """Return the address bits, of the flavor if it has any.

    Nova takes those of either with a mode of either.
    """
    place = "flavor extra spec hw:maxphysaddr_bits"
    value = request.extra_spec("hw:maxphysaddr_bits") or None
    if value is None:
        place = "image property hw_maxphysaddr_bits"
        value = request.image_property("hw_maxphysaddr_bits")
    # Nova's own images have numbers.
    return AddressBits(
        place,
        value,
        int(str(value)) if re.fullmatch("[0-9]{1,3}", str(value)) else 0,
    )


def never_start_in_nova(request: Request) -> Iterator[tuple[str, str, str]]:
    """Yield the place, the value and why no guest of Nova has it.

    On any host.

    Nothing that a server has lived with: it may have started before Nova built
    guests so.
    """
    yield from _exceeded_video_ram(request)
    place = request.place_of("hw_machine_type")
    machine = str(request.image_property("hw_machine_type"))
    found = _VERSION_OF_PC.fullmatch(machine)
    is_old = (
        found is not None and tuple(map(int, found.groups())) <= _WITHOUT_DMA
    )
    if is_old and request.asks_anew(place) and not _encrypts_memory(request):
        reason = (
            "it gets a device (vmcoreinfo) that QEMU has for version 2.5 and"
            " newer; set hw_machine_type=pc or q35"
        )
        yield place, machine, reason
    bits = address_bits_of(request)
    mode = value_named(request, "maxphysaddr_mode")
    sources = (bits.place, str(mode.source) if mode else "")
    if not bits.value or not request.asks_anew(*sources):
        return
    if not mode:
        reason = (
            "Nova ignores the number without a mode; set"
            " hw_maxphysaddr_mode=emulate as well"
        )
        yield bits.place, quote(bits.value), reason
    elif mode.value == "passthrough":
        reason = (
            "libvirt takes no number of bits with maxphysaddr_mode"
            " passthrough; remove one of the two"
        )
        yield bits.place, quote(bits.value), reason
    elif bits.number not in ADDRESS_BITS:
        yield bits.place, quote(bits.value), TAKEN_ADDRESS_BITS


def _exceeded_video_ram(request: Request) -> Iterator[tuple[str, str, str]]:
    """Yield the image's video memory if the flavor allows less.

    A flavor without a limit allows none (_add_video_driver in Nova's
    virt/libvirt/driver.py, and vmops.py of VMware).
    """
    place = "image property hw_video_ram"
    limit = "hw_video:ram_max_mb"
    raw = request.image_property("hw_video_ram")
    requested = resource_amount(raw) or 0
    allowed = resource_amount(request.extra_spec(limit)) or 0
    if requested > allowed and request.asks_anew(
        place, f"flavor extra spec {limit}"
    ):
        reason = (
            f"the flavor allows {quote(allowed)} MiB of video memory; use one"
            f" with {limit}={quote(requested)}"
        )
        yield place, quote(raw), reason


def _encrypts_memory(request: Request) -> bool:
    """Return whether Nova may leave out the device: it encrypts memory.

    By the property, or by a trait's model.
    """
    return any(
        value_named(request, name)
        for name in ("mem_encryption", "mem_encryption_model")
    )


# hw_compat_2_4 in QEMU's hw/core/machine.c switches off the DMA of fw_cfg.
# Seen with QEMU 7.2 on KVM and without.
_WITHOUT_DMA = (2, 4)
_VERSION_OF_PC = re.compile(
    r"pc-(?:i440fx|q35)-([0-9])\.([0-9]{1,2})", re.ASCII
)


def _is_excused(request: Request, guest: Guest, pair: Incompatible) -> bool:
    for name, values in pair.unless:
        found = value_named(request, name)
        if (
            found
            and found.value in values
            and name not in guest.optional_devices
        ):
            return True
    return False


def advice_of(pair: Incompatible) -> str:
    """Return what to set so that both values work.

    ``hw_usb_model=qemu-xhci``.
    """
    return _setting(*pair.unless[0])


def _setting(name: str, values: Sequence[str]) -> str:
    """Return how an image says the first of these values of a row."""
    return f"{row_named(name).image_property}={values[0]}"


def unknown_configurations(request: Request, rows: Iterable[Row]) -> list[str]:
    """Return the flavor's configurations without a row.

    They start as :attr:`Row.namespace` says.
    """
    rows = tuple(rows)
    namespaces = tuple([row.namespace for row in rows if row.namespace])
    known = {row.extra_spec for row in rows}
    return [
        name
        for name in request.extra_specs
        if str(name).startswith(namespaces) and name not in known
    ]


def _read(request: Request, row: Row) -> Resolved:
    read = _read_as_new(request, row)
    return (
        _as_lived_with(request, row, read)
        if request.server_exists or request.is_rebuild
        else read
    )


def _as_lived_with(request: Request, row: Row, read: Resolved) -> Resolved:
    """Return the reading for a server that exists.

    A contradiction that it has lived with is noted.
    """
    named_otherwise = (
        _named_otherwise(request, row, read.value) if read.value else None
    )
    problem = read.problem() if read.problem else named_otherwise
    if not problem or request.asks_anew(*problem.sources):
        return read
    if named_otherwise:
        # No host has and lacks a trait: that it is named is in the query in
        # any case.
        read = read._replace(value=None)
    first, second = problem.sources
    note = Note(
        first,
        f"it contradicts {second}, with which the server has lived",
        warn=True,
    )
    return read._replace(problem=None, notes=(*read.notes, note))


def _named_otherwise(
    request: Request, row: Row, found: RowValue
) -> ContradictingSources | None:
    """Return the contradiction of a value and a trait named by the request."""
    term = row.values[found.value]
    if not term.trait:
        return None
    wanted, unwanted = sources_naming(request, term.trait)
    against = unwanted if term.required else wanted
    return (
        FlavorImageConflict(str(found.source), str(against[-1]))
        if against
        else None
    )


def _read_as_new(request: Request, row: Row) -> Resolved:
    in_image, in_flavor = raw_values(request, row)
    image_field = (
        request.image_attribute(row.image_attribute)
        if row.image_attribute
        else None
    )
    depends_on = row.depends_on
    is_set = (
        in_image is not None
        or in_flavor is not None
        or image_field is not None
    )
    if (
        not is_set
        and not row.device
        and not (depends_on and depends_on.default)
    ):
        return _NOT_SET
    other = _resolve_named(request, depends_on.row) if depends_on else _NOT_SET
    is_meaningless = depends_on and not (
        other.value and other.value.value in enabling_values(depends_on)
    )
    # Nothing is read of the image of an instance that boots from a volume.
    if (
        other.problem
        or is_meaningless
        or (image_field is not None and request.boots_from_volume)
    ):
        # An unknown value of the other row rejects this one as well; the note
        # on it is that of its own filter.
        return other._replace(value=None, notes=())
    raws = (in_image, image_field, in_flavor)
    read_values = _known_agreed_value if _may_be_kept(raws) else _agreed_value
    read = read_values(row, raws, request.place_of(row.image_property))
    if other.unknown:
        read = read._replace(unknown=other.unknown + read.unknown)
    if row.device and not read.problem:
        read = _switched(request, row.device, read)
    if read.value and not read.problem and row.constraints:
        read = read._replace(
            problem=_violated_constraint(request, row, read.value)
        )
    if (
        depends_on
        and depends_on.default
        and other.value
        and not is_set
        and not row.device
    ):
        source = other.value.source._replace(
            default=f"{row.name} {depends_on.default}"
        )
        return read._replace(value=RowValue(depends_on.default, source))
    return read


_Raws = tuple[object, object, object]


def _agreed_value(row: Row, raws: _Raws, place: str) -> Resolved:
    """Return the one value of image and flavor, or the one that wins.

    :param raws: of image property, image field and extra spec; None for one
        that is not set
    :param place: where the image property is set
    """
    found: RowValue | None = None
    unknown: list[UnknownRowValue] = []
    notes: list[Note] = []
    names = (row.image_property, row.image_attribute, row.extra_spec)
    places = (
        place,
        f"image field {row.image_attribute}",
        f"flavor extra spec {row.extra_spec}",
    )
    sources = list(zip(raws, places, names))
    wins = row.precedence.wins
    for raw, where, name in reversed(sources) if wins == "flavor" else sources:
        if raw is None:
            continue
        if found and wins:
            # Nova does not look at the other value, so that it may also be an
            # unknown one.
            break
        value = row.canonical(raw)
        if value is None and name in BOOLEANS:
            # Nova's image makes False of whatever spells no boolean.
            notes.append(
                Note(
                    where,
                    f"{quote(raw)} is not a boolean: taken as false, as in"
                    " Nova",
                    warn=True,
                )
            )
            value = "false"
        if value is None:
            unknown.append(UnknownRowValue(row, where, raw))
            notes.append(
                Note(
                    where,
                    f"unknown value {quote(raw)}: not required",
                    warn=True,
                )
            )
            if wins:
                # Nova takes it all the same, and does not look at the other
                # one either.
                break
        elif found is None or found.value in row.precedence.flavor_over.get(
            value, ()
        ):
            # Of free text, what its author has written.
            shown = (
                escape_line(str(raw)[:_LONGEST_KEPT])
                if "" in row.spelling.prefixes
                else value
            )
            found = RowValue(value, Source(where, shown, name=str(name)))
        elif found.value != value:
            problem = partial(
                FlavorImageConflict, str(found.source), f"{where}={value}"
            )
            return Resolved(problem=problem)
    return Resolved(found, tuple(unknown), tuple(notes))


# Images and flavors have few different values; reading one and writing its
# texts takes 2.7 us, finding it 0.1.
_known_agreed_value = lru_cache(maxsize=1024)(_agreed_value)
_LONGEST_KEPT = 64


def _may_be_kept(raws: _Raws) -> bool:
    # A tenant must not fill the memory of a scheduler, and what is no text may
    # have no hash. Booleans are what Nova's objects have; numbers are not
    # kept, because 1 and True are one key.
    for raw in raws:
        if raw.__class__ is str:
            if len(str(raw)) > _LONGEST_KEPT:
                return False
        elif raw is not None and raw.__class__ is not bool:
            return False
    return True


def _violated_constraint(
    request: Request, row: Row, found: RowValue
) -> Callable[[], ContradictingSources] | None:
    """Return the error if ``found`` violates its constraints."""
    constraints = row.constraints.get(found.value, _NO_CONSTRAINTS)
    for is_needed, pairs in (
        (False, constraints.incompatible),
        (True, constraints.needs),
    ):
        for name, values in pairs:
            other = _resolve_named(request, name)
            # First: the request is rejected with the same words, whichever of
            # the two rows is read first.
            if other.problem:
                return other.problem
            has_one = other.value is not None and other.value.value in values
            if has_one != is_needed:
                without = f"an image without {_setting(name, values)}"
                return partial(
                    ImpossibleCombination,
                    str(found.source),
                    str(other.value.source) if other.value else without,
                )
    return None


def sources_naming(
    request: Request, trait: str
) -> tuple[list[Source], list[Source]]:
    """Return the sources that require, and that forbid, a trait by name.

    In image and flavor, of a trait of the host.

    Not those in the flavor for a rebuild: the server runs with its flavor, and
    Nova has given it no device by a trait.
    """
    wanted = [source_in_image(trait)] if trait in request.image_traits else []
    unwanted = []
    for suffix, group in (
        request.flavor_groups.items() if not request.is_rebuild else ()
    ):
        if not request.is_of_host(suffix or UNSUFFIXED):
            continue
        if trait in group.required_traits:
            wanted.append(source_in_flavor(trait, suffix, required=True))
        if trait in group.forbidden_traits:
            unwanted.append(source_in_flavor(trait, suffix, required=False))
    return wanted, unwanted


def _switched(request: Request, device: Trait, read: Resolved) -> Resolved:
    """Return whether a device is requested, by its property or by its trait.

    The decision on traits as configuration: a required trait switches the
    device on, so it contradicts a property that switches it off.
    """
    # Most requests name no trait.
    if not request.image_traits and not request.flavor_groups:
        return read
    wanted, unwanted = sources_naming(request, device)
    if read.value:
        (wanted if read.value.value == "true" else unwanted).append(
            read.value.source
        )
    if wanted and unwanted:
        problem = partial(
            FlavorImageConflict, str(wanted[-1]), str(unwanted[-1])
        )
        return read._replace(problem=problem)
    if not wanted:
        return read
    return read._replace(
        value=RowValue("true", wanted[0]._replace(others=tuple(wanted[1:])))
    )
