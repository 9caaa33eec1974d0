# SPDX-License-Identifier: Apache-2.0

"""Random fleets and demands, and the hosts that the real Placement returns for
any part of a demand.
"""

from __future__ import annotations

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
_AGGREGATES = (aggregate_uuid("red"), aggregate_uuid("blue"))
_DEVICES = ("VGPU", "CUSTOM_FPGA")

# Only hosts have these two. A group that requests the first shows whose
# candidate it is; with the second in the unsuffixed group, Placement does not
# merge candidates of two hosts where all is from the same shared provider.
_HOST = "CUSTOM_HOST"
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
        roots.append(_shared_disks(random))
    return Fleet(tuple(roots))


def _shared_disks(random: Random) -> Provider:
    aggregates = _some(random, _AGGREGATES, 0.7)
    inventories = {"DISK_GB": _inventory(random, 8)}
    traits = _some(random, _TRAITS, 0.4)
    return _provider("disks", inventories, [SHARES, *traits], aggregates)


def random_demand(
    random: Random, fleet: Fleet, *, flat: bool = False
) -> Demand:
    """Return a demand that some of the fleet's hosts may meet."""
    groups = _random_groups(random, flat=flat)
    tree = random.choice(list(fleet.walk())).uuid
    if groups and random.random() < 0.1:
        suffix = random.choice(list(groups))
        groups[suffix] = replace(groups[suffix], in_tree=tree)
    root_required = _some(random, _TRAITS, 0.2)
    root_forbidden = _some(random, ("CUSTOM_BAD",), 0.3)
    suffixed = sorted(groups.keys() - {""})
    same_subtree = []
    is_isolated = False
    if len(suffixed) > 1:
        if random.random() < 0.4:
            same_subtree.append(tuple(suffixed))
        is_isolated = random.random() < 0.5
    return Demand(
        groups,
        root_required=frozenset(root_required),
        root_forbidden=frozenset(root_forbidden),
        same_subtree=tuple(same_subtree),
        isolate=is_isolated,
    )


def _random_groups(random: Random, *, flat: bool) -> dict[str, RequestGroup]:
    unsuffixed = _group(random, ["MEMORY_MB", "DISK_GB"], 0.7)
    cpus = {"VCPU": random.choice((1, 1, 2, 3))}
    resources = {**cpus, **unsuffixed.resources}
    groups = {"": replace(unsuffixed, resources=resources)}
    numbers = (0, 0, 1) if flat else (0, 1, 1, 2)
    for number in range(random.choice(numbers)):
        group = _group(random, [*_DEVICES, "VCPU"], 0.4)
        if group.resources:
            groups[f"_{number}"] = group
    return groups


def query_of(demand: Demand) -> str:
    policy = "isolate" if demand.isolate else "none"
    parameters = [("group_policy", policy)]
    root = _with_signs(demand.root_required, demand.root_forbidden)
    if root:
        parameters.append(("root_required", root))
    parameters += [
        ("same_subtree", ",".join(suffixes))
        for suffixes in demand.same_subtree
        if suffixes
    ]
    for suffix, group in demand.groups.items():
        for name, value in _parameters(group):
            parameters.append((f"{name}{suffix}", value))
    return urlencode(parameters)


