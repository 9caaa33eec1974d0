# SPDX-License-Identifier: Apache-2.0

"""Random fleets and demands, and the real Placement's answer to any part of a
demand.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, combinations
from random import Random
from typing import Any
from urllib.parse import urlencode

from os_traits import MISC_SHARES_VIA_AGGREGATE as SHARES

from os_prefilter.request.requirements import ROOT
from os_prefilter.request.spec import (
    Destination,
    Flavor,
    RequestGroup,
    RequestLevelParams,
    RequestSpec,
)
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.demand import (
    AGGREGATE,
    POLICY,
    RESOURCE,
    TRAIT,
    TREE,
    Condition,
    Demand,
)
from os_prefilter_tools.fleet.model import (
    Fleet,
    Inventory,
    Provider,
    aggregate_uuid,
    provider_uuid,
)

_TRAITS = ("CUSTOM_A", "CUSTOM_B", "CUSTOM_C")
_AGGREGATES = tuple(map(aggregate_uuid, ("red", "blue")))
_DEVICES = ("VGPU", "CUSTOM_FPGA")

# Only hosts have it: a group that asks for it says whose candidate it is.
_HOST = "CUSTOM_HOST"
# And this: Placement takes candidates of two hosts for one where all is from
# the same shared provider.
_OWN = "CUSTOM_OWN"
_ORACLE = aggregate_uuid("oracle")
_PLENTY = Inventory(1_000_000)


def random_fleet(random: Random, hosts: int, *, flat: bool = False) -> Fleet:
    """Return a fleet with usage, aggregates, and, unless it is flat, nested
    and shared providers.
    """
    roots = [
        _host(random, f"host-{number}", flat=flat) for number in range(hosts)
    ]
    if not flat and random.random() < 0.5:
        aggregates = tuple(_some(random, _AGGREGATES, 0.7))
        disks = {"DISK_GB": _inventory(random, 8)}
        roots.append(
            _provider(
                "disks",
                disks,
                {SHARES, *_some(random, _TRAITS, 0.4)},
                aggregates,
            )
        )
    return Fleet(tuple(roots))


def random_demand(
    random: Random, fleet: Fleet, *, flat: bool = False
) -> Demand:
    """Return a demand that some of the fleet's hosts may meet."""
    unsuffixed = _group(random, ["MEMORY_MB", "DISK_GB"], 0.7)
    groups = {
        "": replace(
            unsuffixed,
            resources={
                "VCPU": random.choice((1, 1, 2, 3)),
                **unsuffixed.resources,
            },
        )
    }
    for number in range(
        random.choice((0, 1, 1, 2)) if not flat else random.choice((0, 0, 1))
    ):
        groups[f"_{number}"] = _group(random, [*_DEVICES, "VCPU"], 0.4)
    groups = {
        suffix: group for suffix, group in groups.items() if group.resources
    }
    tree = random.choice(list(fleet.walk())).uuid
    if groups and random.random() < 0.1:
        suffix = random.choice(list(groups))
        groups[suffix] = replace(groups[suffix], in_tree=tree)
    suffixed = sorted(set(groups) - {""})
    return Demand(
        groups,
        root_required=frozenset(_some(random, _TRAITS, 0.2)),
        root_forbidden=frozenset(_some(random, ("CUSTOM_BAD",), 0.3)),
        same_subtree=(
            (tuple(suffixed),)
            if len(suffixed) > 1 and random.random() < 0.4
            else ()
        ),
        isolate=len(suffixed) > 1 and random.random() < 0.5,
    )


def query_of(demand: Demand) -> str:
    parameters = [("group_policy", "isolate" if demand.isolate else "none")]
    if root := [
        *sorted(demand.root_required),
        *(f"!{trait}" for trait in sorted(demand.root_forbidden)),
    ]:
        parameters.append(("root_required", ",".join(root)))
    parameters += [
        ("same_subtree", ",".join(each))
        for each in demand.same_subtree
        if each
    ]
    for suffix, group in demand.groups.items():
        parameters += (
            (f"{name}{suffix}", value) for name, value in _parameters(group)
        )
    return urlencode(parameters)


