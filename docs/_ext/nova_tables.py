"""The differences from Nova, from the list that the tests use."""

from collections.abc import Iterator

from from_code import FromCode
from sphinx.application import Sphinx

from os_prefilter.hosts.drivers.libvirt_facts import version_text
from os_prefilter.hosts.drivers.nova_releases import NOVA_RELEASES
from tests.against_nova.differences import AGGREGATE_DIFFERENCES, DIFFERENCES, QUERY, Difference
from tests.against_nova.releases import page


def differences() -> Iterator[str]:
    """Yield each difference as reStructuredText: what Nova does, what we do, and why."""
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
        yield f":Runs on: libvirt {version_text(known.libvirt)} and QEMU {version_text(known.qemu)}, or newer"
        queries = [each.title for each in DIFFERENCES if QUERY in each.of and each.since <= number < each.before]
        if queries:
            yield f":Another query: {'; '.join(queries)} (:ref:`nova-differences`)"
        yield from (f":{heading}: {text}" for heading, text in lists)
        yield ""


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
    return {"parallel_read_safe": True}
