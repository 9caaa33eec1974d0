# SPDX-License-Identifier: Apache-2.0

"""What the page for a reviewer of security says of Nova's processes is all."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from inspect import isclass
from operator import is_not
from types import ModuleType
from typing import Any

import pytest

from os_prefilter.nova.entry import RequestFilters
from tests.support.nova_objects import nova_spec
from tests.support.nova_start import Start, our_entry, user_context
from tests.support.pages import DOCS
from tests.support.project import ROOT, project_table

_PLAIN = "[filter_scheduler]\navailable_filters = nova.scheduler.filters.all_filters"
_SECTION = (
    (DOCS / "security.rst")
    .read_text(encoding="utf-8")
    .partition(".. _inside-nova:")[2]
    .partition("\nPlugins\n")[0]
)


def _parts(value: Any) -> list[Any]:
    """Return an object and what it holds, to be compared by identity."""
    if isinstance(value, dict):
        return [value, *value.keys(), *value.values()]
    if isinstance(value, (list, tuple)):
        return [value, *value]
    if isinstance(value, (set, frozenset)):
        return [value, *sorted(value, key=id)]
    return [value]


def _names_of_nova() -> Iterator[tuple[str, list[Any]]]:
    """Yield each name in Nova's modules, and in their classes, with its
    value.
    """
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] != "nova":
            continue
        for name, value in list(vars(module).items()):
            if isinstance(value, ModuleType):
                continue
            yield f"{module_name}.{name}", _parts(value)
            if isclass(value) and value.__module__ == module_name:
                for member, content in list(vars(value).items()):
                    yield f"{module_name}.{name}.{member}", _parts(content)


def _changed(before: dict[str, list[Any]]) -> set[str]:
    """Return the names that now stand for something else."""
    found = set()
    for name, parts in _names_of_nova():
        then = before.get(name, [])
        if len(parts) != len(then) or any(map(is_not, parts, then)):
            found.add(name)
    return found


@pytest.fixture
def before(start: Start) -> dict[str, list[Any]]:
    """Return Nova's names in a scheduler without our line."""
    # Then Nova has what it imports and makes late, its policy for instance.
    start("image_metadata, hpet, owner")
    our_entry()(user_context(), nova_spec())
    start("", conf=_PLAIN)
    user_context()
    return dict(_names_of_nova())


def test_nova_scheduler_changes_one_list_of_nova(
    start: Start, before: dict[str, list[Any]]
) -> None:
    assert _changed(before) == set()
    start("image_metadata, hpet, owner", "count_hosts = true")
    assert isinstance(our_entry(), RequestFilters)
    our_entry()(user_context(), nova_spec())
    assert _changed(before) == {
        "nova.scheduler.request_filter.ALL_REQUEST_FILTERS"
    }
    assert "``ALL_REQUEST_FILTERS``" in _SECTION


def _bases(folder: str) -> set[str]:
    """Return the names of the classes of Nova or Ironic that have a subclass
    in this folder.
    """
    found = set()
    for path in (ROOT / "src" / "os_prefilter" / folder).glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        theirs = set()
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom):
                continue
            if str(node.module).split(".")[0] in ("nova", "ironic"):
                theirs |= {alias.asname or alias.name for alias in node.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                for base in map(ast.unparse, node.bases):
                    if base.split(".")[0] in theirs:
                        found.add(base.split(".")[-1])
    return found


@pytest.mark.parametrize(
    ("folder", "bases"),
    [
        ("nova", {"BaseHostFilter", "BaseHostWeigher"}),
        (
            "adapters/ironic",
            {
                "BIOSInterface",
                "RedfishBIOS",
                "RedfishHardware",
                # Errors.
                "InstanceDeployFailure",
                "InvalidParameterValue",
            },
        ),
    ],
    ids=["nova", "ironic"],
)
def test_page_names_each_class_that_has_a_subclass(
    folder: str, bases: set[str]
) -> None:
    assert _bases(folder) == bases
    for name in bases - {"InstanceDeployFailure", "InvalidParameterValue"}:
        assert f"``{name}``" in _SECTION


def test_page_names_each_entry_point_that_a_service_loads() -> None:
    groups = {
        name
        for name in project_table()["entry-points"]
        if name.startswith(("nova.", "ironic."))
    }
    assert groups == {
        "ironic.hardware.interfaces.bios",
        "ironic.hardware.types",
        "nova.api.extra_spec_validators",
    }
    for name in groups:
        assert f"``{name}``" in _SECTION


def test_nova_api_does_not_load_what_only_nova_scheduler_needs() -> None:
    script = (
        "import sys, os_prefilter.nova.extra_spec_validators;"
        " print(*(name for name in sys.modules if"
        " name.startswith(('nova.scheduler', 'os_prefilter.nova.'))))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert done.stdout.split() == ["os_prefilter.nova.extra_spec_validators"]
