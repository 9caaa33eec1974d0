# SPDX-License-Identifier: Apache-2.0

"""Rows that other packages add to the table.

They are offered under the entry point group ``os_prefilter.vocabulary``.

A row that does not load, or that would make the table ambiguous, is an error
and never skipped: requests would be scheduled as if they did not have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from os_prefilter.common.entry_points import (
    installed_entry_points,
    load_entry_point,
)
from os_prefilter.common.errors import UnusableRow
from os_prefilter.common.quoting import quote
from os_prefilter.common.trait_names import (
    CUSTOM_PREFIX,
    is_trait_name,
    standard_traits,
)
from os_prefilter.vocabulary.model import RESERVED, Row, Term

GROUP = "os_prefilter.vocabulary"


def installed_rows(bundled: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows of all installed packages, in the order of their names.

    :raises UnusableRow: for one that is offered twice, does not load, or
        contradicts the others.
    """
    found: list[Row] = []
    for name in installed_entry_points(GROUP):
        row = load_entry_point(GROUP, name, partial(UnusableRow, name))
        if not isinstance(row, Row):
            raise UnusableRow(
                name,
                f"it is a {type(row).__name__}, not an"
                " os_prefilter.vocabulary.model.Row",
            )
        if not isinstance(row.values, Mapping) or not all(
            isinstance(term, Term) for term in row.values.values()
        ):
            raise UnusableRow(
                name,
                "its values are a mapping of texts to"
                " os_prefilter.vocabulary.model.Term",
            )
        others = (*bundled, *found)
        for problem in chain(
            _problems(name, row),
            _wrong_values(row),
            _wrong_traits(row),
            _doubles(row, others),
        ):
            raise UnusableRow(name, problem)
        found.append(row)
    rows = {row.name: row for row in (*bundled, *found)}
    for row in found:
        for problem in _find_dangling(row, rows):
            raise UnusableRow(row.name, problem)
    return tuple(found)


def _problems(name: str, row: Row) -> Iterator[str]:
    """Yield the problems of a row by itself."""
    if row.name != name:
        yield (
            f"it calls itself {quote(row.name)}; its entry point must have the"
            " same name"
        )
    if not row.image_property and not row.extra_spec:
        yield "it names neither an image property nor a flavor extra spec"
    if row.image_attribute or "query" in row.required_by:
        yield (
            "image_attribute and required_by 'query' are for the bundled rows"
            " alone"
        )
    if row.precedence.wins not in ("", "image", "flavor"):
        yield (
            f"wins is {quote(row.precedence.wins)}, not 'image', 'flavor'"
            " or ''"
        )
    required_by: object = row.required_by
    if not isinstance(required_by, tuple):
        yield "required_by is a tuple of names of filters"
    for unknown in sorted(
        set(row.required_by)
        - installed_entry_points("os_prefilter.request_filters").keys()
    ):
        yield (
            f"required_by names the filter {quote(unknown)}, which no"
            " installed package offers"
        )


def _wrong_values(row: Row) -> Iterator[str]:
    if not row.values:
        yield "it has no values"
    spelling = row.spelling
    default = row.depends_on and row.depends_on.default
    if spelling.ignores_case and any(
        value != value.lower() for value in row.values
    ):
        yield (
            "with any_case, or older spellings, its values are written in"
            " lower case"
        )
    for value in (
        *spelling.older.values(),
        *spelling.prefixes.values(),
        default,
    ):
        if value is not None and value not in row.values:
            yield f"{quote(value)} is not among its values"


def _wrong_traits(row: Row) -> Iterator[str]:
    for trait in sorted(map(str, row.traits)):
        if not is_trait_name(trait):
            yield (
                f"{quote(trait)} is no name of a trait: A-Z, 0-9 and _, 255"
                " characters at most"
            )
        elif (
            not trait.startswith(CUSTOM_PREFIX)
            and trait not in standard_traits()
        ):
            yield (
                f"{quote(trait)} is no trait of os-traits, and no name that"
                f" begins with {CUSTOM_PREFIX}"
            )
        elif trait.startswith(RESERVED):
            yield (
                f"{trait} is reserved: schedulers and agents use names that"
                f" begin with {RESERVED}"
            )


def _doubles(row: Row, others: Iterable[Row]) -> Iterator[str]:
    """Yield the properties and traits that other rows have already."""
    for other in others:
        if other.name == row.name:
            yield "there is a row of that name already"
        for what in _places(row) & _places(other):
            yield f"{what} belongs to the row {other.name} already"
        for trait in sorted(row.traits & other.traits):
            yield f"the trait {trait} belongs to the row {other.name} already"


def _places(row: Row) -> set[str]:
    properties = filter(None, (row.image_property, *row.legacy_names))
    extra_specs = filter(None, (row.extra_spec,))
    return {
        *(f"the image property {name}" for name in properties),
        *(f"the extra spec {name}" for name in extra_specs),
    }


def _find_dangling(row: Row, rows: Mapping[str, Row]) -> Iterator[str]:
    """Yield the rows and values that it refers to and that do not exist."""
    depends_on = row.depends_on
    others = (
        [(depends_on.row, value) for value in depends_on.values or {""}]
        if depends_on
        else []
    )
    for constraints in row.constraints.values():
        for name, values in (*constraints.incompatible, *constraints.needs):
            others += [(name, value) for value in values]
        for pair in constraints.incompatible_in_nova:
            others.append((pair.row, pair.value))
        others += filter(None, (constraints.implied_by,))
    for name, value in others:
        if name not in rows or (value and value not in rows[name].values):
            yield (
                f"it refers to the value {quote(value)} of a row"
                f" {quote(name)}, which does not exist"
            )