class Oracle:
    """The hosts that a real Placement returns for a part of a demand."""

    def __init__(self, placement: EmbeddedPlacement) -> None:
        self.client = placement.client
        response: Any = self.client.request("GET", "/resource_providers")
        self._names: dict[str, str] = {
            each["uuid"]: each["name"]
            for each in response["resource_providers"]
        }
        self._known: dict[str, frozenset[str]] = {}

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
        hosts: set[str] = set()
        for size in range(len(dropped) + 1):
            for more in combinations(dropped, size):
                part = demand.only({*kept, *more})
                if all(group.resources for group in part.groups.values()):
                    hosts |= self.returned(part)
        return frozenset(hosts)

    def without(self, demand: Demand, item: Condition) -> frozenset[str]:
        """Return the names of the hosts that Placement returns for a demand
        without one condition.

        A group without resources, which Placement takes only where
        ``same_subtree`` names it, goes with them.
        """
        groups = dict(demand.groups)
        for suffix in item.suffix.split(","):
            if suffix in groups:
                groups[suffix] = _less(groups[suffix], item)
        subtrees = list(demand.same_subtree)
        required = demand.root_required
        forbidden = demand.root_forbidden
        if item.scope == ROOT and item.kind == TREE:
            subtrees = [each for each in subtrees if each != item.names]
        if item.scope == ROOT and item.kind == TRAIT:
            if item.wanted:
                required -= set(item.names)
            else:
                forbidden -= set(item.names)
        in_a_subtree = set(chain.from_iterable(subtrees))
        left = {
            suffix: group
            for suffix, group in groups.items()
            if group.resources
            or (suffix in in_a_subtree and group != RequestGroup(""))
        }
        left_subtrees = [
            tuple(suffix for suffix in each if suffix in left)
            for each in subtrees
        ]
        return self.returned(
            Demand(
                left,
                root_required=required,
                root_forbidden=forbidden,
                same_subtree=tuple(left_subtrees),
                isolate=demand.isolate and item.kind != POLICY,
            )
        )

    def returned(self, demand: Demand) -> frozenset[str]:
        """Return the names of the hosts that Placement returns for a
        demand.
        """
        groups = {"_host": RequestGroup("_host", {_HOST: 1})}
        for suffixes, group in demand.groups.items():
            for suffix in suffixes.split(","):
                groups[suffix] = group if suffix else _with_own_class(group)
        query = query_of(replace(demand, groups=groups, isolate=False))
        if demand.isolate:
            # Each host has a provider of its own for the class that names it.
            query = query.replace("group_policy=none", "group_policy=isolate")
        if query not in self._known:
            url = f"/allocation_candidates?{query}"
            response: Any = self.client.request("GET", url)
            hosts = set()
            for candidate in response["allocation_requests"]:
                for uuid in candidate["mappings"]["_host"]:
                    hosts.add(self._names[uuid].removesuffix("-anchor"))
            self._known[query] = frozenset(hosts)
        return self._known[query]


@contextmanager
def oracle(fleet: Fleet) -> Iterator[Oracle]:
    """Open a Placement that holds a fleet with its usage, and a provider for
    the classes that only hosts have.
    """
    hosts = [
        host if SHARES in host.traits else _with_anchor(host)
        for host in fleet.hosts
    ]
    with EmbeddedPlacement(Fleet(tuple(hosts))) as placement:
        placement.know((*_TRAITS, "CUSTOM_BAD"))
        placement.client.request("PUT", "/resource_classes/CUSTOM_FPGA")
        yield Oracle(placement)


def request_of(demand: Demand) -> RequestSpec:
    """Return a request whose query is that demand: the unsuffixed group in its
    flavor, the others as it brings them.
    """
    unsuffixed = demand.groups[""]
    extra_specs = {"group_policy": "isolate" if demand.isolate else "none"}
    for name in ("VCPU", "MEMORY_MB", "DISK_GB"):
        extra_specs[f"resources:{name}"] = "0"
    for name, amount in unsuffixed.resources.items():
        extra_specs[f"resources:{name}"] = str(amount)
    for trait in unsuffixed.required_traits:
        extra_specs[f"trait:{trait}"] = "required"
    for trait in unsuffixed.forbidden_traits:
        extra_specs[f"trait:{trait}"] = "forbidden"
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


def _with_anchor(host: Provider) -> Provider:
    """Return a host with a child that has the classes of hosts alone."""
    anchor = _provider(
        f"{host.name}-anchor",
        {_HOST: _PLENTY, _OWN: _PLENTY},
        [],
        [_ORACLE],
    )
    return replace(host, providers=(*host.providers, anchor))


def _with_own_class(group: RequestGroup) -> RequestGroup:
    """Return the unsuffixed group with a class that each host has of its
    own.
    """
    return replace(
        group,
        resources={**group.resources, _OWN: 1},
        aggregates=[[*each, _ORACLE] for each in group.aggregates],
    )


