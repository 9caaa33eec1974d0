# SPDX-License-Identifier: Apache-2.0

"""Translate a request into traits by rows: most filters' logic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from os_prefilter.common.errors import ImpossibleCombination, NeverStarts
from os_prefilter.common.trait_names import Trait
from os_prefilter.request.guest_platform import Guest, guest_of
from os_prefilter.request.requirements import (
    NOTHING,
    ROOT,
    UNSUFFIXED,
    Note,
    Preference,
    Requirement,
    Requirements,
)
from os_prefilter.request.values import (
    Relations,
    RowValue,
    advice_of,
    raw_values,
    relations_of,
    value_of,
)
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import (
    DEVICES,
    I686,
    LACKING,
)
from os_prefilter.vocabulary.model import Row
from os_prefilter.vocabulary.options import Options


class _RowMeaning(NamedTuple):
    """The meaning of a value on a guest's platform.

    A requirement, a preference, or a note why it is neither.
    """

    requirement: Requirement | None
    preference: Preference | None
    note: Note | None
    ruled_out: str
    """The part of the platform that rules the value out; empty if none."""
    incapable: tuple[Requirement, ...]
    """Forbids hosts that lack the value, whatever else they report.

    By their default machine types, which can never have it; and by the trait
    of those where Nova's driver reports it wrongly.
    """


def require_rows(
    request: Request, rows: Sequence[Row], options: Options, scope: str = ROOT
) -> Requirements:
    """Return the requirements of the values that a request gives to rows.

    A value that is not in the vocabulary, or a trait that no host reports,
    costs that one requirement and no other; it becomes a note. What a row in
    ``[prefilter] preferred_properties`` would require becomes a preference.

    :param rows: those of a filter
        (:func:`os_prefilter.request.values.rows_of`)
    :raises UnknownValue: for a value that is not in the vocabulary, if
        ``unknown_values`` is ``reject``.
    :raises FlavorImageConflict: if flavor and image request different values
        of one row.
    :raises ImpossibleCombination: for a device that the machine type, or i686,
        never has.
    :raises NeverStarts: for two values that no guest of Nova has together, if
        Nova builds the guests.
    """
    if not rows:
        return NOTHING
    requirements: list[Requirement] = []
    notes: list[Note] = []
    preferences: list[Preference] = []
    guest = guest_of(request)
    for row in rows:
        found = value_of(request, row, options.unknown_values, notes)
        if not found or row.values[found.value].trait is None:
            continue
        # A device that only a trait by name asks for (trait1:X=required):
        # written_requirements has it, in its group.
        is_written = (
            scope == UNSUFFIXED
            and row.device
            and raw_values(request, row) == (None, None)
        )
        relations = relations_of(
            request, guest, row, found, by_nova=options.nova_builds_guests
        )
        if is_written or relations.is_implied:
            continue
        if relations.incompatible:
            requirements += _start_in_nova(found, relations)
        meaning = _meaning(row, found, guest, options, scope)
        if meaning.preference:
            # Nor does a default machine type that lacks the device exclude a
            # host.
            preferences.append(meaning.preference)
            continue
        if meaning.requirement:
            requirements.append(meaning.requirement)
        elif meaning.note:
            notes.append(meaning.note)
        if scope == ROOT and (meaning.ruled_out or meaning.incapable):
            requirements += _forbid_incapable_defaults(
                request, meaning, found, requirements
            )
    return Requirements(
        tuple(requirements), tuple(notes), preferences=tuple(preferences)
    )


def _start_in_nova(
    found: RowValue, relations: Relations
) -> Iterator[Requirement]:
    """Forbid the hosts on which no guest of Nova has two values at once.

    :raises NeverStarts: if that is every host
    """
    for pair, other in relations.incompatible:
        if not pair.on:
            raise NeverStarts(str(found.source), other, advice_of(pair))
        # Where no host is left, its author reads what to set.
        source = found.source._replace(
            value=f"{found.source.value} without {advice_of(pair)}"
        )
        yield source.requirement(pair.on, False, ROOT)


def forbid_incapable_hosts(
    request: Request, rows: Iterable[Row], options: Options
) -> Requirements:
    """Forbid hosts that lack what others than filters require.

    Such as those with an incapable default machine type.

    :raises ImpossibleCombination: for a device that the machine type, or i686,
        never has.
    :raises NeverStarts: for two values that no guest of Nova has together, if
        Nova builds the guests.
    """
    requirements: list[Requirement] = []
    notes: list[Note] = []
    guest = guest_of(request)
    for row in rows:
        found = value_of(request, row, options.unknown_values, notes)
        if found:
            relations = relations_of(
                request, guest, row, found, by_nova=options.nova_builds_guests
            )
            requirements += _start_in_nova(found, relations)
            if relations.lives_without:
                continue
            meaning = _meaning(row, found, guest, options)
            requirements += _forbid_incapable_defaults(
                request, meaning, found, requirements
            )
    # An unknown value is the query's to note. What a server has lived with
    # rejects no move, neither here nor there.
    return Requirements(
        tuple(requirements), tuple(notes) if request.server_exists else ()
    )


def _forbid_incapable_defaults(
    request: Request,
    meaning: _RowMeaning,
    found: RowValue,
    requirements: Iterable[Requirement],
) -> list[Requirement]:
    """Forbid default machine types that cannot have the value.

    One that is among ``requirements`` already is not repeated: many devices
    need a PCI bus.

    :raises ImpossibleCombination: if the request names such a machine type, or
        i686, which has no other.
    """
    if meaning.ruled_out and request.asks_anew(
        str(found.source), meaning.ruled_out
    ):
        raise ImpossibleCombination(str(found.source), meaning.ruled_out)
    known = {item.trait for item in requirements}
    return [item for item in meaning.incapable if item.trait not in known]


# There are some hundred values, a few platforms and one set of options; many
# more with what tests try. With the texts of sources and the requirements
# themselves: made for each request, they took a fifth of the time of
# image_metadata.
@lru_cache(maxsize=4096)
def _meaning(
    row: Row,
    found: RowValue,
    guest: Guest,
    options: Options,
    scope: str = ROOT,
) -> _RowMeaning:
    value, source = found
    term = row.values[value]
    ruled_out = guest.what_rules_out(row.name, value)
    defaults = guest.default_machines_without(row.name, value)
    reported = tuple(filter(options.reports, defaults))
    trait = Trait(str(term.trait))
    opt_in = term.opt_in
    if guest.is_i686 and trait in I686 and options.reports(I686[trait]):
        trait = I686[trait]
        opt_in = True
    # Exactly one is set below.
    requirement = preference = note = None
    if guest.emulated and row.name in DEVICES:
        note = Note(
            str(source), _NOT_MATCHED.format(guest.emulated), warn=True
        )
    elif options.prefers(row):
        preference = Preference(trait, str(source))
    elif opt_in and not options.reports(trait):
        note = Note(
            str(source),
            f"{trait} is not in [prefilter] reported_traits: not required",
        )
    else:
        requirement = source.requirement(trait, term.required, scope)
    incapable = [
        source.requirement(default, False, ROOT) for default in reported
    ]
    if requirement and options.forbids_lacking(trait):
        incapable.append(source.requirement(LACKING[trait], False, ROOT))
    return _RowMeaning(
        requirement, preference, note, ruled_out, tuple(incapable)
    )


_NOT_MATCHED = (
    "not required: hosts report the devices of guests of their own"
    " architecture, not of emulated ones ({}); boot one to see whether it has"
    " the device, or set hw_architecture instead of hw_emulation_architecture"
    " to use hosts of that architecture"
)
