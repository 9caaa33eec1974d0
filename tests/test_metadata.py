# SPDX-License-Identifier: Apache-2.0

"""What is installed is what the project says: names, entry points, the public
interface.
"""

from __future__ import annotations

from importlib.metadata import distribution

from tests.support.project import our_entry_points, project_table


def test_every_entry_point_loads() -> None:
    groups = (
        "os_prefilter.request_filters",
        "openstack.prefilter.v1",
        "oslo.config.opts",
        "console_scripts",
    )
    ours = [point for group in groups for point in our_entry_points(group)]
    assert {point.group for point in ours} == set(groups)
    for point in ours:
        assert callable(point.load()), point


def test_installed_entry_points_are_those_of_pyproject_toml() -> None:
    """An editable install does not see a new one by itself."""
    table = project_table()
    written = {("console_scripts", *each) for each in table["scripts"].items()}
    written |= {
        (group, *each)
        for group, points in table["entry-points"].items()
        for each in points.items()
    }
    installed = {
        (each.group, each.name, each.value)
        for each in distribution("os-prefilter").entry_points
    }
    assert installed == written, (
        "pyproject.toml and what is installed differ. Install it again: pip"
        " install -e ."
    )


def test_core_dependencies_are_exactly_the_seven_allowed_packages() -> None:
    """ADR 0008 says why PyYAML and jsonschema, ADR 0015 why oslo.log."""
    core = {
        requirement.partition(">")[0].replace(".", "-").lower()
        for requirement in distribution("os-prefilter").requires or []
        if "extra ==" not in requirement
    }
    assert core == {
        "jsonschema",
        "os-resource-classes",
        "os-traits",
        "oslo-config",
        "oslo-log",
        "pyyaml",
        "stevedore",
    }
