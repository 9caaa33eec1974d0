# SPDX-License-Identifier: Apache-2.0

"""What Cyborg does wrong where it shares a host with Nova.

Each test fails once a release of Cyborg has repaired it: then the pages that
name it, and what works around it, are to be changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.services.cyborg.agents import Rounds, gpus_for_flavor
from tests.services.cyborg.conftest import novas_gpu
from tests.services.cyborg.real_cyborg import (
    ADDRESSES,
    GPU_DRIVER,
    SSD_DRIVER,
)
from tests.services.cyborg.reports import (
    WHOLE_GPU,
    Death,
    Left,
    at_request,
    die,
    left_of,
    provider_of,
    requests_of_report,
)
from tests.support.placements import HOST

if TYPE_CHECKING:
    from tests.services.cyborg.real_cyborg import Cyborg, Hardware
    from tests.support.placements import Served

NEW = ADDRESSES[2]


def test_report_in_which_cyborg_died_is_never_completed(
    cyborg: Cyborg, hardware: Hardware, placement: Served
) -> None:
    """It notes the GPU in its database first, and writes to Placement only
    what differs from that.
    """
    last = len(requests_of_report(cyborg, hardware))
    hardware.plug_gpu(NEW)
    die(Death(last), cyborg, placement)
    cyborg.start()
    assert cyborg.report() == [f"GET /resource_providers?name={HOST}"]
    left = left_of(placement.placement, cyborg.provider(NEW))
    assert left == WHOLE_GPU._replace(traits=frozenset())
    # What repairs it, unless an accelerator of the driver is in use.
    cyborg.configure(SSD_DRIVER)
    cyborg.start()
    cyborg.report()
    assert left_of(placement.placement, cyborg.provider(NEW)) is None
    cyborg.configure(GPU_DRIVER, SSD_DRIVER)
    cyborg.start()
    cyborg.report()
    left = left_of(placement.placement, cyborg.provider(NEW))
    assert left == WHOLE_GPU


def test_trait_that_is_written_between_two_of_its_requests_is_lost(
    cyborg: Cyborg, hardware: Hardware, placement: Served
) -> None:
    """It writes the traits with a generation that it has read after them."""
    name = cyborg.provider(NEW)

    def set_trait() -> None:
        client, uuid = placement.placement.client, provider_of(name)
        client.create_trait("CUSTOM_OF_AN_OPERATOR")
        generation, traits = client.provider_traits(uuid)
        client.set_provider_traits(
            uuid, generation, traits | {"CUSTOM_OF_AN_OPERATOR"}
        )

    last = len(requests_of_report(cyborg, hardware))
    hardware.plug_gpu(NEW)
    placement.before = at_request(last - 1, set_trait)
    cyborg.report()
    left = left_of(placement.placement, name)
    assert left == WHOLE_GPU


def test_gpu_whose_virtual_gpus_are_novas_is_reported_as_a_whole(
    cyborg: Cyborg, hardware: Hardware, placement: Served
) -> None:
    """Its driver reports each NVIDIA GPU that lspci lists: one that
    cyborg.conf does not name, as a PGPU. Placement offers it twice.
    """
    agents, address = Rounds(placement.placement), "0000:84:00.0"
    hardware.plug_gpu(address)
    cyborg.start()
    cyborg.report()
    agents.two()
    left = left_of(placement.placement, cyborg.provider(address))
    assert left == Left(
        {"PGPU": 1}, frozenset({"OWNER_CYBORG", "CUSTOM_NVIDIA_1EB8"})
    )
    assert gpus_for_flavor(placement.placement) == {novas_gpu(HOST)}
