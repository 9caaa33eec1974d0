# SPDX-License-Identifier: Apache-2.0

"""Data classes behave as Python 3.10's on each Python."""

from __future__ import annotations

from dataclasses import field, replace
from pathlib import Path
from runpy import run_path
from typing import Any, ClassVar

import pytest

from os_prefilter.common.dataclasses import dataclass
from tests.support.pages import DOCS, files_of


@dataclass(frozen=True, kw_only=True)
class _Base:
    driver: ClassVar[str] = "acme"
    host: str = "this host"


@dataclass(frozen=True, kw_only=True)
class _Facts(_Base):
    version: int
    found: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Point:
    x: int
    y: int = 0


def test_required_field_may_follow_one_with_a_default() -> None:
    facts = _Facts(version=3)
    assert facts.version == 3
    assert facts.host == "this host"
    assert facts.found == []


def test_required_field_that_is_not_given_is_named() -> None:
    make: Any = _Facts
    with pytest.raises(TypeError, match="missing .* argument.*'version'"):
        make(host="kvm-1")


def test_unknown_field_is_refused() -> None:
    make: Any = _Facts
    with pytest.raises(TypeError, match="unexpected keyword"):
        make(version=3, drivers="acme")


def test_class_variable_is_no_field() -> None:
    assert _Facts.driver == "acme"
    assert "driver" not in repr(_Facts(version=3))


def test_copy_with_another_value_is_of_the_same_class() -> None:
    changed = replace(_Facts(version=3), host="kvm-1")
    assert changed == _Facts(version=3, host="kvm-1")


def test_frozen_instance_does_not_change() -> None:
    point: Any = _Point(1)
    assert hash(point) == hash(_Point(1, 0))
    with pytest.raises(AttributeError):
        point.x = 2


def test_reporter_of_the_page_loads(tmp_path: Path) -> None:
    file = tmp_path / "bhyve.py"
    file.write_text(files_of(DOCS / "write-a-reporter.rst")[file.name])
    facts = run_path(str(file))["BhyveFacts"](has_uefi=True)
    assert facts.driver == "bhyve"
    assert facts.has_uefi
