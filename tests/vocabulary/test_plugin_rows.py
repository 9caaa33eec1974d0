# SPDX-License-Identifier: Apache-2.0

"""Rows that other packages add to the vocabulary: they take part in
everything, or the service does not start.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from textwrap import dedent
from typing import Literal

import pytest
from stevedore.extension import ExtensionManager

from os_prefilter import Options, Request, vocabulary
from os_prefilter.common.errors import FlavorImageConflict, UnusableRow
from os_prefilter.request.row_requirements import require_rows
from os_prefilter.vocabulary import ROWS, row_named
from os_prefilter.vocabulary.model import Precedence, Row, terms
from os_prefilter.vocabulary.plugin_rows import GROUP, installed_rows
from tests.conftest import spec_of

_WATCHDOG = """
from os_prefilter.vocabulary.model import Row, nothing, terms

WATCHDOG = Row(
    "acme_watchdog",
    terms("CUSTOM_ACME_WATCHDOG", "reset pause") | {"disabled": nothing("there is none")},
    image_property="acme_watchdog",
    extra_spec="acme:watchdog",
)
"""


Offer = Callable[[dict[str, str]], None]


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Offer:
    """Return a function that installs rows: name -> Python of the row."""

    def offer(rows: dict[str, str]) -> None:
        points = []
        for number, (name, code) in enumerate(rows.items()):
            module = f"rows_of_{abs(hash(str(tmp_path)))}_{number}"
            (tmp_path / f"{module}.py").write_text(
                f"from os_prefilter.vocabulary.model import *\nROW = {code}\n"
            )
            points.append(EntryPoint(name, f"{module}:ROW", GROUP))
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setitem(ExtensionManager.ENTRY_POINT_CACHE, GROUP, points)

    return offer


def _row(*arguments: str, name: str = "mine") -> str:
    """Return the Python of a row that switches a trait of its own."""
    parts = [
        f"'{name}', switch('CUSTOM_{name.upper()}')",
        f"image_property='hw_{name}'",
        *arguments,
    ]
    return f"Row({', '.join(parts)})"


_CONSTRAINTS = (
    "constraints={'true': Constraints("
    "incompatible=(('vif_model', ('igb',)),),"
    " needs=(('vif_model', ('e1000e',)),))}"
)
_UNUSABLE: dict[str, str] = {
    "it is a dict, not an os_prefilter.vocabulary.model.Row": "{}",
    "does not load: ZeroDivisionError": "1 / 0",
    "neither an image property nor a flavor extra spec": (
        "Row('mine', switch('CUSTOM_MINE'))"
    ),
    "it has no values": "Row('mine', {}, extra_spec='hw:mine')",
    "'b' is not among its values": _row(
        "depends_on=DependsOn('vif_model', default='b')"
    ),
    "'COMPUTE_NO' is no trait of os-traits": (
        "Row('mine', terms('COMPUTE', 'no'), extra_spec='x')"
    ),
    "'CUSTOM_a-b_NO' is no name of a trait": (
        "Row('mine', terms('CUSTOM_a-b', 'no'), extra_spec='x')"
    ),
    "reserved: schedulers and": (
        "Row('mine', terms('CUSTOM_PREFILTER_REPORTED', '1'), extra_spec='x')"
    ),
    "to the row time_hpet already": (
        "Row('mine', switch('CUSTOM_COMPUTE_TIME_HPET'), extra_spec='x')"
    ),
    "the image property hw_time_hpet belongs to the row time_hpet already": (
        "Row('mine', switch('CUSTOM_MINE'), image_property='hw_time_hpet')"
    ),
    "a row 'nobody', which does not exist": _row(
        "depends_on=DependsOn('nobody')", _CONSTRAINTS
    ),
    "the value 'x' of a row 'vif_model'": _row(
        "constraints={'true': Constraints(needs=(('vif_model', ('x',)),))}"
    ),
    "required_by is a tuple": _row("required_by='hpet'"),
    "the filter 'hpte', which no installed package offers": _row(
        "required_by=('hpte',)"
    ),
    "its values are a mapping": "Row('mine', ['a'], extra_spec='x')",
    "in lower case": (
        "Row('mine', terms('CUSTOM', 'A b'), extra_spec='x',"
        " spelling=Spelling(any_case=True))"
    ),
    "wins is 'both'": _row("precedence=Precedence('both')"),
}


def _problem_of(rows: dict[str, str], offer: Offer) -> str:
    offer(rows)
    with pytest.raises(UnusableRow) as raised:
        installed_rows(ROWS)
    problem = str(raised.value)
    assert problem.startswith("The vocabulary cannot take the row '")
    return problem


@pytest.mark.parametrize("problem", _UNUSABLE)
def test_unusable_installed_row_is_refused_with_the_reason(
    problem: str, offer: Offer
) -> None:
    assert problem in _problem_of({"mine": _UNUSABLE[problem]}, offer)


@pytest.mark.parametrize(
    "argument",
    ["required_by=('query',)", "image_attribute='x'"],
)
def test_argument_of_the_bundled_rows_is_refused(
    argument: str, offer: Offer
) -> None:
    problem = _problem_of({"mine": _row(argument)}, offer)
    assert "for the bundled rows alone" in problem


def test_row_with_another_name_than_its_entry_point_is_refused(
    offer: Offer,
) -> None:
    problem = _problem_of({"yours": _row()}, offer)
    assert (
        "it calls itself 'mine'; its entry point must have the same name"
    ) in problem


def test_row_with_the_name_of_a_bundled_row_is_refused(offer: Offer) -> None:
    row = "Row('time_hpet', switch('CUSTOM_MINE'), extra_spec='x')"
    problem = _problem_of({"time_hpet": row}, offer)
    assert "a row of that name already" in problem


def test_rows_with_one_trait_are_refused(offer: Offer) -> None:
    other = _row().replace("'mine'", "'other'")
    problem = _problem_of({"mine": _row(), "other": other}, offer)
    assert "belongs to the row mine already" in problem


def test_installed_row_that_fits_is_found_by_its_name(
    offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    any_case = (
        "Row('mine', terms('CUSTOM_MINE', 'a b'), extra_spec='x',"
        " spelling=Spelling(any_case=True))"
    )
    offer(
        {
            "mine": any_case,
            "o": _row(
                "depends_on=DependsOn('vif_model')",
                _CONSTRAINTS,
                "precedence=Precedence('image')",
                name="o",
            ),
            "p": (
                "Row('p', terms('CUSTOM_P', 'a b'), extra_spec='y',"
                " spelling=Spelling(any_case=True),"
                " precedence=Precedence('flavor'))"
            ),
        }
    )
    row = next(each for each in installed_rows(ROWS) if each.name == "mine")
    monkeypatch.setattr(vocabulary, "table", lambda: (*ROWS, row))
    assert row_named("mine") is row


def _trait_if(wins: Literal["", "image", "flavor"]) -> str:
    """Return the trait that a row with this precedence requires."""
    row = Row(
        "mine",
        terms("CUSTOM_MINE", "a b"),
        "hw_mine",
        "acme:mine",
        precedence=Precedence(wins),
    )
    request = Request(spec_of({"hw_mine": "b"}, {"acme:mine": "a"}))
    options = Options(reported_traits=("*",))
    (item,) = require_rows(request, [row], options).requirements
    return item.trait


def test_row_says_whether_the_image_or_the_flavor_wins() -> None:
    assert _trait_if("image") == "CUSTOM_MINE_B"
    assert _trait_if("flavor") == "CUSTOM_MINE_A"


def test_image_and_flavor_contradict_each_other_by_default() -> None:
    with pytest.raises(FlavorImageConflict):
        _trait_if("")


def _run(folder: Path, code: str) -> str:
    """Run Python where a package has installed the row ``acme_watchdog``."""
    (folder / "acme_rows.py").write_text(_WATCHDOG)
    info = folder / "acme_rows-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-rows\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\nacme_watchdog = acme_rows:WATCHDOG\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", dedent(code)],
        env={"PYTHONPATH": str(folder), "PATH": "", "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_installed_row_is_required_reported_late_checked_and_listed(
    tmp_path: Path,
) -> None:
    """And created in Placement; required once hosts are said to report it."""
    out = _run(
        tmp_path,
        """
        from os_prefilter import Flavor, Image, Options, RequestSpec, capability_traits, unsupported
        from os_prefilter.service import Service
        from os_prefilter_tools.cli.catalogue import vocabulary
        from os_prefilter.service.traits_to_report import traits_to_create
        from os_prefilter.hosts.drivers.fake import FakeFacts

        def spec():
            return RequestSpec(Flavor(1, 1, extra_specs={"acme:watchdog": "reset"}), Image({}))

        by_default = Service.from_names("image_metadata")
        reported = Options(reported_traits=("CUSTOM_ACME_WATCHDOG_*",))
        enabled = Service.from_names("image_metadata", options=reported)
        print(by_default.apply(spec()).requirements)
        print(*enabled.apply(spec()).requirements)
        for can in ({}, {"acme_watchdog": frozenset(["reset"])}):
            facts = FakeFacts(can=can)
            print(capability_traits(facts)["CUSTOM_ACME_WATCHDOG_RESET"])
            print(*unsupported(spec(), facts))
        print(*[line[2] for line in vocabulary() if line[0] == "acme_watchdog"])
        print("CUSTOM_ACME_WATCHDOG_PAUSE" in traits_to_create(enabled.filters, enabled.options))
        """,
    )
    assert out.splitlines() == [
        "()",
        (
            "CUSTOM_ACME_WATCHDOG_RESET on root by image_metadata (flavor"
            " extra spec acme:watchdog=reset)"
        ),
        "False",
        (
            "flavor extra spec acme:watchdog=reset: the fake host is not"
            " configured for acme_watchdog"
        ),
        "True",
        "",
        "reset pause disabled",
        "True",
    ]


@pytest.mark.parametrize(
    "first", ["acme_rows", "os_prefilter.filters.image_metadata"]
)
def test_installed_row_is_found_whichever_package_is_imported_first(
    first: str, tmp_path: Path
) -> None:
    out = _run(
        tmp_path,
        f"""
        import sys
        import {first}
        if {first != "acme_rows"}:
            assert "acme_rows" not in sys.modules
        import acme_rows
        from os_prefilter.vocabulary import row_named
        print(row_named("acme_watchdog") is acme_rows.WATCHDOG)
        """,
    )
    assert out == "True\n"
