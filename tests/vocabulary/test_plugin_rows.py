# SPDX-License-Identifier: Apache-2.0

"""Rows that other packages add to the vocabulary: they take part in
everything, or the service does not start.
"""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from textwrap import dedent
from typing import Literal

import pytest
from stevedore.extension import ExtensionManager

from os_prefilter import (
    Flavor,
    Image,
    Options,
    Request,
    RequestSpec,
    vocabulary,
)
from os_prefilter.common.errors import FlavorImageConflict, UnusableRow
from os_prefilter.request.row_requirements import require_rows
from os_prefilter.vocabulary import ROWS, row_named
from os_prefilter.vocabulary.model import Precedence, Row, terms
from os_prefilter.vocabulary.plugin_rows import GROUP, installed_rows

_WATCHDOG = """
from os_prefilter.vocabulary.model import Row, nothing, terms

WATCHDOG = Row(
    "acme_watchdog",
    terms("CUSTOM_ACME_WATCHDOG", "reset pause") | {"disabled": nothing("there is none")},
    image_property="acme_watchdog",
    extra_spec="acme:watchdog",
)
"""


def _offer(
    offered: dict[str, str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Make what stevedore finds, as if the packages were installed: name ->
    the Python of it.
    """
    points = []
    for number, (name, code) in enumerate(offered.items()):
        module = f"rows_of_{abs(hash(str(folder)))}_{number}"
        (folder / f"{module}.py").write_text(
            f"from os_prefilter.vocabulary.model import *\nROW = {code}\n"
        )
        points.append(EntryPoint(name, f"{module}:ROW", GROUP))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setitem(ExtensionManager.ENTRY_POINT_CACHE, GROUP, points)


_CONSTRAINTS = (
    "constraints={'true': Constraints(incompatible=(Incompatible('vif_model', 'igb'),),"
    " needs=(('vif_model', 'e1000e'),))}"
)
_GOOD = "Row('mine', switch('CUSTOM_MINE'), image_property='hw_mine')"


@pytest.mark.parametrize(
    ("offered", "problem"),
    [
        (
            {"mine": "{}"},
            "it is a dict, not an os_prefilter.vocabulary.model.Row",
        ),
        ({"mine": "1 / 0"}, "does not load: ZeroDivisionError"),
        (
            {"yours": _GOOD},
            "it calls itself 'mine'; its entry point must have the same name",
        ),
        (
            {"mine": "Row('mine', switch('CUSTOM_MINE'))"},
            "neither an image property nor a flavor extra spec",
        ),
        (
            {"mine": "Row('mine', {}, extra_spec='hw:mine')"},
            "it has no values",
        ),
        (
            {
                "mine": (
                    _GOOD[:-1]
                    + ", depends_on=DependsOn('vif_model', default='b'))"
                )
            },
            "'b' is not among its values",
        ),
        (
            {"mine": "Row('mine', terms('COMPUTE', 'no'), extra_spec='x')"},
            "'COMPUTE_NO' is no trait of os-traits",
        ),
        (
            {"mine": "Row('mine', terms('CUSTOM_a-b', 'no'), extra_spec='x')"},
            "'CUSTOM_a-b_NO' is no name of a trait",
        ),
        (
            {
                "mine": (
                    "Row('mine', terms('CUSTOM_PREFILTER_REPORTED', '1'),"
                    " extra_spec='x')"
                )
            },
            "reserved: schedulers and",
        ),
        (
            {
                "mine": (
                    "Row('mine', switch('CUSTOM_COMPUTE_TIME_HPET'),"
                    " extra_spec='x')"
                )
            },
            "to the row time_hpet already",
        ),
        (
            {
                "mine": (
                    "Row('mine', switch('CUSTOM_MINE'),"
                    " image_property='hw_time_hpet')"
                )
            },
            (
                "the image property hw_time_hpet belongs to the row time_hpet"
                " already"
            ),
        ),
        (
            {
                "time_hpet": (
                    "Row('time_hpet', switch('CUSTOM_MINE'), extra_spec='x')"
                )
            },
            "a row of that name already",
        ),
        (
            {"mine": _GOOD, "other": _GOOD.replace("'mine'", "'other'")},
            "belongs to the row mine already",
        ),
        (
            {
                "mine": (
                    f"{_GOOD[:-1]}, depends_on=DependsOn('nobody'), {_CONSTRAINTS})"
                )
            },
            "a row 'nobody', which does not exist",
        ),
        (
            {
                "mine": (
                    _GOOD[:-1]
                    + ", constraints={'true': Constraints(needs=(('vif_model', 'x'),))})"
                )
            },
            "the value 'x' of a row 'vif_model'",
        ),
        *(
            ({"mine": f"{_GOOD[:-1]}, {part})"}, "for the bundled rows alone")
            for part in (
                "required_by=('query',)",
                "image_attribute='x'",
                "per_architecture=True",
            )
        ),
        (
            {"mine": _GOOD[:-1] + ", required_by='hpet')"},
            "required_by is a tuple",
        ),
        (
            {"mine": _GOOD[:-1] + ", required_by=('hpte',))"},
            "the filter 'hpte', which no installed package offers",
        ),
        (
            {"mine": "Row('mine', ['a'], extra_spec='x')"},
            "its values are a mapping",
        ),
        (
            {
                "mine": (
                    "Row('mine', terms('CUSTOM', 'A b'), extra_spec='x',"
                    " spelling=Spelling(any_case=True))"
                )
            },
            "in lower case",
        ),
        (
            {"mine": _GOOD[:-1] + ", precedence=Precedence('both'))"},
            "wins is 'both'",
        ),
    ],
)
def test_unusable_installed_row_is_refused_with_the_reason(
    offered: dict[str, str],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    _offer(offered, monkeypatch, tmp_path)
    with pytest.raises(UnusableRow) as raised:
        installed_rows(ROWS)
    assert problem in str(raised.value)
    assert str(raised.value).startswith("The vocabulary cannot take the row '")


def test_installed_row_that_fits_is_found_by_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = (
        "Row('mine', terms('CUSTOM_MINE', 'a b'), extra_spec='x',"
        " spelling=Spelling(any_case=True))"
    )
    beside = (
        f"{_GOOD[:-1].replace('mine', 'o').replace('MINE', 'O')},"
        f" depends_on=DependsOn('vif_model'), {_CONSTRAINTS}"
    )
    others = {
        "o": f"{beside}, precedence=Precedence('image'))",
        "p": code.replace("mine", "p").replace("MINE", "P"),
    }
    others["p"] = (
        others["p"][:-1].replace("'x'", "'y'")
        + ", precedence=Precedence('flavor'))"
    )
    _offer({"mine": code, **others}, monkeypatch, tmp_path)
    row = next(each for each in installed_rows(ROWS) if each.name == "mine")
    monkeypatch.setattr(vocabulary, "table", lambda: (*ROWS, row))
    assert row_named("mine") is row


def test_image_and_flavor_contradict_each_other_unless_the_row_says_who_wins() -> (
    None
):
    spec = RequestSpec(
        Flavor(1, 1, extra_specs={"acme:mine": "a"}), Image({"hw_mine": "b"})
    )

    def asked(wins: Literal["", "image", "flavor"]) -> list[str]:
        row = Row(
            "mine",
            terms("CUSTOM_MINE", "a b"),
            "hw_mine",
            "acme:mine",
            precedence=Precedence(wins),
        )
        found = require_rows(
            Request(spec), [row], Options(reported_traits=("*",))
        )
        return [item.trait for item in found.requirements]

    assert (asked("image"), asked("flavor")) == (
        ["CUSTOM_MINE_B"],
        ["CUSTOM_MINE_A"],
    )
    with pytest.raises(FlavorImageConflict):
        asked("")


def _run(folder: Path, code: str) -> str:
    """Run Python where a package that offers the row ``acme_watchdog`` is
    installed.
    """
    (folder / "acme_rows.py").write_text(_WATCHDOG)
    info = folder / "acme_rows-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-rows\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\nacme_watchdog = acme_rows:WATCHDOG\n"
    )
    command, env = (
        [sys.executable, "-c", dedent(code)],
        {"PYTHONPATH": str(folder), "PATH": "", "HOME": str(folder)},
    )
    done = subprocess.run(
        command,
        env=env,
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
    """It is asked for once hosts are said to report it, reported, checked,
    listed, and created in Placement.
    """
    out = _run(
        tmp_path,
        """
        from os_prefilter import Flavor, Image, Options, RequestSpec, capability_traits, unsupported
        from os_prefilter.service import Service
        from os_prefilter_tools.cli.catalogue import vocabulary
        from os_prefilter.service.wanted import traits_to_create
        from os_prefilter.hosts.drivers.fake import FakeFacts

        def spec():
            return RequestSpec(Flavor(1, 1, extra_specs={"acme:watchdog": "reset"}), Image({}))

        silent = Service.from_names("image_metadata").apply(spec())
        asking = Service.from_names("image_metadata", options=Options(reported_traits=("CUSTOM_ACME_WATCHDOG_*",)))
        print(silent.requirements, *asking.apply(spec()).requirements, sep="|")
        for can in ({}, {"acme_watchdog": frozenset(["reset"])}):
            facts = FakeFacts(can=can)
            print(capability_traits(facts)["CUSTOM_ACME_WATCHDOG_RESET"], *unsupported(spec(), facts), sep="|")
        print(*[line[2] for line in vocabulary() if line[0] == "acme_watchdog"])
        print("CUSTOM_ACME_WATCHDOG_PAUSE" in traits_to_create(asking.filters, asking.options))
        """,
    )
    assert out.splitlines() == [
        (
            "()|CUSTOM_ACME_WATCHDOG_RESET on root by image_metadata (flavor"
            " extra spec acme:watchdog=reset)"
        ),
        (
            "False|flavor extra spec acme:watchdog=reset: the fake host is not"
            " configured for acme_watchdog"
        ),
        "True",
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
