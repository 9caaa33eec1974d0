# SPDX-License-Identifier: Apache-2.0

"""The architecture: which part may import which, and what importing the
library costs.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import os_prefilter

_SRC = Path(os_prefilter.__file__).parents[1]
# From the ground up, by package. A folder imports only from the floors below
# its own.
_FLOORS = {
    "os_prefilter": (
        ("common",),
        ("documents", "vocabulary"),
        ("request",),
        ("filters", "hosts", "pipeline", "rules"),
        ("service",),
        ("adapters", "default_service"),
        ("__init__", "nova"),
    ),
    "os_prefilter_agent": (
        ("__init__",),
        ("adapters", "agent", "capabilities"),
        ("cli",),
    ),
    "os_prefilter_tools": (
        ("__init__", "fleet"),
        ("adapters",),
        ("operators",),
        ("cli", "testing"),
        ("command", "pytest_plugin"),
    ),
}

# Schedulers have the library alone, and compute hosts no tools of operators.
_MAY_IMPORT: dict[str, set[str]] = {
    "os_prefilter": set(),
    "os_prefilter_agent": {"os_prefilter"},
    "os_prefilter_tools": {"os_prefilter", "os_prefilter_agent"},
}


def _imports(path: Path) -> set[tuple[str, str]]:
    """Return package and folder of each import of ours, wherever it stands."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module in _FLOORS:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    found = set()
    for name in names:
        package, *rest = name.split(".")
        if package in _FLOORS:
            found.add((package, rest[0] if rest else "__init__"))
    return found


@pytest.mark.parametrize("package", _FLOORS)
def test_each_folder_imports_only_from_the_floors_below_it(
    package: str,
) -> None:
    floor = {
        name: number
        for number, names in enumerate(_FLOORS[package])
        for name in names
    }
    for path in (_SRC / package).rglob("*.py"):
        parts = path.relative_to(_SRC / package).parts
        part = parts[0] if len(parts) > 1 else path.stem
        for other, imported in _imports(path) - {(package, part)}:
            if other == package:
                # A name of the package itself is one of its __init__.
                of_init = floor.get(imported, floor["__init__"])
                assert of_init < floor[part], (
                    f"{path.relative_to(_SRC)} must not import {imported}"
                )


@pytest.mark.parametrize("package", _MAY_IMPORT)
def test_each_package_imports_only_those_that_it_may(package: str) -> None:
    for path in (_SRC / package).rglob("*.py"):
        imported = {name for name, _ in _imports(path)}
        assert imported - {package} <= _MAY_IMPORT[package], (
            f"{path.relative_to(_SRC)} must not import another package"
        )


def _imports_nova(path: Path) -> bool:
    """Return whether a file imports Nova, also within a function."""
    modules: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules.append(node.module or "")
    return any(name.split(".")[0] == "nova" for name in modules)


def test_only_one_folder_imports_nova() -> None:
    """What runs in its processes is read there, and nowhere else."""
    folder = Path("os_prefilter/nova")
    # Runs Nova's own host filters in a command of the operator's.
    command = Path("os_prefilter_tools/adapters/cloud/nova_filters.py")
    found = {
        path.relative_to(_SRC)
        for package in _SRC.glob("os_prefilter*")
        for path in package.rglob("*.py")
        if _imports_nova(path)
    }
    assert {path for path in found if path.parent != folder} == {command}
    assert folder / "activation.py" in found


@pytest.mark.parametrize(
    "line",
    [
        "import nova",
        "import os, nova.conf",
        "from nova.scheduler import utils",
    ],
)
@pytest.mark.parametrize(
    "place", ["{}", "def read():\n    {}", "if True:\n    {}"]
)
def test_import_of_nova_is_found(
    tmp_path: Path, place: str, line: str
) -> None:
    path = tmp_path / "module.py"
    path.write_text(place.format(line), encoding="utf-8")
    assert _imports_nova(path)


@pytest.mark.parametrize(
    "line",
    ["from os_prefilter import nova", "import novaclient", "import os.nova"],
)
def test_import_of_another_name_is_not_one_of_nova(
    tmp_path: Path, line: str
) -> None:
    path = tmp_path / "module.py"
    path.write_text(line, encoding="utf-8")
    assert not _imports_nova(path)


def _loaded_by(code: str) -> set[str]:
    script = (
        f"import sys; {code}; print(*sorted({{name.partition('.')[0] for name"
        " in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    return set(done.stdout.split())


def test_importing_the_library_loads_no_optional_dependency() -> None:
    """No network, no command line, no Nova, no Placement; of OpenStack only
    what the core depends on.
    """
    loaded = _loaded_by("import os_prefilter")
    others = (
        "cliff jsonschema libvirt nova openstack oslo_config oslo_log"
        " prometheus_client sqlalchemy yaml"
    )
    assert not loaded & {
        *others.split(),
        "keystoneauth1",
        "placement",
        "requests",
    }


def test_core_imports_os_traits_alone() -> None:
    """It is pure: without oslo.config, threads and plugins, and in few
    modules, which a newcomer reads in an hour.
    """
    for folder in ("vocabulary", "request", "filters", "pipeline"):
        for path in (_SRC / "os_prefilter" / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            others = re.findall(
                r"^ *(?:from|import)"
                r" (oslo_\w+|threading|stevedore|yaml|jsonschema)\b",
                text,
                re.MULTILINE,
            )
            assert others == [], path
    script = (
        "import sys, os_prefilter; print(*(name for name in sys.modules if"
        " name.startswith('os_prefilter')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert len(done.stdout.split()) <= 41


def test_explain_command_does_not_import_placement_or_openstacksdk() -> None:
    loaded = _loaded_by(
        "from os_prefilter_tools.cli.main import main; main(['explain',"
        " '--example', 'intel-nic', '-f', 'value'])"
    )
    assert "cliff" in loaded
    assert not loaded & {
        "jsonschema",
        "keystoneauth1",
        "openstack",
        "placement",
        "requests",
        "rich",
        "sqlalchemy",
        "wcwidth",
    }


def test_each_class_name_has_one_home() -> None:
    """A reader who looks for a class finds one."""
    homes: dict[str, list[str]] = {}
    for package in _FLOORS:
        for path in sorted((_SRC / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    homes.setdefault(node.name, []).append(
                        str(path.relative_to(_SRC))
                    )
    assert {
        name: paths for name, paths in homes.items() if len(paths) > 1
    } == {}
