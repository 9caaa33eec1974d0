# SPDX-License-Identifier: Apache-2.0

"""``openstack prefilter ...``: the real openstack client, with its own
options, on the real services.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.services.cloud.cloud import Cloud
from tests.support.loopback import Reply, serving


def test_candidates_come_from_the_cloud_the_openstack_client_uses(
    cloud: Cloud,
) -> None:
    cloud.image("for the client", disk_format="qcow2", hw_vif_model="igb")
    cloud.flavor("for the client", "client", {"resources:VGPU": "1"})
    named = ["--image", "for the client", "--flavor", "for the client"]
    done = cloud.openstack("prefilter", "candidates", *named, "-f", "json")
    assert done.returncode == 0, done.stderr
    assert [row["Host"] for row in json.loads(done.stdout)] == ["gpu-nova-1"]
    assert any(
        "/allocation_candidates" in each for each in cloud.placement.sent
    )
    assert cloud.written == []


@pytest.mark.parametrize(
    ("argv", "user", "message"),
    [
        (
            ["candidates", "--image", "nosuch"],
            "admin",
            "--image: there is no image 'nosuch'",
        ),
        (
            ["candidates", "--bogus"],
            "admin",
            "unrecognized arguments: --bogus",
        ),
        (["explain", "--image", "x"], "", "The cloud cannot be used: "),
        (
            ["candidates", "--property", "x=y"],
            "",
            "Without a cloud, run 'os-prefilter' instead of 'openstack"
            " prefilter'",
        ),
    ],
)
def test_client_exits_with_code_1_and_no_traceback_on_errors(
    cloud: Cloud, argv: list[str], user: str, message: str
) -> None:
    """Exit code 2 means that no host remains, in the client too: an example of
    fleet.rst.
    """
    done = cloud.openstack("prefilter", *argv, cloud=user)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_client_ends_where_keystone_refuses_version_discovery(
    cloud: Cloud,
) -> None:
    with serving(
        lambda _call: Reply(401, b"{}", {"Content-Type": "application/json"})
    ) as url:
        login = [
            "--os-auth-url",
            f"{url}/v3",
            "--os-username",
            "a",
            "--os-password",
            "b",
            "--os-project-name",
            "c",
        ]
        domains = [
            "--os-user-domain-id",
            "default",
            "--os-project-domain-id",
            "default",
        ]
        done = cloud.openstack(
            *login, *domains, "prefilter", "readiness", cloud=""
        )
    assert done.returncode == 1
    assert "The cloud cannot be used: Unauthorized" in done.stderr


def test_commands_that_need_no_cloud_work_without_login(
    cloud: Cloud, tmp_path: Path
) -> None:
    fleet, flavor = tmp_path / "fleet", tmp_path / "flavor"
    fleet.write_text("hosts: {a: {resources: {VCPU: 8, MEMORY_MB: 8192}}}")
    flavor.write_text('{"vcpus": 1, "ram": 1}')
    files = [
        "--hosts",
        str(fleet),
        "--flavor",
        str(flavor),
        "--filter",
        "noop",
    ]
    for argv in (["filter", "list"], ["candidates", *files, "-f", "value"]):
        done = cloud.openstack("prefilter", *argv, cloud="")
        assert done.returncode == 0, done.stderr
        assert done.stdout
    assert cloud.placement.sent == []


def test_client_help_omits_our_own_os_cloud_option(cloud: Cloud) -> None:
    done = cloud.openstack("prefilter", "explain", "--help", cloud="")
    assert done.returncode == 0
    assert "openstack prefilter explain" in done.stdout
    assert "--os-cloud" not in done.stdout
