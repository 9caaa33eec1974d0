# SPDX-License-Identifier: Apache-2.0

"""A server keeps the machine type of its first start in most moves, whatever
the default of its next host is.

The image asks for an IDE bus, which q35 never has. Both hosts can give it to a
guest of the machine type ``pc``, and that is the default of both when the
server is started.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from tests.novas.functional.cloud import Cloud
from tests.support.processes import assert_unittests_pass

_SOURCE, _OTHER = "old", "kvm"
_IDE = {"img_hv_type": "kvm", "hw_disk_bus": "ide"}


@pytest.mark.parametrize(
    ("action", "status"),
    [
        (
            {"os-migrateLive": {"host": None, "block_migration": "auto"}},
            "ACTIVE",
        ),
        ({"evacuate": {}}, "SHUTOFF"),
    ],
    ids=["live migration", "evacuation"],
)
def test_move_keeps_the_machine_type_on_a_host_with_another_default(
    cloud: Cloud, action: Mapping[str, Any], status: str
) -> None:
    server = cloud.server(_IDE)
    with (
        cloud.x86_guests(_OTHER, default_machine="q35"),
        cloud.down(_SOURCE) if "evacuate" in action else nullcontext(),
    ):
        moved = cloud.act(server, action, status)

    assert (moved.attempts, moved.machine_types) == (
        (_SOURCE, _OTHER),
        ("pc", "pc"),
    )


def test_unshelve_keeps_the_machine_type_on_a_host_with_another_default(
    cloud: Cloud,
) -> None:
    server = cloud.server(_IDE)
    shelved = cloud.act(server, {"shelve": None}, "SHELVED_OFFLOADED")
    with cloud.x86_guests(_SOURCE, _OTHER, default_machine="q35"):
        moved = cloud.act(shelved, {"unshelve": None}, "ACTIVE")

    assert (moved.host, moved.machine_types) == (_SOURCE, ("pc", "pc"))


def test_kept_machine_type_is_required_of_the_next_host(cloud: Cloud) -> None:
    server = cloud.server(_IDE)
    with cloud.x86_guests(
        _OTHER, "q35", default_machine="q35", machines=frozenset(("q35",))
    ):
        moved = cloud.act(
            server,
            {"os-migrateLive": {"host": None, "block_migration": "auto"}},
            "ACTIVE",
        )

    assert (moved.host, moved.attempts) == (_SOURCE, (_SOURCE,))


@pytest.mark.parametrize("resize", [False, True])
def test_cold_migration_and_resize_avoid_a_host_whose_default_never_has_the_bus(
    cloud: Cloud, *, resize: bool
) -> None:
    server = cloud.server(_IDE)
    action = (
        {"resize": {"flavorRef": cloud.flavor({"hw:cpu_sockets": "1"})}}
        if resize
        else {"migrate": None}
    )
    with cloud.x86_guests(_OTHER, default_machine="q35"):
        moved = cloud.act(server, action, "ACTIVE")

    assert (moved.host, moved.attempts) == (_SOURCE, (_SOURCE,))


def test_novas_libvirt_driver_keeps_the_machine_type_in_evacuation_and_unshelving_alone() -> (
    None
):
    """Not in a cold migration, a resize, a rebuild or a rescue (ADR 0014); a
    later Nova may change that.
    """
    assert_unittests_pass(
        "tests.novas.functional.libvirt_driver", "Ran 6 tests"
    )
