# SPDX-License-Identifier: Apache-2.0

"""Reading a fleet out of a real Placement: all of it, with few requests, also
while it changes.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from itertools import count
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
    Answer,
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
    traits = frozenset(
        {
            "COMPUTE_NODE",
            "HW_ARCH_X86_64",
            "CUSTOM_ODD" if number % 2 else "CUSTOM_EVEN",
        }
    )
    resources = {
        "VCPU": Inventory(8, used=number % 8),
        "MEMORY_MB": Inventory(8192),
    }
    return Provider(
        name, provider_uuid(name), resources, traits, (RACK.uuid,), children
    )


def fleet_of(hosts: int) -> Fleet:
    return Fleet(tuple(map(host, range(hosts))), aggregates={RACK.uuid: RACK})


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
            read = read_fleet(placement.client, fleet.aggregates.values())
            assert read == like(read, fleet)
            traits_only = read_fleet(
                placement.client, fleet.aggregates.values(), inventories=False
            )

    def without(each: Provider) -> Provider:
        known = tuple(
            uuid for uuid in each.aggregates if uuid in fleet.aggregates
        )
        return replace(
            each,
            resources={},
            aggregates=known,
            providers=tuple(map(without, each.providers)),
        )

    expected = replace(
        fleet, hosts=tuple(map(without, fleet.hosts)), has_inventories=False
    )
    assert traits_only == like(traits_only, expected)


def test_an_empty_placement_is_an_empty_fleet_read_now() -> None:
    """The time is in UTC."""
    before = datetime.now(timezone.utc).replace(microsecond=0)
    with EmbeddedPlacement() as placement:
        for inventories in (True, False):
            read = read_fleet(placement.client, inventories=inventories)
            assert read == like(read, Fleet((), has_inventories=inventories))
    assert (
        before
        <= datetime.fromisoformat(read.taken_at.replace("Z", "+00:00"))
        <= datetime.now(timezone.utc)
    )


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
    assert len(read.hosts) == hosts
    sent, listing = (
        [unquote(each) for each in observed.sent],
        "GET /resource_providers",
    )
    assert (sent[:2], sent[-1]) == (
        [listing, "GET /traits?associated=true"],
        listing,
    )
    assert all(
        each.startswith(f"{listing}/") and each.endswith("/traits")
        for each in sent[2 : 2 + sampled]
    )
    traits = ("COMPUTE_NODE", "CUSTOM_EVEN", "CUSTOM_ODD", "HW_ARCH_X86_64")
    wanted = (f"!{trait}" if trait in common else trait for trait in traits)
    assert sorted(sent[2 + sampled : -1]) == sorted(
        [
            *(f"{listing}?required={each}" for each in wanted),
            f"{listing}?member_of={RACK.uuid}",
        ]
    )
    read_traits = [
        each.traits for each in sorted(read.hosts, key=lambda each: each.name)
    ]
    assert read_traits == [host(number).traits for number in range(hosts)]


def test_no_more_providers_are_sampled_however_many_there_are() -> None:
    """A provider that is gone by then counts for nothing."""
    asked: list[str] = []

    class Client(PlacementClient):
        def provider_traits(self, uuid: str) -> tuple[int, frozenset[str]]:
            asked.append(uuid)
            if len(asked) % 2:
                raise UnknownProvider(uuid)
            return 0, frozenset({"COMPUTE_NODE"})

    for number, sampled in (
        (199, 0),
        (2_000, 10),
        (4_000, 19),
        (1_000_000, 19),
    ):
        asked.clear()
        common = fleet_reader._common_traits(
            Client(Adapter(Session())), list(map(str, range(number)))
        )
        assert (len(asked), common) == (
            sampled,
            frozenset({"COMPUTE_NODE"} if sampled else ()),
        )


@pytest.mark.parametrize(
    ("inventories", "total"), [(True, 4 + 20), (False, 4 + 1)]
)
def test_progress_is_reported_after_each_response(
    inventories: bool, total: int
) -> None:
    reported: list[tuple[int, int]] = []
    with EmbeddedPlacement(fleet_of(20)) as placement:
        read_fleet(
            placement.client,
            [RACK],
            inventories=inventories,
            progress=lambda *each: reported.append(each),
        )
    assert reported == [(number, total) for number in range(1, total + 1)]


def delete(placement: EmbeddedPlacement, name: str) -> None:
    placement.client.request(
        "DELETE", f"/resource_providers/{provider_uuid(name)}"
    )


def tag(placement: EmbeddedPlacement, name: str) -> None:
    put_traits(placement, lambda traits: traits.add("CUSTOM_ODD"), name)


def add(placement: EmbeddedPlacement, name: str) -> None:
    placement.client.request(
        "POST",
        "/resource_providers",
        {"name": name, "uuid": provider_uuid(name)},
    )
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
    """Who went is left out, who came is not looked at, who changed is counted:
    wherever in the reading it happens.
    """
    child = Provider(
        "child", provider_uuid("child"), {}, frozenset({"COMPUTE_NODE"})
    )
    idle = Provider(
        "idle", provider_uuid("idle"), {}, frozenset({"COMPUTE_NODE"})
    )
    lock = threading.Lock()
    done: list[str] = []
    with EmbeddedPlacement(
        Fleet((host(0, (child,)), host(1), idle))
    ) as placement:

        def hook(_method: str, url: str) -> Answer | None:
            with lock:
                if url.endswith(at) and not done:
                    done.append(url)
                    change.make(placement, change.name)
            return None

        read = read_fleet(
            Observed(placement, hook).client, [RACK], inventories=inventories
        )
    assert done
    assert ({each.name for each in read.walk()}, read.changed_while_read) == (
        change.left,
        change.counted,
    )
    names = {each.name: each for each in read.walk()}
    if change.name != "child":
        assert names["host-0000"].providers == (names["child"],)
    if inventories:
        assert names["host-0001"] == host(1)


def test_trait_deleted_during_the_read_is_on_no_host() -> None:
    """Placement then refuses to be asked for it; that is no error."""
    with EmbeddedPlacement(fleet_of(2)) as placement:

        def hook(_method: str, url: str) -> Answer | None:
            if url.endswith("/traits?associated=true"):
                return 200, {"traits": ["COMPUTE_NODE", "CUSTOM_GONE"]}
            return None

        read = read_fleet(Observed(placement, hook).client)
    assert read.traits == {"COMPUTE_NODE"}


def test_unprintable_names_of_providers_and_aggregates_are_escaped() -> None:
    """A name may be anything in Placement and Nova; two never become one, and
    a snapshot of them can be read back.
    """
    names = ["a\nb", "a\\nb", "\x1b" * 90]
    with EmbeddedPlacement() as placement:
        for name in names:
            placement.client.request(
                "POST",
                "/resource_providers",
                {"name": name, "uuid": provider_uuid(name)},
            )
        read = read_fleet(
            placement.client, [Aggregate(RACK.uuid, "a\nb" * 100, "\x1b[0m")]
        )
    found = {each.uuid: each.name for each in read.hosts}
    assert found[provider_uuid("\x1b" * 90)] == provider_uuid("\x1b" * 90)
    assert (
        sorted(found[provider_uuid(name)] for name in names[:2])[1:],
        len(set(found.values())),
    ) == (["a\\nb"], 3)
    (aggregate,) = read.aggregates.values()
    assert aggregate.availability_zone == r"\x1b[0m"
    assert all(
        name.isprintable() for name in (*found.values(), aggregate.name)
    )
    assert parse_fleet(snapshot(read).encode(), "x") == read


def test_fleet_read_over_http_by_threads_is_the_fleet_that_placement_holds() -> (
    None
):
    """As from a live Placement: a session of keystoneauth is shared by the
    threads, whatever order answers come in.
    """
    fleet = fleet_of(20)
    with EmbeddedPlacement(fleet) as placement, served(placement) as server:
        adapter = Adapter(
            Session(auth=Token(server.url, "admin")), service_type="placement"
        )
        read = read_fleet(PlacementClient(adapter), [RACK])
    assert (read, len(server.sent)) == (like(read, fleet), 3 + 4 + 3 * 20)


def test_as_many_requests_as_threads_are_under_way_at_most() -> None:
    together = threading.Barrier(THREADS, timeout=60)
    lock, under_way, most = threading.Lock(), 0, 0
    numbers = count()

    def hook(_method: str, url: str) -> None:
        nonlocal under_way, most
        if url.endswith("/inventories"):
            with lock:
                under_way += 1
                most, waits = max(most, under_way), next(numbers) < THREADS
            if waits:
                together.wait()
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


def test_malformed_response_raises_placement_unavailable() -> None:
    with EmbeddedPlacement(fleet_of(2)) as placement:
        for at, answer in ODD:
            with pytest.raises(PlacementUnavailable) as raised:
                read_fleet(
                    Observed(placement, answering((200, answer), at)).client
                )
            assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("status", "error"), [(503, PlacementUnavailable), (403, PlacementRefused)]
)
def test_error_response_stops_the_read_and_nothing_is_retried(
    status: int, error: type[Exception]
) -> None:
    def hook(_method: str, url: str) -> Answer | None:
        return (status, {}) if url.endswith("/inventories") else None

    with EmbeddedPlacement(fleet_of(50)) as placement:
        observed = Observed(placement, hook)
        with pytest.raises(error):
            read_fleet(observed.client)
    failed = [each for each in observed.sent if each.endswith("/inventories")]
    assert len(set(failed)) == len(failed)
    assert len(failed) < 50
