# SPDX-License-Identifier: Apache-2.0

"""50 reporters of one Placement at the same time, two a host, beside
operators: all converge, no write is lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from random import Random

import pytest
import requests
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token

from os_prefilter import Options
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.common.errors import (
    GenerationConflict,
    PlacementRefused,
    PlacementUnavailable,
)
from os_prefilter.hosts.desired_traits import Goal
from os_prefilter.hosts.marker_traits import REPORTED, names_noting
from os_prefilter_tools.fleet.model import provider_uuid
from tests.services.cloud.services import program_serving
from tests.services.mariadb.databases import databases

REPORTERS = 50
HOSTS = REPORTERS // 2
ROUNDS = 3
OPERATORS = 3
PARTS = {
    each: frozenset((f"CUSTOM_{each}",))
    for each in ("GOES_", "STAYS", "TURNS")
}
"""Every reporter creates their traits: all try it at once."""
BASE = frozenset(
    ("COMPUTE_NODE", "HW_ARCH_X86_64", "CUSTOM_GOES_", f"{REPORTED}GOES_")
)
_PATIENCE = 900.0
"""Seconds: fifty at once are slow where the machine is."""
_MOST_CONFLICTS = 10_000
_MARIADB = "OS_PREFILTER_MARIADB_URL"

needs_mariadb = pytest.mark.skipif(
    not os.environ.get(_MARIADB) and not os.environ.get("CI"),
    reason=f"it needs a MariaDB: {_MARIADB}",
)


class Client(PlacementClient):
    def __init__(self, url: str) -> None:
        session = Session(auth=Token(url, "admin"))
        session.session.trust_env = False
        self.close = session.session.close
        super().__init__(
            Adapter(session, service_type="placement"), timeout=_PATIENCE
        )


class Reporter:
    def __init__(self, client: Client, host: str) -> None:
        self._traits = ProviderTraits(client, host)
        self.gave_up = 0

    def report(self, state: int) -> None:
        self._traits.sync(goal_of(state))

    def work(self) -> None:
        """Report each state once; the next round makes up for a report that
        others overtook in each attempt.
        """
        for state in range(ROUNDS):
            try:
                self.report(state)
            except (GenerationConflict, PlacementUnavailable):
                self.gave_up += 1


class Operator:
    def __init__(self, client: Client, number: int) -> None:
        self._client, self._number = client, number
        self.conflicts = 0

    def work(self) -> None:
        trait = f"CUSTOM_OPERATOR_{self._number}"
        self._client.create_trait(trait)
        hosts = list(range(HOSTS))
        Random(self._number).shuffle(hosts)  # noqa: S311 - the same each time
        for number in hosts:
            while not self._adds(trait, provider_uuid(f"host-{number}")):
                self.conflicts += 1
                assert self.conflicts < _MOST_CONFLICTS

    def _adds(self, trait: str, uuid: str) -> bool:
        # Placement also answers 500 where writers meet: at a deadlock of its
        # database, and at some conflicts.
        with suppress(GenerationConflict, PlacementUnavailable):
            try:
                generation, traits = self._client.provider_traits(uuid)
                self._client.set_provider_traits(
                    uuid, generation, traits | {trait}
                )
            except PlacementRefused as error:
                if error.status != requests.codes.conflict:
                    raise
            else:
                return True
        return False


def goal_of(state: int) -> Goal:
    """Return the goal of a host's reporters; every other state has the
    opposite of one trait.
    """
    traits = {
        "CUSTOM_GOES_": False,
        "CUSTOM_STAYS": True,
        "CUSTOM_TURNS": bool(state % 2),
    }
    return Goal(traits, PARTS, frozenset(PARTS), Options())


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[[], Client]]:
    """Yield what connects to a Placement program on a MariaDB with hosts whose
    traits were set before.
    """
    mariadb = os.environ.get(_MARIADB)
    assert mariadb, f"in CI, {_MARIADB} must name a MariaDB"
    with databases(mariadb, alone=False) as ours, ExitStack() as stack:
        # It must exist; the options are in the environment.
        (tmp_path / "placement.conf").touch()
        environment = {
            "OS_PLACEMENT_CONFIG_DIR": str(tmp_path),
            "OS_PLACEMENT_DATABASE__CONNECTION": ours.create("placement"),
            "OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP": "true",
            "OS_API__AUTH_STRATEGY": "noauth2",
        }
        service = stack.enter_context(
            program_serving(
                "placement.wsgi.api", tmp_path, "placement", environment
            )
        )
        client = stack.enter_context(closing(Client(service.url)))
        client.ensure_traits(BASE)
        for number in range(HOSTS):
            uuid = provider_uuid(f"host-{number}")
            client.request(
                "POST",
                "/resource_providers",
                {"name": f"host-{number}", "uuid": uuid},
            )
            client.set_provider_traits(uuid, 0, BASE)
        yield lambda: stack.enter_context(closing(Client(service.url)))


@needs_mariadb
def test_fifty_reporters_and_operators_converge_without_losing_a_write(
    connect: Callable[[], Client],
) -> None:
    """Two reporters write to each host, as where one is started twice, and
    operators traits of theirs.
    """
    crowd = [
        Reporter(connect(), f"host-{number // 2}")
        for number in range(REPORTERS)
    ]
    operators = [Operator(connect(), number) for number in range(OPERATORS)]
    works = [
        *(each.work for each in crowd),
        *(each.work for each in operators),
    ]
    with ThreadPoolExecutor(len(works)) as threads:
        for done in list(map(threads.submit, works)):
            done.result(_PATIENCE)
    assert sum(each.gave_up for each in crowd) < REPORTERS * ROUNDS / 4
    assert any(each.conflicts for each in operators)
    for reporter in crowd:
        reporter.report(ROUNDS - 1)
    last = {
        f"{REPORTED}GOES_": False,
        f"{REPORTED}GOES_STAYSTURNS": True,
        **goal_of(ROUNDS - 1).traits,
    }
    theirs = {
        "OWNER_NOVA",
        *(f"CUSTOM_OPERATOR_{number}" for number in range(OPERATORS)),
    }
    note = names_noting(
        trait for trait, has in goal_of(ROUNDS - 1).traits.items() if has
    )
    expected = (
        {trait for trait in {*BASE, *last} if last.get(trait, True)}
        | theirs
        | {*note}
    )
    client = connect()
    for number in range(HOSTS):
        assert (
            client.provider_traits(provider_uuid(f"host-{number}"))[1]
            == expected
        )
