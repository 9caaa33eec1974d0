# SPDX-License-Identifier: Apache-2.0

"""Sentences on why Placement has no candidate, against all that is free:
random trees in a real Placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import urlencode

import pytest

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.reasons import ReasonReader
from os_prefilter.common.errors import NoHostLeft
from os_prefilter.service.capacity import CAPACITY, CapacityCheck
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import (
    Fleet,
    Inventory,
    Provider,
    aggregate_uuid,
    provider_uuid,
)
from tests.conftest import times
from tests.support.placements import Observed

_SHARING, _DISABLED = "MISC_SHARES_VIA_AGGREGATE", "COMPUTE_STATUS_DISABLED"
_WORDS = {
    "MEMORY_MB": "memory",
    "VCPU": "CPUs",
    "DISK_GB": "disk",
    "VGPU": "VGPU",
}
_ZONES = (aggregate_uuid("a"), aggregate_uuid("b"))
_STORAGE = aggregate_uuid("storage")
_OF_HOSTS, _ANYWHERE, _NOWHERE = (
    "HW_CPU_X86_AVX2",
    ("CUSTOM_FAST", "CUSTOM_SLOW"),
    "CUSTOM_OF_NONE",
)


@dataclass(frozen=True)
class Asked:
    """A request as Nova asks Placement."""

    amounts: dict[str, int]
    root: tuple[str, ...]
    traits: tuple[str, ...]
    """Of the unsuffixed group."""
    zone: str
    tree: str
    device: str

    @property
    def query(self) -> str:
        parts = [
            (
                "resources",
                ",".join(
                    f"{name}:{amount}" for name, amount in self.amounts.items()
                ),
            )
        ]
        lists = {
            "root_required": ",".join(self.root),
            "required": ",".join(self.traits),
        }
        lists |= {"member_of": self.zone, "in_tree": self.tree}
        if self.device:
            lists |= {
                "resources_device": "VGPU:1",
                "required_device": self.device,
            }
        return urlencode(
            [*parts, *((key, value) for key, value in lists.items() if value)]
        )


def _inventory(random: Random) -> Inventory:
    total = random.choice([4, 8, 8])
    limits: dict[str, Any] = random.choice(
        [{}, {"reserved": 2}, {"max_unit": 3}, {"allocation_ratio": 2.0}]
    )
    return Inventory(
        total, used=random.choice([0, 0, total - 2, total]), **limits
    )


def _provider(
    random: Random,
    name: str,
    classes: Iterable[str],
    traits: set[str],
    member_of: tuple[str, ...] = (),
) -> Provider:
    resources = {each: _inventory(random) for each in classes}
    traits |= {trait for trait in _ANYWHERE if random.random() < 0.3}
    children: tuple[Provider, ...] = ()
    if "COMPUTE_NODE" in traits:
        below = [
            (f"{name}-gpu{each}", ("VGPU",))
            for each in range(random.choice([0, 0, 1, 2]))
        ]
        below += [(f"{name}-numa", ("VCPU",))] * ("VCPU" not in resources)
        children = tuple(
            _provider(random, each, of, set()) for each, of in below
        )
    return Provider(
        name,
        provider_uuid(name),
        resources,
        frozenset(traits),
        member_of,
        children,
    )


def _fleet(random: Random) -> Fleet:
    shares = random.random() < 0.5
    hosts = []
    for number in range(random.randint(1, 5)):
        traits = {"COMPUTE_NODE"} if random.random() < 0.95 else set()
        traits |= {
            trait
            for trait in (_OF_HOSTS, "OWNER_NOVA")
            if random.random() < 0.6
        }
        traits |= {_DISABLED} if random.random() < 0.2 else set()
        classes = [
            "MEMORY_MB",
            *(name for name in ("VCPU", "DISK_GB") if random.random() < 0.8),
        ]
        member_of = [zone for zone in _ZONES if random.random() < 0.6]
        member_of += [_STORAGE] if shares and random.random() < 0.7 else []
        hosts.append(
            _provider(random, f"h{number}", classes, traits, tuple(member_of))
        )
    if shares:
        member_of = [
            _STORAGE,
            *(zone for zone in _ZONES if random.random() < 0.3),
        ]
        shared = random.choice(["DISK_GB", "DISK_GB", "VGPU"])
        hosts.append(
            _provider(
                random, "shared", (shared,), {_SHARING}, tuple(member_of)
            )
        )
    return Fleet(tuple(hosts))


def _asked(random: Random, fleet: Fleet) -> Asked:
    amounts = {
        name: random.choice([1, 3, 4, 7])
        for name in ("MEMORY_MB", "VCPU", "DISK_GB")
    }
    amounts |= {"VGPU": 1} if random.random() < 0.4 else {}
    root = [f"!{_DISABLED}"] if random.random() < 0.7 else []
    root += ["OWNER_NOVA"] if random.random() < 0.3 else []
    known = [_OF_HOSTS, *_ANYWHERE]
    root += [_OF_HOSTS] if random.random() < 0.2 else []
    traits = [
        f"{random.choice(['', '', '!'])}{trait}"
        for trait in known
        if random.random() < 0.25
    ]
    traits += [_NOWHERE] if random.random() < 0.03 else []
    zone = random.choice(
        ["", "", *_ZONES, f"in:{','.join(_ZONES)}", f"!in:{_ZONES[0]}"]
    )
    tree = random.choice(fleet.hosts).uuid if random.random() < 0.1 else ""
    return Asked(
        amounts,
        tuple(root),
        tuple(traits),
        zone,
        tree,
        random.choice(["", "", "", "", *_ANYWHERE]),
    )


def _is_there(host: Provider, asked: Asked) -> bool:
    """Whether a host is where the request wants it, by its own aggregates."""
    excludes, _, names = asked.zone.rpartition("in:")
    zones = set(names.split(",")) if names else set()
    return (
        not zones or zones.isdisjoint(host.aggregates) == (excludes == "!")
    ) and asked.tree in ("", host.uuid)


def _meets(host: Provider, traits: Iterable[str]) -> bool:
    return all(
        (trait.lstrip("!") in host.traits) != trait.startswith("!")
        for trait in traits
    )


def _within_reach(fleet: Fleet, host: Provider) -> list[Provider]:
    """Return the providers that a host may get resources from."""
    sharing = [each for each in fleet.hosts if _SHARING in each.traits]
    return [
        *host.walk(),
        *(
            each
            for each in sharing
            if set(each.aggregates) & set(host.aggregates)
        ),
    ]


def _is_free(provider: Provider, name: str, amount: int) -> bool:
    has = provider.resources.get(name)
    if has is None or amount > has.max_unit:
        return False
    return (
        has.used + amount <= (has.total - has.reserved) * has.allocation_ratio
    )


def _is_true(reason: NoHostLeft, fleet: Fleet, asked: Asked) -> bool:
    """Return whether a reason is so, by all that is free, whatever Placement
    says.
    """
    text = str(reason)
    if text.startswith("No host has the trait "):
        trait = text.rstrip(".").rpartition(" ")[2]
        return (
            trait in (*asked.traits, *asked.root, asked.device)
            and trait not in fleet.traits
        )
    hosts = [
        host
        for host in fleet.hosts
        if "COMPUTE_NODE" in host.traits and _is_there(host, asked)
    ]
    hosts = [
        host
        for host in hosts
        if _meets(
            host, (trait for trait in asked.root if trait != f"!{_DISABLED}")
        )
    ]
    # Those alone that could serve the traits of the unsuffixed group.
    for trait in asked.traits:
        if not trait.startswith("!"):
            hosts = [
                host
                for host in hosts
                if any(
                    trait in each.traits for each in _within_reach(fleet, host)
                )
            ]
    enabled = [host for host in hosts if _DISABLED not in host.traits]
    if reason.by == (_DISABLED,):
        return bool(hosts) and not enabled and f"!{_DISABLED}" in asked.root
    if f"!{_DISABLED}" in asked.root:
        hosts = enabled
    free = {
        host.name: {
            name
            for name, amount in asked.amounts.items()
            if any(
                _is_free(each, name, amount)
                for each in _within_reach(fleet, host)
            )
        }
        for host in hosts
    }
    named = {name for name, word in _WORDS.items() if f" {word}" in text}
    assert text.startswith("No available host has room for this flavor's ")
    if text.endswith(" together."):
        return named == asked.amounts.keys() and not any(
            named <= of_host for of_host in free.values()
        )
    return bool(named) and all(
        named.isdisjoint(of_host) for of_host in free.values()
    )


def _check(client: PlacementClient, *, records: bool) -> CapacityCheck:
    reader = ReasonReader(client)
    return CapacityCheck(reader, records=records, counts=False)


def test_no_sentence_is_false_on_random_trees() -> None:
    """Also a trait on a GPU, a disk that is shared, zones, devices in a group
    of their own, disabled hosts.

    They are the same whether numbers are recorded or not.
    """
    random = Random()  # noqa: S311 - no secret
    seed = random.randrange(10**9)
    random.seed(seed)
    told: Counter[str] = Counter()
    for _ in range(times(2)):
        fleet = _fleet(random)
        with EmbeddedPlacement(fleet) as placement:
            client = placement.client
            placement.know(
                (_OF_HOSTS, "OWNER_NOVA", _DISABLED, *_ANYWHERE, _NOWHERE),
                ("VGPU",),
            )
            checks = [
                _check(client, records=records) for records in (False, True)
            ]
            for _ in range(25):
                asked = _asked(random, fleet)
                if client.candidates(asked.query).allocation_requests:
                    continue
                reason, recorded = (
                    check.find_short_resource(asked.query) for check in checks
                )
                what = (seed, asked, fleet, str(reason))
                assert str(reason) == str(recorded), what
                assert (reason.is_public, reason.by) == (
                    recorded.is_public,
                    recorded.by,
                ), what
                told[reason.stage if reason.is_public else "not known"] += 1
                assert not reason.is_public or _is_true(
                    reason, fleet, asked
                ), what
    assert told[CAPACITY]
    assert told["not known"]


@pytest.mark.parametrize(
    ("records", "limit"), [(False, "limit=1"), (True, "limit=1000")]
)
def test_one_candidate_of_a_class_is_enough_where_hosts_are_not_counted(
    records: bool, limit: str
) -> None:
    """Each of up to 1,000 is some kilobytes of Placement's response."""
    size = {"VCPU": Inventory(4), "MEMORY_MB": Inventory(512)}
    traits = frozenset(("COMPUTE_NODE",))
    host = Provider("kvm-1", provider_uuid("kvm-1"), size, traits)
    with EmbeddedPlacement(Fleet((host,))) as placement:
        seen = Observed(placement)
        check = _check(seen.client, records=records)
        check.find_short_resource("resources=MEMORY_MB:1024,VCPU:1")
    of_one_class = [
        each for each in seen.sent if "resources=VCPU%3A1&" in each
    ]
    assert [limit in each.split("&") for each in of_one_class] == [True]
