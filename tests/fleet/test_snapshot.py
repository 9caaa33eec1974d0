# SPDX-License-Identifier: Apache-2.0

"""A fleet as one file: it reads back the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from os_prefilter.common.errors import DocumentError
from os_prefilter_tools.fleet import snapshot as module
from os_prefilter_tools.fleet.model import (
    Aggregate,
    Fleet,
    Provider,
    provider_uuid,
)
from os_prefilter_tools.fleet.reader import example_fleet, parse_fleet
from os_prefilter_tools.fleet.snapshot import snapshot
from tests.conftest import times
from tests.support.fleets import TIME, fleets
from tests.support.placements import provider


def read(text: str) -> Fleet:
    return parse_fleet(text.encode(), "snapshot.json")


@settings(max_examples=times(20), deadline=None)
@given(fleets(written=True), st.integers(0, 3))
def test_snapshot_reads_back_as_the_same_fleet(
    fleet: Fleet, changed: int
) -> None:
    """Writing it again gives the same text."""
    fleet = replace(fleet, changed_while_read=changed)
    text = snapshot(fleet)
    assert (read(text), snapshot(read(text))) == (fleet, text)


def test_snapshot_writes_each_host_on_its_own_line() -> None:
    """So that two snapshots can be compared line by line, and people can read
    one.
    """
    fleet = Fleet(
        (
            provider("host-1", traits="COMPUTE_NODE"),
            provider("høst-2", classes=""),
        ),
        TIME,
    )
    assert snapshot(fleet).splitlines() == [
        "{",
        f'"taken_at": "{TIME}",',
        '"hosts": {',
        (
            '"host-1": {"resources": {"VCPU": 16, "MEMORY_MB": 16}, "traits":'
            ' ["COMPUTE_NODE"]},'
        ),
        '"høst-2": {}',
        "}",
        "}",
    ]


@pytest.mark.parametrize(
    ("hosts", "problem"),
    [
        (
            (
                provider(
                    "a",
                    classes="VCPU CLASS_FROM_THE_FUTURE",
                    traits="HW_FROM_THE_FUTURE",
                ),
            ),
            "FROM_THE_FUTURE",
        ),
        ((), "at least one host"),
    ],
)
def test_snapshot_may_have_new_names_and_no_host_but_a_fleet_written_by_hand_may_not(
    hosts: tuple[Provider, ...], problem: str
) -> None:
    """A newer cloud has newer traits, and an empty fleet is a result; in a
    file written by hand these are mistakes.
    """
    assert read(snapshot(Fleet(hosts, TIME))) == Fleet(hosts, TIME)
    with pytest.raises(DocumentError, match=problem):
        read(snapshot(Fleet(hosts)))


def test_snapshot_refuses_to_write_what_it_could_not_read_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two aggregates of one name, no inventories, and more than is read of a
    file.
    """
    with pytest.raises(DocumentError, match="without inventories"):
        snapshot(Fleet((provider("a"),), has_inventories=False))
    twice = {
        uuid: Aggregate(uuid, "rack")
        for uuid in (provider_uuid("1"), provider_uuid("2"))
    }
    with pytest.raises(DocumentError, match="the same name"):
        snapshot(Fleet((provider("a"),), aggregates=twice))
    monkeypatch.setattr(module, "MAX_BYTES", 50)
    with pytest.raises(DocumentError, match="would exceed"):
        snapshot(example_fleet())
