"""Preferred traits in a real nova-scheduler: the host that has one comes first, and the others are its alternates."""

from collections.abc import Iterator

import pytest

from tests.services.nova.cloud import ACTIVATION, HOSTS, WORKERS, Cloud
from tests.support.programs import Program, needs_services

pytestmark = needs_services

_CARD = "COMPUTE_NET_VIF_MODEL_E1000E"
# More than all other weighers together.
_OPTIONS = """
weight_classes = nova.scheduler.weights.all_weighers,os_prefilter.nova.PreferredTraits
[prefilter]
enabled_filters = preferences,hpet
preferred_properties = hw_time_hpet
preferred_weight_multiplier = 1000
"""


@pytest.fixture
def scheduler(cloud: Cloud) -> Iterator[Program]:
    with cloud.scheduler(f"{ACTIVATION}{_OPTIONS}") as program:
        yield program


def test_host_with_the_preferred_trait_is_chosen_by_every_worker_and_none_is_excluded(
    cloud: Cloud, scheduler: Program
) -> None:
    for spelling in ({f"trait:{_CARD}": "preferred"}, {f"preferred_trait:{_CARD}": "true"}):
        for _ in range(3 * WORKERS):
            answer = cloud.ask({}, spelling)
            assert (answer.hosts[:1], set(answer.hosts), answer.error) == (("e1000e-host",), set(HOSTS), "")
            assert _CARD not in str(cloud.query_of(answer))
    for _ in range(3 * WORKERS):
        answer = cloud.ask({"hw_time_hpet": "true"})
        assert (answer.hosts[:1], set(answer.hosts)) == (("timer-host",), set(HOSTS))
    assert "Only (required, forbidden) traits are supported" not in scheduler.log