class Oracle:
    """A real Placement that says which hosts meet a part of a demand."""

    def __init__(self, placement: EmbeddedPlacement) -> None:
        self.client = placement.client
        providers: Any = self.client.request("GET", "/resource_providers")[
            "resource_providers"
        ]
        self._known: dict[str, frozenset[str]] = {}
        self._names: dict[str, str] = {
            each["uuid"]: each["name"] for each in providers
        }

    def meeting(
        self, demand: Demand, kept: Collection[Condition]
    ) -> frozenset[str]:
        """Return the names of the hosts that Placement returns for any part of
        a demand that has all of ``kept``.

        Only resources can bring hosts: their providers give traits. A part
        with a group without resources is none.
        """
        dropped = [
            item
            for item in demand.conditions()
            if item.kind == RESOURCE and item not in kept
        ]
        more = chain.from_iterable(
            combinations(dropped, size) for size in range(len(dropped) + 1)
        )
        parts = (demand.only({*kept, *each}) for each in more)
        return frozenset().union(
            *(
                self.returned(part)
                for part in parts
                if all(group.resources for group in part.groups.values())
            )
        )

    def without(self, demand: Demand, item: Condition) -> frozenset[str]:
        """Return the names of the hosts that Placement returns for a demand
        without one condition.

        A group without resources, which Placement takes only where
        ``same_subtree`` names it, goes with them.
        """
        asked = item.suffix.split(",")
        groups = {
            suffix: _less(group, item) if suffix in asked else group
            for suffix, group in demand.groups.items()
        }
        is_subtree = item.kind == TREE and item.scope == ROOT
        subtrees = [
            each
            for each in demand.same_subtree
            if not (is_subtree and each == item.names)
        ]
        taken = {
            suffix for suffix, group in groups.items() if group.resources
        } | set(chain.from_iterable(subtrees))
        empty = RequestGroup("")
        left = {
            suffix: group
            for suffix, group in groups.items()
            if suffix in taken and group != empty
        }
        of_root = item.kind == TRAIT and item.scope == ROOT
        return self.returned(
            Demand(
                left,
                root_required=demand.root_required
                - (set(item.names) if of_root and item.wanted else set()),
                root_forbidden=demand.root_forbidden
                - (set(item.names) if of_root and not item.wanted else set()),
                same_subtree=tuple(
                    tuple(name for name in each if name in left)
                    for each in subtrees
                ),
                isolate=demand.isolate and item.kind != POLICY,
            )
        )

    def returned(self, demand: Demand) -> frozenset[str]:
        """Return the names of the hosts that Placement returns for a
        demand.
        """
        groups = {
            each: _told_apart(each, group)
            for names, group in demand.groups.items()
            for each in names.split(",")
        }
        query = query_of(
            replace(
                demand,
                groups={**groups, "_host": RequestGroup("_host", {_HOST: 1})},
                isolate=False,
            )
        )
        if demand.isolate:
            # Each host has a provider of its own for the class that names it.
            query = query.replace("group_policy=none", "group_policy=isolate")
        if query not in self._known:
            answer: Any = self.client.request(
                "GET", f"/allocation_candidates?{query}"
            )
            self._known[query] = frozenset(
                self._names[uuid].removesuffix("-anchor")
                for each in answer["allocation_requests"]
                for uuid in each["mappings"]["_host"]
            )
        return self._known[query]


@contextmanager
def oracle(fleet: Fleet) -> Iterator[Oracle]:
    """Open a Placement that holds a fleet with its usage, and what the oracle
    needs beside.
    """
    hosts = tuple(
        _open(host, is_host=SHARES not in host.traits) for host in fleet.hosts
    )
    with EmbeddedPlacement(Fleet(hosts)) as placement:
        placement.know((*_TRAITS, "CUSTOM_BAD"))
        placement.client.request("PUT", "/resource_classes/CUSTOM_FPGA")
        yield Oracle(placement)


def request_of(demand: Demand) -> RequestSpec:
    """Return a request whose query is that demand: the unsuffixed group in its
    flavor, the others as it brings them.
    """
    unsuffixed = demand.groups[""]
    extra_specs = {
        f"resources:{name}": "0" for name in ("VCPU", "MEMORY_MB", "DISK_GB")
    }
    extra_specs |= {
        f"resources:{name}": str(amount)
        for name, amount in unsuffixed.resources.items()
    }
    extra_specs |= {
        f"trait:{trait}": "required" for trait in unsuffixed.required_traits
    }
    extra_specs |= {
        f"trait:{trait}": "forbidden" for trait in unsuffixed.forbidden_traits
    }
    extra_specs["group_policy"] = "isolate" if demand.isolate else "none"
    return RequestSpec(
        flavor=Flavor(extra_specs=extra_specs),
        requested_resources=[
            replace(group, requester_id=suffix)
            for suffix, group in demand.groups.items()
            if suffix
        ],
        requested_destination=Destination(
            aggregates=[",".join(each) for each in unsuffixed.aggregates],
            forbidden_aggregates=set(unsuffixed.forbidden_aggregates),
            in_tree=unsuffixed.in_tree,
        ),
        request_level_params=RequestLevelParams(
            set(demand.root_required),
            set(demand.root_forbidden),
            [list(each) for each in demand.same_subtree],
        ),
    )


def _open(provider: Provider, *, is_host: bool) -> Provider:
    """Return the provider; a child of a host's root stands for the host."""
    children = tuple(
        _open(child, is_host=False) for child in provider.providers
    )
    if is_host:
        children += (
            _provider(
                f"{provider.name}-anchor",
                {_HOST: _PLENTY, _OWN: _PLENTY},
                set(),
                (_ORACLE,),
            ),
        )
    return replace(provider, providers=children)


def _told_apart(suffix: str, group: RequestGroup) -> RequestGroup:
    """Return the unsuffixed group with a class that each host has of its
    own.
    """
    if suffix:
        return group
    return replace(
        group,
        resources={**group.resources, _OWN: 1},
        aggregates=[[*each, _ORACLE] for each in group.aggregates],
    )


