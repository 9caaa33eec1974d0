# SPDX-License-Identifier: Apache-2.0

"""The differences from Nova, from the list that the tests use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from from_code import FromCode, table
from sphinx.application import Sphinx

from os_prefilter.hosts.drivers.libvirt_facts import version_text
from os_prefilter.hosts.drivers.nova_releases import NOVA_RELEASES
from os_prefilter.request.remarks import IGNORED, OF_HOSTS
from os_prefilter.request.values import advice_of
from os_prefilter.vocabulary import ROWS, row_named
from os_prefilter.vocabulary.model import Incompatible, Row
from tests.against_nova.differences import (
    AGGREGATE_DIFFERENCES,
    DIFFERENCES,
    QUERY,
    Difference,
)
from tests.against_nova.releases import page
from tests.against_nova.sources import (
    BOOT_FIELDS,
    CAPABILITIES,
    REQUIRED,
    Source,
)
from tests.against_nova.upstream import BUGS, TESTED, Bug


def differences() -> Iterator[str]:
    """Yield each difference as reStructuredText: what Nova does, what we do,
    and why.
    """
    for difference in (*DIFFERENCES, *AGGREGATE_DIFFERENCES):
        yield difference.title
        yield "^" * len(difference.title)
        yield ""
        yield f":In: {', '.join(map(_place, difference.of))}"
        yield f":Nova: {difference.nova}"
        yield f":Here: {difference.ours}"
        yield f":Why: {difference.reason}"
        example = _example(difference)
        if example:
            yield f":Shown by: {example}"
        if difference.upstream:
            links = [f":ref:`upstream-{each}`" for each in difference.upstream]
            yield f":Upstream: {'; '.join(links)}"
        yield ""


def _place(name: str) -> str:
    return "the query" if name == QUERY else f":ref:`{name} <filter-{name}>`"


def _example(difference: Difference) -> str:
    said = {**difference.properties, **difference.extra_specs}
    return ", ".join(f"``{name}={value}``" for name, value in said.items())


def nova_releases() -> Iterator[str]:
    """Yield what differs in each release of Nova, as reStructuredText."""
    for number, lists in page():
        known = NOVA_RELEASES[number]
        title = f"Nova {number} ({known.openstack})"
        yield from (title, "~" * len(title), "")
        yield (
            f":Runs on: libvirt {version_text(known.libvirt)} and QEMU"
            f" {version_text(known.qemu)}, or newer"
        )
        queries = [
            each.title
            for each in DIFFERENCES
            if QUERY in each.of and each.since <= number < each.before
        ]
        if queries:
            yield (
                f":Another query: {'; '.join(queries)}"
                " (:ref:`nova-differences`)"
            )
        yield from (f":{heading}: {text}" for heading, text in lists)
        yield ""


def ways_to_ask() -> Iterator[str]:
    """Yield a table of the ways to ask for a value of each row, and what a
    guest of Nova has then.
    """
    yield from table(
        (
            "Image property",
            "Extra spec",
            "Then the guest has it, unless",
            "The trait by name alone",
        ),
        (
            (
                f"``{row.image_property}``" if row.image_property else "",
                f"``{row.extra_spec}``" if row.extra_spec else "",
                _unless(row),
                _by_trait(row),
            )
            for row in ROWS
            if row.required_by and (row.image_property or row.extra_spec)
        ),
    )


def nova_sources() -> Iterator[str]:
    """Yield a table of the capabilities of drivers that no property asks for,
    and one of the fields of a boot request.
    """
    for title, sources in (
        ("Capability of a virt driver", CAPABILITIES),
        ("Field of a boot request", BOOT_FIELDS),
    ):
        yield from table(
            (title, "Verdict", "By what, or why"), map(_source_cells, sources)
        )
        yield ""


def _source_cells(source: Source) -> tuple[str, str, str]:
    names = ", ".join(f"``{name}``" for name in source.names)
    if source.verdict != REQUIRED:
        return names, source.verdict, source.why
    filters = [f":ref:`{each} <filter-{each}>`" for each in source.why.split()]
    return names, source.verdict, ", ".join(filters)


def _unless(row: Row) -> str:
    alike: dict[tuple[Incompatible, ...], list[str]] = {}
    for value, constraints in row.constraints.items():
        incompatible = [
            Incompatible(name, each)
            for name, values in constraints.incompatible
            for each in values
        ]
        incompatible += constraints.incompatible_in_nova
        for pairs in _of_one_kind(incompatible):
            alike.setdefault(pairs, []).append(value)
    notes = []
    if row.name in IGNORED:
        is_rejected = row.depends_on and row.image_property
        verdict = "rejected" if is_rejected else "noted"
        notes.append(f"{verdict}: {IGNORED[row.name]}")
    return ". ".join(
        [
            *(
                _pairs(values, incompatible)
                for incompatible, values in alike.items()
            ),
            *notes,
        ]
    )


def _of_one_kind(
    incompatible: Iterable[Incompatible],
) -> Iterator[tuple[Incompatible, ...]]:
    """Yield the pairs that differ in nothing but the value, together."""
    for _, pairs in groupby(
        incompatible, lambda pair: replace(pair, value="")
    ):
        yield tuple(pairs)


def _pairs(values: list[str], incompatible: tuple[Incompatible, ...]) -> str:
    other, first = row_named(incompatible[0].row), incompatible[0]
    result = "rejected" if first.is_certain else "noted"
    where = f" on hosts with ``{first.on}``" if first.on else ""
    unless = f", unless ``{advice_of(first)}``" if first.unless else ""
    name = (
        f"``{other.image_property}``"
        if other.image_property
        else f"the image's ``{other.image_attribute}``"
    )
    if not first.value:
        return (
            f"{result}{where}: ``{' '.join(values)}`` without {name}{unless}"
        )
    others = " or ".join(f"``{each.value}``" for each in incompatible)
    return (
        f"{result}{where}: ``{' '.join(values)}`` beside {name}"
        f" {others}{unless}"
    )


def _by_trait(row: Row) -> str:
    if row.device:
        return "rejected if the filter of the device is enabled"
    if not row.traits:
        return "has none"
    return (
        "enough: it is about the host"
        if row.name in OF_HOSTS
        else "noted: it chooses a host, and gives no device"
    )


def upstream_bugs() -> Iterator[str]:
    """Yield each bug of other projects as reStructuredText, as one reports
    it.
    """
    for project, bugs in groupby(BUGS, lambda bug: bug.project):
        yield from (project, "-" * len(project), "")
        for bug in bugs:
            yield from (f".. _upstream-{bug.name}:", "")
            yield from (bug.title, "~" * len(bug.title), "")
            yield f":Affected: {_affected(bug)}"
            yield f":What happens: {bug.happens}"
            yield f":Reproducer: ``{bug.reproducer}``"
            yield f":Repair: {bug.repair}"
            if bug.known:
                yield f":Known: {bug.known}"
            yield ""


def _affected(bug: Bug) -> str:
    oldest, newest = TESTED[bug.project]
    first = bug.since or oldest
    if bug.repaired:
        # Not each release before it was tested.
        return f"{bug.project} {first}; repaired in {bug.repaired}"
    versions = f"{first} to {newest}" if first < newest else f"{first}"
    return f"{bug.project} {versions}; not repaired"


class UpstreamBugs(FromCode):
    """``.. upstream-bugs::``."""

    make = staticmethod(upstream_bugs)


class WaysToAsk(FromCode):
    """``.. ways-to-ask::``."""

    make = staticmethod(ways_to_ask)


class NovaSources(FromCode):
    """``.. nova-sources::``."""

    make = staticmethod(nova_sources)


class NovaReleases(FromCode):
    """``.. nova-releases::``."""

    make = staticmethod(nova_releases)


class Differences(FromCode):
    """``.. differences-from-nova::``."""

    make = staticmethod(differences)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("differences-from-nova", Differences)
    app.add_directive("nova-releases", NovaReleases)
    app.add_directive("nova-sources", NovaSources)
    app.add_directive("upstream-bugs", UpstreamBugs)
    app.add_directive("ways-to-ask", WaysToAsk)
    return {"parallel_read_safe": True}
