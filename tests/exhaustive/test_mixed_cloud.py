"""The simulated mixed cloud, a small one: what it says of each way but for times."""

import re
import sys
from pathlib import Path

import pytest

from tests.support.processes import ran

BENCHMARKS = Path(__file__).parent.parent / "docs" / "benchmarks"
WAYS = ("no filter", "properties", "prefilters", "both", "os-prefilter")

Table = dict[str, dict[str, str]]
"""Label -> way -> value."""


@pytest.fixture(scope="module")
def printed() -> str:
    """Return what the benchmark prints; it fails where a law is broken."""
    command = [sys.executable, "-W", "ignore", str(BENCHMARKS / "mixed_cloud.py"), "small"]
    done = ran(command)
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


def test_it_is_plain_text_no_wider_than_100(printed: str) -> None:
    assert printed.isascii()
    assert max(map(len, printed.splitlines())) == 100


def test_os_prefilter_fails_nowhere_and_excludes_no_host_that_can(printed: str, table: Table) -> None:
    """The law of the project, on a Placement with claims and through Nova's own scheduler."""
    assert "os-prefilter: no late failure, no able host excluded.\n" in printed
    ours = {label: values["os-prefilter"] for label, values in table.items()}
    assert ours["late failures"] == "0"
    assert ours["able hosts excluded, of all able"].split() == ["0", "0%"]
    assert ours["attempts for a request that ran"] == "1.00"
    assert ours["that ran"] == ours["requests that some host could do"]
    assert ours["refused before any was tried"] == ours["requests that no host could do"]


def test_the_other_ways_are_really_tried(table: Table) -> None:
    """Each has the fault that it is known for: without it, the comparison would show nothing."""
    late, excluded = table["late failures"], table["able hosts excluded, of all able"]
    assert int(late["no filter"]) > int(late["properties"]) > 0
    assert int(late["no filter"]) > int(late["prefilters"]) > 0
    assert excluded["no filter"].split()[0] == excluded["properties"].split()[0] == "0"
    assert int(excluded["prefilters"].split()[0]) > 0
    assert excluded["both"] == excluded["prefilters"]


def test_each_way_gets_the_same_requests(table: Table) -> None:
    rows = ("requests that some host could do", "requests that no host could do")
    assert len({sum(int(table[row][way]) for row in rows) for way in WAYS}) == 1


def test_the_plot_of_the_documentation_is_small_and_has_no_date() -> None:
    text = (BENCHMARKS / "results" / "mixed_cloud.svg").read_text(encoding="utf-8")
    assert len(text) < 100 * 1024
    assert "dc:date" not in text
    assert all(way in text for way in WAYS)


def test_the_numbers_of_the_plot_are_those_of_the_result_beside_it() -> None:
    """Both are written by one run: neither is kept from an older one."""
    results = table_of((BENCHMARKS / "results" / "mixed_cloud.txt").read_text(encoding="utf-8"))
    could, ran = results["requests that some host could do"], results["that ran"]
    every = {way: _number(could[way]) + _number(results["requests that no host could do"][way]) for way in WAYS}
    bars = [
        [f"{100 * (1 - _number(ran[way]) / _number(could[way])):,.0f}" for way in WAYS],
        [f"{100 * _number(results['late failures'][way]) / every[way]:,.0f}" for way in WAYS],
        *([results[label][way] for way in WAYS] for label in ("candidates, median", "candidates, 95th percentile")),
        *([results[f"ms for the whole request, {which}"][way] for way in WAYS] for which in ("median", "95th p.")),
    ]
    svg = (BENCHMARKS / "results" / "mixed_cloud.svg").read_text(encoding="utf-8")
    # The labels of the axes are larger.
    written = re.findall(r"<text style=\"font-size: 8px[^>]*>([\d,]+)</text>", svg)
    assert written == [number for measure in bars for number in measure]


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def test_without_matplotlib_nothing_is_measured() -> None:
    """The run would take hours, and leave an old plot beside new tables."""
    script = (
        "import runpy, sys; sys.modules['matplotlib'] = None; path = sys.argv.pop(); sys.path.insert(0, path); "
        "runpy.run_path(path + '/mixed_cloud.py', run_name='__main__')"
    )
    command = [sys.executable, "-c", script, str(BENCHMARKS)]
    done = ran(command)
    assert (done.returncode, done.stdout) == (1, "")
    assert "matplotlib, which is not installed" in done.stderr
