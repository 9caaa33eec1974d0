"""Many reporters of one Placement, two for each host, beside operators who write to the same resource providers."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import requests
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token

from os_prefilter import Options
from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.trait_sync import HostTraits
from os_prefilter.errors import GenerationConflict, PlacementRefused, PlacementUnavailable
from os_prefilter.fleet.model import Fleet, aggregate_uuid, provider_uuid
from os_prefilter.hosts.desired_traits import Goal
from tests.services.cloud.services import program_serving
from tests.services.mariadb.databases import databases
from tests.support.placements import provider, served

SHARED = frozenset(f"CUSTOM_SHARED_{number}" for number in range(4))
"""Traits that every reporter makes known: all try to create them at once."""
BASE = frozenset(("COMPUTE_NODE", "HW_ARCH_X86_64", "CUSTOM_OLD_A", "CUSTOM_OLD_B"))
_PATIENCE = 900.0
"""Seconds: fifty at once are slow where the machine is."""
_AGGREGATES = tuple(map(aggregate_uuid, ("rack-1", "rack-2", "rack-3")))


def goal_of(owner: str, state: int) -> Goal:
    """Return what the reporter ``a`` or ``b`` of a host has to say; every other state says the opposite of a trait."""
    upper = owner.upper()
    own = {f"CUSTOM_{upper}_STAYS": True, f"CUSTOM_{upper}_TURNS": bool(state % 2), f"CUSTOM_OLD_{upper}": False}
    return Goal(own, Options(), SHARED)


def fleet_of(hosts: int) -> Fleet:
    """Return hosts with traits that their reporters, operators and Nova have set."""
    return Fleet(tuple(provider(f"host-{number}", traits=" ".join(BASE)) for number in range(hosts)))


class Counted(Adapter):
    """A way to a Placement over HTTP that counts its requests and the conflicts."""

    def __init__(self, url: str, counts: "Counter[str]") -> None:
        http = requests.Session()
        http.trust_env = False
        super().__init__(Session(auth=Token(url, "admin"), session=http), service_type="placement")
        self._http = http
        self._counts = counts

    def request(self, url: str, method: str, **options: Any) -> requests.Response:
        """Pass a request on."""
        response = super().request(url, method, **options)
        self._counts[method] += 1
        self._counts["conflicts"] += response.status_code == requests.codes.conflict
        return response

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


@dataclass
class Story:
    """What happened."""

    counts: "Counter[str]" = field(default_factory=Counter)
    """Of the reporters: requests by method, and ``conflicts``."""
    gave_up: int = 0
    """Reports that others were faster than in each attempt, or that met an error of Placement; the next round of the
    reporter ends them."""
    errors: list[BaseException] = field(default_factory=list)

    @property
    def requests(self) -> int:
        """All requests of the reporters."""
        return sum(number for name, number in self.counts.items() if name != "conflicts")


class Reporter:
    """One of the two reporters of a host."""

    def __init__(self, url: str, host: str, owner: str) -> None:
        self.counts: Counter[str] = Counter()
        self.owner = owner
        self._adapter = Counted(url, self.counts)
        self._traits = HostTraits(PlacementClient(self._adapter, timeout=_PATIENCE), host)

    def report(self, state: int) -> None:
        """Report once."""
        self._traits.sync(goal_of(self.owner, state))

    def close(self) -> None:
        """Close the connections."""
        self._adapter.close()


class Operator:
    """An operator who adds traits and puts hosts into aggregates, one after the other."""

    def __init__(self, url: str, number: int, hosts: int) -> None:
        self.trait = f"CUSTOM_OPERATOR_{number}"
        self._adapter = Counted(url, Counter())
        self.client = PlacementClient(self._adapter, timeout=_PATIENCE)
        self._hosts = [f"host-{each}" for each in range(hosts)]
        Random(number).shuffle(self._hosts)  # noqa: S311 - the same each time

    def work(self) -> None:
        """Write to each host once, again after a conflict."""
        self.client.create_trait(self.trait)
        for host in self._hosts:
            uuid = provider_uuid(host)

            def add_trait(uuid: str = uuid) -> None:
                generation, traits = self.client.provider_traits(uuid)
                self.client.set_provider_traits(uuid, generation, traits | {self.trait})

            _until_it_works(add_trait)
            _until_it_works(lambda uuid=uuid: self._join_aggregates(uuid))  # type: ignore[misc]

    def _join_aggregates(self, uuid: str) -> None:
        url = f"/resource_providers/{uuid}/aggregates"
        answer = self.client.request("GET", url)
        self.client.request("PUT", url, {**answer, "aggregates": sorted({*answer["aggregates"], *_AGGREGATES})})

    def close(self) -> None:
        """Close the connections."""
        self._adapter.close()


def _until_it_works(write: Callable[[], None]) -> None:
    while True:
        try:
            write()
        except (GenerationConflict, PlacementUnavailable):
            # Placement answers 500, too, where writers meet: at a deadlock of its database, and at some conflicts.
            continue
        except PlacementRefused as error:
            if error.status != requests.codes.conflict:
                raise
        else:
            return


def report_at_once(url: str, reporters: int, rounds: int, operators: int) -> tuple[Story, list[Reporter]]:
    """Let reporters report ``rounds`` times, in threads of their own, all at once; return them for more rounds."""
    story = Story()
    hosts = reporters // 2
    crowd = [Reporter(url, f"host-{number // 2}", "ab"[number % 2]) for number in range(reporters)]
    others = [Operator(url, number, hosts) for number in range(operators)]
    barrier = threading.Barrier(reporters + operators)

    def report(reporter: Reporter) -> None:
        for state in range(rounds):
            try:
                reporter.report(state)
            except (GenerationConflict, PlacementUnavailable):
                story.gave_up += 1

    def run(work: Callable[[], None]) -> None:
        try:
            barrier.wait(_PATIENCE)
            work()
        except BaseException as error:  # noqa: BLE001 - the test reads it
            story.errors.append(error)

    works = [*(lambda each=each: report(each) for each in crowd), *(each.work for each in others)]
    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_PATIENCE)
        assert not thread.is_alive(), "a writer has not ended"
    for operator in others:
        operator.close()
    for reporter in crowd:
        story.counts.update(reporter.counts)
    return story, crowd


@contextmanager
def placement_on_sqlite(hosts: int) -> Iterator[str]:
    """Yield the URL of a Placement that answers one request after the other."""
    with EmbeddedPlacement(fleet_of(hosts)) as placement, served(placement) as server:
        yield server.url


@contextmanager
def placement_on_mariadb(hosts: int, folder: Path, mariadb: str) -> Iterator[str]:
    """Yield the URL of a Placement program on a MariaDB, which answers several requests at once."""
    with ExitStack() as ending:
        ours = ending.enter_context(databases(mariadb, alone=False))
        # It must be there; what it says is in the environment.
        (folder / "placement.conf").touch()
        environment = {
            "OS_PLACEMENT_CONFIG_DIR": str(folder),
            "OS_PLACEMENT_DATABASE__CONNECTION": ours.create("placement"),
            "OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP": "true",
            "OS_API__AUTH_STRATEGY": "noauth2",
        }
        service = ending.enter_context(program_serving("placement.wsgi.api", folder, "placement", environment))
        operator = Operator(service.url, 0, 0)
        ending.callback(operator.close)
        operator.client.ensure_traits(BASE)
        for host in fleet_of(hosts).hosts:
            operator.client.request("POST", "/resource_providers", {"name": host.name, "uuid": host.uuid})
            operator.client.set_provider_traits(host.uuid, 0, host.traits)
        yield service.url
