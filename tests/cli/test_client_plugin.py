"""The plugin of the openstack client has the commands of ``os-prefilter``, and costs little where they are not used."""

import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from os_prefilter.cli.cloud import CloudCommand


def _ours(group: str) -> dict[str, EntryPoint]:
    return {each.name: each for each in entry_points(group=group) if each.value.startswith("os_prefilter.")}


def test_openstack_plugin_has_the_same_commands_as_os_prefilter() -> None:
    """A new command must be added to both lists in pyproject.toml."""
    commands = {f"prefilter_{name}": each.value for name, each in _ours("os_prefilter.cli").items()}
    assert {name: each.value for name, each in _ours("openstack.prefilter.v1").items()} == commands
    assert commands


def test_every_command_can_run_against_a_cloud() -> None:
    """By the class that gives it the connection of the client."""
    for each in _ours("os_prefilter.cli").values():
        assert issubclass(each.load(), CloudCommand), each


def test_plugin_entry_point_matches_its_api_name_and_version() -> None:
    (plugin,) = (each for each in _ours("openstack.cli.extension").values())
    module = plugin.load()
    assert isinstance(module, ModuleType)
    assert f"openstack.{module.API_NAME}.v{module.DEFAULT_API_VERSION}" == "openstack.prefilter.v1"


def test_loading_all_commands_imports_no_service() -> None:
    """The client loads them at each start, whatever it is asked for."""
    code = (
        "import sys; from importlib.metadata import entry_points;"
        "[each.load() for each in entry_points(group='openstack.prefilter.v1')];"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    ).stdout.split()
    assert "os_prefilter" in loaded
    assert not set(loaded) & {"keystoneauth1", "openstack", "placement", "requests", "sqlalchemy"}
