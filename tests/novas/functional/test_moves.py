# SPDX-License-Identifier: Apache-2.0

"""A server that moves is subject to the filters again: it lands on a host that
can run it, at the first attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from tests.novas.functional.cloud import Cloud, Server
from tests.support.processes import assert_unittests_pass

_IGB_ON_X86 = {"hw_vif_model": "igb", "hw_architecture": "x86_64"}
_SOURCE, _CAPABLE, _INCAPABLE = "emulator", "kvm", "old"
_NO_HOST = "No valid host was found."
_MOVES = {
    "os-migrateLive": "ACTIVE",
    "migrate": "VERIFY_RESIZE",
    "evacuate": "SHUTOFF",
    "unshelve": "ACTIVE",
}
"""Action -> the status of a server that has moved."""


def _move(verb: str, host: str | None) -> Mapping[str, Any]:
    """Return the action that moves a server to a host that the administrator
    names, if they name one.
    """
    if verb == "os-migrateLive":
        return {verb: {"host": host, "block_migration": "auto"}}
    return {
        verb: {"host": host} if host else {} if verb == "evacuate" else None
    }


def _source_down(cloud: Cloud, verb: str) -> AbstractContextManager[None]:
    return cloud.down(_SOURCE) if verb == "evacuate" else nullcontext()


def _ready(cloud: Cloud, verb: str) -> Server:
    server = cloud.server(_IGB_ON_X86)
    return (
        cloud.act(server, {"shelve": None}, "SHELVED_OFFLOADED")
        if verb == "unshelve"
        else server
    )


@pytest.mark.parametrize("named", [None, _CAPABLE])
@pytest.mark.parametrize("verb", _MOVES)
def test_server_moves_to_a_host_that_can_run_it_at_the_first_attempt(
    cloud: Cloud, verb: str, named: str | None
) -> None:
    server = _ready(cloud, verb)
    with _source_down(cloud, verb):
        moved = cloud.act(server, _move(verb, named), _MOVES[verb])

    # A shelved server goes back, unless it is told where to go.
    best = _SOURCE if verb == "unshelve" and not named else _CAPABLE
    assert (moved.status, moved.host, moved.attempts) == (
        _MOVES[verb],
        best,
        (_SOURCE, best),
    )


_AVX2, _SSE42 = "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE42"
_CPUS = {
    "nothing": (_SSE42, _AVX2),
    "lxc": (_SSE42,),
    "q35": (_SSE42, _AVX2),
}


def test_live_migration_prefers_a_host_with_the_cpu_of_the_present_one(
    cloud: Cloud,
) -> None:
    """Nova alone would choose the next host by memory."""
    with cloud.weighing_cpus(_CPUS):
        server = cloud.server()
        moved = cloud.act(server, _move("os-migrateLive", None), "ACTIVE")
        assert moved.attempts == ("nothing", "q35")
        assert moved.host == "q35"

        # The guest of a cold migration starts anew.
        server = cloud.server()
        moved = cloud.act(server, _move("migrate", None), "VERIFY_RESIZE")
        assert moved.host == "lxc"


def test_live_migration_prefers_a_host_that_reports_the_same_cpu(
    cloud: Cloud,
) -> None:
    """By the description of libvirt that agents report."""
    with (
        cloud.x86_guests("old", "q35", host_model="EPYC"),
        cloud.x86_guests("kvm", host_model="EPYC-Rome"),
        cloud.weighing_cpus({}),
    ):
        server = cloud.server(availability_zone="nova:old")
        assert server.host == "old"
        moved = cloud.act(server, _move("os-migrateLive", None), "ACTIVE")
        assert moved.host == "q35"


def test_first_destination_of_a_live_migration_passes_novas_comparison_of_cpus() -> (
    None
):
    """It does where one host does, and Nova's own weighers choose others."""
    assert_unittests_pass("tests.novas.functional.libvirt_cpus", "Ran 1 test")


def test_live_migration_excludes_no_host_because_of_its_cpu(
    cloud: Cloud,
) -> None:
    with cloud.weighing_cpus({"nothing": (_SSE42, _AVX2), "lxc": (_SSE42,)}):
        server = cloud.server()
        moved = cloud.act(server, _move("os-migrateLive", None), "ACTIVE")
        assert moved.host == "lxc"


def test_resize_selects_a_host_that_meets_the_new_flavor_or_leaves_the_server_where_it_is(
    cloud: Cloud,
) -> None:
    server = cloud.server()
    moved = cloud.act(
        server,
        {"resize": {"flavorRef": cloud.flavor({"hw:viommu_model": "intel"})}},
        "VERIFY_RESIZE",
    )
    assert (moved.status, moved.host, moved.attempts) == (
        "VERIFY_RESIZE",
        "q35",
        ("nothing", "q35"),
    )

    server = cloud.server({"hw_machine_type": "pc"})
    stayed = cloud.act(
        server,
        {"resize": {"flavorRef": cloud.flavor({"hw:viommu_model": "smmuv3"})}},
        "ACTIVE",
    )
    assert (stayed.status, stayed.host, stayed.attempts, stayed.fault) == (
        "ACTIVE",
        server.host,
        server.attempts,
        "",
    )
    assert cloud.why_nothing_happened(server).startswith(_NO_HOST)


@pytest.mark.parametrize("verb", _MOVES)
def test_named_host_that_cannot_run_the_server_is_refused_and_the_server_stays(
    cloud: Cloud, verb: str
) -> None:
    """It shows no fault but after an evacuation: what was tried is in its
    events.
    """
    server = _ready(cloud, verb)
    status = {"unshelve": "SHELVED_OFFLOADED", "evacuate": "SHUTOFF"}.get(
        verb, "ACTIVE"
    )
    with _source_down(cloud, verb):
        stayed = cloud.act(server, _move(verb, _INCAPABLE), status)

    if verb == "evacuate":
        assert (stayed.status, stayed.host, stayed.attempts) == (
            "ERROR",
            _SOURCE,
            (_SOURCE,),
        )
        assert stayed.fault.startswith(_NO_HOST)
        return
    # Nova writes that a shelved server has left its host after it says so.
    host = None if verb == "unshelve" else _SOURCE
    assert (stayed.status, stayed.host, stayed.attempts, stayed.fault) == (
        status,
        host,
        (_SOURCE,),
        "",
    )
    assert cloud.why_nothing_happened(server).startswith(_NO_HOST)
