"""50 reporters of one Placement at the same time, two a host, beside operators: all converge, no write is lost."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
import requests
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token

from os_prefilter import Options
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.trait_sync import HostTraits
from os_prefilter.common.errors import GenerationConflict, PlacementRefused, PlacementUnavailable
from os_prefilter.fleet.model import aggregate_uuid, provider_uuid
from os_prefilter.hosts.desired_traits import Goal
from tests.services.cloud.services import program_serving
from tests.services.mariadb.databases import databases

REPORTERS = 50
HOSTS = REPORTERS // 2
ROUNDS = 3
OPERATORS = 3
SHARED = frozenset(f"CUSTOM_SHARED_{number}" for number in range(4))
"""Traits that every reporter creates: all try it at once."""
BASE = frozenset(("COMPUTE_NODE", "HW_ARCH_X86_64", "CUSTOM_OLD_A", "CUSTOM_OLD_B"))
_PATIENCE = 900.0
"""Seconds: fifty at once are slow where the machine is."""
_AGGREGATES = tuple(map(aggregate_uuid, ("rack-1", "rack-2", "rack-3")))
_MARIADB = "OS_PREFILTER_MARIADB_URL"

needs_mariadb = pytest.mark.skipif(
    not os.environ.get(_MARIADB) and not os.environ.get("CI"), reason=f"it needs a MariaDB: {_MARIADB}"
)


class Client(PlacementClient):
    """A client over HTTP that counts its requests by method, and the conflicts."""

    def __init__(self, url: str) -> None:
        self.counts: Counter[str] = Counter()
        session = Session(auth=Token(url, "admin"))
        session.session.trust_env = False
        self.close = session.session.close
        super().__init__(Adapter(session, service_type="placement"), timeout=_PATIENCE)

    def request(self, method: str, url: str, body: object = None) -> Any:
        self.counts[method] += 1
        try:
            return super().request(method, url, body)
        except PlacementRefused as error:
            self.counts["conflicts"] += error.status == requests.codes.conflict
            raise


class Reporter:
    """One of the two reporters of a host."""

    def __init__(self, url: str, host: str, owner: str) -> None:
        self.owner = owner
        self.gave_up = 0
        self.client = Client(url)
        self._traits = HostTraits(self.client, host)

    def report(self, state: int) -> None:
        self._traits.sync(goal_of(self.owner, state))

    def work(self) -> None:
        """Report each state once; the next round makes up for a report that others overtook in each attempt."""
        for state in range(ROUNDS):
            try:
                self.report(state)
            except (GenerationConflict, PlacementUnavailable):
                self.gave_up += 1


class Operator:
    """Adds a trait to each host, and puts it into aggregates."""

    def __init__(self, url: str, number: int) -> None:
        self.trait = f"CUSTOM_OPERATOR_{number}"
        self.client = Client(url)
        self._hosts = [provider_uuid(f"host-{each}") for each in range(HOSTS)]
        Random(number).shuffle(self._hosts)  # noqa: S311 - the same each time

    def work(self) -> None:
        self.client.create_trait(self.trait)
        for uuid in self._hosts:
            _until_it_works(self._add_trait, uuid)
            _until_it_works(self._join_aggregates, uuid)

    def _add_trait(self, uuid: str) -> None:
        generation, traits = self.client.provider_traits(uuid)
        self.client.set_provider_traits(uuid, generation, traits | {self.trait})

    def _join_aggregates(self, uuid: str) -> None:
        url = f"/resource_providers/{uuid}/aggregates"
        answer = self.client.request("GET", url)
        self.client.request("PUT", url, {**answer, "aggregates": sorted({*answer["aggregates"], *_AGGREGATES})})


def goal_of(owner: str, state: int) -> Goal:
    """Return the goal of the reporter ``a`` or ``b`` of a host; every other state has the opposite of one trait."""
    upper = owner.upper()
    own = {f"CUSTOM_{upper}_STAYS": True, f"CUSTOM_{upper}_TURNS": bool(state % 2), f"CUSTOM_OLD_{upper}": False}
    return Goal(own, Options(), SHARED)


def _until_it_works(write: Callable[[str], None], uuid: str) -> None:
    while True:
        try:
            return write(uuid)
        except (GenerationConflict, PlacementUnavailable):
            # Placement also answers 500 where writers meet: at a deadlock of its database, and at some conflicts.
            continue
        except PlacementRefused as error:
            if error.status != requests.codes.conflict:
                raise


def _run_at_once(works: list[Callable[[], None]]) -> list[BaseException]:
    """Run each in a thread of its own; return their errors."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], None]) -> None:
        try:
            barrier.wait(_PATIENCE)
            work()
        except BaseException as error:  # noqa: BLE001 - the test reads it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE)
        assert not thread.is_alive(), "a writer has not ended"
    return errors


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a Placement program on a MariaDB with hosts whose traits were set before."""
    mariadb = os.environ.get(_MARIADB)
    assert mariadb, f"in CI, {_MARIADB} must name a MariaDB"
    with databases(mariadb, alone=False) as ours:
        # It must exist; the options are in the environment.
        (tmp_path / "placement.conf").touch()
        environment = {
            "OS_PLACEMENT_CONFIG_DIR": str(tmp_path),
            "OS_PLACEMENT_DATABASE__CONNECTION": ours.create("placement"),
            "OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP": "true",
            "OS_API__AUTH_STRATEGY": "noauth2",
        }
        with (
            program_serving("placement.wsgi.api", tmp_path, "placement", environment) as service,
            closing(Client(service.url)) as client,
        ):
            client.ensure_traits(BASE)
            for number in range(HOSTS):
                uuid = provider_uuid(f"host-{number}")
                client.request("POST", "/resource_providers", {"name": f"host-{number}", "uuid": uuid})
                client.set_provider_traits(uuid, 0, BASE)
            yield service.url


@needs_mariadb
def test_fifty_reporters_and_operators_converge_without_losing_a_write(url: str) -> None:
    """Two reporters write to each host, each the traits that it owns, and operators the same hosts' traits and groups.

    Afterwards each host has the last state of each, and an unchanged host costs each reporter one request.
    """
    crowd = [Reporter(url, f"host-{number // 2}", "ab"[number % 2]) for number in range(REPORTERS)]
    operators = [Operator(url, number) for number in range(OPERATORS)]
    everyone: list[Reporter | Operator] = [*crowd, *operators]
    assert _run_at_once([each.work for each in everyone]) == []
    assert sum(each.gave_up for each in crowd) < REPORTERS * ROUNDS / 4
    assert any(each.client.counts["conflicts"] for each in crowd)
    for reporter in crowd:
        reporter.report(ROUNDS - 1)
    _check_hosts(operators[0].client)
    for reporter in crowd:
        # Twice: the other reporter of the host may have written since, which the first round reads again.
        for _ in range(2):
            reporter.client.counts.clear()
            reporter.report(ROUNDS - 1)
        assert dict(reporter.client.counts) == {"GET": 1}
    for each in everyone:
        each.client.close()


def _check_hosts(client: Client) -> None:
    last = {**goal_of("a", ROUNDS - 1).traits, **goal_of("b", ROUNDS - 1).traits}
    own = {trait for trait, has in last.items() if has}
    operators = {f"CUSTOM_OPERATOR_{number}" for number in range(OPERATORS)}
    expected = (BASE - {trait for trait, has in last.items() if not has}) | own | operators | {"OWNER_NOVA"}
    assert client.traits() >= SHARED
    for number in range(HOSTS):
        path = f"/resource_providers/{provider_uuid(f'host-{number}')}"
        assert set(client.request("GET", f"{path}/traits")["traits"]) == expected
        assert len(client.request("GET", f"{path}/aggregates")["aggregates"]) == 3
