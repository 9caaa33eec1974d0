"""A server that moves is subject to the filters again: it lands on a host that can run it, at the first attempt."""

from tests.novas.functional.cloud import Cloud

_IGB_ON_X86 = {"hw_vif_model": "igb", "hw_architecture": "x86_64"}


def test_cold_migration_selects_a_capable_host_at_the_first_attempt(cloud: Cloud) -> None:
    server = cloud.server(_IGB_ON_X86)
    moved = cloud.act(server, {"migrate": None}, "VERIFY_RESIZE")

    assert (moved.status, moved.host, moved.attempts) == ("VERIFY_RESIZE", "kvm", ("emulator", "kvm"))


def test_live_migration_selects_a_capable_host_at_the_first_attempt(cloud: Cloud) -> None:
    server = cloud.server(_IGB_ON_X86)
    moved = cloud.act(server, {"os-migrateLive": {"host": None, "block_migration": "auto"}}, "ACTIVE")

    assert (moved.status, moved.host, moved.attempts) == ("ACTIVE", "kvm", ("emulator", "kvm"))


def test_resize_selects_a_host_that_meets_the_new_flavor(cloud: Cloud) -> None:
    server = cloud.server()
    flavor = cloud.flavor({"hw:viommu_model": "intel"})
    moved = cloud.act(server, {"resize": {"flavorRef": flavor}}, "VERIFY_RESIZE")

    assert (moved.status, moved.host, moved.attempts) == ("VERIFY_RESIZE", "q35", ("nothing", "q35"))


def test_evacuation_selects_a_capable_host_at_the_first_attempt(cloud: Cloud) -> None:
    server = cloud.server(_IGB_ON_X86)
    with cloud.down("emulator"):
        moved = cloud.act(server, {"evacuate": {}}, "SHUTOFF")

    assert (moved.status, moved.host, moved.attempts) == ("SHUTOFF", "kvm", ("emulator", "kvm"))
