# SPDX-License-Identifier: Apache-2.0

"""Without the library, the same requests are rescheduled, or fail although
there are hosts that can do them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.novas.functional.cloud import Cloud
from tests.novas.functional.hosts import GPU_OF_CYBORG, GPU_OF_NOVA


@pytest.fixture(autouse=True, scope="module")
def _not_activated(cloud: Cloud) -> Iterator[None]:
    with cloud.not_activated():
        yield


@pytest.mark.parametrize(
    "properties",
    [
        {"hw_firmware_type": "uefi"},
        {"hw_time_hpet": "true"},
        {"hw_disk_bus": "uml"},
    ],
)
def test_server_fails_if_the_first_three_hosts_are_incapable(
    cloud: Cloud, properties: Mapping[str, str]
) -> None:
    server = cloud.server(properties)

    assert (server.status, server.host, server.attempts) == (
        "ERROR",
        None,
        ("nothing", "lxc", "vmware"),
    )
    assert "Exceeded maximum number of retries" in server.fault


def test_a_server_is_rescheduled_until_a_host_can_do_it(cloud: Cloud) -> None:
    """One for a GPU is given that of Cyborg first."""
    server = cloud.server({"hw_vif_model": "vmxnet"}, disk_format="vmdk")
    assert (server.status, server.host, server.attempts) == (
        "ACTIVE",
        "vmware",
        ("nothing", "lxc", "vmware"),
    )

    server = cloud.server(extra_specs={"resources:VGPU": "1"})
    assert (server.status, server.host, server.attempts) == (
        "ACTIVE",
        GPU_OF_NOVA,
        (GPU_OF_CYBORG, GPU_OF_NOVA),
    )
