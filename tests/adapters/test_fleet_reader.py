# SPDX-License-Identifier: Apache-2.0

"""Reading a fleet from a real Placement: all of it, with few requests, also
while it changes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from operator import attrgetter
from typing import NamedTuple
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.common.errors import (
    PlacementRefused,
    PlacementUnavailable,
    UnknownProvider,
)
from os_prefilter_tools.adapters import embedded, fleet_reader
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.adapters.fleet_reader import THREADS, read_fleet
from os_prefilter_tools.fleet.model import (
    Aggregate,
    Fleet,
    Inventory,
    Provider,
    aggregate_uuid,
    provider_uuid,
)
from os_prefilter_tools.fleet.reader import parse_fleet
from os_prefilter_tools.fleet.snapshot import snapshot
from tests.conftest import times
from tests.support.fleets import fleets
from tests.support.placements import (
    Observed,
    answering,
    put_traits,
    served,
)

RACK = Aggregate(aggregate_uuid("rack"), "rack", "north")


def like(read: Fleet, fleet: Fleet) -> Fleet:
    """Return the fleet with the time at which the other was read."""
    return replace(fleet, taken_at=read.taken_at)


def host(number: int, children: tuple[Provider, ...] = ()) -> Provider:
    name = f"host-{number:04}"
    parity = "CUSTOM_ODD" if number % 2 else "CUSTOM_EVEN"
    return Provider(
        name,
        provider_uuid(name),
        {
            "VCPU": Inventory(8, used=number % 8),
            "MEMORY_MB": Inventory(8192),
        },
        frozenset({"COMPUTE_NODE", "HW_ARCH_X86_64", parity}),
        (RACK.uuid,),
        children,
    )


def fleet_of(hosts: int) -> Fleet:
    return Fleet(tuple(map(host, range(hosts))), aggregates={RACK.uuid: RACK})


def without_inventories(fleet: Fleet) -> Fleet:
    """Return what can be read of a fleet from its traits and aggregates."""

    def reduced(each: Provider) -> Provider:
        known = [uuid for uuid in each.aggregates if uuid in fleet.aggregates]
        return replace(
            each,
            resources={},
            aggregates=tuple(known),
            providers=tuple(map(reduced, each.providers)),
        )

    hosts = tuple(map(reduced, fleet.hosts))
    return replace(fleet, hosts=hosts, has_inventories=False)


@settings(
    max_examples=times(6),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(fleets(), st.sampled_from([1, fleet_reader._SMALL]))
def test_read_fleet_returns_the_fleet_that_placement_holds(
    fleet: Fleet, small: int
) -> None:
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(fleet_reader, "_SMALL", small)
        patches.setattr(embedded, "_AT_ONCE", 2)
        with EmbeddedPlacement(fleet) as placement:
            client = placement.client
            aggregates = fleet.aggregates.values()
            read = read_fleet(client, aggregates)
            traits_only = read_fleet(client, aggregates, inventories=False)
    assert read == like(read, fleet)
    assert traits_only == like(traits_only, without_inventories(fleet))


@pytest.mark.parametrize("inventories", [True, False])
def test_an_empty_placement_is_an_empty_fleet_read_now(
    inventories: bool,
) -> None:
    """The time is in UTC."""
    before = datetime.now(timezone.utc).replace(microsecond=0)
    with EmbeddedPlacement() as placement:
        read = read_fleet(placement.client, inventories=inventories)
    assert read == like(read, Fleet((), has_inventories=inventories))
    taken_at = datetime.fromisoformat(read.taken_at.replace("Z", "+00:00"))
    assert before <= taken_at <= datetime.now(timezone.utc)


@pytest.mark.parametrize(
    ("hosts", "sampled", "common"),
    [
        (3, 0, ()),
        # Each 200th provider, whose number is odd.
        (200, 1, ("COMPUTE_NODE", "CUSTOM_ODD", "HW_ARCH_X86_64")),
    ],
)
def test_trait_only_read_takes_the_same_requests_however_many_hosts_there_are(
    hosts: int, sampled: int, common: tuple[str, ...]
) -> None:
    """A trait that most of a sample of the providers have is read as those
    that lack it: few, or none.
    """
    with EmbeddedPlacement(fleet_of(hosts)) as placement:
        observed = Observed(placement)
        read = read_fleet(observed.client, [RACK], inventories=False)
    hosts_by_name = sorted(read.hosts, key=attrgetter("name"))
    assert [each.traits for each in hosts_by_name] == [
        host(number).traits for number in range(hosts)
    ]
    listing = "GET /resource_providers"
    first, associated, *others, last = map(unquote, observed.sent)
    assert first == listing
    assert associated == "GET /traits?associated=true"
    assert last == listing
    for request in others[:sampled]:
        assert re.fullmatch(rf"{listing}/[^/]+/traits", request)
    queries = [f"member_of={RACK.uuid}"]
    for trait in [
        "COMPUTE_NODE",
        "CUSTOM_EVEN",
        "CUSTOM_ODD",
        "HW_ARCH_X86_64",
    ]:
        sign = "!" if trait in common else ""
        queries.append(f"required={sign}{trait}")
    assert sorted(others[sampled:]) == sorted(
        f"{listing}?{query}" for query in queries
    )


class HalfGone(PlacementClient):
    """A client for which each second provider is gone."""

    def __init__(self) -> None:
        super().__init__(Adapter(Session()))
        self.asked = 0

    def provider_traits(self, uuid: str) -> tuple[int, frozenset[str]]:
        self.asked += 1
        if self.asked % 2:
            raise UnknownProvider(uuid)
        return 0, frozenset({"COMPUTE_NODE"})


@pytest.mark.parametrize(
    ("providers", "sampled", "common"),
    [
        (199, 0, set()),
        (2_000, 10, {"COMPUTE_NODE"}),
        (4_000, 19, {"COMPUTE_NODE"}),
        (1_000_000, 19, {"COMPUTE_NODE"}),
    ],
)
def test_no_more_providers_are_sampled_however_many_there_are(
    providers: int, sampled: int, common: set[str]
) -> None:
    """A provider that is gone by then counts for nothing."""
    client = HalfGone()
    uuids = [str(number) for number in range(providers)]
    assert fleet_reader._common_traits(client, uuids) == common
    assert client.asked == sampled


@pytest.mark.parametrize(
    ("inventories", "total"), [(True, 4 + 20), (False, 4 + 1)]
)
def test_progress_is_reported_after_each_response(
    inventories: bool, total: int
) -> None:
    reported: list[tuple[str, int, int | None]] = []
    with EmbeddedPlacement(fleet_of(20)) as placement:
        read_fleet(
            placement.client,
            [RACK],
            inventories=inventories,
            progress=lambda *each: reported.append(each),
        )
    assert reported == [
        ("hosts by trait", number, total) for number in range(1, total + 1)
    ]


def create(placement: EmbeddedPlacement, name: str) -> None:
    provider = {"name": name, "uuid": provider_uuid(name)}
    placement.client.request("POST", "/resource_providers", provider)


def delete(placement: EmbeddedPlacement, name: str) -> None:
    placement.client.request(
        "DELETE", f"/resource_providers/{provider_uuid(name)}"
    )


def tag(placement: EmbeddedPlacement, name: str) -> None:
    put_traits(placement, lambda traits: traits.add("CUSTOM_ODD"), name)


def add(placement: EmbeddedPlacement, name: str) -> None:
    create(placement, name)
    tag(placement, name)


class Change(NamedTuple):
    make: Callable[[EmbeddedPlacement, str], None]
    name: str
    left: set[str]
    """The hosts of the fleet that was read."""
    counted: int = 1


CHANGES = {
    "a host goes": Change(delete, "idle", {"host-0000", "child", "host-0001"}),
    "a child goes": Change(
        delete, "child", {"host-0000", "host-0001", "idle"}
    ),
    "a host changes": Change(
        tag, "host-0000", {"host-0000", "child", "host-0001", "idle"}
    ),
    "a host comes": Change(
        add, "new", {"host-0000", "child", "host-0001", "idle"}, 0
    ),
}
WHEN = [
    (True, "required=COMPUTE_NODE"),
    (True, "/usages"),
    (False, "associated=true"),
    (False, f"of={RACK.uuid}"),
]


@pytest.mark.parametrize(("inventories", "at"), WHEN)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_fleet_changed_during_the_read_is_consistent_and_counts_the_changes(
    change: Change, at: str, inventories: bool
) -> None:
    """A provider that went is left out, one that came is not read, one that
    changed is counted: wherever in the reading it happens.
    """
    traits = frozenset({"COMPUTE_NODE"})
    child = Provider("child", provider_uuid("child"), {}, traits)
    idle = Provider("idle", provider_uuid("idle"), {}, traits)
    fleet = Fleet((host(0, (child,)), host(1), idle))
    lock = threading.Lock()
    done: list[str] = []
    with EmbeddedPlacement(fleet) as placement:

        def hook(_method: str, url: str) -> None:
            with lock:
                if url.endswith(at) and not done:
                    done.append(url)
                    change.make(placement, change.name)

        client = Observed(placement, hook).client
        read = read_fleet(client, [RACK], inventories=inventories)
    assert done
    providers = {each.name: each for each in read.walk()}
    assert providers.keys() == change.left
    assert read.changed_while_read == change.counted
    if change.name != "child":
        assert providers["host-0000"].providers == (providers["child"],)
    if inventories:
        assert providers["host-0001"] == host(1)


def test_trait_deleted_during_the_read_is_on_no_host() -> None:
    """Placement then refuses to be asked for it; that is no error."""
    traits = {"traits": ["COMPUTE_NODE", "CUSTOM_GONE"]}
    hook = answering((200, traits), "/traits?associated=true")
    with EmbeddedPlacement(fleet_of(2)) as placement:
        read = read_fleet(Observed(placement, hook).client)
    assert read.traits == {"COMPUTE_NODE"}


def test_unprintable_names_of_providers_and_aggregates_are_escaped() -> None:
    """A name may be anything in Placement and Nova; two never become one, and
    a snapshot of them can be read back.
    """
    long = "\x1b" * 90
    rack = Aggregate(RACK.uuid, "a\nb" * 100, "\x1b[0m")
    with EmbeddedPlacement() as placement:
        for name in ("a\nb", "a\\nb", long):
            create(placement, name)
        read = read_fleet(placement.client, [rack])
    names = {each.uuid: each.name for each in read.hosts}
    assert names[provider_uuid(long)] == provider_uuid(long)
    assert "a\\nb" in (
        names[provider_uuid("a\nb")],
        names[provider_uuid("a\\nb")],
    )
    assert len(set(names.values())) == 3
    (aggregate,) = read.aggregates.values()
    assert aggregate.availability_zone == r"\x1b[0m"
    for name in (*names.values(), aggregate.name):
        assert name.isprintable()
    assert parse_fleet(snapshot(read).encode(), "x") == read


def test_fleet_read_over_http_by_threads_is_the_fleet_that_placement_holds() -> (
    None
):
    """As from a live Placement: the threads share a session of keystoneauth,
    whatever the order of the responses.
    """
    fleet = fleet_of(20)
    with EmbeddedPlacement(fleet) as placement, served(placement) as server:
        adapter = Adapter(
            Session(auth=Token(server.url, "admin")), service_type="placement"
        )
        read = read_fleet(PlacementClient(adapter), [RACK])
    assert read == like(read, fleet)
    assert len(server.sent) == 3 + 4 + 3 * 20


def test_as_many_requests_as_threads_are_under_way_at_most() -> None:
    first_ones = threading.Barrier(THREADS, timeout=60)
    lock = threading.Lock()
    started = under_way = most = 0

    def hook(_method: str, url: str) -> None:
        nonlocal started, under_way, most
        if not url.endswith("/inventories"):
            return
        with lock:
            started += 1
            under_way += 1
            most = max(most, under_way)
            is_one_of_the_first = started <= THREADS
        if is_one_of_the_first:
            first_ones.wait()
        with lock:
            under_way -= 1

    with EmbeddedPlacement(fleet_of(2 * THREADS)) as placement:
        read_fleet(Observed(placement, hook).client)
    assert most == THREADS


ODD: list[tuple[str, object]] = [
    ("/resource_providers", {}),
    (
        "/resource_providers",
        {"resource_providers": [{"uuid": "x", "name": "a", "generation": 1}]},
    ),
    ("associated=true", {"traits": "x"}),
    ("associated=true", {"traits": ["A&in_tree=B"]}),
    ("required=COMPUTE_NODE", {"resource_providers": 3}),
    ("/inventories", {"inventories": {"VCPU": {"total": 3}}}),
    ("/inventories", {"inventories": {"VCPU": 3}}),
    ("/usages", {}),
    ("/aggregates", {"aggregates": None}),
]


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[EmbeddedPlacement]:
    with EmbeddedPlacement(fleet_of(2)) as placement:
        yield placement


@pytest.mark.parametrize(("url", "document"), ODD)
def test_malformed_response_raises_placement_unavailable(
    url: str, document: object, two_hosts: EmbeddedPlacement
) -> None:
    observed = Observed(two_hosts, answering((200, document), url))
    with pytest.raises(PlacementUnavailable) as raised:
        read_fleet(observed.client)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("status", "error"), [(503, PlacementUnavailable), (403, PlacementRefused)]
)
def test_error_response_stops_the_read_and_nothing_is_retried(
    status: int, error: type[Exception]
) -> None:
    with EmbeddedPlacement(fleet_of(50)) as placement:
        hook = answering((status, {}), "/inventories")
        observed = Observed(placement, hook)
        with pytest.raises(error):
            read_fleet(observed.client)
    failed = [each for each in observed.sent if each.endswith("/inventories")]
    assert len(set(failed)) == len(failed)
    assert len(failed) < 50
