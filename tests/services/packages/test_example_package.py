# SPDX-License-Identifier: Apache-2.0

"""The package of docs/examples: built, installed beside ours into an empty
environment, and at work there.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.services.packages.builds import (
    PROJECT,
    clean_run,
    empty_environment,
)

_EXAMPLE = PROJECT / "docs" / "examples" / "acme-prefilter"


def _built(source: Path, folder: Path) -> Path:
    # Of a copy: what is left of a build would be in the sources.
    copy = folder / "source"
    ignored = shutil.ignore_patterns(
        ".*", "_build", "__pycache__", "*.egg-info", "dist"
    )
    shutil.copytree(source, copy, ignore=ignored)
    _done(
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--outdir",
        folder,
        copy,
        cwd=folder,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def _done(*command: str | Path, cwd: Path) -> str:
    done = clean_run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_command_runs_the_demo_and_the_example_package_works_beside_it(
    wheel: Path, tmp_path: Path
) -> None:
    """In an empty environment: one test, as that takes a minute.

    The wheel and its extra ``cli`` are enough for the demo on a real
    Placement; with the extra ``testing`` and the example package beside it:
    its own tests, the lists, the config file, the candidates.
    """
    bin_folder = empty_environment(tmp_path / "environment")

    def command(*arguments: str | Path) -> Any:
        return json.loads(
            _done(
                bin_folder / "os-prefilter",
                *arguments,
                "-f",
                "json",
                cwd=tmp_path,
            )
        )

    _done(
        bin_folder / "pip", "install", "--quiet", f"{wheel}[cli]", cwd=tmp_path
    )
    printed = _done(bin_folder / "os-prefilter", "--version", cwd=tmp_path)
    assert printed == f"os-prefilter {version('os-prefilter')}\n"
    hosts = {
        row["Request"]["name"]: row["Hosts that remain"]
        for row in command("demo")
    }
    assert hosts["nova-vgpu"] == ["gpu-nova-1"]
    assert hosts["impossible"] == []

    _done(
        bin_folder / "pip",
        "install",
        "--quiet",
        f"{wheel}[testing]",
        cwd=tmp_path,
    )
    theirs = _built(_EXAMPLE, tmp_path / "acme")

    asking = (
        "--extra-spec",
        "acme:gpu_sharing=partitions",
        "--hosts",
        _EXAMPLE / "fleet.yaml",
    )
    without = command("candidates", *asking, "--filter", "image_metadata")
    assert [each["Host"] for each in without] == ["ch-new", "ch-old"]

    _done(
        bin_folder / "pip",
        "install",
        "--quiet",
        "--no-deps",
        theirs,
        cwd=tmp_path,
    )
    assert {"large_guests", "image_metadata"} <= {
        each["Name"] for each in command("filter", "list")
    }
    listed = command("vocabulary", "list")
    values = [
        each["Value"]
        for each in listed
        if each["Flavor extra spec"] == "acme:gpu_sharing"
    ]
    assert values == ["partitions", "time-slices", "none"]
    enabled = command(
        "candidates", *asking, "--config-file", _EXAMPLE / "acme.conf"
    )
    assert [each["Host"] for each in enabled] == ["ch-new"]
    explained = command(
        "explain", *asking, "--config-file", _EXAMPLE / "acme.conf"
    )
    assert "CUSTOM_ACME_LARGE_GUESTS" in json.dumps(explained)

    # The bundled reporters leave the row to others.
    code = (
        "from os_prefilter import capability_traits; from"
        " os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts;facts ="
        " LibvirtFacts(architecture='x86_64', virt_type='lxc',"
        " libvirt_version=(9, 0,"
        " 0));print('CUSTOM_ACME_GPU_SHARING_PARTITIONS' in"
        " capability_traits(facts))"
    )
    assert _done(bin_folder / "python", "-c", code, cwd=tmp_path) == "False\n"

    # From a copy of its tests alone, so that what is tested is what is
    # installed.
    shutil.copytree(_EXAMPLE / "tests", tmp_path / "tests")
    printed = _done(
        bin_folder / "python",
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "tests",
        cwd=tmp_path,
    )
    assert re.search(r"\b\d+ passed\b", printed), printed
    assert "failed" not in printed, printed
