"""With the library, a server starts on the first host that tries it, or on none: everything but the usual devices."""

import pytest

from tests.novas.functional.cloud import Cloud
from tests.novas.functional.hosts import GPU_OF_NOVA
from tests.novas.functional.images import OTHERS, Asked, hosts_for, impossible, possible


@pytest.mark.parametrize("asked", possible(OTHERS), ids="-".join)
def test_a_guest_is_started_at_the_first_attempt(cloud: Cloud, asked: Asked) -> None:
    name, value, disk_format = asked
    server = cloud.server({name: value}, disk_format=disk_format)

    best = hosts_for(asked)[0]
    assert (server.status, server.host, server.attempts, server.fault) == ("ACTIVE", best, (best,), "")


@pytest.mark.parametrize("asked", impossible(), ids="-".join)
def test_what_no_host_can_do_is_tried_on_none(cloud: Cloud, asked: Asked) -> None:
    name, value, disk_format = asked
    server = cloud.server({name: value}, disk_format=disk_format)

    assert (server.status, server.host, server.attempts) == ("ERROR", None, ())
    assert "No valid host was found" in server.fault


def test_a_vgpu_is_novas_and_not_cyborgs(cloud: Cloud) -> None:
    server = cloud.server(extra_specs={"resources:VGPU": "1"})

    assert (server.status, server.host, server.attempts) == ("ACTIVE", GPU_OF_NOVA, (GPU_OF_NOVA,))


def test_one_host_can_do_all_that_image_and_flavor_ask_for(cloud: Cloud) -> None:
    server = cloud.server(
        {"hw_vif_model": "igb", "hw_disk_bus": "sata", "hw_viommu_model": "intel", "hw_time_hpet": "true"},
        {"hw:sound_model": "virtio"},
    )

    assert (server.status, server.host, server.attempts) == ("ACTIVE", "q35", ("q35",))


def test_the_configuration_of_a_flavor_is_asked_for(cloud: Cloud) -> None:
    server = cloud.server(extra_specs={"deploy-config:hyperthreading": "enabled"})

    assert (server.status, server.host, server.attempts) == ("ACTIVE", "kvm", ("kvm",))
