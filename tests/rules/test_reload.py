# SPDX-License-Identifier: Apache-2.0

"""Rules of a running service: read again when files change, whole or not at
all, never before Placement is ready.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from os_prefilter.rules.reload import RuleFolders
from os_prefilter.service import Service, facts_from_conf
from tests.conftest import conf_with, spec_of
from tests.support.placements import Observed, answering
from tests.support.rule_texts import rule, settle, write_rules

_WHEN = "{image_property: os_distro, is: windows}"


def _a(*traits: str) -> str:
    return rule("a", _WHEN, traits)


def _traits(rules: Any) -> list[str]:
    return sorted(rules.traits)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "rules"
    path.mkdir()
    write_rules(path / "a.yaml", _a("CUSTOM_1"))
    return path


# -- reading again
# -----------------------------------------------------------------------------


def _replaced_directory(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    write_rules(folder / "a.yaml", _a("CUSTOM_2"))


def _behind_a_link(folder: Path) -> None:
    other = folder.with_name("other")
    other.mkdir()
    write_rules(other / "a.yaml", _a("CUSTOM_2"))
    (folder / "a.yaml").unlink()
    (folder / "a.yaml").symlink_to(other / "a.yaml")


_CHANGES: list[tuple[Callable[[Path], object], list[str]]] = [
    (
        lambda folder: write_rules(
            folder / "b.yml", rule("b", _WHEN, ["CUSTOM_2"])
        ),
        ["CUSTOM_1", "CUSTOM_2"],
    ),
    (_replaced_directory, ["CUSTOM_2"]),
    (_behind_a_link, ["CUSTOM_2"]),
]


@pytest.mark.parametrize(("change", "expected"), _CHANGES)
def test_changed_rule_files_are_reloaded(
    change: Callable[[Path], object], expected: list[str], folder: Path
) -> None:
    rules = RuleFolders([str(folder)])
    assert _traits(rules()) == ["CUSTOM_1"]
    change(folder)
    settle(folder / "a.yaml")
    assert _traits(rules()) == expected


_BROKEN: list[tuple[str, Callable[[Path], object]]] = [
    (
        "a.yaml:2: the rule a: require[0] is",
        lambda folder: write_rules(folder / "a.yaml", _a("lower")),
    ),
    (
        "a.yaml:1: the document is empty",
        lambda folder: settle_text(folder / "a.yaml", ""),
    ),
    (
        "b.yaml: its status cannot be read: No such file",
        lambda folder: (folder / "b.yaml").symlink_to("nowhere"),
    ),
    ("the directory of rules cannot be read: No such file", shutil.rmtree),
]


def settle_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    settle(path)


@pytest.mark.parametrize(
    ("problem", "break_it"), _BROKEN, ids=[problem for problem, _ in _BROKEN]
)
def test_failed_reload_names_the_problem_in_one_line(
    problem: str,
    break_it: Callable[[Path], object],
    folder: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rules = RuleFolders([str(folder)])
    break_it(folder)
    settle(folder / "b.yaml")
    assert _traits(rules()) == ["CUSTOM_1"]
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert (
        "Failed to reload the request rules; keeping the previous rules"
        in record.getMessage()
    )
    assert problem in record.getMessage()
    assert "\n" not in record.getMessage()


# -- the traits in Placement
# -----------------------------------------------------------------------------


def test_new_rules_wait_until_placement_has_their_traits(
    folder: Path, observed: Observed, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a standard one, its os-traits may be older than ours. The other
    traits are created: no other rule suffers.
    """
    rules = RuleFolders([str(folder)], observed.client.ensure_traits)
    before = rules()
    write_rules(folder / "a.yaml", _a("CUSTOM_3", "HW_CPU_X86_AVX2"))
    observed.hook = lambda method, _url: (
        (200, {"traits": []}) if method == "GET" else None
    )
    for _ in range(3):
        assert rules() is before
    problem = "Placement does not have the traits of the new request rules yet"
    assert (
        caplog.text.count(problem),
        caplog.text.count("does not know: HW_CPU_X86_AVX2"),
    ) == (1, 1)
    observed.hook = answering(None)
    assert "CUSTOM_3" in observed.client.traits()


# -- in a service
# -----------------------------------------------------------------------------


def _service(folder: Path, interval: float = 1800) -> Service:
    options: dict[str, Any] = {
        "rules_dirs": [str(folder)],
        "facts_interval": interval,
    }
    return Service.from_conf(conf_with(enabled_filters=["rules"], **options))


def _required(pipeline: Service) -> set[str]:
    spec = spec_of({"os_distro": "windows"})
    pipeline.apply(spec)
    return spec.root_required


def test_service_checks_the_rule_files_once_per_interval(folder: Path) -> None:
    pipeline = _service(folder)
    assert _required(pipeline) == {"CUSTOM_1"}
    write_rules(folder / "a.yaml", _a("CUSTOM_2"))
    assert _required(pipeline) == {"CUSTOM_1"}
    pipeline = _service(folder, interval=0)
    assert _required(pipeline) == {"CUSTOM_2"}
    write_rules(folder / "a.yaml", _a("CUSTOM_3"))
    assert _required(pipeline) == {"CUSTOM_3"}


def test_no_request_waits_for_a_reload_that_takes_long(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The rules of before stay in use meanwhile, and nothing is wrong."""
    monkeypatch.setattr(facts_from_conf, "_RELOAD_PATIENCE", 0.01)
    pipeline = _service(folder, interval=0)
    assert _required(pipeline) == {"CUSTOM_1"}
    go_on, read = threading.Event(), RuleFolders._read

    def slowly(self: RuleFolders) -> Any:
        assert go_on.wait(60)
        return read(self)

    monkeypatch.setattr(RuleFolders, "_read", slowly)
    write_rules(folder / "a.yaml", _a("CUSTOM_2"))
    start = time.monotonic()
    for _ in range(3):
        assert _required(pipeline) == {"CUSTOM_1"}
    # The reload has not ended, and ends after a minute if none lets it.
    assert time.monotonic() - start < 60
    go_on.set()
    end = start + 60
    while _required(pipeline) != {"CUSTOM_2"}:
        assert time.monotonic() < end
    assert not [each for each in caplog.records if each.levelname != "INFO"]


def test_first_rule_warning_is_logged_at_start(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_rules(
        folder / "a.yaml",
        *(
            rule(f"r{n}", "{image_property: x, is: y}", ["CUSTOM_A"])
            for n in range(12)
        ),
    )
    _service(folder)
    (record,) = caplog.records
    assert record.getMessage().startswith(
        f"Request rules: {folder}/a.yaml:2: warning: the rule r0 never"
    )
    assert record.getMessage().endswith(
        f" There are 12 problems in all: 'os-prefilter rules check {folder}'"
        " shows them."
    )
