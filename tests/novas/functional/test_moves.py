"""A server that moves is subject to the filters again: it lands on a host that can run it, at the first attempt."""

from tests.novas.functional.cloud import Cloud

_IGB_ON_X86 = {"hw_vif_model": "igb", "hw_architecture": "x86_64"}


def test_a_cold_migration_goes_to_a_host_that_can(cloud: Cloud) -> None:
    server = cloud.server(_IGB_ON_X86)
    moved = cloud.act(server, {"migrate": None}, "VERIFY_RESIZE")

    assert (moved.status, moved.host, moved.attempts) == ("VERIFY_RESIZE", "kvm", ("emulator", "kvm"))


def test_a_live_migration_goes_to_a_host_that_can(cloud: Cloud) -> None:
    server = cloud.server(_IGB_ON_X86)
    moved = cloud.act(server, {"os-migrateLive": {"host": None, "block_migration": "auto"}}, "ACTIVE")

    assert (moved.status, moved.host, moved.attempts) == ("ACTIVE", "kvm", ("emulator", "kvm"))


def test_a_resize_goes_to_a_host_that_can_do_what_the_new_flavor_asks_for(cloud: Cloud) -> None:
    server = cloud.server()
    flavor = cloud.flavor({"hw:viommu_model": "intel"})
    moved = cloud.act(server, {"resize": {"flavorRef": flavor}}, "VERIFY_RESIZE")

    assert (moved.status, moved.host, moved.attempts) == ("VERIFY_RESIZE", "q35", ("nothing", "q35"))


def test_an_evacuation_goes_to_a_host_that_can(cloud: Cloud) -> None:
    server = cloud.server(_IGB_ON_X86)
    with cloud.down("emulator"):
        moved = cloud.act(server, {"evacuate": {}}, "SHUTOFF")

    assert (moved.status, moved.host, moved.attempts) == ("SHUTOFF", "kvm", ("emulator", "kvm"))
