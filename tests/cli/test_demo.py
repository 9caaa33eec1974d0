# SPDX-License-Identifier: Apache-2.0

"""The demo: what it prints, and that it fits the screen."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import pytest

from os_prefilter_tools.cli import demo
from os_prefilter_tools.cli.main import main
from os_prefilter_tools.operators.examples import example_requests
from tests.support.commands import Capture
from tests.support.pages import ROOT


def _run_demo(*arguments: str) -> str:
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()):
        assert main(["demo", *arguments]) == 0
    return out.getvalue()


@pytest.fixture(scope="module")
def printed() -> str:
    return _run_demo()


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_run_demo("-f", "json"))
    return found


def test_the_readme_shows_how_the_demo_begins(printed: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first = printed.splitlines()[0]
    excerpt = []
    for line in readme[readme.index(f"    {first}\n") :].splitlines():
        if line and not line.startswith("    "):
            break
        excerpt.append(line[4:])
    assert sum(line.startswith("  hosts: ") for line in excerpt) >= 3
    assert printed.startswith("\n".join(excerpt).rstrip() + "\n")


def test_the_first_sentence_counts_the_rows(
    printed: str, rows: list[dict[str, Any]]
) -> None:
    also = sum(len(row["Without filters, also"]) for row in rows)
    remain = sum(len(row["Hosts that remain"]) for row in rows)
    assert " ".join(printed.splitlines()[:2]) == (
        f"{len(rows)} requests, 11 hosts in a real Placement on SQLite."
        f" Without the filters Placement offers them {also + remain} hosts in"
        f" all, {also} of which cannot serve the request; 1 request no host"
        " can serve."
    )


def test_what_every_request_requires_stands_once(printed: str) -> None:
    assert printed.count("!COMPUTE_STATUS_DISABLED") == 1
    assert printed.count("COMPUTE_IMAGE_TYPE_") == 1
    assert printed.count("OWNER_NOVA (owner)") == 1


def test_a_piped_demo_fits_a_screen(printed: str) -> None:
    lines = printed.splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 45


@pytest.mark.parametrize(
    ("terminal", "width"), [(120, 100), (80, 80)], ids=["120", "80"]
)
def test_the_demo_fits_the_terminal(
    terminal: int,
    width: int,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo, "terminal_width", lambda: terminal)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["demo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert width - 10 < max(map(len, lines)) <= width
    for name in example_requests():
        assert sum(line.startswith(f"{name}: ") for line in lines) == 1


def test_without_filters_nova_still_excludes_disabled_hosts(
    rows: list[dict[str, Any]],
) -> None:
    for row in rows:
        assert "kvm-old-3" not in row["Without filters, also"]


def test_a_table_of_chosen_columns_is_still_possible(capsys: Capture) -> None:
    assert main(["demo", "-c", "Hosts that remain"]) == 0
    table, notes = capsys.readouterr()
    assert "| Hosts that remain " in table
    assert "11 hosts in a real Placement on SQLite; filters: " in notes
