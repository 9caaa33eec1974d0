# SPDX-License-Identifier: Apache-2.0

"""What Cyborg does wrong where it shares a host with Nova.

Each test fails once a release of Cyborg has repaired it: then the pages that
name it, and what works around it, are to be changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.services.cyborg.real_cyborg import ADDRESSES
from tests.services.cyborg.reports import (
    WHOLE_GPU,
    Death,
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
