# SPDX-License-Identifier: Apache-2.0

"""The MariaDB below Placement is killed and started again while reports and
reads go on: errors, then all is right.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.facts import PlacementFacts
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.common.errors import PlacementError
from os_prefilter.hosts.desired_traits import Goal
from os_prefilter.hosts.marker_traits import names_noting
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter_agent.agent import LOG, Watch
from tests.conftest import times
from tests.faults.watched import (
    GOALS,
    MARKER,
    OURS,
    WHOLE,
    Host,
    after_round,
    levels,
)
from tests.services.own_services import Service, needs, own_mariadb
from tests.support.every_trait import EVERY_GROUP
from tests.support.placements import HOST, UUID
from tests.support.programs import running, until

pytestmark = needs("mariadbd", "mariadb-install-db")
RESTARTS = times(2)

CONF = (
    "[api]\nauth_strategy = noauth2\n[placement_database]\nconnection ="
    " {url}\nsync_on_startup = true\n"
)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[Service, PlacementClient]]:
    """Return the MariaDB, and a client of the Placement above it."""
    with own_mariadb() as (mariadb, url):
        (tmp_path / "placement.conf").write_text(
            CONF.format(url=url), encoding="utf-8"
        )
        argv = [
            "waitress-serve",
            "--listen=127.0.0.1:0",
            "placement.wsgi.api:application",
        ]
        environment = {"OS_PLACEMENT_CONFIG_DIR": str(tmp_path)}
        with running(argv, tmp_path, "placement", environment) as program:
            (endpoint,) = re.findall(
                r"Serving on (http://127\.0\.0\.1:\d+)",
                program.wait_for_log("Serving on http"),
            )
            session = Session(auth=Token(endpoint, "admin"))
            session.session.trust_env = False
            yield (
                mariadb,
                PlacementClient(Adapter(session, service_type="placement")),
            )


def traits_of_host(client: PlacementClient) -> frozenset[str]:
    return frozenset(
        client.request("GET", f"/resource_providers/{UUID}/traits")["traits"]
    )


def test_killed_mariadb_loses_no_traits_and_each_outage_is_logged_once(
    service: tuple[Service, PlacementClient], caplog: pytest.LogCaptureFixture
) -> None:
    """No trait of an operator is lost, no set half written; each outage is one
    line, and the next report is right.
    """
    mariadb, client = service
    caplog.set_level(logging.INFO, LOG.name)
    client.request("POST", "/resource_providers", {"name": HOST, "uuid": UUID})
    client.ensure_traits(["CUSTOM_OF_AN_OPERATOR"])
    body = {
        "traits": ["COMPUTE_NODE", "CUSTOM_OF_AN_OPERATOR"],
        "resource_provider_generation": 0,
    }
    client.request("PUT", f"/resource_providers/{UUID}/traits", body)
    keeper, numbers = (
        ProviderTraits(client, HOST, sleep=lambda _seconds: None),
        iter(range(1_000_000)),
    )
    goals = list[Goal]()

    def report(_facts: HostFacts) -> str:
        goals.append(GOALS[next(numbers) % len(GOALS)])
        keeper.sync(goals[-1])
        return ""

    watch = Watch(Host(), report, 1.0)
    for number in range(1, RESTARTS + 1):
        for _ in range(number % 3 + 1):
            watch.round()
        mariadb.kill()
        for _ in range(2):
            watch.round()
            with pytest.raises(
                PlacementError, match="Placement did not respond"
            ):
                PlacementFacts(client, groups=EVERY_GROUP).reports()
        mariadb.start()
        until(
            lambda: after_round(
                watch, lambda: levels(caplog)[-1] == logging.INFO
            ),
            lambda: caplog.text,
        )
        now = traits_of_host(client)
        assert now & OURS == {
            trait for trait, has in goals[-1].traits.items() if has
        }
        assert now & OURS in WHOLE
        note = names_noting(now & OURS)
        assert now - OURS == {
            MARKER,
            *note,
            "COMPUTE_NODE",
            "CUSTOM_OF_AN_OPERATOR",
            "OWNER_NOVA",
        }
        assert (
            PlacementFacts(client, groups=EVERY_GROUP).reports().compute_nodes
        )
    assert levels(caplog) == [logging.WARNING, logging.INFO] * RESTARTS
