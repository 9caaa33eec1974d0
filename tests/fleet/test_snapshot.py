"""A fleet as one file: it reads back the same, and an anonymous one has no name of a host or a place."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from os_prefilter.common.errors import DocumentError
from os_prefilter_tools.fleet import snapshot as module
from os_prefilter_tools.fleet.model import Aggregate, Fleet, Provider, provider_uuid
from os_prefilter_tools.fleet.reader import example_fleet, parse_fleet
from os_prefilter_tools.fleet.snapshot import anonymous, snapshot
from tests.conftest import times
from tests.support.fleets import TIME, fleets
from tests.support.placements import provider


def read(text: str) -> Fleet:
    return parse_fleet(text.encode(), "snapshot.json")


@settings(max_examples=times(20), deadline=None)
@given(fleets(written=True), st.booleans(), st.integers(0, 3))
def test_snapshot_reads_back_as_the_same_fleet(fleet: Fleet, has_inventories: bool, changed: int) -> None:
    """Writing it again gives the same text."""
    fleet = replace(fleet, has_inventories=has_inventories, changed_while_read=changed)
    text = snapshot(fleet)
    assert read(text) == fleet
    assert snapshot(read(text)) == text


def test_snapshot_writes_each_host_on_its_own_line() -> None:
    """So that two snapshots can be compared line by line, and people can read one."""
    fleet = Fleet((provider("host-1", traits="COMPUTE_NODE"), provider("høst-2", classes="")), TIME)
    assert snapshot(fleet).splitlines() == [
        "{",
        f'"taken_at": "{TIME}",',
        '"hosts": {',
        '"host-1": {"resources": {"VCPU": 16, "MEMORY_MB": 16}, "traits": ["COMPUTE_NODE"]},',
        '"høst-2": {}',
        "}",
        "}",
    ]


@pytest.mark.parametrize(
    ("hosts", "problem"),
    [
        ((provider("a", classes="VCPU CLASS_FROM_THE_FUTURE", traits="HW_FROM_THE_FUTURE"),), "FROM_THE_FUTURE"),
        ((), "at least one host"),
    ],
)
def test_snapshot_may_have_new_names_and_no_host_but_a_fleet_written_by_hand_may_not(
    hosts: tuple[Provider, ...], problem: str
) -> None:
    """A newer cloud has newer traits, and an empty fleet is a result; in a file written by hand these are mistakes."""
    assert read(snapshot(Fleet(hosts, TIME))) == Fleet(hosts, TIME)
    with pytest.raises(DocumentError, match=problem):
        read(snapshot(Fleet(hosts)))


def test_snapshot_refuses_to_write_what_it_could_not_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two aggregates of one name, and more than is read of a file."""
    twice = {uuid: Aggregate(uuid, "rack") for uuid in (provider_uuid("1"), provider_uuid("2"))}
    with pytest.raises(DocumentError, match="the same name"):
        snapshot(Fleet((provider("a"),), aggregates=twice))
    monkeypatch.setattr(module, "MAX_BYTES", 50)
    with pytest.raises(DocumentError, match="would exceed"):
        snapshot(example_fleet())


@settings(max_examples=times(12), deadline=None)
@given(fleets(written=True))
def test_anonymous_fleet_keeps_traits_inventories_trees_and_aggregates(fleet: Fleet) -> None:
    other = anonymous(fleet)
    assert read(snapshot(other)) == other
    pairs = list(zip(fleet.walk(), other.walk(), strict=True))
    assert all((a.resources, a.traits, len(a.providers)) == (b.resources, b.traits, len(b.providers)) for a, b in pairs)
    renamed = {(old, new) for a, b in pairs for old, new in zip(a.aggregates, b.aggregates, strict=True)}
    assert len({old for old, _ in renamed}) == len(renamed) == len({new for _, new in renamed})
    named = zip(fleet.aggregates.values(), other.aggregates.values(), strict=True)
    zones = {(old.availability_zone, new.availability_zone) for old, new in named}
    assert len({old for old, _ in zones}) == len(zones) == len({new for _, new in zones})
    assert all(bool(old) == bool(new) for old, new in zones)


def test_anonymous_snapshot_contains_no_name_uuid_or_description() -> None:
    uuids = [f"{number}c3b1b76-5a11-4b6e-8b8b-3a5d0f3c9e01" for number in range(1, 6)]
    child = Provider("secret_gpu", uuids[0], {}, frozenset(), (uuids[3],))
    host = Provider("secret-1", uuids[1], {}, frozenset({"COMPUTE_NODE"}), (uuids[2], uuids[3]), (child,), "secret")
    disks = provider("secret-disks", "DISK_GB", "MISC_SHARES_VIA_AGGREGATE")
    metadata = {
        "filter_tenant_id": "secret project",
        "filter_tenant_id_secret": "secret other",
        "filter_tenant_id_secret_2": "secret project",
        "availability_zone": "secret second zone",
        "trait:CUSTOM_A": "required",
        "trait:CUSTOM_B": "secret",
        "trait:a secret": "required",
        "secret": "secret",
    }
    fleet = Fleet((host, disks), TIME, {uuids[2]: Aggregate(uuids[2], "secret rack", "secret zone", metadata)})
    text = snapshot(anonymous(fleet))
    assert "secret" not in text
    assert not any(uuid in text for uuid in (*uuids, disks.uuid))
    document = json.loads(text)
    assert list(document["hosts"]) == ["host-1", "sharing-1"]
    assert list(document["hosts"]["host-1"]["providers"]) == ["host-1-provider-1"]
    assert document["aggregates"] == {
        "aggregate-1": {
            "availability_zone": "zone-1",
            "metadata": {
                "availability_zone": "zone-2",
                "filter_tenant_id": "project-1",
                "filter_tenant_id2": "project-2",
                "trait:CUSTOM_A": "required",
                "trait:no trait": "required",
            },
        }
    }
    assert document["taken_at"] == TIME
