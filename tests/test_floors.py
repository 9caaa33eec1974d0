"""The architecture: which part may import which, and what importing the library costs."""

import ast
import subprocess
import sys
from pathlib import Path

import os_prefilter

_ROOT = Path(os_prefilter.__file__).parent
# From the ground up. A folder imports only from the floors below its own.
_FLOORS = (
    ("common",),
    ("documents", "vocabulary"),
    ("conf", "request"),
    ("filters", "fleet", "hosts"),
    ("rules",),
    ("pipeline",),
    ("__init__", "adapters"),
    ("operators",),
    ("cli", "nova", "testing"),
)


def _part(path: Path) -> str:
    parts = path.relative_to(_ROOT).parts
    return parts[0] if len(parts) > 1 else path.stem


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("os_prefilter"):
            rest = node.module.split(".")[1:]
            found.update([rest[0]] if rest else [alias.name for alias in node.names])
    return found


def test_each_folder_imports_only_from_the_floors_below_it() -> None:
    """Wherever the import stands: one inside a function counts as well."""
    floor = {name: number for number, names in enumerate(_FLOORS) for name in names}
    for path in _ROOT.rglob("*.py"):
        part = _part(path)
        for imported in _imports(path) - {part}:
            assert floor[imported] < floor[part], f"{path.relative_to(_ROOT)} must not import {imported}"


def _loaded_by(code: str) -> set[str]:
    script = f"import sys; {code}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=600)
    return set(done.stdout.split())


def test_importing_the_library_loads_no_optional_dependency() -> None:
    """No network, no command line, no Nova, no Placement; of OpenStack only what the core depends on."""
    loaded = _loaded_by("import os_prefilter")
    assert "os_prefilter" in loaded
    others = "cliff jsonschema libvirt nova openstack prometheus_client sqlalchemy yaml"
    forbidden = {*others.split(), "keystoneauth1", "placement", "requests"}
    assert not loaded & forbidden
    of_oslo_log = {"oslo_context", "oslo_log", "oslo_serialization", "oslo_utils"}
    assert {name for name in loaded if name.startswith("oslo")} <= {"oslo_config", "oslo_i18n", *of_oslo_log}


def test_explain_command_does_not_import_placement_or_openstacksdk() -> None:
    """Explain must start quickly."""
    loaded = _loaded_by(
        "from os_prefilter.cli.main import main; main(['explain', '--example', 'intel-nic', '-f', 'value'])"
    )
    assert "cliff" in loaded
    assert not loaded & {"keystoneauth1", "openstack", "placement", "requests", "sqlalchemy"}
