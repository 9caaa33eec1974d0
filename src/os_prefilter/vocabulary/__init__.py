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

from collections.abc import Iterable, Mapping
from functools import cache

from os_prefilter.common.trait_names import Trait
from os_prefilter.vocabulary.emulated_architectures import (
    qualify,
    traits_of_emulation,
)
from os_prefilter.vocabulary.emulated_architectures import (
    trait_of_platform as trait_of_platform,
)
from os_prefilter.vocabulary.filter_rows import FILTERED
from os_prefilter.vocabulary.filter_rows import HPET as HPET
from os_prefilter.vocabulary.filter_rows import (
    HYPERTHREADING as HYPERTHREADING,
)
from os_prefilter.vocabulary.machine_types import (
    PLATFORM_ARCHITECTURES,
    guest_architecture,
)
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


QUALIFIED: Mapping[tuple[Trait, str], Trait] = qualify(ROWS)
"""(trait, architecture) -> the trait for guests of that architecture.

It means the same, for the host's own or an emulated one.
"""

TRAITS_OF_EMULATION: Mapping[Trait, str] = traits_of_emulation(QUALIFIED)
"""Trait -> the emulated architecture that it is about.

Reported and required only where the cloud offers to emulate it.
"""


def reported_architecture(trait: Trait | None, architecture: str) -> str:
    """Return the architecture by which hosts report a trait for a guest.

    That of the guest, or of its platform.

    Empty for one of whose guests they report nothing apart, such as sparc.
    """
    if (trait, architecture) in QUALIFIED:
        return architecture
    platform = guest_architecture(architecture)
    return platform if platform in PLATFORM_ARCHITECTURES else ""


def opt_in_traits(rows: Iterable[Row] | None = None) -> frozenset[Trait]:
    """Return the traits that no virt driver of Nova reports.

    These are all ``CUSTOM_`` traits, and a few others.

    :param rows: of which; the whole table by default
    """
    rows = table() if rows is None else tuple(rows)
    own = {
        term.trait
        for row in rows
        for term in row.values.values()
        if term.trait and term.opt_in
    }
    every = {
        trait for row in rows if row.per_architecture for trait in row.traits
    }
    return frozenset(
        (
            *own,
            *(
                name
                for (trait, _), name in QUALIFIED.items()
                if trait in every
            ),
        )
    )
