# SPDX-License-Identifier: Apache-2.0

"""With the library, a server starts on the first host that tries it, or on
none.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.conftest import one_in
from tests.novas.functional.cloud import Cloud
from tests.novas.functional.hosts import GPU_OF_NOVA
from tests.novas.functional.images import (
    Asked,
    hosts_for,
    impossible,
    possible,
)


# The law of tests/property has each value on each host.
@pytest.mark.parametrize("asked", list(possible())[:: one_in(3)], ids="-".join)
def test_server_starts_on_the_first_host_tried(
    cloud: Cloud, asked: Asked
) -> None:
    name, value, disk_format = asked
    server = cloud.server({name: value}, disk_format=disk_format)

    best = hosts_for(asked)[0]
    assert (server.status, server.host, server.attempts, server.fault) == (
        "ACTIVE",
        best,
        (best,),
        "",
    )


@pytest.mark.parametrize("asked", impossible(), ids="-".join)
def test_impossible_server_is_tried_on_no_host_and_says_why(
    cloud: Cloud, asked: Asked
) -> None:
    name, value, disk_format = asked
    server = cloud.server({name: value}, disk_format=disk_format)

    assert (server.status, server.host, server.attempts) == ("ERROR", None, ())
    assert (
        server.fault
        == "No valid host was found. Scheduling failed: No host offers"
        f" {name}={value}."
    )


@pytest.mark.parametrize(
    ("properties", "extra_specs", "host"),
    [
        # Not on the GPU of Cyborg.
        ({}, {"resources:VGPU": "1"}, GPU_OF_NOVA),
        ({}, {"deploy-config:hyperthreading": "enabled"}, "kvm"),
        # The one host that meets both image and flavor.
        (
            {
                "hw_vif_model": "igb",
                "hw_disk_bus": "sata",
                "hw_viommu_model": "intel",
                "hw_time_hpet": "true",
            },
            {"hw:sound_model": "virtio"},
            "q35",
        ),
    ],
    ids=["VGPU", "hyperthreading", "image and flavor"],
)
def test_server_starts_on_the_one_host_that_meets_image_and_flavor(
    cloud: Cloud,
    properties: Mapping[str, str],
    extra_specs: Mapping[str, str],
    host: str,
) -> None:
    server = cloud.server(properties, extra_specs)

    assert (server.status, server.host, server.attempts) == (
        "ACTIVE",
        host,
        (host,),
    )
