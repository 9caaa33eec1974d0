"""The same nova-scheduler without the line in its nova.conf: what the library changes."""

from collections.abc import Iterator, Mapping

import pytest

from tests.against_nova.nova import NOVA
from tests.against_nova.releases import releases
from tests.services.nova.cloud import HOSTS, Cloud
from tests.support.programs import Program, needs_services

pytestmark = needs_services

_NOT_ACTIVATED = """
[filter_scheduler]
available_filters = nova.scheduler.filters.all_filters
[prefilter]
enabled_filters = image_metadata,hpet,owner
"""


@pytest.fixture(scope="module")
def scheduler(cloud: Cloud) -> Iterator[Program]:
    with cloud.scheduler(_NOT_ACTIVATED) as program:
        yield program


@pytest.mark.parametrize("properties", [{}, {"hw_time_hpet": "true"}, {"hw_vif_model": "e1000e"}])
def test_a_request_gets_hosts_that_cannot_serve_it_too(
    properties: Mapping[str, str], cloud: Cloud, scheduler: Program
) -> None:
    assert sorted(cloud.ask(properties).hosts) == sorted(HOSTS)
    assert "os_prefilter." not in scheduler.log


@pytest.mark.usefixtures("scheduler")
def test_scheduler_without_the_library_queries_compute_versions_on_each_request(cloud: Cloud) -> None:
    """From Nova 34 on, whose filter for the owner does it."""
    requests = 5
    with cloud.databases.general_log():
        for _ in range(requests):
            cloud.ask()
        queries = cloud.databases.logged("min(services.version)")
    assert (queries >= requests) == ("owner_nova_filter" not in releases()[NOVA].request_filters)
