"""The fleet of a live cloud, read out of its Placement.

Who has which trait is asked once for each trait that is in use, not once for each host
(``GET /resource_providers?required=TRAIT``): a cloud has a few hundred traits and may have ten thousand hosts.
Inventories, usage and all aggregates of a provider can only be asked for one provider at a time; who needs traits alone
leaves them out.

A cloud does not stand still meanwhile. The providers are listed before and after: those that went are left out with all
below them, those that came are not looked at, and those whose generation is another one are counted in
:attr:`os_prefilter.fleet.model.Fleet.changed_while_read`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from os_prefilter.adapters.placement.client import PlacementClient, expected
from os_prefilter.adapters.placement.providers import ResourceProvider, ResourceProviders
from os_prefilter.common.quoting import escape_line
from os_prefilter.errors import PlacementRefused, UnknownTraits
from os_prefilter.fleet.model import Aggregate, Fleet, Inventory, Provider

THREADS = 8
"""How many requests are under way at a time; keystoneauth keeps up to ten connections open."""

# As a fleet file may have them.
_MAX_NAME = 200
_MAX_LABEL = 255
_NOT_FOUND = 404

_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")


class _Details(NamedTuple):
    """What is not asked by trait."""

    resources: Mapping[str, Inventory] = {}
    aggregates: frozenset[str] = frozenset()


class _Requests:
    """Requests by several threads, and how many of them are done."""

    def __init__(self, client: PlacementClient, total: int, progress: Callable[[int, int], None] | None) -> None:
        self.client = client
        self._total = total
        self._progress = progress
        self._done = 0

    def ask_all(
        self, ask: Callable[[_Question], _Answer], questions: Iterable[_Question]
    ) -> Iterator[tuple[_Question, _Answer]]:
        """Yield each question with its answer, in their order; an error ends the requests that are not yet sent."""
        questions = list(questions)
        threads = ThreadPoolExecutor(THREADS)
        try:
            for question, answer in zip(questions, threads.map(ask, questions), strict=True):
                self._done += 1
                if self._progress:
                    self._progress(self._done, self._total)
                yield question, answer
        finally:
            threads.shutdown(cancel_futures=True)


def read_fleet(
    client: PlacementClient,
    aggregates: Iterable[Aggregate] = (),
    *,
    inventories: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Fleet:
    """Read the fleet out of a Placement; nothing is changed there.

    :param aggregates: those whose names and zones are known, of Nova for instance; Placement has UUIDs only
    :param inventories: also read inventories, usage and unnamed aggregates, with three requests a provider
    :param progress: called with the number of requests that are done and of all that are known of, in this thread
    :raises PlacementError: Placement does not answer, or not as a Placement does; nothing is asked twice
    """
    known = {each.uuid: _printable(each) for each in aggregates}
    taken_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    providers = ResourceProviders(client)
    before = {each.uuid: each for each in providers.all()}
    names = sorted(client.traits_in_use())
    requests = _Requests(client, len(names) + len(before if inventories else known), progress)
    traits = _traits(requests, names, before)
    details = _details(requests, before) if inventories else _members(requests, before, known)
    after = {each.uuid: each.generation for each in providers.all() if each.uuid in details}
    trees = _trees([each for each in before.values() if each.uuid in after], traits, details)
    changed = sum(after.get(each.uuid) != each.generation for each in before.values())
    return Fleet(trees, taken_at, known, inventories, changed)


def _printable(aggregate: Aggregate) -> Aggregate:
    """Return an aggregate whose names can be shown, and read back out of a file."""
    name, zone = (escape_line(each)[:_MAX_LABEL] for each in (aggregate.name, aggregate.availability_zone))
    return Aggregate(aggregate.uuid, name, zone)


def _traits(requests: _Requests, names: Iterable[str], known: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the traits of each of the providers; equal sets are one."""
    found: dict[str, list[str]] = {uuid: [] for uuid in known}
    for name, having in requests.ask_all(partial(_having, requests.client), names):
        for uuid in having:
            if uuid in found:
                found[uuid].append(name)
    sets: dict[frozenset[str], frozenset[str]] = {}
    return {uuid: sets.setdefault(frozenset(having), frozenset(having)) for uuid, having in found.items()}


def _having(client: PlacementClient, trait: str) -> list[str]:
    try:
        return _listed(client, f"required={trait}")
    except UnknownTraits:
        # It was deleted meanwhile, which Placement allows only if nobody has it.
        return []


def _listed(client: PlacementClient, query: str) -> list[str]:
    rows = client.listed(f"/resource_providers?{query}", "resource_providers")
    with expected("GET /resource_providers"):
        return [each["uuid"] for each in rows]


def _members(requests: _Requests, known: Iterable[str], aggregates: Iterable[str]) -> dict[str, _Details]:
    """Return which of the aggregates each of the providers is in."""
    found: dict[str, set[str]] = {uuid: set() for uuid in known}
    for aggregate, members in requests.ask_all(partial(_members_of, requests.client), aggregates):
        for uuid in members:
            if uuid in found:
                found[uuid].add(aggregate)
    return {uuid: _Details(aggregates=frozenset(of_one)) for uuid, of_one in found.items()}


def _members_of(client: PlacementClient, aggregate: str) -> list[str]:
    return _listed(client, f"member_of={quote(aggregate, safe='')}")


def _details(requests: _Requests, providers: Iterable[str]) -> dict[str, _Details]:
    """Return what each of the providers has and is in, without those that went meanwhile."""
    asked = requests.ask_all(partial(_details_of, requests.client), providers)
    return {uuid: details for uuid, details in asked if details}


def _details_of(client: PlacementClient, uuid: str) -> _Details | None:
    parts = ("inventories", "usages", "aggregates")
    try:
        inventories, usages, aggregates = (
            client.request("GET", f"/resource_providers/{uuid}/{part}") for part in parts
        )
    except PlacementRefused as error:
        if error.status == _NOT_FOUND:
            return None
        raise
    with expected("GET /resource_providers/..."):
        used = usages["usages"]
        resources = {
            str(name): _inventory(amounts, used.get(name, 0)) for name, amounts in inventories["inventories"].items()
        }
        return _Details(resources, frozenset(map(str, aggregates["aggregates"])))


def _inventory(amounts: Mapping[str, Any], used: Any) -> Inventory:
    integers = {name: int(amounts[name]) for name in ("total", "reserved", "min_unit", "max_unit", "step_size")}
    return Inventory(**integers, allocation_ratio=float(amounts["allocation_ratio"]), used=int(used))


def _trees(
    providers: Iterable[ResourceProvider], traits: Mapping[str, frozenset[str]], details: Mapping[str, _Details]
) -> tuple[Provider, ...]:
    """Return the trees, siblings by name; whoever has lost a parent is in none."""
    children: dict[str, list[tuple[str, ResourceProvider]]] = {}
    taken: set[str] = set()
    for each in providers:
        name = escape_line(each.name)
        # A name that cannot be printed, and its escaped form is another one's: very unlikely, and must not be lost.
        if name in taken or len(name) > _MAX_NAME:
            name = each.uuid
        taken.add(name)
        children.setdefault(each.parent, []).append((name, each))

    def below(parent: str) -> tuple[Provider, ...]:
        return tuple(built(name, each) for name, each in sorted(children.get(parent, ())))

    def built(name: str, each: ResourceProvider) -> Provider:
        resources, aggregates = details[each.uuid]
        return Provider(name, each.uuid, resources, traits[each.uuid], tuple(sorted(aggregates)), below(each.uuid))

    return below("")
