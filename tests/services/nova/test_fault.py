"""What the user reads of a server that no host can run: Nova's API, conductor, scheduler and computes as programs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.services.cloud.recorder import Answer, Recorder, recorded
from tests.services.nova.api import Api, Server, api_running
from tests.services.nova.cloud import ACTIVATION, LISTENING, Cloud
from tests.support.programs import needs_services
from tests.support.rule_texts import rule, write_rules

pytestmark = needs_services

_OURS = "No valid host was found. Scheduling failed: No host offers "
_BOTH = {"hw_vif_model": "e1000e", "hw_time_hpet": "true"}


@pytest.fixture(scope="module")
def api(cloud: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with api_running(cloud, tmp_path_factory.mktemp("api")) as api:
        yield api


@contextmanager
def _scheduler(cloud: Cloud, more: str) -> Iterator[None]:
    """Run a nova-scheduler with one worker: it knows what the requests before made it read."""
    options = "[prefilter]\nenabled_filters = image_metadata,hpet,compute_status,rules\nreported_traits = *\n"
    with cloud.starting_scheduler(f"{ACTIVATION}{options}{more}\n[scheduler]\nworkers = 1\n") as program:
        program.wait_for_log(LISTENING)
        yield


def _is_built(server: Server, host: str) -> bool:
    return (server.status, server.host, server.fault) == ("ACTIVE", host, "")


def _rejection(server: Server) -> str:
    """Return what follows Nova's own words in the fault."""
    assert (server.status, server.host, server.fault[: len(_OURS)]) == ("ERROR", None, _OURS)
    return server.fault[len(_OURS) :]


def _fails_as_without_the_library(server: Server) -> bool:
    return (server.status, server.host, server.fault.rstrip()) == ("ERROR", None, "No valid host was found.")


def test_fault_says_what_no_host_serves_until_there_is_one(cloud: Cloud, api: Api, tmp_path: Path) -> None:
    long = "é" * 200
    write_rules(
        tmp_path / "rules.yaml", rule("licensed", f"{{image_property: os_distro, is: {long}}}", ["CUSTOM_LICENSED"])
    )
    with _scheduler(cloud, f"no_host_reason = counts\nfacts_interval = 3600\nrules_dirs = {tmp_path}"):
        assert _is_built(api.server({"hw_vif_model": "e1000e"}), "e1000e-host")
        assert _rejection(api.server(_BOTH)) == (
            "hw_vif_model=e1000e together with hw_time_hpet=true "
            "(0 of 3 hosts; hw_vif_model=e1000e alone: 1; hw_time_hpet=true alone: 1)."
        )
        assert _rejection(api.server({"os_distro": long})) == f"os_distro={'é' * 35}... (0 of 3 hosts)."
        # Unknown to the fact, which is read once an hour.
        with cloud.host("new-host", {"time_hpet": "true", "vif_model": "e1000e"}):
            assert _is_built(api.server(_BOTH), "new-host")
            api.delete_servers()
        api.delete_host("new-host")


def test_property_is_blamed_not_the_disabled_service_of_the_one_host_that_serves_it(cloud: Cloud, api: Api) -> None:
    api.set_service("e1000e-host", "disabled")
    try:
        with _scheduler(cloud, ""):
            fault = api.server({"hw_vif_model": "e1000e"}).fault
            assert fault == _OURS.replace("No host", "No available host") + "hw_vif_model=e1000e."
            api.set_service("e1000e-host", "enabled")
            assert _is_built(api.server({"hw_vif_model": "e1000e"}), "e1000e-host")
    finally:
        api.set_service("e1000e-host", "enabled")


def test_without_a_reason_the_fault_is_novas_own(cloud: Cloud, api: Api) -> None:
    with _scheduler(cloud, "no_host_reason = off"):
        assert _fails_as_without_the_library(api.server(_BOTH))


@pytest.fixture
def placement(cloud: Cloud) -> Iterator[Recorder]:
    with recorded(cloud.placement_url) as recorder:
        yield recorder


def test_placement_that_fails_or_is_slow_leaves_the_fault_to_nova(cloud: Cloud, api: Api, placement: Recorder) -> None:
    def fail(_method: str, _path: str) -> Answer:
        return 503, {}

    def delay(_method: str, path: str) -> None:
        # Longer than requests wait for what is known of hosts.
        time.sleep(6 * path.startswith(("/resource_providers?", "/traits")))

    with _scheduler(cloud, f"[placement]\nendpoint_override = {placement.url}"):
        placement.hook = fail
        assert _fails_as_without_the_library(api.server({"hw_vif_model": "ne2k_pci"}))
        placement.forget()
        assert _rejection(api.server({"hw_vif_model": "rtl8139"})) == "hw_vif_model=rtl8139."
        placement.hook = delay
        assert _fails_as_without_the_library(api.server({"hw_vif_model": "pcnet"}))


def test_refused_rebuild_does_not_reach_the_guest(cloud: Cloud, api: Api) -> None:
    with _scheduler(cloud, "[filter_scheduler]\nenabled_filters = ComputeFilter,RebuildFilter"):
        server = api.server({"hw_vif_model": "e1000e"})
        refused = api.rebuild(server, {"hw_vif_model": "igb"})
        assert (refused.status, refused.host) == ("ERROR", "e1000e-host")
        assert refused.fault == "No valid host was found. This host does not offer hw_vif_model=igb."
        assert _rebuilds(cloud, server) == 0
        assert _is_built(api.rebuild(server, {"hw_vif_model": "e1000e"}), "e1000e-host")
        assert _rebuilds(cloud, server) == 1


def _rebuilds(cloud: Cloud, server: Server) -> int:
    """Return how often nova-compute began to rebuild a server on its host."""
    log = (cloud.folder / f"{server.host}.log").read_text(encoding="utf-8")
    return sum(server.uuid in line and "Rebuilding instance" in line for line in log.splitlines())
