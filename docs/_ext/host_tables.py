"""Tables of host capabilities, generated from the reporters."""

from collections.abc import Iterable, Iterator

from from_code import FromCode, table
from sphinx.application import Sphinx

from os_prefilter.hosts.drivers.libvirt import VERSIONS
from os_prefilter.hosts.drivers.libvirt_facts import Version, version_text
from os_prefilter.hosts.drivers.vmware import REPORTER, VmwareFacts
from os_prefilter.hosts.guest_starts import NOT_KNOWN, REFUSED, STARTS, Record, records
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.machine_types import FAMILIES_WITHOUT, MACHINE_PREFIXES, MACHINES, OTHER

_FAMILIES = (*MACHINES, OTHER)


def libvirt_versions() -> Iterator[str]:
    """Yield the values that need newer versions on a libvirt host."""
    yield from table(
        ("Value", "libvirt", "QEMU"),
        (
            (
                _requested([row], [value]) + (f", for guests of {needs.guest}" if needs.guest else ""),
                _version(needs.libvirt),
                _version(needs.qemu) if needs.qemu >= needs.since_qemu else f"{_version(needs.since_qemu)} and newer",
            )
            for (row, value), needs in VERSIONS.items()
        ),
    )


def machine_types() -> Iterator[str]:
    """Yield the families of machine types that can be named."""
    yield from table(
        ("Family", "Machine types", "Guests of"),
        ((family, _values(_names(family)), ", ".join(guests)) for family, guests in MACHINES.items()),
    )


def never() -> Iterator[str]:
    """Yield what a family of machine types can never have; equal rows and values share a line."""
    rows: dict[tuple[str, frozenset[str]], list[str]] = {}
    for (row, value), without in FAMILIES_WITHOUT.items():
        rows.setdefault((value, without), []).append(row)
    values: dict[tuple[tuple[str, ...], frozenset[str]], list[str]] = {}
    for (value, without), of_rows in rows.items():
        values.setdefault((tuple(of_rows), without), []).append(value)
    yield from table(
        ("Value", "Possible on", "Never on"),
        (
            (_requested(of_rows, found), _families(set(_FAMILIES) - without), _families(without))
            for (of_rows, without), found in values.items()
        ),
    )


def guest_starts() -> Iterator[str]:
    """Yield the outcomes of started guests; values with equal outcomes share a line."""
    columns = {(record.libvirt, record.nova): "" for record in records()}
    found: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for platform, row, value in _requested_of_guests():
        answers = tuple(_answer(column, platform, row, value) for column in columns)
        found.setdefault((platform, row, answers), []).append(value)
    yield from table(
        (
            "Guest",
            "Value",
            *(f"libvirt {libvirt}, {f'Nova {nova}' if nova else 'ours'}" for libvirt, nova in columns),
        ),
        (
            (platform, _requested([row], values) if row else "nothing else", *answers)
            for (platform, row, answers), values in found.items()
        ),
    )


def _requested_of_guests() -> Iterator[tuple[str, str, str]]:
    every = (
        (platform, row, value)
        for record in records()
        for platform, rows in record.guests.items()
        for row, outcomes in rows.items()
        for value in outcomes
    )
    yield from dict.fromkeys(sorted(every, key=lambda each: (" " not in each[0], each)))


def _answer(column: tuple[str, int | None], platform: str, row: str, value: str) -> str:
    """Return the outcome of a guest; where it is not the same with KVM and without, both."""
    outcomes = {
        record.virt_type: record.guests.get(platform, {}).get(row, {}).get(value, "").partition(":")[0]
        for record in records()
        if (record.libvirt, record.nova) == column
    }
    told = {virt_type: answer for virt_type, answer in outcomes.items() if answer}
    if len(set(told.values())) <= 1:
        return next(iter(told.values()), "not tried")
    return ", ".join(f"{virt_type}: {answer}" for virt_type, answer in sorted(told.items()))


def guest_numbers() -> Iterator[str]:
    """Yield how many guests were started with each libvirt, and who wrote their XML."""
    yield from table(
        ("libvirt", "QEMU", "Type", "Built by", "Guests", "Start", "Refused", "Not known"),
        (
            (
                record.libvirt,
                record.qemu,
                record.virt_type,
                f"Nova {record.nova}" if record.nova else "our settings",
                str(record.number),
                *(str(_count(record, answer)) for answer in (STARTS, REFUSED, NOT_KNOWN)),
            )
            for record in records()
        ),
    )


def _count(record: Record, answer: str) -> int:
    outcomes = (each for rows in record.guests.values() for row in rows.values() for each in row.values())
    return sum(outcome.partition(":")[0] == answer for outcome in outcomes)


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
        ("Property", "Values"), ((f"``{name}``", _values(values)) for name, values in can.items() if values)
    )


def _requested(rows: Iterable[str], values: Iterable[str]) -> str:
    """Return how a request asks for these values of these rows."""
    return f"{_values(str(BY_NAME[row].image_property) for row in rows)}: {_values(values)}"


def _values(values: Iterable[str]) -> str:
    return ", ".join(f"``{value}``" for value in values)


def _names(family: str) -> Iterator[str]:
    yield family
    yield from (f"{prefix}*" for prefix, of in MACHINE_PREFIXES.items() if of == family)


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


class GuestStarts(FromCode):
    """``.. guest-starts::``."""

    make = staticmethod(guest_starts)


class GuestNumbers(FromCode):
    """``.. guest-numbers::``."""

    make = staticmethod(guest_numbers)


class VmwareCan(FromCode):
    """``.. vmware-can::``."""

    make = staticmethod(vmware_can)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("libvirt-versions", LibvirtVersions)
    app.add_directive("machine-types", MachineTypes)
    app.add_directive("never-table", NeverTable)
    app.add_directive("guest-starts", GuestStarts)
    app.add_directive("guest-numbers", GuestNumbers)
    app.add_directive("vmware-can", VmwareCan)
    return {"parallel_read_safe": True}
