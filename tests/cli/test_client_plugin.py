# SPDX-License-Identifier: Apache-2.0

"""The plugin of the openstack client has the commands of ``os-prefilter``, and
costs little where they are not used.
"""

from __future__ import annotations

import subprocess
import sys

from os_prefilter_agent.cli.context import CloudCommand
from os_prefilter_tools.cli.main import COMMANDS
from tests.support.project import our_commands, our_entry_points


def test_every_command_can_run_against_a_cloud() -> None:
    """By the class that gives it the connection of the client."""
    for each in our_commands().values():
        assert issubclass(each.load(), CloudCommand), each


def test_plugin_has_the_names_that_the_client_looks_for() -> None:
    (point,) = our_entry_points("openstack.cli.extension")
    plugin = point.load()
    assert (
        f"openstack.{plugin.API_NAME}.v{plugin.DEFAULT_API_VERSION}"
        == COMMANDS
    )
    assert {each.name for each in our_commands().values()} == {
        f"{plugin.API_NAME}_{name.replace(' ', '_')}"
        for name in our_commands()
    }


def test_loading_all_commands_imports_no_service() -> None:
    """The client loads them at each start, whatever it is asked for."""
    values = [
        each.value for each in our_entry_points("openstack.prefilter.v1")
    ]
    code = (
        "import pkgutil, sys;"
        f" [pkgutil.resolve_name(each) for each in {values}];"
        " print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    ).stdout.split()
    assert "os_prefilter" in loaded
    assert not set(loaded) & {
        "defusedxml",
        "keystoneauth1",
        "libvirt",
        "openstack",
        "placement",
        "requests",
        "sqlalchemy",
    }
