"""The benchmarks run, and what they say beside times: the same answers on all sides, and numbers of requests.

A time is never asserted: the machine of a test has other things to do.
"""

import os
import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.processes import ran

_FOLDER = Path(__file__).parent.parent / "docs" / "benchmarks"
# Scripts beside each other, of which one says which are benchmarks.
sys.path.append(str(_FOLDER))
NAMES: list[str] = import_module("run").names()


@cache
def _printed(name: str) -> str:
    """Return what a script prints with little data; it asserts itself that its sides answer the same."""
    # MariaDB is measured, not tested, here.
    environment = {key: value for key, value in os.environ.items() if key != "OS_PREFILTER_MARIADB_URL"}
    command = [sys.executable, "-W", "ignore", str(_FOLDER / f"{name}.py"), "small"]
    done = ran(command, environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


# What these do is tested elsewhere: tests/test_mixed_cloud.py, tests/faults/test_load.py.
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("mixed_cloud", "soak")])
def test_each_runs_with_little_data_and_prints_a_table_that_fits_a_page(name: str) -> None:
    printed = _printed(name)
    assert printed
    assert max(map(len, printed.splitlines())) <= 100


def test_reports_take_the_requests_that_are_promised() -> None:
    """One read and no write for an unchanged host; four for the first report of one whose UUID is known."""
    found = dict(re.findall(r"^(.+?)  +(\d+ reads +\d+ writes)", _printed("report"), re.MULTILINE))
    counts = {what: tuple(map(int, re.findall(r"\d+", numbers))) for what, numbers in found.items()}
    assert counts["an unchanged host"] == (1, 0)
    assert counts["the first report of another host"] == (3, 1)
    assert counts["a host whose facts have changed"] == (2, 1)
    assert counts["a host that an operator gave a trait"] == (2, 0)
    assert counts["a first report that names the host"] == (4, 1)


def test_what_does_not_exist_is_not_run() -> None:
    command = [sys.executable, str(_FOLDER / "run.py"), "nosuch"]
    done = ran(command)
    assert done.returncode == 1
    assert "There is no benchmark nosuch. There are: audit" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("name", NAMES)
def test_the_documentation_shows_the_result_of_each_benchmark(name: str) -> None:
    """As ``run.py`` has written it, with a line about the machine: nothing that is measured is left out."""
    result = _FOLDER / "results" / f"{name}.txt"
    pages = "".join(path.read_text(encoding="utf-8") for path in _FOLDER.parent.glob("*.rst"))
    assert f"benchmarks/results/{result.name}" in pages
    assert re.match(r"\d{4}-\d\d-\d\d; .+; Python 3", result.read_text(encoding="utf-8"))


def test_there_is_no_result_of_what_is_no_benchmark() -> None:
    assert {path.stem for path in (_FOLDER / "results").glob("*.txt")} <= set(NAMES)
