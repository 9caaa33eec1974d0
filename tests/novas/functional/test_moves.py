"""A server that moves is subject to the filters again: it lands on a host that can run it, at the first attempt."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from tests.novas.functional.cloud import Cloud, Server

_IGB_ON_X86 = {"hw_vif_model": "igb", "hw_architecture": "x86_64"}
_SOURCE, _CAPABLE, _INCAPABLE = "emulator", "kvm", "old"
_NO_HOST = "No valid host was found."
# Before microversion 2.25.
_OLD_LIVE = {"block_migration": False, "disk_over_commit": False}


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


def test_unshelving_selects_a_capable_host_at_the_first_attempt(cloud: Cloud) -> None:
    shelved = cloud.act(cloud.server(_IGB_ON_X86), {"shelve": None}, "SHELVED_OFFLOADED")
    moved = cloud.act(shelved, {"unshelve": None}, "ACTIVE")

    assert (moved.status, moved.host, moved.attempts) == ("ACTIVE", _SOURCE, (_SOURCE, _SOURCE))


# -- to a host that the administrator names ----------------------------------------------------------------------------


def _live(host: str, **options: Any) -> Mapping[str, Any]:
    return {"os-migrateLive": {"host": host, **(options or {"block_migration": "auto"})}}


def _source_down(cloud: Cloud, action: Mapping[str, Any]) -> AbstractContextManager[None]:
    return cloud.down(_SOURCE) if "evacuate" in action else nullcontext()


def _ready(cloud: Cloud, action: Mapping[str, Any]) -> Server:
    server = cloud.server(_IGB_ON_X86)
    return cloud.act(server, {"shelve": None}, "SHELVED_OFFLOADED") if "unshelve" in action else server


@pytest.mark.parametrize(
    ("action", "status"),
    [
        (_live(_CAPABLE), "ACTIVE"),
        ({"migrate": {"host": _CAPABLE}}, "VERIFY_RESIZE"),
        ({"evacuate": {"host": _CAPABLE}}, "SHUTOFF"),
        ({"unshelve": {"host": _CAPABLE}}, "ACTIVE"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_server_moves_to_a_named_host_that_can_run_it(cloud: Cloud, action: Mapping[str, Any], status: str) -> None:
    server = _ready(cloud, action)
    with _source_down(cloud, action):
        moved = cloud.act(server, action, status)

    assert (moved.status, moved.host, moved.attempts) == (status, _CAPABLE, (_SOURCE, _CAPABLE))


@pytest.mark.parametrize(
    ("action", "status"),
    [
        (_live(_INCAPABLE), "ACTIVE"),
        ({"migrate": {"host": _INCAPABLE}}, "ACTIVE"),
        ({"unshelve": {"host": _INCAPABLE}}, "SHELVED_OFFLOADED"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_named_host_that_cannot_run_the_server_is_refused_and_the_server_stays(
    cloud: Cloud, action: Mapping[str, Any], status: str
) -> None:
    """It shows no fault: what was tried is in its events."""
    server = _ready(cloud, action)
    stayed = cloud.act(server, action, status)

    # Nova writes that a shelved server has left its host after it says so.
    host = None if "unshelve" in action else _SOURCE
    assert (stayed.status, stayed.host, stayed.attempts, stayed.fault) == (status, host, (_SOURCE,), "")
    assert cloud.why_nothing_happened(server).startswith(_NO_HOST)


def test_evacuation_to_a_named_host_that_cannot_run_the_server_is_refused_with_a_fault(cloud: Cloud) -> None:
    server = cloud.server(_IGB_ON_X86)
    with cloud.down(_SOURCE):
        stayed = cloud.act(server, {"evacuate": {"host": _INCAPABLE}}, "SHUTOFF")

    assert (stayed.status, stayed.host, stayed.attempts) == ("ERROR", _SOURCE, (_SOURCE,))
    assert stayed.fault.startswith(_NO_HOST)


def test_resize_to_a_flavor_that_no_host_meets_is_refused_and_the_server_stays(cloud: Cloud) -> None:
    """A resize names no host."""
    server = cloud.server({"hw_machine_type": "pc"})
    stayed = cloud.act(server, {"resize": {"flavorRef": cloud.flavor({"hw:viommu_model": "smmuv3"})}}, "ACTIVE")

    assert (stayed.status, stayed.host, stayed.attempts, stayed.fault) == ("ACTIVE", server.host, server.attempts, "")
    assert cloud.why_nothing_happened(server).startswith(_NO_HOST)


@pytest.mark.parametrize("microversion", ["2.37", "2.74"], ids=["availability zone", "host"])
def test_new_server_on_a_named_host_that_cannot_run_it_is_refused(cloud: Cloud, microversion: str) -> None:
    server = cloud.server_on(_INCAPABLE, _IGB_ON_X86, microversion)

    assert (server.status, server.host, server.attempts) == ("ERROR", None, ())
    assert server.fault.startswith(_NO_HOST)


@pytest.mark.parametrize(
    ("action", "microversion", "host"),
    [
        (_live(_INCAPABLE, block_migration="auto", force=True), "2.67", _INCAPABLE),
        (_live(_INCAPABLE, **_OLD_LIVE), "2.1", _INCAPABLE),
        ({"evacuate": {"host": _INCAPABLE, "force": True}}, "2.67", _SOURCE),
        ({"evacuate": {"host": _INCAPABLE}}, "2.14", _SOURCE),
    ],
    ids=["live, force", "live, before 2.30", "evacuation, force", "evacuation, before 2.29"],
)
def test_forced_move_passes_no_filter_and_fails_on_its_host(
    cloud: Cloud, action: Mapping[str, Any], microversion: str, host: str
) -> None:
    """The fake driver refuses only once the guest has arrived; libvirt refuses a live migration before that."""
    server = cloud.server(_IGB_ON_X86)
    with _source_down(cloud, action):
        moved = cloud.act(server, action, "SHUTOFF", microversion)

    assert (moved.status, moved.host, moved.attempts) == ("ERROR", host, (_SOURCE, _INCAPABLE))
    assert moved.fault == "UnsupportedByHost"
