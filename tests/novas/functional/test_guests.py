"""With the library, a server starts on the first host that tries it, or on none: everything but the usual devices."""

import pytest

from tests.novas.functional.cloud import Cloud
from tests.novas.functional.hosts import GPU_OF_NOVA
from tests.novas.functional.images import OTHERS, Asked, hosts_for, impossible, possible


@pytest.mark.parametrize("asked", possible(OTHERS), ids="-".join)
def test_server_starts_on_the_first_host_tried(cloud: Cloud, asked: Asked) -> None:
    name, value, disk_format = asked
    server = cloud.server({name: value}, disk_format=disk_format)

    best = hosts_for(asked)[0]
    assert (server.status, server.host, server.attempts, server.fault) == ("ACTIVE", best, (best,), "")


@pytest.mark.parametrize("asked", impossible(), ids="-".join)
def test_impossible_server_is_tried_on_no_host_and_says_why(cloud: Cloud, asked: Asked) -> None:
    name, value, disk_format = asked
    server = cloud.server({name: value}, disk_format=disk_format)

    assert (server.status, server.host, server.attempts) == ("ERROR", None, ())
    assert server.fault == f"No valid host was found. Scheduling failed: No host offers {name}={value}."


def test_vgpu_server_starts_on_the_gpu_of_nova_not_of_cyborg(cloud: Cloud) -> None:
    server = cloud.server(extra_specs={"resources:VGPU": "1"})

    assert (server.status, server.host, server.attempts) == ("ACTIVE", GPU_OF_NOVA, (GPU_OF_NOVA,))


def test_server_starts_on_the_one_host_that_meets_both_image_and_flavor(cloud: Cloud) -> None:
    server = cloud.server(
        {"hw_vif_model": "igb", "hw_disk_bus": "sata", "hw_viommu_model": "intel", "hw_time_hpet": "true"},
        {"hw:sound_model": "virtio"},
    )

    assert (server.status, server.host, server.attempts) == ("ACTIVE", "q35", ("q35",))


def test_deploy_config_server_starts_on_the_host_with_hyperthreading(cloud: Cloud) -> None:
    server = cloud.server(extra_specs={"deploy-config:hyperthreading": "enabled"})

    assert (server.status, server.host, server.attempts) == ("ACTIVE", "kvm", ("kvm",))
