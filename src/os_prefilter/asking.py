"""From rows of the vocabulary and a request to requirements: the one loop that most filters are."""

from collections.abc import Iterable

from os_prefilter.errors import FlavorImageConflict, UnknownValue, shown
from os_prefilter.options import Options
from os_prefilter.request import Request
from os_prefilter.requirements import NOTHING, ROOT, Note, Requirement, Requirements
from os_prefilter.terms import Row


def ask(request: Request, rows: Iterable[Row], options: Options, scope: str = ROOT) -> Requirements:
    """Return what ``request`` asks for by ``rows``.

    A value that is not in the vocabulary, or a trait that no host reports, costs that one requirement and no other; it
    becomes a note.

    :raises UnknownValue: for a value that is not in the vocabulary, if ``unknown_values`` is ``reject``.
    :raises FlavorImageConflict: if flavor and image ask for different values of one row.
    """
    asked: list[Requirement] = []
    notes: list[Note] = []
    for row in rows:
        found = chosen(request, row, options, notes)
        if found:
            value, source = found
            term = row.values[value]
            if term.trait is None:
                continue
            if term.opt_in and not options.reports(term.trait):
                notes.append(Note(source, f"{term.trait} is not in [prefilter] reported_traits: not asked for"))
            else:
                asked.append(Requirement(term.trait, term.required, scope, source))
    return Requirements(tuple(asked), tuple(notes)) if asked or notes else NOTHING


def chosen(request: Request, row: Row, options: Options, notes: list[Note]) -> tuple[str, str] | None:
    """Return the canonical value that image and flavor give to ``row``, and its source; None if they give none."""
    in_image = request.image_property(row.image_property) if row.image_property else None
    in_flavor = request.extra_spec(row.extra_spec) if row.extra_spec else None
    of_image = request.image_attribute(row.image_attribute) if row.image_attribute else None
    # Nearly every row of nearly every request: nothing there.
    if in_image is None and in_flavor is None and of_image is None:
        return None
    found: tuple[str, str] | None = None
    for raw, place in (
        (in_image, f"image property {row.image_property}"),
        (in_flavor, f"flavor extra spec {row.extra_spec}"),
        (of_image, f"image field {row.image_attribute}"),
    ):
        value = None if raw is None else _known(raw, place, row, options, notes)
        if value is None:
            continue
        if found and found[0] != value:
            raise FlavorImageConflict(found[1], f"{place}={value}")
        found = found or (value, f"{place}={value}")
    return found


def _known(raw: object, place: str, row: Row, options: Options, notes: list[Note]) -> str | None:
    value = row.canonical(raw)
    if value is None:
        if options.reject_unknown_values:
            raise UnknownValue(place, raw, row.values)
        notes.append(Note(place, f"unknown value {shown(raw)}: not asked for", warn=True))
    return value
