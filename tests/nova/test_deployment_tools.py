# SPDX-License-Identifier: Apache-2.0

"""The recipes of deployment-tools.rst: what each tool makes of the file that
the page shows, as Nova's options read it.

The functions below imitate what was read in OpenStack-Ansible, OpenStack-Helm
and Puppet, whose code is in no Python package. Each was compared once with the
tool's own code, in the versions that the page states. Kolla's own code runs in
``tests/services/packages``; RHOSO and the charms render nothing, they place a
file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from nova.conf import CONF, scheduler
from oslo_config import cfg

from os_prefilter.adapters.nova_conf import read_conf as read_nova_conf
from os_prefilter_agent.cli.capabilities import ReportCapabilities
from os_prefilter_tools.cli.main import Program
from tests.support import nova_operator
from tests.support.deployment_tools import (
    BLAZARS,
    FILES,
    NOVAS,
    OURS,
    SECTION,
    read_conf,
)
from tests.support.nova_start import Start, entries
from tests.support.pages import DOCS, DROP_IN

Sections = dict[str, dict[str, list[str]]]

_SETS_NOTHING = "[filter_scheduler]\nenabled_filters = ComputeFilter\n"
_SETS_DEFAULT = f"{_SETS_NOTHING}available_filters = {NOVAS}\n"
_SETS_BLAZAR = f"{_SETS_DEFAULT}available_filters = {BLAZARS}\n"
_SAME = DROP_IN.read_text(encoding="utf-8")


@pytest.fixture
def nova_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that oslo.config searches like /etc/nova."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".nova"
    folder.mkdir()
    return folder


def placed(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def render_config_template(
    overrides: Mapping[str, Any], sections: Sections
) -> None:
    """OpenStack-Ansible: a mapping without values becomes a line for each key,
    a list one line.
    """
    for section, options in overrides.items():
        for option, value in options.items():
            if isinstance(value, dict):
                assert not any(value.values())
                lines = list(value)
            elif isinstance(value, list):
                lines = [",".join(value)]
            else:
                lines = [str(value)]
            sections.setdefault(section, {})[option] = lines


def render_helm_values(values: Mapping[str, Any], sections: Sections) -> None:
    """OpenStack-Helm: only what has the type multistring becomes a line for
    each value, a list one line.
    """
    for options in values.values():
        for option, value in options.items():
            if not isinstance(value, dict):
                continue
            options[option] = value["values"]
            if value["type"] == "multistring":
                options[option] = dict.fromkeys(value["values"])
    render_config_template(values, sections)


def render_hiera(data: Mapping[str, Any], sections: Sections) -> None:
    """Puppet: the parameter of nova::scheduler::filter, and the resources
    nova_config; an array becomes lines.
    """
    resources = {
        name: resource["value"]
        for name, resource in data["nova::config::nova_config"].items()
    }
    name = "filter_scheduler/available_filters"
    assert name not in resources, "a duplicate declaration"
    resources[name] = data["nova::scheduler::filter::available_filters"]
    for name, value in resources.items():
        section, option = name.split("/", 1)
        lines = value if isinstance(value, list) else [value]
        sections.setdefault(section, {})[option] = lines


_OSA = "/etc/openstack_deploy/user_variables_prefilter.yml"
_TOOLS: dict[
    str,
    tuple[str, tuple[str, ...], Callable[[Mapping[str, Any], Sections], None]],
] = {
    "OpenStack-Ansible": (
        _OSA,
        ("nova_nova_conf_overrides",),
        render_config_template,
    ),
    "OpenStack-Helm": (
        "os-prefilter-values.yaml",
        ("conf", "nova"),
        render_helm_values,
    ),
    "Puppet": ("hieradata/nova_scheduler.yaml", (), render_hiera),
}


def rendered(tool: str, folder: Path, beside: str) -> Path:
    """Return the nova.conf that a tool writes with the file of the page."""
    caption, keys, render = _TOOLS[tool]
    overrides = yaml.safe_load(FILES[caption])
    for key in keys:
        overrides = overrides[key]
    sections: Sections = {}
    cfg.ConfigParser(
        str(placed(folder / "template.conf", beside)), sections
    ).parse()
    render(overrides, sections)
    lines = []
    for section, options in sections.items():
        lines.append(f"[{section}]")
        for option, values in options.items():
            lines += [f"{option} = {value}" for value in values]
    return placed(folder / "nova.conf", "\n".join(lines) + "\n")


@pytest.mark.parametrize("beside", [_SETS_NOTHING, _SETS_DEFAULT])
@pytest.mark.parametrize("tool", _TOOLS)
def test_override_of_the_page_activates_and_keeps_novas_host_filters(
    tool: str, beside: str, nova_folder: Path
) -> None:
    assert read_conf("--config-file", rendered(tool, nova_folder, beside)) == (
        [NOVAS, OURS],
        SECTION,
    )


def test_rhoso_reads_the_custom_service_config_after_the_operators_file(
    nova_folder: Path,
) -> None:
    plane = yaml.safe_load(FILES["openstackcontrolplane.yaml"])
    template = plane["spec"]["nova"]["template"]["schedulerServiceTemplate"]
    placed(nova_folder / "nova.conf", "")
    folder = nova_folder / "nova.conf.d"
    placed(folder / nova_operator.FILE, nova_operator.conf_text())
    placed(folder / nova_operator.OVERRIDE, template["customServiceConfig"])
    assert read_conf() == ([NOVAS, NOVAS, OURS], SECTION)


def test_host_filters_for_rhoso_are_those_of_the_operator_and_ours(
    nova_folder: Path,
) -> None:
    placed(nova_folder / "nova.conf", "")
    folder = nova_folder / "nova.conf.d"
    placed(folder / nova_operator.FILE, nova_operator.conf_text())
    placed(
        folder / nova_operator.OVERRIDE,
        FILES["02-nova-override.conf"],
    )
    conf = cfg.ConfigOpts()
    scheduler.register_opts(conf)
    conf([], project="nova", prog="nova-scheduler")
    assert conf.filter_scheduler.enabled_filters == [
        *nova_operator.HOST_FILTERS,
        "RebuildFilter",
    ]


def test_operators_switches_and_our_filters_run_one_filter_of_each_pair(
    start: Start,
) -> None:
    start(
        "",
        conf=f"{nova_operator.conf_text()}[filter_scheduler]\navailable_filters"
        f" = {OURS}\n[prefilter]\nenabled_filters ="
        " image_metadata,image_type\nwait_for_reports = false\n",
    )
    assert "transform_image_metadata" not in entries()
    assert "require_image_type_support" not in entries()
    assert "ours" in entries()


@pytest.mark.parametrize(
    "beside", ["", _SETS_NOTHING, _SETS_DEFAULT, _SETS_BLAZAR, _SAME]
)
@pytest.mark.parametrize(
    "arguments",
    [(), ("--config-file",), ("--config-file", "--config-dir")],
    ids=len,
)
def test_drop_in_adds_to_any_nova_conf(
    beside: str, arguments: tuple[str, ...], nova_folder: Path
) -> None:
    """Found by its folder's name or named as a directory; what nova.conf sets
    stays.
    """
    nova_conf = placed(nova_folder / "nova.conf", beside)
    drop_in = placed(
        nova_folder / "nova-scheduler.conf.d" / DROP_IN.name, _SAME
    )
    found = read_conf(
        *(
            each
            for pair in zip(arguments, (nova_conf, drop_in.parent))
            for each in pair
        )
    )
    assert set(found.available_filters) == {
        NOVAS,
        OURS,
        *re.findall(r"^available_filters = (\S+)", beside, re.MULTILINE),
    }
    assert found.section == SECTION


def test_the_drop_in_wins_over_nova_conf_unless_that_alone_is_named(
    nova_folder: Path,
) -> None:
    nova_conf = placed(
        nova_folder / "nova.conf", "[prefilter]\nenabled_filters = noop\n"
    )
    folder = placed(
        nova_folder / "nova-scheduler.conf.d" / "x.conf", _SAME
    ).parent
    assert read_conf().section == SECTION
    assert (
        read_conf("--config-file", nova_conf, "--config-dir", folder).section
        == SECTION
    )
    assert read_conf("--config-file", nova_conf).section[
        "enabled_filters"
    ] == ["noop"]


def test_lines_that_are_there_twice_count_once(start: Start) -> None:
    start("hpet")
    once = entries()
    scheduler = start(
        "hpet",
        "[filter_scheduler]",
        f"available_filters = {NOVAS}",
        f"available_filters = {OURS}",
    )
    assert (CONF.filter_scheduler.available_filters, entries()) == (
        [NOVAS, OURS] * 2,
        once,
    )
    assert len(scheduler.host_manager.enabled_filters) == len(
        CONF.filter_scheduler.enabled_filters
    )


def test_daemon_set_runs_the_report_with_a_nova_conf_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its volume is where nova-compute looks by itself, and a section that is
    in both files has the options of both.
    """
    pod = yaml.safe_load(FILES["os-prefilter-report.yaml"])["spec"][
        "template"
    ]["spec"]
    (container,) = pod["containers"]
    mounts = {
        each["name"]: each["mountPath"] for each in container["volumeMounts"]
    }
    assert mounts["config"] == "/etc/nova/nova.conf.d"
    assert container["command"][:3] == [
        "os-prefilter",
        "capabilities",
        "report",
    ]
    parsed = (
        ReportCapabilities(Program("0"), None)
        .get_parser("report")
        .parse_args(container["command"][3:])
    )
    assert parsed.watch == 60
    assert parsed.configuration == ()
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".nova" / "nova.conf.d"
    folder.mkdir(parents=True)
    placed(
        folder / "00-nova-compute.conf",
        "[placement]\nregion_name = one\n[libvirt]\nvirt_type = kvm\n",
    )
    placed(folder / "nova-ks.conf", "[placement]\nusername = nova\n")
    conf = read_nova_conf(())
    conf.register_opts(
        [cfg.StrOpt("region_name"), cfg.StrOpt("username")], group="placement"
    )
    assert conf.placement.region_name == "one"
    assert conf.placement.username == "nova"


def test_agent_on_a_data_plane_host_takes_the_options_of_the_page() -> None:
    """nova-compute is in a container, which cannot be asked for its
    release.
    """
    (options,) = re.findall(
        r"^OS_PREFILTER_AGENT_OPTIONS=(.*)$",
        FILES["/etc/os-prefilter/agent.env"],
        re.MULTILINE,
    )
    parsed = (
        ReportCapabilities(Program("0"), None)
        .get_parser("report")
        .parse_args(options.split())
    )
    assert list(parsed.configuration) == [
        "--config-dir",
        "/var/lib/openstack/nova",
    ]
    assert parsed.nova_release == 27


def test_page_states_what_the_package_requires() -> None:
    stated = re.search(
        r"requires Python (\S+) and",
        (DOCS / "deployment-tools.rst").read_text(encoding="utf-8"),
    )
    assert stated
    assert metadata("os-prefilter")["Requires-Python"] == f">={stated[1]}"
