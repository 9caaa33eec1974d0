"""The same nova-scheduler without the line in its nova.conf: what the library changes."""

from collections.abc import Iterator

import pytest

from tests.against_nova.nova import NOVA
from tests.against_nova.releases import releases
from tests.services.nova.cloud import Cloud
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


@pytest.mark.usefixtures("scheduler")
def test_scheduler_without_the_library_queries_compute_versions_on_each_request(cloud: Cloud) -> None:
    """From Nova 34 on, whose filter for the owner does it."""
    requests = 5
    with cloud.databases.general_log():
        for _ in range(requests):
            cloud.ask()
        queries = cloud.databases.logged("min(services.version)")
    assert (queries >= requests) == ("owner_nova_filter" not in releases()[NOVA].request_filters)
