#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""One way through all requests: what became of each, beside what could have been."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl

from os_prefilter.common.errors import RequestRejected
from os_prefilter.hosts.driver_check import unsupported
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Provider
from tests.benchmarks.mixed.hosts import KINDS, Kind, fleet, kind_of
from tests.benchmarks.mixed.requests import Boot, spec_of
from tests.benchmarks.mixed.scheduler import Outcome, Scheduler, scheduler
from tests.benchmarks.mixed.ways import WANTED, Way

LIMIT = 1000
"""Nova's max_placement_results."""


class Result(NamedTuple):
    boot: Boot
    outcome: Outcome
    able: int
    """Hosts that had room for it and whose late check accepts it, at that moment."""
    excluded: int
    """Those of them that the traits of the query, or a host filter, kept out."""
    causes: tuple[str, ...]
    """What failed late: the property, once a failure."""

    @property
    def booted(self) -> bool:
        return bool(self.outcome.host)

    @property
    def attempts(self) -> int:
        return len(self.outcome.failed) + self.booted


class SimulationError(Exception):
    """Placement and our own account of it do not agree: nothing of the run can be trusted."""


class _Cloud:
    """Our own account of what is in use, by which the truth is enumerated."""

    def __init__(self, hosts: Sequence[Provider]) -> None:
        self._resources = {host.name: host.resources for host in hosts}
        self.used = {host.name: {name: each.used for name, each in host.resources.items()} for host in hosts}

    def with_room(self, wanted: Mapping[str, int]) -> list[str]:
        return [host for host in self.used if all(self._has(host, name, amount) for name, amount in wanted.items())]

    def _has(self, host: str, name: str, amount: int) -> bool:
        inventory = self._resources[host].get(name)
        if inventory is None or amount > inventory.max_unit:
            return False
        capacity = (inventory.total - inventory.reserved) * inventory.allocation_ratio
        return self.used[host][name] + amount <= capacity

    def take(self, host: str, wanted: Mapping[str, int], sign: int = 1) -> None:
        for name, amount in wanted.items():
            self.used[host][name] += sign * amount


class Run:
    def __init__(self, way: Way, hosts: Sequence[Provider], boots: Sequence[Boot]) -> None:
        self._way = way
        self._hosts = list(hosts)
        self._boots = boots
        self._cloud = _Cloud(hosts)
        self._refusals: dict[tuple[str, str], str] = {}
        self._by_host_filters: dict[str, set[str]] = {}
        self._traits = {kind.name: kind.our_traits if way.ours else kind.nova_traits for kind in KINDS}

    def results(self) -> list[Result]:
        """Run them.

        :raises SimulationError: if Placement does not answer what the account says.
        """
        names = {each.uuid: each.name for each in self._hosts}
        loaded = fleet(self._hosts, ours=self._way.ours)
        with EmbeddedPlacement(loaded) as placement, scheduler(self._way, placement, names) as nova:
            if self._way.ours:
                # As the agent does: a query with a trait that Placement does not know fails.
                traits = frozenset().union(*(part.traits for part in WANTED))
                placement.client.ensure_traits(trait for trait in traits if trait.startswith("CUSTOM_"))
            results = self._all(nova)
            self._check_usage(placement)
        return results

    def _all(self, nova: Scheduler) -> list[Result]:
        results = []
        ends: dict[int, list[tuple[Boot, str]]] = {}
        for boot in self._boots:
            for ended, host in ends.pop(boot.number, ()):
                nova.end(ended)
                self._cloud.take(host, ended.resources, -1)
            result = self._one(nova, boot)
            results.append(result)
            if result.booted:
                self._cloud.take(result.outcome.host, boot.resources)
                ends.setdefault(boot.number + 1 + boot.life, []).append((boot, result.outcome.host))
        return results

    def _one(self, nova: Scheduler, boot: Boot) -> Result:
        room = self._cloud.with_room(boot.resources)
        able = [host for host in room if not self._refusal(boot, kind_of(host))]
        outcome = nova.boot(boot, lambda host: not self._refusal(boot, kind_of(host)))
        by_traits = self._kinds_by_traits(outcome.query)
        predicted = sum(kind_of(host).name in by_traits for host in room)
        if outcome.candidates != min(predicted, LIMIT):
            raise SimulationError(f"{self._way.name}, {boot}: {outcome.candidates} candidates, not {predicted}")
        passing = by_traits & self._kinds_by_host_filters(nova, boot)
        excluded = sum(kind_of(host).name not in passing for host in able)
        causes = tuple(self._refusal(boot, kind_of(host)) for host in outcome.failed)
        return Result(boot, outcome, len(able), excluded, causes)

    def _refusal(self, boot: Boot, kind: Kind) -> str:
        """Return what of the request a host of that kind cannot do; empty if it can do all."""
        key = (boot.image.name, kind.name)
        if key not in self._refusals:
            try:
                found = unsupported(spec_of(boot), kind.facts)
            except RequestRejected:
                self._refusals[key] = "a contradiction"
            else:
                self._refusals[key] = found[0].property.rpartition(" ")[2] if found else ""
        return self._refusals[key]

    def _kinds_by_traits(self, query: str) -> set[str]:
        """Return the kinds that the traits of the query let pass.

        Each host here is one provider, so that each trait of the query is about that one. The number of hosts that
        follows from it is compared with Placement's answer to each request.
        """
        if not query:
            return set()
        values = [value for name, value in parse_qsl(query) if name in ("required", "root_required")]
        asked = [trait for value in values for trait in value.split(",")]
        forbidden = {trait[1:] for trait in asked if trait.startswith("!")}
        required = {trait for trait in asked if not trait.startswith("!")}
        return {name for name, traits in self._traits.items() if required <= traits and forbidden.isdisjoint(traits)}

    def _kinds_by_host_filters(self, nova: Scheduler, boot: Boot) -> set[str]:
        if boot.image.name not in self._by_host_filters:
            self._by_host_filters[boot.image.name] = nova.passing(boot, KINDS)
        return self._by_host_filters[boot.image.name]

    def _check_usage(self, placement: EmbeddedPlacement) -> None:
        """Compare what is in use with what Placement's API says, on a part of the hosts."""
        for host in self._hosts[:: max(1, len(self._hosts) // 50)]:
            usages = placement.client.request("GET", f"/resource_providers/{host.uuid}/usages")["usages"]
            if usages != self._cloud.used[host.name]:
                raise SimulationError(f"{self._way.name}: {host.name} uses {usages}, not {self._cloud.used[host.name]}")
