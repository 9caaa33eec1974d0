"""The simulated mixed cloud, a small one: what it says of each way but for times."""

import sys

import pytest

from tests.support.processes import ran

WAYS = ("no filter", "properties", "prefilters", "both", "os-prefilter")

Table = dict[str, dict[str, str]]
"""Label -> way -> value."""


@pytest.fixture(scope="module")
def printed() -> str:
    """Return what the benchmark prints; it fails where a law is broken."""
    done = ran([sys.executable, "-W", "ignore", "-m", "tests.benchmarks.mixed_cloud", "small"])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def table(printed: str) -> Table:
    """Return the lines of all tables."""
    return table_of(printed)


def table_of(printed: str) -> Table:
    lines = [(line[:35].strip(), line[35:]) for line in printed.splitlines() if len(line) == 100 and line[35:].strip()]
    return {
        label: {way: values[13 * index :][:13].strip() for index, way in enumerate(WAYS)}
        for label, values in lines
        if not label.startswith("-")
    }


def test_os_prefilter_has_no_late_failure_and_excludes_no_capable_host(printed: str, table: Table) -> None:
    """The law of the project, on a Placement with claims and through Nova's own scheduler."""
    assert "os-prefilter: no late failure, no able host excluded.\n" in printed
    ours = {label: values["os-prefilter"] for label, values in table.items()}
    assert ours["late failures"] == "0"
    assert ours["able hosts excluded, of all able"].split() == ["0", "0%"]
    assert ours["attempts for a request that ran"] == "1.00"
    assert ours["that ran"] == ours["requests that some host could do"]
    assert ours["refused before any was tried"] == ours["requests that no host could do"]


def test_other_approaches_show_late_failures_or_exclude_capable_hosts(table: Table) -> None:
    """Each has the fault that it is known for: without it, the comparison would show nothing."""
    late, excluded = table["late failures"], table["able hosts excluded, of all able"]
    assert int(late["no filter"]) > int(late["properties"]) > 0
    assert int(late["no filter"]) > int(late["prefilters"]) > 0
    assert excluded["no filter"].split()[0] == excluded["properties"].split()[0] == "0"
    assert int(excluded["prefilters"].split()[0]) > 0
    assert excluded["both"] == excluded["prefilters"]


def test_every_approach_gets_the_same_number_of_requests(table: Table) -> None:
    rows = ("requests that some host could do", "requests that no host could do")
    assert len({sum(int(table[row][way]) for row in rows) for way in WAYS}) == 1