def _less(group: RequestGroup, item: Condition) -> RequestGroup:
    """Return a group without one of its conditions."""
    names = frozenset(item.names)
    less: dict[str, Any] = {}
    if item.kind == RESOURCE:
        less["resources"] = {
            name: amount
            for name, amount in group.resources.items()
            if name not in names
        }
    elif item.kind == AGGREGATE and item.wanted:
        less["aggregates"] = [
            each for each in group.aggregates if frozenset(each) != names
        ]
    elif item.kind == AGGREGATE:
        less["forbidden_aggregates"] = set()
    elif item.scope == ROOT:
        return group
    elif item.kind == TREE:
        less["in_tree"] = None
    elif item.kind == TRAIT and item.wanted:
        less["required_traits"] = group.required_traits - names
    elif item.kind == TRAIT:
        less["forbidden_traits"] = group.forbidden_traits - names
    return replace(group, **less)


def _with_signs(required: Iterable[str], forbidden: Iterable[str]) -> str:
    signed = [f"!{trait}" for trait in sorted(forbidden)]
    return ",".join([*sorted(required), *signed])


def _parameters(group: RequestGroup) -> Iterator[tuple[str, str]]:
    if group.resources:
        amounts = [f"{name}:{n}" for name, n in group.resources.items()]
        yield "resources", ",".join(amounts)
    traits = _with_signs(group.required_traits, group.forbidden_traits)
    if traits:
        yield "required", traits
    for each in group.aggregates:
        yield "member_of", "in:" + ",".join(sorted(each))
    if group.forbidden_aggregates:
        forbidden = ",".join(sorted(group.forbidden_aggregates))
        yield "member_of", f"!in:{forbidden}"
    if group.in_tree:
        yield "in_tree", group.in_tree


def _inventories(
    random: Random, classes: Iterable[str], likely: float, most: int
) -> dict[str, Inventory]:
    some = _some(random, classes, likely)
    return {name: _inventory(random, most) for name in some}


def _host(random: Random, name: str, *, flat: bool) -> Provider:
    classes = ("VCPU", "MEMORY_MB", "DISK_GB")
    inventories = _inventories(random, classes, 0.9, 8)
    children = []
    if flat:
        inventories |= _inventories(random, _DEVICES, 0.3, 4)
    else:
        children = [
            _device(random, f"{name}-{number}", 1)
            for number in range(random.randint(0, 2))
        ]
    traits = _some(random, (*_TRAITS, "CUSTOM_BAD"), 0.5)
    aggregates = _some(random, _AGGREGATES, 0.4)
    return _provider(name, inventories, traits, aggregates, children)


def _device(random: Random, name: str, depth: int) -> Provider:
    inventories = _inventories(random, (*_DEVICES, "VCPU"), 0.5, 4)
    children = []
    if depth == 1 and random.random() < 0.2:
        children.append(_device(random, f"{name}-below", depth + 1))
    aggregates = _some(random, _AGGREGATES, 0.15)
    traits = _some(random, (*_TRAITS, "CUSTOM_BAD"), 0.4)
    return _provider(name, inventories, traits, aggregates, children)


def _provider(
    name: str,
    inventories: dict[str, Inventory],
    traits: Iterable[str],
    aggregates: Iterable[str],
    providers: Iterable[Provider] = (),
) -> Provider:
    return Provider(
        name,
        provider_uuid(name),
        inventories,
        frozenset(traits),
        tuple(aggregates),
        tuple(providers),
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
    largest = min(capacity, inventory.max_unit)
    usable = [
        amount
        for amount in range(inventory.min_unit, largest + 1)
        if amount % inventory.step_size == 0
    ]
    if usable and random.random() < 0.4:
        return replace(inventory, used=random.choice(usable))
    return inventory


def _group(random: Random, classes: list[str], likely: float) -> RequestGroup:
    some = _some(random, classes, likely)
    group = RequestGroup(
        "",
        {name: random.choice((1, 1, 2, 3)) for name in some},
        required_traits=set(_some(random, _TRAITS, 0.25)),
        forbidden_traits=set(_some(random, ("CUSTOM_BAD",), 0.25)),
    )
    if random.random() < 0.2:
        aggregates = _some(random, _AGGREGATES, 0.7) or list(_AGGREGATES)
        group = replace(group, aggregates=[aggregates])
    if random.random() < 0.1:
        group = replace(group, forbidden_aggregates=set(_AGGREGATES[:1]))
    return group


def _some(random: Random, items: Iterable[str], likely: float) -> list[str]:
    return [item for item in items if random.random() < likely]