def _less(group: RequestGroup, item: Condition) -> RequestGroup:
    """Return a group without one of its conditions."""
    names = frozenset(item.names)
    if item.kind == RESOURCE:
        return replace(
            group,
            resources={
                name: n
                for name, n in group.resources.items()
                if name not in names
            },
        )
    if item.kind == TRAIT and item.scope != ROOT:
        if item.wanted:
            return replace(
                group, required_traits=group.required_traits - names
            )
        return replace(group, forbidden_traits=group.forbidden_traits - names)
    if item.kind == AGGREGATE:
        if item.wanted:
            return replace(
                group,
                aggregates=[
                    each
                    for each in group.aggregates
                    if frozenset(each) != names
                ],
            )
        return replace(group, forbidden_aggregates=set())
    return (
        replace(group, in_tree=None)
        if item.kind == TREE and item.scope != ROOT
        else group
    )


def _parameters(group: RequestGroup) -> Iterable[tuple[str, str]]:
    if group.resources:
        yield (
            "resources",
            ",".join(
                f"{name}:{amount}" for name, amount in group.resources.items()
            ),
        )
    if traits := [
        *group.required_traits,
        *(f"!{trait}" for trait in group.forbidden_traits),
    ]:
        yield "required", ",".join(traits)
    yield from (
        ("member_of", "in:" + ",".join(sorted(each)))
        for each in group.aggregates
    )
    if group.forbidden_aggregates:
        yield (
            "member_of",
            "!in:" + ",".join(sorted(group.forbidden_aggregates)),
        )
    if group.in_tree:
        yield "in_tree", group.in_tree


def _host(random: Random, name: str, *, flat: bool) -> Provider:
    inventories = {
        name: _inventory(random, 8)
        for name in _some(random, ("VCPU", "MEMORY_MB", "DISK_GB"), 0.9)
    }
    if flat:
        inventories |= {
            name: _inventory(random, 4)
            for name in _some(random, _DEVICES, 0.3)
        }
    children = (
        ()
        if flat
        else tuple(
            _device(random, f"{name}-{number}", 1)
            for number in range(random.randint(0, 2))
        )
    )
    traits = _some(random, (*_TRAITS, "CUSTOM_BAD"), 0.5)
    return _provider(
        name,
        inventories,
        set(traits),
        tuple(_some(random, _AGGREGATES, 0.4)),
        children,
    )


def _device(random: Random, name: str, depth: int) -> Provider:
    inventories = {
        each: _inventory(random, 4)
        for each in _some(random, (*_DEVICES, "VCPU"), 0.5)
    }
    below = (
        (_device(random, f"{name}-below", depth + 1),)
        if depth == 1 and random.random() < 0.2
        else ()
    )
    aggregates = tuple(_some(random, _AGGREGATES, 0.15))
    return _provider(
        name,
        inventories,
        set(_some(random, (*_TRAITS, "CUSTOM_BAD"), 0.4)),
        aggregates,
        below,
    )


def _provider(
    name: str,
    inventories: dict[str, Inventory],
    traits: set[str],
    aggregates: tuple[str, ...],
    providers: tuple[Provider, ...] = (),
) -> Provider:
    return Provider(
        name,
        provider_uuid(name),
        inventories,
        frozenset(traits),
        aggregates,
        providers,
    )


def _inventory(random: Random, most: int) -> Inventory:
    total = random.randint(2, most)
    inventory = Inventory(
        total,
        reserved=random.choice((0, 0, 1)),
        max_unit=random.choice((total, total, 2)),
        min_unit=random.choice((1, 1, 1, 2)),
        step_size=random.choice((1, 1, 1, 2)),
        allocation_ratio=random.choice((1.0, 1.0, 1.5)),
    )
    capacity = int((total - inventory.reserved) * inventory.allocation_ratio)
    usable = [
        amount
        for amount in range(
            inventory.min_unit, min(capacity, inventory.max_unit) + 1
        )
        if amount % inventory.step_size == 0
    ]
    return replace(
        inventory,
        used=random.choice(usable) if usable and random.random() < 0.4 else 0,
    )


def _group(random: Random, classes: list[str], likely: float) -> RequestGroup:
    return RequestGroup(
        "",
        {
            name: random.choice((1, 1, 2, 3))
            for name in _some(random, classes, likely)
        },
        required_traits=set(_some(random, _TRAITS, 0.25)),
        forbidden_traits=set(_some(random, ("CUSTOM_BAD",), 0.25)),
        aggregates=(
            [_some(random, _AGGREGATES, 0.7) or list(_AGGREGATES)]
            if random.random() < 0.2
            else []
        ),
        forbidden_aggregates=(
            set(_AGGREGATES[:1]) if random.random() < 0.1 else set()
        ),
    )


def _some(random: Random, items: Iterable[str], likely: float) -> list[str]:
    return [item for item in items if random.random() < likely]
