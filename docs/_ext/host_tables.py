# SPDX-License-Identifier: Apache-2.0

"""Tables of host capabilities, generated from the reporters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from from_code import FromCode, table
from sphinx.application import Sphinx

from os_prefilter.hosts.drivers.libvirt import VERSIONS
from os_prefilter.hosts.drivers.libvirt_facts import Version, version_text
from os_prefilter.hosts.drivers.vmware import REPORTER, VmwareFacts
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.machine_types import (
    FAMILIES_WITHOUT,
    MACHINE_PREFIXES,
    MACHINES,
    OTHER,
)

_FAMILIES = (*MACHINES, OTHER)


def libvirt_versions() -> Iterator[str]:
    """Yield the values that need newer versions on a libvirt host."""
    yield from table(
        ("Value", "libvirt", "QEMU"),
        (
            (
                _requested([row], [value]),
                _version(needs.libvirt),
                (
                    _version(needs.qemu)
                    if needs.qemu >= needs.since_qemu
                    else f"{_version(needs.since_qemu)} and newer"
                ),
            )
            for (row, value), needs in VERSIONS.items()
        ),
    )


def machine_types() -> Iterator[str]:
    """Yield the families of machine types that can be named."""
    yield from table(
        ("Family", "Machine types", "Guests of"),
        (
            (family, _values(_names(family)), ", ".join(guests))
            for family, guests in MACHINES.items()
        ),
    )


def never() -> Iterator[str]:
    """Yield what a family of machine types can never have; equal rows and
    values share a line.
    """
    rows: dict[tuple[str, frozenset[str]], list[str]] = {}
    for (row, value), without in FAMILIES_WITHOUT.items():
        rows.setdefault((value, without), []).append(row)
    values: dict[tuple[tuple[str, ...], frozenset[str]], list[str]] = {}
    for (value, without), of_rows in rows.items():
        values.setdefault((tuple(of_rows), without), []).append(value)
    yield from table(
        ("Value", "Possible on", "Never on"),
        (
            (
                _requested(of_rows, found),
                _families(set(_FAMILIES) - without),
                _families(without),
            )
            for (of_rows, without), found in values.items()
        ),
    )


def vmware_can() -> Iterator[str]:
    """Yield the values that VMware hosts support."""
    facts = VmwareFacts()
    rows = (row for row in BY_NAME.values() if row.name in REPORTER.owns)
    can = {
        row.image_property or row.image_attribute: [
            value
            for value, term in row.values.items()
            if term.trait and not REPORTER.refusal(facts, row.name, value, "")
        ]
        for row in rows
    }
    yield from table(
        ("Property", "Values"),
        (
            (f"``{name}``", _values(values))
            for name, values in can.items()
            if values
        ),
    )


def _requested(rows: Iterable[str], values: Iterable[str]) -> str:
    """Return how a request asks for these values of these rows."""
    return (
        f"{_values(str(BY_NAME[row].image_property) for row in rows)}:"
        f" {_values(values)}"
    )


def _values(values: Iterable[str]) -> str:
    return ", ".join(f"``{value}``" for value in values)


def _names(family: str) -> Iterator[str]:
    yield family
    yield from (
        f"{prefix}*" for prefix, of in MACHINE_PREFIXES.items() if of == family
    )


def _families(families: Iterable[str]) -> str:
    return ", ".join(sorted(families, key=_FAMILIES.index))


def _version(version: Version) -> str:
    return version_text(version) if any(version) else "any"


class LibvirtVersions(FromCode):
    """``.. libvirt-versions::``."""

    make = staticmethod(libvirt_versions)


class MachineTypes(FromCode):
    """``.. machine-types::``."""

    make = staticmethod(machine_types)


class NeverTable(FromCode):
    """``.. never-table::``."""

    make = staticmethod(never)


class VmwareCan(FromCode):
    """``.. vmware-can::``."""

    make = staticmethod(vmware_can)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("libvirt-versions", LibvirtVersions)
    app.add_directive("machine-types", MachineTypes)
    app.add_directive("never-table", NeverTable)
    app.add_directive("vmware-can", VmwareCan)
    return {"parallel_read_safe": True}
