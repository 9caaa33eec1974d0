# SPDX-License-Identifier: Apache-2.0

"""The plugin of pytest: what its fixtures give, and that it costs others
nothing.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import os_prefilter_tools.pytest_plugin
from os_prefilter.common.errors import ConfigurationError
from tests.support.project import our_entry_points


def test_plugin_is_registered_and_exports_only_prefilter_fixtures() -> None:
    (point,) = our_entry_points("pytest11")
    assert point.load() is os_prefilter_tools.pytest_plugin
    public = {
        name
        for name in vars(os_prefilter_tools.pytest_plugin)
        if not name.startswith("_")
    }
    own = {
        name
        for name in public
        if getattr(
            vars(os_prefilter_tools.pytest_plugin)[name], "__module__", ""
        )
        == point.value
    }
    assert own == {
        "prefilter_facts",
        "prefilter_pipeline",
        "prefilter_placement",
        "prefilter_request",
    }
    assert not {name for name in public if name.startswith("pytest_")}


def test_importing_the_plugin_imports_nothing_of_os_prefilter() -> None:
    code = (
        "import sys, os_prefilter_tools.pytest_plugin; print([name for name in"
        " sys.modules if 'prefilter' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (
        done.stdout
        == "['os_prefilter_tools', 'os_prefilter_tools.pytest_plugin']\n"
    )


def test_missing_hypothesis_error_names_the_testing_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [
        name
        for name in sys.modules
        if name.startswith("os_prefilter_tools.testing")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(
        ConfigurationError,
        match=(
            "The test kit needs hypothesis, which is not installed: pip"
            " install"
        ),
    ):
        import_module("os_prefilter_tools.testing")
