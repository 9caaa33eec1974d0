"""An unmodified nova-scheduler with the library activated in its nova.conf, asked over RPC."""

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import psutil
import pytest

from tests.against_nova.nova import NOVA
from tests.against_nova.releases import releases
from tests.services.nova.cloud import ACTIVATION, HOSTS, WORKERS, Cloud
from tests.support.programs import Program, needs_services, urls

pytestmark = needs_services

_ENABLED = """
[prefilter]
enabled_filters = image_metadata,hpet,owner
"""


@pytest.fixture(scope="module")
def scheduler(cloud: Cloud) -> Iterator[Program]:
    with cloud.scheduler(ACTIVATION + _ENABLED) as program:
        yield program


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize(
    ("properties", "capable"),
    [
        ({}, set(HOSTS)),
        ({"hw_time_hpet": "true"}, {"timer-host"}),
        ({"hw_vif_model": "e1000e"}, {"e1000e-host"}),
    ],
)
def test_a_request_gets_the_hosts_that_can_serve_it_and_no_other(
    properties: Mapping[str, str], capable: set[str], cloud: Cloud
) -> None:
    """The alternates too, which are for the case that the chosen host fails."""
    answer = cloud.ask(properties)
    assert answer.error == ""
    assert sorted(answer.hosts) == sorted(capable)


@pytest.mark.usefixtures("scheduler")
def test_a_request_that_no_host_can_serve_gets_none_and_the_reason(cloud: Cloud) -> None:
    answer = cloud.ask({"hw_time_hpet": "true", "hw_vif_model": "e1000e"})
    assert answer.hosts == ()
    reason = "No host offers hw_vif_model=e1000e together with hw_time_hpet=true."
    # All that a Nova of any release puts before it, of the 255 bytes of a fault.
    assert answer.error == f"No valid host was found. Scheduling failed: {reason}"


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize(
    ("properties", "extra_specs", "reason"),
    [
        ({"hw_time_hpet": "true"}, {"trait:CUSTOM_COMPUTE_TIME_HPET": "forbidden"}, "contradict each other"),
        ({"hw_disk_bus": "ide", "hw_machine_type": "q35"}, {}, "no host can do both"),
    ],
)
def test_rejection_reason_reaches_the_caller_of_the_scheduler(
    properties: Mapping[str, str], extra_specs: Mapping[str, str], reason: str, cloud: Cloud
) -> None:
    answer = cloud.ask(properties, extra_specs)
    assert answer.hosts == ()
    assert answer.error.startswith("No valid host was found")
    assert reason in answer.error


def test_both_workers_run_the_filters_and_decide_alike(cloud: Cloud, scheduler: Program) -> None:
    decided: dict[int, set[tuple[str, ...]]] = {}
    for _ in range(100):
        answer = cloud.ask({"hw_time_hpet": "true"})
        (line,) = (
            line for line in scheduler.log.splitlines() if answer.request in line and "Request filters required" in line
        )
        decided.setdefault(int(line.split()[2]), set()).add(answer.hosts)
        if len(decided) == WORKERS:
            break
    assert decided.keys() == scheduler.workers()
    assert set.union(*decided.values()) == {("timer-host",)}


@pytest.mark.usefixtures("scheduler")
def test_query_requires_the_owner_trait_if_every_compute_node_reports_it(cloud: Cloud) -> None:
    """Those of an older Nova do not."""
    required = "OWNER_NOVA" in cloud.query_of(cloud.ask())["root_required"][0].split(",")
    assert required == ("owner_nova_filter" not in releases()[NOVA].request_filters)


@pytest.mark.usefixtures("scheduler")
def test_scheduler_does_not_query_compute_versions_in_cells_on_each_request(cloud: Cloud) -> None:
    """As they are without the library."""
    requests = 20
    with cloud.databases.general_log():
        for _ in range(requests):
            assert cloud.ask().hosts
        assert cloud.databases.logged("min(services.version)") < requests


def test_services_of_the_test_cloud_listen_only_on_loopback(cloud: Cloud, scheduler: Program) -> None:
    """Neither the programs of the cloud nor RabbitMQ and MariaDB, with any of their ports."""
    listening = [
        (each.pid, each.laddr.ip, each.laddr.port)
        for each in psutil.net_connections("inet")
        if each.status == psutil.CONN_LISTEN and each.pid and each.laddr
    ]
    ports = {urlsplit(url).port for url in urls()}
    pids = {pid for pid, _ip, port in listening if port in ports}
    pids |= {process.pid for program in (*cloud.programs, scheduler) for process in program.processes()}
    assert {ip for pid, ip, _port in listening if pid in pids} == {"127.0.0.1"}
