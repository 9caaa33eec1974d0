"""The package of docs/examples: built, installed beside ours into an empty environment, and at work there."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from tests.services.packages.builds import PROJECT, clean_run, empty_environment

_EXAMPLE = PROJECT / "docs" / "examples" / "acme-prefilter"
_PAGE = PROJECT / "docs" / "testing.rst"


def _built(source: Path, folder: Path) -> Path:
    # Of a copy: what is left of a build would be in the sources.
    copy = folder / "source"
    ignored = shutil.ignore_patterns(".*", "_build", "__pycache__", "*.egg-info", "dist")
    shutil.copytree(source, copy, ignore=ignored)
    _done(sys.executable, "-m", "build", "--wheel", "--outdir", folder, copy, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _done(*command: str | Path, cwd: Path) -> str:
    done = clean_run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _lines(*folders: str) -> int:
    """Return how many lines that are not empty the Python files in these folders have."""
    files = [path for folder in folders for path in sorted((_EXAMPLE / folder).rglob("*.py"))]
    return sum(len([line for line in path.read_text().splitlines() if line.strip()]) for path in files)


def test_the_example_package_works_beside_ours_in_an_empty_environment(tmp_path: Path) -> None:
    """One test, as its environment takes a minute: its own tests, the lists, the config file, the candidates."""
    ours, theirs = (_built(source, tmp_path / name) for name, source in (("ours", PROJECT), ("acme", _EXAMPLE)))
    bin_folder = empty_environment(tmp_path / "environment")
    _done(bin_folder / "pip", "install", "--quiet", f"{ours}[cli,testing]", cwd=tmp_path)

    def command(*arguments: str | Path) -> Any:
        return json.loads(_done(bin_folder / "os-prefilter", *arguments, "-f", "json", cwd=tmp_path))

    asking = ("--property", "hw_watchdog_action=reset", "--hosts", _EXAMPLE / "fleet.yaml")
    without = command("candidates", *asking, "--filter", "image_metadata")
    assert [each["Host"] for each in without] == ["ch-new", "ch-old"]

    _done(bin_folder / "pip", "install", "--quiet", "--no-deps", theirs, cwd=tmp_path)
    assert {"large_guests", "image_metadata"} <= {each["Name"] for each in command("filter", "list")}
    listed = [each["Value"] for each in command("vocabulary", "list") if each["Image property"] == "hw_watchdog_action"]
    assert listed == ["none", "pause", "poweroff", "reset", "disabled"]
    enabled = command("candidates", *asking, "--config-file", _EXAMPLE / "acme.conf")
    assert [each["Host"] for each in enabled] == ["ch-new"]
    explained = command("explain", *asking, "--config-file", _EXAMPLE / "acme.conf")
    assert "CUSTOM_ACME_LARGE_GUESTS" in json.dumps(explained)

    # The bundled reporters leave the row to others.
    code = (
        "from os_prefilter import capability_traits; from os_prefilter.reporters.libvirt_facts import LibvirtFacts;"
        "facts = LibvirtFacts(architecture='x86_64', virt_type='lxc', libvirt_version=(9, 0, 0));"
        "print('CUSTOM_COMPUTE_WATCHDOG_RESET' in capability_traits(facts))"
    )
    assert _done(bin_folder / "python", "-c", code, cwd=tmp_path) == "False\n"

    # From a copy of its tests alone, so that what is tested is what is installed.
    shutil.copytree(_EXAMPLE / "tests", tmp_path / "tests")
    printed = _done(bin_folder / "python", "-m", "pytest", "-p", "no:cacheprovider", "tests", cwd=tmp_path)
    assert "36 passed" in printed, printed


def test_the_page_says_how_many_lines_it_takes() -> None:
    assert f"{_lines('src')} lines of code, {_lines('tests')} lines of tests" in _PAGE.read_text()
