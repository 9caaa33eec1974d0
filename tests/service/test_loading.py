# SPDX-License-Identifier: Apache-2.0

"""Loading filters: an operator who enabled a filter never gets a scheduler
without it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import EntryPoint
from inspect import isfunction, signature
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
from stevedore.extension import ExtensionManager

from os_prefilter import Requirements, filters
from os_prefilter.common import entry_points
from os_prefilter.common.errors import (
    FilterLoadError,
    InvalidFilter,
    MissingFact,
)
from os_prefilter.service.loading import (
    NAMESPACE,
    as_filter,
    installed_filters,
    load_filters,
)
from tests.conftest import pipeline_of
from tests.support.project import ROOT

_OURS = EntryPoint("noop", "os_prefilter.filters.noop:noop", NAMESPACE)


def _install(
    monkeypatch: pytest.MonkeyPatch, points: Iterable[EntryPoint]
) -> None:
    """Let stevedore find these entry points, as if their packages were
    installed.
    """
    monkeypatch.setitem(
        ExtensionManager.ENTRY_POINT_CACHE, NAMESPACE, list(points)
    )


def test_unknown_filter_is_named_with_the_nearest_or_all_known_filters() -> (
    None
):
    known = "there are accelerators, .*image_metadata"
    for name, advice in (
        ("image_metdata", "the nearest name is image_metadata"),
        ("warp", known),
    ):
        with pytest.raises(FilterLoadError, match=f"'{name}'.*{advice}"):
            pipeline_of("noop", name)


def test_a_filter_offered_twice_is_named_with_both_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _install(
        monkeypatch,
        [_OURS, EntryPoint("noop", "somewhere.other:noop", NAMESPACE)],
    )
    with pytest.raises(
        FilterLoadError,
        match="'noop'.*os_prefilter.filters.noop:noop, somewhere.other:noop",
    ):
        load_filters(["noop"])


def test_a_broken_filter_is_named_with_its_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken_plugin.py").write_text(
        "raise AssertionError('at import')"
    )
    (tmp_path / "leaving_plugin.py").write_text(
        "raise SystemExit('no\\nmore')"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for target, message in (
        ("os_prefilter.no_such_module:f", "ModuleNotFoundError"),
        ("os_prefilter.filters.noop:no_such_name", "AttributeError"),
        ("broken_plugin:raises_assertion", "AssertionError: at import"),
        ("leaving_plugin:f", r"SystemExit: no\\nmore"),
    ):
        _install(monkeypatch, [EntryPoint("mine", target, NAMESPACE)])
        with pytest.raises(
            FilterLoadError,
            match=f"'mine' .*{target} does not load: {message}",
        ):
            load_filters(["mine"])


_UNION = (
    "TypeError: unsupported operand type\\(s\\) for \\|: 'type' and 'NoneType'"
)
_ADVICE = r"\. This is Python 3\.9: begin its module with 'from __future__"


@pytest.mark.parametrize(
    ("module", "error"),
    [
        (
            'raise TypeError("unsupported operand type(s) for |:'
            " 'type' and 'NoneType'\")",
            _UNION,
        ),
        ("def mine(:\n", "SyntaxError"),
        (
            "from typing import NewerThanAllPythons",
            "ImportError: cannot import name",
        ),
    ],
    ids=["union", "syntax", "name"],
)
def test_filter_for_a_newer_python_is_named_with_what_to_write_in_it(
    module: str,
    error: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "newer_plugin.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "newer_plugin", raising=False)
    monkeypatch.setattr(entry_points, "version_info", (3, 9, 18))
    _install(monkeypatch, [EntryPoint("mine", "newer_plugin:mine", NAMESPACE)])
    with pytest.raises(
        FilterLoadError,
        match=f"'mine' .*newer_plugin:mine does not load: {error}.*{_ADVICE}",
    ):
        load_filters(["mine"])


def test_filter_whose_package_needs_another_one_is_not_for_a_newer_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "lone_plugin.py").write_text("import not_installed")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(entry_points, "version_info", (3, 9, 18))
    _install(monkeypatch, [EntryPoint("mine", "lone_plugin:mine", NAMESPACE)])
    with pytest.raises(FilterLoadError, match="No module named") as raised:
        load_filters(["mine"])
    assert "This is Python 3.9" not in str(raised.value)


@pytest.mark.skipif(
    sys.version_info >= (3, 10), reason="this Python evaluates X | None"
)
def test_union_in_an_annotation_is_named_by_the_python_that_cannot_evaluate_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "union_plugin.py").write_text(
        "def mine(request: int | None): ..."
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    _install(monkeypatch, [EntryPoint("mine", "union_plugin:mine", NAMESPACE)])
    with pytest.raises(FilterLoadError, match=f"{_UNION}{_ADVICE}"):
        load_filters(["mine"])


def test_filter_need_that_is_not_keyword_only_is_refused_and_named() -> None:
    """It would never be given anything, or be taken for the request of a
    filter of Nova's.
    """
    functions: list[tuple[Any, str]] = [
        (lambda request, options: request, "options"),
        (lambda request, weather: request, "weather"),
        (lambda request, weather=None: request, "weather"),
        (lambda request, options=None, *, weather: request, "options"),
    ]
    for function, parameter in functions:
        with pytest.raises(
            InvalidFilter,
            match=(
                rf"expected \(request, \*, {parameter}\), found no \* before"
                r" it in"
            ),
        ):
            as_filter("mine", function, {"options", "weather"})
    with pytest.raises(InvalidFilter, match="with the parameters"):
        as_filter("mine", lambda request, **needs: request)


def test_filter_is_written_our_way_or_novas_and_needs_what_is_provided() -> (
    None
):
    def mine(
        _request: Any, *, options: Any = None, other: int = 3
    ) -> None: ...

    assert as_filter("mine", mine, ("options",)).needs == ("options",)
    assert as_filter("mine", mine).needs == ()
    assert as_filter("mine", _nova_style).nova_style
    assert not load_filters(["noop"])[0].nova_style


def _no_parameters() -> None: ...
def _three(_a: Any, _b: Any, _c: Any) -> None: ...
def _nova_with_need(_context: Any, _spec: Any, *, options: Any) -> None: ...
def _stranger(_request: Any, *, phase_of_the_moon: str) -> None: ...
def _nova_style(_context: Any, _spec: Any) -> bool:
    return False


async def _coroutine(_context: Any, _spec: Any) -> None: ...
def _generator(_context: Any, _spec: Any) -> Any:
    yield


class _Class:
    def __init__(self, context: Any, spec: Any) -> None: ...


def test_object_that_is_not_a_filter_is_refused_with_the_expected_signature() -> (
    None
):
    for thing in (
        None,
        7,
        "text",
        _no_parameters,
        _three,
        _nova_with_need,
        _coroutine,
        _generator,
        _Class,
    ):
        with pytest.raises(
            InvalidFilter,
            match="'mine' is not a filter: expected a function .* found",
        ):
            as_filter("mine", thing, frozenset(("options",)))
    with pytest.raises(
        MissingFact, match="'mine' needs the fact 'phase_of_the_moon'"
    ):
        as_filter("mine", _stranger)


def _filters() -> list[tuple[str, str]]:
    """Return the names of our filters, and the module of each: those that a
    module defines, and those that are installed.
    """
    found = set()
    for name, target in installed_filters().items():
        if target.startswith("os_prefilter."):
            found.add((name, target.partition(":")[0]))
    for each in iter_modules(filters.__path__):
        module = import_module(f"os_prefilter.filters.{each.name}")
        for name, function in vars(module).items():
            is_its_own = (
                isfunction(function)
                and function.__module__ == module.__name__
                and not name.startswith("_")
                # Changed copies, where mutmut runs the tests.
                and "__mutmut_" not in name
            )
            if (
                is_its_own
                and signature(function).return_annotation is Requirements
            ):
                found.add((name, module.__name__))
    return sorted(found)


@pytest.mark.parametrize(("name", "module"), _filters())
def test_filter_has_all_that_a_filter_of_this_project_has(
    name: str, module: str
) -> None:
    here = Path(__file__)
    tests = "".join(
        path.read_text(encoding="utf-8")
        for path in here.parents[1].glob("*/test_*.py")
        if path != here
    )
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    target = f"{module}:{name}"
    has = {
        f'its entry point in pyproject.toml, {name} = "{target}", installed again with: pip install -e .': (
            installed_filters().get(name) == target
        ),
        "a docstring, of which 'os-prefilter filter list' shows the first line": bool(
            as_filter(
                name,
                getattr(import_module(module), name),
                None,
            ).summary
        ),
        f"a test that loads it by its name, in tests/filters/test_{name}.py": (
            f'"{name}"' in tests
        ),
        "its row in the table of README.md": f"`{name}`" in readme,
    }
    lacks = "; ".join(what for what, there in has.items() if not there)
    assert not lacks, (
        f"The filter {name} lacks {lacks}. docs/CONTRIBUTING.rst, 'Add a"
        " filter', lists all."
    )
