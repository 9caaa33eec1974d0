# SPDX-License-Identifier: Apache-2.0

"""The fleet of a live cloud, read out of its Placement.

The providers with a trait are requested once for each trait in use, not once
for each host (``GET /resource_providers?required=TRAIT``): a cloud has a few
hundred traits and may have ten thousand hosts. Each row of a response has 770
bytes, so the providers without a trait are requested instead
(``required=!TRAIT``) where most of a sample have it: of a trait that all hosts
have, the response is empty. Inventories, usage and all aggregates can only be
requested for one provider at a time; callers that need only traits leave them
out.

The cloud changes meanwhile. The providers are listed before and after:
providers that went are left out with all below them, new ones are not read,
and those whose generation has changed are counted in
:attr:`os_prefilter_tools.fleet.model.Fleet.changed_while_read`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timezone
from itertools import count
from typing import TypeVar
from urllib.parse import quote

from os_prefilter.adapters.placement.client import (
    PlacementClient,
    ResourceProvider,
    check_response,
)
from os_prefilter.common.errors import (
    PlacementRefused,
    UnknownProvider,
    UnknownTraits,
)
from os_prefilter.common.progress import Progress, no_progress
from os_prefilter.common.quoting import escape_line
from os_prefilter_tools.fleet.model import (
    Aggregate,
    Fleet,
    Inventory,
    Provider,
)
from os_prefilter_tools.fleet.reader import MAX_LABEL, MAX_NAME

THREADS = 8
"""Requests under way at a time; keystoneauth keeps up to ten connections open.
"""

# Of so many providers, one is sampled, but not more in all than the second
# number.
_SMALL, _MOST_SAMPLED = 200, 20
_NOT_FOUND = 404
_INTEGERS = ("total", "reserved", "min_unit", "max_unit", "step_size")

_Result = TypeVar("_Result")
# The inventories of a provider, and the UUIDs of its aggregates.
_Details = tuple[Mapping[str, Inventory], frozenset[str]]


def read_fleet(
    client: PlacementClient,
    aggregates: Iterable[Aggregate] = (),
    *,
    inventories: bool = True,
    progress: Progress = no_progress,
) -> Fleet:
    """Read the fleet out of a Placement; nothing is changed there.

    :param aggregates: those whose names and zones are known, of Nova for
        instance; Placement has UUIDs only
    :param inventories: also read inventories, usage and unnamed aggregates,
        with three requests a provider
    :param progress: called in this thread after each request
    :raises PlacementError: Placement does not respond, or not as Placement
        does; no request is repeated
    """
    known = {each.uuid: _printable(each) for each in aggregates}
    taken_at = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    before = {each.uuid: each for each in client.providers()}
    in_use = sorted(client.traits_in_use())
    common = _common_traits(client, list(before))
    # The providers without a common trait are fewer.
    required = {
        trait: f"required={'!' if trait in common else ''}{trait}"
        for trait in in_use
    }
    done = count(1)
    total = len(required) + len(before if inventories else known)

    def run(
        send: Callable[[str], _Result], keys: Iterable[str]
    ) -> Iterator[_Result]:
        """Yield the result of each key, in order.

        An error cancels the requests that are not sent yet.
        """
        threads = ThreadPoolExecutor(THREADS)
        try:
            for result in threads.map(send, keys):
                progress("hosts by trait", next(done), total)
                yield result
        finally:
            threads.shutdown(cancel_futures=True)

    def providers_with(name: str) -> Collection[str]:
        """Return the providers with a trait, or in an aggregate."""
        query = required.get(name) or f"member_of={quote(name, safe='')}"
        try:
            rows = client.get_list(
                f"/resource_providers?{query}", "resource_providers"
            )
        except UnknownTraits:
            # It was deleted meanwhile, which Placement allows only for a trait
            # that no provider has.
            return ()
        uuids = before.keys() & {each["uuid"] for each in rows}
        return before.keys() - uuids if name in common else uuids

    def matches(names: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the traits or aggregates of each provider.

        Equal sets are one object.
        """
        found: dict[str, list[str]] = {uuid: [] for uuid in before}
        names = list(names)
        for name, uuids in zip(names, run(providers_with, names)):
            for uuid in uuids:
                found[uuid].append(name)
        sets: dict[frozenset[str], frozenset[str]] = {}
        return {
            uuid: sets.setdefault(frozenset(names), frozenset(names))
            for uuid, names in found.items()
        }

    traits = matches(required)
    details: dict[str, _Details]
    if inventories:
        read = zip(before, run(lambda uuid: _details(client, uuid), before))
        details = {uuid: found for uuid, found in read if found}
    else:
        details = {
            uuid: ({}, of_one) for uuid, of_one in matches(known).items()
        }
    after = {
        each.uuid: each.generation
        for each in client.providers()
        if each.uuid in details
    }
    trees = _trees(
        [each for each in before.values() if each.uuid in after],
        traits,
        details,
    )
    changed = sum(
        after.get(each.uuid) != each.generation for each in before.values()
    )
    return Fleet(trees, taken_at, known, inventories, changed)


