# SPDX-License-Identifier: Apache-2.0

"""The recipes of deployment-tools.rst with the own code of the tools that are
Python packages: Kolla, Kolla-Ansible.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.services.packages.builds import clean_run, empty_environment
from tests.support.deployment_tools import (
    BLAZARS,
    FILES,
    NOTHING,
    NOVAS,
    OURS,
    SECTION,
    read_conf,
)

_OVERRIDE = FILES["/etc/kolla/config/nova/nova-scheduler.conf"]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with both tools, of the newest releases that this
    Python can install.
    """
    folder = tmp_path_factory.mktemp("kolla")
    pip = empty_environment(folder / "environment") / "pip"
    # kolla-build looks for Docker's client before it looks at what it is to
    # do.
    for arguments in (
        ["ansible-core", "docker", "kolla", "oslo.config"],
        ["--no-deps", "kolla-ansible"],
    ):
        done = clean_run(pip, "install", "--quiet", *arguments, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder / "environment"


def merged(tools: Path, folder: Path, override: str = _OVERRIDE) -> list[str]:
    """Return the available filters after Kolla-Ansible has merged its own
    template's section with the override.
    """
    ansible = tools / "share" / "kolla-ansible" / "ansible"
    template = (
        ansible / "roles" / "nova" / "templates" / "nova.conf.j2"
    ).read_text(encoding="utf-8")
    section = re.search(
        r"^\[filter_scheduler\]\n(?:.+\n)+", template, re.MULTILINE
    )
    assert section
    assert BLAZARS in section[0]
    (folder / "nova.conf.j2").write_text(section[0], encoding="utf-8")
    (folder / "nova-scheduler.conf").write_text(override, encoding="utf-8")
    sources = [
        str(folder / name)
        for name in ("nova.conf.j2", "global.conf", "nova-scheduler.conf")
    ]
    variables = {
        "enable_blazar": True,
        "enable_nova_fake": False,
        "enable_cells": False,
    }
    done = clean_run(
        *(
            tools / "bin" / "ansible",
            "localhost",
            "--inventory",
            "localhost,",
            "--connection",
            "local",
        ),
        *(
            "--extra-vars",
            json.dumps(
                variables
                | {"ansible_python_interpreter": str(tools / "bin" / "python")}
            ),
        ),
        *("--module-name", "merge_configs"),
        *(
            "--args",
            json.dumps(
                {"sources": sources, "dest": str(folder / "nova.conf")}
            ),
        ),
        cwd=folder,
        ANSIBLE_ACTION_PLUGINS=str(ansible / "action_plugins"),
        ANSIBLE_LIBRARY=str(ansible / "library"),
        ANSIBLE_HOME=str(folder / "ansible"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    read = read_conf("--config-file", folder / "nova.conf")
    assert read.section == (SECTION if "[prefilter]" in override else NOTHING)
    return read.available_filters


def test_kolla_ansible_keeps_both_lines_and_replaces_those_of_its_template(
    tools: Path, tmp_path: Path
) -> None:
    """One line alone would drop Nova's host filters."""
    assert merged(tools, tmp_path) == [NOVAS, OURS]
    assert merged(
        tools, tmp_path, f"[filter_scheduler]\navailable_filters = {OURS}\n"
    ) == [OURS]


def test_kolla_installs_the_plugin_with_its_constraints(
    tools: Path, tmp_path: Path
) -> None:
    (tmp_path / "kolla-build.conf").write_text(
        FILES["/etc/kolla/kolla-build.conf"], encoding="utf-8"
    )
    done = clean_run(
        *(tools / "bin" / "kolla-build", "--config-file", "kolla-build.conf"),
        *("--template-only", "--work-dir", tmp_path / "work"),
        "^nova-scheduler$",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    images = {
        path.parent.name: path.read_text(encoding="utf-8")
        for path in (tmp_path / "work").rglob("Dockerfile")
    }
    assert re.search(
        r"pip .*install .*-c \S+upper-constraints.txt /plugins/\*",
        images["nova-base"],
    )
    assert re.search(
        r"^FROM \S+nova-base:", images["nova-scheduler"], re.MULTILINE
    )
