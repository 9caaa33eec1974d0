# SPDX-License-Identifier: Apache-2.0

"""The vocabulary: values of a request, and the trait that each requires.

One table, by which hosts report the same traits.

Only this package produces trait names. Request filters, capability reporters,
the driver-side check, the command ``os-prefilter vocabulary list`` and the
documentation read it. The text of a tenant is only looked up here; it never
becomes part of a name.

Other packages may add rows (:mod:`os_prefilter.vocabulary.plugin_rows`). They
are loaded at the first use of :func:`table`, not when this library is
imported, because such a package imports :mod:`os_prefilter.vocabulary.model`.

It has the values that Nova 34 accepts (``nova/objects/fields.py``,
``nova/network/model.py``); names without the prefix ``CUSTOM_`` are those of
os-traits 3.9. A test compares the table with both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from os_prefilter.common.trait_names import CUSTOM_PREFIX, Trait
from os_prefilter.vocabulary.filter_rows import DEVICES as DEVICES
from os_prefilter.vocabulary.filter_rows import FILTERED
from os_prefilter.vocabulary.filter_rows import HPET as HPET
from os_prefilter.vocabulary.filter_rows import (
    HYPERTHREADING as HYPERTHREADING,
)
from os_prefilter.vocabulary.machine_types import I686_FAMILIES
from os_prefilter.vocabulary.model import DependsOn, Row
from os_prefilter.vocabulary.nova_rows import TRANSLATED_BY_NOVA

ROWS: tuple[Row, ...] = (*FILTERED, *TRANSLATED_BY_NOVA)
"""The bundled rows."""

BY_NAME: Mapping[str, Row] = {row.name: row for row in ROWS}
"""The bundled rows by name."""


@cache
def table() -> tuple[Row, ...]:
    """Return the whole table: the bundled rows, then those of other packages.

    :raises UnusableRow: if a package offers one that cannot be used.
    """
    # Late: to find installed packages takes stevedore, which the core does not
    # need otherwise.
    from os_prefilter.vocabulary.plugin_rows import (  # noqa: PLC0415
        installed_rows,
    )

    return (*ROWS, *installed_rows(ROWS))


def row_named(name: str) -> Row:
    """Return a row of the whole table."""
    return BY_NAME.get(name) or next(
        row for row in table() if row.name == name
    )


def enabling_values(depends_on: DependsOn) -> frozenset[str]:
    """Return the values of the other row with which a row has a meaning."""
    terms = row_named(depends_on.row).values.items()
    return depends_on.values or frozenset(
        value for value, term in terms if term.trait
    )


def rows_required_by(name: str) -> tuple[Row, ...]:
    """Return the rows of a request filter, in the order of the table."""
    return tuple(row for row in table() if name in row.required_by)


# The values of which libvirt says something else of guests of i686 than of
# those of x86_64: compared with 9.0 and the guests of tests/guests/starts.
# They have other firmware and another default machine type, and Nova emulates
# them.
_APART_FOR_I686 = (
    ("viommu_model", ("auto", "intel")),
    ("firmware_type", ("uefi",)),
    ("default_machine", sorted(I686_FAMILIES)),
)


def _traits_for_i686() -> Iterator[tuple[Trait, Trait]]:
    for name, values in _APART_FOR_I686:
        for value in values:
            trait = Trait(str(BY_NAME[name].values[value].trait))
            suffix = trait.removeprefix(CUSTOM_PREFIX)
            yield trait, Trait(f"{CUSTOM_PREFIX}I686_{suffix}")


I686: Mapping[Trait, Trait] = dict(_traits_for_i686())
"""Trait -> the trait of the same meaning for guests of i686.

Hosts of x86_64 run such guests, and may differ there.
"""


def _traits_of_lacking_devices() -> Iterator[tuple[Trait, Trait]]:
    for name in ("vif_model", "sound_model"):
        lacking = BY_NAME[f"lacking_{name}"]
        for value, term in lacking.values.items():
            device = BY_NAME[name].values[value]
            yield Trait(str(device.trait)), Trait(str(term.trait))


LACKING: Mapping[Trait, Trait] = dict(_traits_of_lacking_devices())
"""Trait -> the trait of hosts that lack it, although Nova reports it there."""


def opt_in_traits(rows: Iterable[Row] | None = None) -> frozenset[Trait]:
    """Return the traits that no virt driver of Nova reports.

    These are all ``CUSTOM_`` traits, and a few others.

    :param rows: of which; the whole table by default
    """
    rows = table() if rows is None else tuple(rows)
    found = {
        term.trait
        for row in rows
        for term in row.values.values()
        if term.trait and term.opt_in
    }
    for row in rows:
        found.update(I686[trait] for trait in row.traits if trait in I686)
    return frozenset(found)