def _common_traits(
    client: PlacementClient, uuids: Sequence[str]
) -> frozenset[str]:
    """Return the traits that most of a sample of providers have.

    None of a small fleet, which needs no sample.
    """
    step = max(_SMALL, len(uuids) // _MOST_SAMPLED + 1)
    counts: Counter[str] = Counter()
    sampled = 0
    for uuid in uuids[step - 1 :: step]:
        # A provider that was deleted meanwhile has none.
        with suppress(UnknownProvider):
            counts.update(client.provider_traits(uuid)[1])
            sampled += 1
    return frozenset(
        trait for trait, number in counts.items() if number * 2 > sampled
    )


def _printable(aggregate: Aggregate) -> Aggregate:
    """Return an aggregate whose names can be shown and written to a file."""
    name, zone = (
        escape_line(each)[:MAX_LABEL]
        for each in (aggregate.name, aggregate.availability_zone)
    )
    metadata = {
        escape_line(key)[:MAX_LABEL]: escape_line(value)
        for key, value in aggregate.metadata.items()
    }
    return Aggregate(aggregate.uuid, name, zone, metadata)


def _details(client: PlacementClient, uuid: str) -> _Details | None:
    """Return what Placement shows for one provider only.

    None if the provider is gone.
    """
    try:
        inventories, usages, aggregates = (
            client.request("GET", f"/resource_providers/{uuid}/{part}")
            for part in ("inventories", "usages", "aggregates")
        )
    except PlacementRefused as error:
        if error.status == _NOT_FOUND:
            return None
        raise
    with check_response("GET /resource_providers/..."):
        used = usages["usages"]
        resources = {}
        for name, amounts in inventories["inventories"].items():
            integers = {each: int(amounts[each]) for each in _INTEGERS}
            ratio = float(amounts["allocation_ratio"])
            resources[str(name)] = Inventory(
                **integers, allocation_ratio=ratio, used=int(used.get(name, 0))
            )
        return resources, frozenset(map(str, aggregates["aggregates"]))


def _trees(
    providers: Iterable[ResourceProvider],
    traits: Mapping[str, frozenset[str]],
    details: Mapping[str, _Details],
) -> tuple[Provider, ...]:
    """Return the trees, siblings by name.

    A provider that has lost its parent is in none.
    """
    children: dict[str, list[tuple[str, ResourceProvider]]] = {}
    taken: set[str] = set()
    for each in providers:
        name = escape_line(each.name)
        # An unprintable name whose escaped form is that of another provider:
        # very unlikely, and must not be lost.
        if name in taken or len(name) > MAX_NAME:
            name = each.uuid
        taken.add(name)
        children.setdefault(each.parent, []).append((name, each))

    def below(parent: str) -> tuple[Provider, ...]:
        return tuple(
            build(name, each)
            for name, each in sorted(children.get(parent, ()))
        )

    def build(name: str, each: ResourceProvider) -> Provider:
        resources, aggregates = details[each.uuid]
        return Provider(
            name,
            each.uuid,
            resources,
            traits[each.uuid],
            tuple(sorted(aggregates)),
            below(each.uuid),
        )

    return below("")
