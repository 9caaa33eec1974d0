# SPDX-License-Identifier: Apache-2.0

"""The scheduler's side: Placement breaks at random while facts are asked. No
request hangs, no gate opens wrongly.
"""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import pytest

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.facts import CloudPlacement
from os_prefilter.common.threads import start_thread
from os_prefilter.service import Service
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet
from tests.conftest import conf_with, spec_of, times
from tests.faults.broken_proxy import broken, client_of
from tests.support.every_trait import ALL_REPORTED
from tests.support.placements import provider

ROUNDS = times(10)
FOREVER = 60.0
IGB = "COMPUTE_NET_VIF_MODEL_IGB"
ASKED = {IGB, "OWNER_NOVA"}


def pipeline_of(client: PlacementClient, interval: float = 0.0) -> Service:
    """Return a pipeline that asks Placement for its facts at each request."""
    conf = conf_with(
        enabled_filters=["image_metadata", "owner"], facts_interval=interval
    )
    return Service.from_conf(conf, placement=CloudPlacement(client))


def asked(pipeline: Service) -> set[str]:
    """Return what a request for an igb is asked for; it must not take longer
    than all its neighbours may.
    """
    request = spec_of({"hw_vif_model": "igb"})
    decision = start_thread(
        lambda: pipeline.apply(request), "a request"
    ).result(FOREVER)
    return {item.trait for item in decision.requirements}


def fleet(*traits: str) -> Fleet:
    return Fleet(
        tuple(
            provider(f"kvm-{number}", traits=f"COMPUTE_NODE {each}")
            for number, each in enumerate(traits)
        )
    )


NEW = " ".join(("OWNER_NOVA", IGB, *ALL_REPORTED))


def test_a_gate_never_opens_while_one_host_has_not_answered(
    tmp_path: Path,
) -> None:
    """Whatever answers are lost or spoilt: the old host would be excluded."""
    with (
        EmbeddedPlacement(fleet(NEW, NEW, "")) as placement,
        broken(placement, 1) as (proxy, url),
    ):
        pipeline = pipeline_of(client_of(url, tmp_path))
        assert all(not asked(pipeline) & ASKED for _ in range(ROUNDS))
        assert proxy.broken


def test_open_gates_stay_open_through_placement_faults(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No fault closes a gate either; each outage of a fact is one line when it
    begins and one when it ends.
    """
    caplog.set_level(logging.INFO, "os_prefilter.service.deployment_facts")
    with (
        EmbeddedPlacement(fleet(NEW, NEW)) as placement,
        broken(placement, 2, rate=0.0) as (proxy, url),
    ):
        client = client_of(url, tmp_path)
        proxy.settle(client)
        pipeline = pipeline_of(client)
        assert asked(pipeline) == ASKED
        caplog.clear()
        client._timeout, proxy.rate = 0.3, 0.3
        assert all(asked(pipeline) == ASKED for _ in range(ROUNDS))
        assert proxy.broken
        proxy.settle(client)
        assert asked(pipeline) == ASKED
    for fact in ("reports", "owner_is_reported"):
        lines = [
            record.levelno
            for record in caplog.records
            if f"fact {fact} " in record.getMessage()
        ]
        assert lines == [logging.WARNING, logging.INFO] * (len(lines) // 2)


def test_request_waits_for_facts_and_hosts_together_if_placement_never_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: set[float]
) -> None:
    """Not for each; here not 5 seconds but a half, and each query would wait
    longer.
    """
    monkeypatch.setattr("os_prefilter.service.deployment_facts.PATIENCE", 0.5)
    # It accepts connections and never answers.
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        conf = conf_with(enabled_filters=["image_metadata", "hpet"])
        client = client_of(
            f"http://127.0.0.1:{server.getsockname()[1]}", tmp_path
        )
        client._timeout = 60.0
        pipeline = Service.from_conf(conf, placement=CloudPlacement(client))
        decision = pipeline.apply(
            spec_of({"hw_vif_model": "igb", "hw_time_hpet": "yes"})
        )
    assert len(ends) == 1
    assert not decision.requirements
