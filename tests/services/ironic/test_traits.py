# SPDX-License-Identifier: Apache-2.0

"""Keeping the traits on a node of a real Ironic true: ours come and go, an
operator's stay.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from os_prefilter.adapters.ironic.errors import (
    IronicRefused,
    IronicUnavailable,
    NodeNotReady,
    UnknownNode,
)
from os_prefilter.adapters.ironic.node import IronicNode
from os_prefilter.adapters.ironic.traits import EXTRA, KEEP, MOST_TRAITS
from os_prefilter.common.errors import ConfigurationError, IronicError
from os_prefilter.hosts.desired_traits import TraitChange
from os_prefilter.hosts.marker_traits import REPORTED as PREFIX
from tests.services.ironic.bios import CONFIGURING, NAME
from tests.services.ironic.ironics import Ironic, connect
from tests.services.recorder import LOST, Answer, Recorder

HYPERTHREADING = "HW_CPU_HYPERTHREADING"
AVX2 = "HW_CPU_X86_AVX2"
GOLD = "CUSTOM_GOLD"
REPORTED = f"{PREFIX}ABCDE"


def everything(
    ironic: Ironic, node: str
) -> tuple[set[str], Mapping[str, object]]:
    shown = ironic.show(node)
    return set(shown["traits"]), shown["extra"]


def test_report_adds_and_removes_our_traits_and_keeps_all_others(
    ironic: Ironic,
) -> None:
    node = ironic.node("manageable", extra={"rack": 7})
    ironic.add_traits(node, GOLD)
    there = IronicNode(ironic.baremetal, node)
    assert there.report({HYPERTHREADING: True, AVX2: False}) == [
        TraitChange(node, HYPERTHREADING, "add")
    ]
    assert everything(ironic, node) == (
        {GOLD, HYPERTHREADING},
        {"rack": 7, EXTRA: [HYPERTHREADING]},
    )
    assert there.report({HYPERTHREADING: False, AVX2: True}) == [
        TraitChange(node, AVX2, "add"),
        TraitChange(node, HYPERTHREADING, "remove"),
    ]
    assert everything(ironic, node) == (
        {GOLD, AVX2},
        {"rack": 7, EXTRA: [AVX2]},
    )
    assert there.report({AVX2: False}) == [TraitChange(node, AVX2, "remove")]
    assert everything(ironic, node) == ({GOLD}, {"rack": 7})


def test_report_after_the_node_was_replaced_writes_to_no_other_node(
    ironic: Ironic,
) -> None:
    old, new = ironic.node("manageable"), ironic.node("manageable")
    ironic.patch(old, {"/name": "metal-of-rack-7"})
    there = IronicNode(ironic.baremetal, "metal-of-rack-7")
    there.facts()
    ironic.patch(old, {"/name": "metal-of-rack-7-broken"})
    ironic.patch(new, {"/name": "metal-of-rack-7"})
    there.report({HYPERTHREADING: True})
    assert ironic.traits(old) == {HYPERTHREADING}
    assert ironic.traits(new) == set()


def test_report_never_removes_a_trait_set_by_an_operator(
    ironic: Ironic,
) -> None:
    node = ironic.node("manageable")
    ironic.add_traits(node, HYPERTHREADING)
    there = IronicNode(ironic.baremetal, node)
    for has, changes in (
        (True, []),
        (False, [TraitChange(node, HYPERTHREADING, KEEP)]),
    ):
        assert there.report({HYPERTHREADING: has}) == changes
        assert everything(ironic, node) == ({HYPERTHREADING}, {})
    # What an operator removes is restored if it is true, and else forgotten.
    ironic.remove_traits(node, HYPERTHREADING)
    for has, changes in (
        (True, [TraitChange(node, HYPERTHREADING, "add")]),
        (False, []),
    ):
        assert there.report({HYPERTHREADING: has}) == changes
        ironic.remove_traits(node, *ironic.traits(node))
    assert everything(ironic, node) == (set(), {})
    # From now on it is the operator's.
    ironic.add_traits(node, HYPERTHREADING)
    assert there.report({HYPERTHREADING: False}) == [
        TraitChange(node, HYPERTHREADING, KEEP)
    ]


def test_trait_no_longer_reported_is_removed_and_an_undetermined_one_stays(
    ironic: Ironic,
) -> None:
    node = ironic.node("manageable")
    there = IronicNode(ironic.baremetal, node)
    there.report({HYPERTHREADING: True, AVX2: True})
    assert there.report({AVX2: True}, leave=[HYPERTHREADING]) == []
    assert everything(ironic, node)[1] == {EXTRA: [HYPERTHREADING, AVX2]}
    assert there.report({AVX2: True}) == [
        TraitChange(node, HYPERTHREADING, "remove")
    ]
    assert everything(ironic, node)[1] == {EXTRA: [AVX2]}


def test_a_dry_run_tells_what_a_run_does_and_writes_nothing(
    ironic: Ironic, proxy: Recorder
) -> None:
    node = ironic.node("manageable")
    ironic.add_traits(node, AVX2)
    there = IronicNode(connect(proxy.url).baremetal, node)
    there.report({GOLD: True})
    before = everything(ironic, node)
    wanted = {HYPERTHREADING: True, AVX2: False, GOLD: False}
    proxy.sent.clear()
    told = there.report(wanted, dry_run=True)
    assert proxy.written == []
    assert everything(ironic, node) == before
    assert there.report(wanted) == told
    assert {change.change for change in told} == {"add", "remove", KEEP}


def test_report_warns_of_a_node_on_which_nova_boots_servers_unconfigured(
    ironic: Ironic, caplog: pytest.LogCaptureFixture
) -> None:
    for interface, warned in ((NAME, True), (CONFIGURING, False)):
        caplog.clear()
        node = ironic.node("manageable", bios_interface=interface)
        IronicNode(ironic.baremetal, node).report(
            {HYPERTHREADING: True}, dry_run=True
        )
        assert (
            f"node {node} unconfigured: its bios_interface {interface} "
            in caplog.text
        ) is warned


def test_report_over_the_trait_limit_is_refused_before_anything_is_written(
    ironic: Ironic, proxy: Recorder
) -> None:
    """Ironic allows exactly as many as we assume."""
    node, ours = ironic.node("manageable"), f"CUSTOM_{MOST_TRAITS}"
    there = IronicNode(connect(proxy.url).baremetal, node)
    there.report({ours: True})
    body = {
        "traits": [
            ours,
            *(f"CUSTOM_{number}" for number in range(MOST_TRAITS - 1)),
        ]
    }
    ironic.send("PUT", f"/v1/nodes/{node}/traits", body)
    before = everything(ironic, node)
    proxy.sent.clear()
    for dry_run in (True, False):
        with pytest.raises(
            NodeNotReady,
            match=(
                "it would have 51 traits, and Ironic allows"
                f" 50.*{HYPERTHREADING}"
            ),
        ):
            there.report({HYPERTHREADING: True, ours: True}, dry_run=dry_run)
    assert (proxy.written, everything(ironic, node)) == ([], before)
    with (
        pytest.raises(IronicRefused, match="51 vs. 50"),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(
            "os_prefilter.adapters.ironic.traits.MOST_TRAITS", MOST_TRAITS + 1
        )
        there.report({HYPERTHREADING: True, ours: True})
    # One for another fits: what goes is removed first. A full node to which
    # nothing is added is no error.
    there.report({HYPERTHREADING: True, ours: False})
    assert len(ironic.traits(node)) == MOST_TRAITS
    assert there.report({HYPERTHREADING: True, ours: False}) == []


def test_invalid_trait_name_or_unknown_node_is_refused(ironic: Ironic) -> None:
    there = IronicNode(ironic.baremetal, "no-such-node")
    for name in ("CUSTOM_a", "../../x", "", "CUSTOM_" + "A" * 300):
        with pytest.raises(
            ConfigurationError, match="is not the name of a trait"
        ):
            there.report({name: True})
    with pytest.raises(UnknownNode):
        there.report({HYPERTHREADING: True})


# What is there first, what is reported, and what is there at the end.
_TURN = (
    {AVX2: True, GOLD: True},
    {HYPERTHREADING: True, AVX2: False, GOLD: True, "CUSTOM_BY_HAND": False},
)
_REQUESTS = 4


@pytest.mark.parametrize(
    "done", [False, True], ids=["request lost", "answer lost"]
)
@pytest.mark.parametrize("number", range(1, _REQUESTS + 1))
def test_report_interrupted_at_any_write_is_completed_by_the_next_run(
    ironic: Ironic, proxy: Recorder, number: int, *, done: bool
) -> None:
    """Nothing of ours is ever taken for an operator's, and nothing of theirs
    is lost.
    """
    node = ironic.node("manageable")
    before, wanted = _TURN
    there = IronicNode(
        connect(proxy.url, baremetal_status_code_retries=0).baremetal, node
    )
    there.report(before)
    ironic.add_traits(node, "CUSTOM_BY_HAND")
    proxy.sent.clear()

    def lose(method: str, _path: str) -> Answer | None:
        return (
            LOST if method != "GET" and len(proxy.written) == number else None
        )

    setattr(proxy, "after" if done else "before", lose)
    with pytest.raises(IronicUnavailable):
        there.report(wanted)
    assert len(proxy.written) == number
    midway, noted = everything(ironic, node)
    assert midway - {"CUSTOM_BY_HAND"} <= set(map(str, noted[EXTRA]))  # type: ignore[call-overload]
    there = IronicNode(ironic.baremetal, node)
    there.report(wanted)
    assert everything(ironic, node) == (
        {HYPERTHREADING, GOLD, "CUSTOM_BY_HAND"},
        {EXTRA: [GOLD, HYPERTHREADING]},
    )


def test_report_makes_the_four_writes_that_are_interrupted_and_then_none(
    ironic: Ironic, proxy: Recorder
) -> None:
    """So that the test above has interrupted each."""
    before, wanted = _TURN
    there = IronicNode(connect(proxy.url).baremetal, ironic.node("manageable"))
    there.report(before)
    proxy.sent.clear()
    there.report(wanted)
    assert [each.split()[0] for each in proxy.written] == [
        "PATCH",
        "DELETE",
        "PUT",
        "PATCH",
    ]
    assert len(proxy.written) == _REQUESTS
    assert there.report(wanted) == []
    assert len(proxy.written) == _REQUESTS


def test_report_waits_for_a_released_lock_and_raises_for_a_lasting_one(
    ironic: Ironic, proxy: Recorder
) -> None:
    node = ironic.node("manageable")
    ironic.set_column(node, "reservation", "another-conductor")
    quick = {
        "baremetal_status_code_retry_delay": 0.01,
        "baremetal_status_code_retries": 2,
    }
    there = IronicNode(connect(proxy.url, **quick).baremetal, node)
    with pytest.raises(
        NodeNotReady, match=f"Node {node} is locked by host another-conductor"
    ):
        there.report({HYPERTHREADING: True})
    assert len(proxy.written) == 3
    assert everything(ironic, node) == (set(), {})

    def let_go(_method: str, _path: str) -> None:
        if len(proxy.written) == 5:
            ironic.set_column(node, "reservation", None)

    proxy.before = let_go
    there.report({HYPERTHREADING: True})
    assert everything(ironic, node) == (
        {HYPERTHREADING},
        {EXTRA: [HYPERTHREADING]},
    )


def test_report_raises_while_the_node_changes_its_provision_state(
    ironic: Ironic,
) -> None:
    """Ironic then refuses each write to the node."""
    node = ironic.node("manageable")
    ironic.set_column(node, "provision_state", "deploying")
    ironic.set_column(node, "target_provision_state", "active")
    there = IronicNode(
        connect(ironic.url, baremetal_status_code_retries=0).baremetal, node
    )
    with pytest.raises(IronicError, match="state transition is in progress"):
        there.report({HYPERTHREADING: True})
    assert everything(ironic, node) == (set(), {})


def test_trait_removed_concurrently_counts_as_removed(
    ironic: Ironic, proxy: Recorder
) -> None:
    node = ironic.node("manageable")
    there = IronicNode(connect(proxy.url).baremetal, node)
    there.report({HYPERTHREADING: True})

    def remove_first(method: str, _path: str) -> None:
        if method == "DELETE":
            ironic.remove_traits(node, HYPERTHREADING)

    proxy.before = remove_first
    there.report({HYPERTHREADING: False})
    assert everything(ironic, node) == (set(), {})


def test_marker_trait_is_added_last_and_removed_first(
    ironic: Ironic, proxy: Recorder
) -> None:
    node = ironic.node("manageable")
    there = IronicNode(connect(proxy.url).baremetal, node)
    complete = {HYPERTHREADING, AVX2, "CUSTOM_VM_MODE_HVM"}
    states: list[set[str]] = []

    def look(method: str, _path: str) -> None:
        if method != "GET":
            states.append(set(ironic.traits(node)))

    proxy.after = look
    there.report(dict.fromkeys({REPORTED, *complete}, True))
    assert states[-1] == {REPORTED, *complete}
    there.report({})
    assert states[-1] == set()
    assert len(states) > 2 * len(complete)
    assert [
        state
        for state in states
        if REPORTED in state and not complete <= state
    ] == []


def test_trait_unknown_to_ironic_withholds_the_marker_and_no_other_trait(
    ironic: Ironic,
) -> None:
    node = ironic.node("manageable")
    there = IronicNode(ironic.baremetal, node)
    refused = {"HW_A_NEWER_ONE": True, AVX2: True, REPORTED: True}
    message = (
        "PUT /v1/nodes/ID/traits/HW_A_NEWER_ONE with status 400:"
        " .*HW_A_NEWER_ONE"
    )
    for _ in range(2):
        with pytest.raises(IronicRefused, match=message):
            there.report(refused)
        assert everything(ironic, node) == ({AVX2}, {EXTRA: [AVX2]})
    there.report({AVX2: True, REPORTED: True})
    assert everything(ironic, node) == (
        {AVX2, REPORTED},
        {EXTRA: [REPORTED, AVX2]},
    )
    with pytest.raises(IronicRefused, match="HW_A_NEWER_ONE"):
        there.report(refused)
    assert everything(ironic, node) == ({AVX2}, {EXTRA: [AVX2]})
