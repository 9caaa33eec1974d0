# SPDX-License-Identifier: Apache-2.0

"""Deferral of requirements until every compute node has reported."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from os_prefilter import Options
from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts.desired_traits import Mode, goal_of
from os_prefilter.hosts.marker_traits import groups_by_trait
from os_prefilter.request.filter_contract import Declaration, LoadedFilter
from os_prefilter.request.requirements import (
    ROOT,
    UNSUFFIXED,
    Requirement,
    Requirements,
    forbid,
    require,
)
from os_prefilter.service import Service
from os_prefilter.service.deferral import (
    Reports,
    Unreported,
    deferral,
    read_reports,
)
from os_prefilter.service.deployment_facts import Fact
from os_prefilter.service.loading import load_filters
from os_prefilter.service.traits_to_report import wanted_groups
from os_prefilter.vocabulary import HPET
from os_prefilter_tools.operators.readiness import reports_of
from tests.conftest import conf_with, spec_of
from tests.support.every_trait import EVERY_GROUP, marker_of
from tests.support.hosts import libvirt_hosts, other_hosts
from tests.support.reporting_fleets import fleet_of

_BY_TRAIT = groups_by_trait(Options().templates)


def test_agent_beside_nova_manages_all_traits_of_a_part_or_none() -> None:
    """So one trait of the driver's is a report of the whole group."""
    compared = 0
    groups = [each for each in EVERY_GROUP if len(each.implied_by) > 1]
    for facts in (*libvirt_hosts(), *other_hosts()):
        if facts.driver == "ironic":
            # What is on a node of these rows is its operator's.
            continue
        ours = goal_of(facts, (), Mode.BESIDE).traits
        for group in groups:
            managed = group.traits & ours.keys()
            assert managed in (group.traits, frozenset()), (group.row, facts)
            compared += 1
    assert compared > 1000


_E1000 = "COMPUTE_NET_VIF_MODEL_E1000"
_DEFAULT = "CUSTOM_COMPUTE_DEFAULT_MACHINE_PC"
_MACHINE = "CUSTOM_COMPUTE_MACHINE_PC"
_HYPERTHREADING = "HW_CPU_HYPERTHREADING"
_SOME = {"COMPUTE_NET_VIF_MODEL_VIRTIO"}
_ALL = marker_of(_E1000)
_HPET = marker_of(HPET)
_MACHINES = marker_of(_MACHINE)
_BOTH = marker_of(HPET, _MACHINE)
_DEFERRED: list[tuple[list[set[str]], str, bool, str]] = [
    # (the traits of the compute nodes, the trait, required, a part of the
    # reason)
    ([_SOME], _E1000, True, ""),
    ([{_ALL}], _E1000, True, ""),
    ([{_HPET}], _E1000, True, "1 compute node (host-0) has not reported"),
    ([_SOME, set()], _E1000, True, "1 compute node (host-1) has not reported"),
    (
        [_SOME, set(), set()],
        _E1000,
        True,
        "2 compute nodes (host-1, host-2) have not reported",
    ),
    (
        [set()] * 4,
        _E1000,
        True,
        (
            "4 compute nodes (among them host-0, host-1, host-2) have not"
            " reported"
        ),
    ),
    # An operator has set it.
    ([{HPET}], HPET, True, ""),
    ([{HPET}, {_MACHINES}], HPET, True, "1 compute node (host-1)"),
    ([{HPET, _HPET}, {_BOTH}], HPET, True, ""),
    (
        [{_HYPERTHREADING}, {marker_of(_HYPERTHREADING)}],
        _HYPERTHREADING,
        True,
        "",
    ),
    ([], _E1000, True, "there is no compute node"),
    ([{"CUSTOM_LICENSED"}, set()], "CUSTOM_LICENSED", True, ""),
    # An operator's decision, whichever hosts have it.
    ([set()], "CUSTOM_LICENSED", True, ""),
    ([set()], "CUSTOM_LICENSED", False, ""),
    ([set()], _DEFAULT, False, "need not be forbidden: no provider has it"),
    ([{_DEFAULT}], _DEFAULT, False, ""),
    ([set()], _E1000, False, ""),
    ([{"CUSTOM_LICENSED"}], "CUSTOM_LICENSED", False, ""),
    ([set()], "COMPUTE_STATUS_DISABLED", False, ""),
]


def _deferral(trait: str, required: bool, reports: Reports | None) -> str:
    item = Requirement(Trait(trait), required, ROOT, "x")
    return deferral(item, reports, _BY_TRAIT)


def _reports(*nodes: set[str]) -> Reports:
    return reports_of(fleet_of(nodes), EVERY_GROUP)


@pytest.mark.parametrize(
    ("nodes", "trait", "required", "reason"),
    _DEFERRED,
    ids=range(len(_DEFERRED)),
)
def test_requirement_is_deferred_until_every_compute_node_reported_or_the_trait_is_in_use(
    nodes: list[set[str]], trait: str, required: bool, reason: str
) -> None:
    found = _deferral(trait, required, _reports(*nodes))
    assert reason in found
    assert bool(found) == bool(reason)


@pytest.mark.parametrize(
    ("trait", "required", "expected"),
    [
        (_E1000, True, True),
        (_DEFAULT, False, True),
        ("CUSTOM_X", True, False),
        ("COMPUTE_NODE", False, False),
    ],
)
def test_trait_of_the_vocabulary_waits_while_reports_are_not_known(
    trait: str, required: bool, expected: bool
) -> None:
    """Placement may not know the trait."""
    assert bool(_deferral(trait, required, None)) is expected


def test_names_of_compute_nodes_are_printable() -> None:
    odd = Reports({trait: Unreported(1, ("a\nb\x1b",)) for trait in _BY_TRAIT})
    assert repr(odd).isprintable()
    assert _deferral(_E1000, True, odd).isprintable()


def test_text_of_reports_has_numbers_and_names() -> None:
    assert repr(Reports({}, compute_nodes=False)) == "<no compute node>"
    assert repr(Reports({"A": Unreported(0)})) == "<not reported: nothing>"
    one = Unreported(1, ("h",))
    some = Reports({"B": one, "A": one, "C": Unreported(4, ("i",))})
    shown = (
        "2 traits by 1 compute node (h); 1 trait by 4 compute nodes (among"
        " them i)"
    )
    assert repr(some) == f"<not reported: {shown}>"


def test_placement_is_queried_once_where_every_compute_node_has_reported() -> (
    None
):
    queries: list[frozenset[str]] = []
    in_use = frozenset((_HPET, HPET))
    unreported = read_reports([_BY_TRAIT[HPET]], in_use, queries.append)
    assert list(unreported.values()) == [None]
    assert queries == [{_HPET}]


@pytest.mark.parametrize(
    ("pattern", "is_deferred"),
    [("CUSTOM_VM_MODE_*", False), ("CUSTOM_HYPERVISOR_TYPE_*", True)],
)
def test_rule_about_a_trait_that_no_filter_wants_is_enforced(
    pattern: str, is_deferred: bool
) -> None:
    """An operator's rule may require what agents do not report."""
    filters = load_filters(["image_metadata"], None)
    groups = wanted_groups(filters, Options(reported_traits=(pattern,)))
    reports = reports_of(fleet_of([set()]), groups)
    reason = _deferral("CUSTOM_HYPERVISOR_TYPE_QEMU", True, reports)
    assert bool(reason) == is_deferred


_AT_ONCE = {("CUSTOM_LICENSED", ROOT)}
_EVERYTHING = {*_AT_ONCE, (HPET, ROOT), (HPET, UNSUFFIXED)}


def _waiting(reports: Reports | None, *filters: LoadedFilter) -> Service:
    facts = {
        "reports": Fact("reports", lambda _context: reports, 60),
        "owner_is_reported": Fact(
            "owner_is_reported", lambda _context: True, 60
        ),
    }
    return Service(filters, Options(), facts)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([set(), set()], _AT_ONCE),
        ([{_HPET}, set()], _AT_ONCE),
        ([{_HPET}, {_HPET}], _EVERYTHING),
    ],
    ids=["none reported", "one reported", "all reported"],
)
def test_requirements_of_a_third_party_filter_are_deferred_in_every_scope(
    nodes: list[set[str]], expected: set[tuple[str, str]]
) -> None:
    """A trait that no reporter owns waits for nothing.

    Later filters do not see what waits.
    """
    seen: list[tuple[Requirement, ...]] = []

    def after(
        _request: Any, *, required_before: tuple[Requirement, ...]
    ) -> Requirements:
        seen.append(required_before)
        return Requirements()

    # What an operator sets by hand, and what a host is asked, in two scopes.
    wants = (
        require("CUSTOM_LICENSED", "a rule")
        + require(HPET, "a rule")
        + require(HPET, "a rule", UNSUFFIXED)
    )
    mine = LoadedFilter("mine", lambda _request: wants)
    later = LoadedFilter("after", after, ("required_before",))
    service = _waiting(_reports(*nodes), mine, later)
    decision = service.apply(spec_of())
    assert _scopes(decision.requirements) == expected
    assert _scopes(seen[-1]) == expected
    assert len(decision.notes) == len(_EVERYTHING) - len(expected)
    for note in decision.notes:
        assert note.source == "a rule"
        assert note.reason.startswith(f"{HPET} ")
        assert note.waits


def _scopes(requirements: Sequence[Requirement]) -> set[tuple[str, str]]:
    return {(item.trait, item.scope) for item in requirements}


@pytest.mark.parametrize(
    ("reports", "waits"),
    [(None, True), (_reports(set()), False)],
    ids=["not known", "known"],
)
def test_forbidden_trait_waits_only_while_it_is_not_known_whether_any_provider_has_it(
    reports: Reports | None, waits: bool
) -> None:
    mine = LoadedFilter("mine", lambda _request: forbid(_DEFAULT, "a rule"))
    (note,) = _waiting(reports, mine).apply(spec_of()).notes
    assert note.waits is waits


@pytest.mark.parametrize(
    ("resource", "nodes", "scopes"),
    [
        ("VGPU", [{HPET}, set()], ["_gpu"]),
        ("VGPU", [set(), set()], ["_gpu"]),
        ("VCPU", [{HPET}, set()], []),
    ],
    ids=["in use", "not in use", "group of the host"],
)
def test_requirement_in_the_group_of_a_device_does_not_wait_for_compute_nodes(
    resource: str, nodes: list[set[str]], scopes: list[str]
) -> None:
    """Their reports say nothing of devices."""
    wants = require(HPET, "a rule", "_gpu")
    mine = LoadedFilter("mine", lambda _request: wants)
    spec = spec_of(extra_specs={f"resources_gpu:{resource}": "1"})
    decision = _waiting(_reports(*nodes), mine).apply(spec)
    assert [item.scope for item in decision.requirements] == scopes


def _nova_style(_context: Any, request_spec: Any) -> bool:
    request_spec.root_required.add("HW_CPU_X86_AVX2")
    return True


def test_filter_owner_and_nova_style_ones_defer_nothing() -> None:
    """The one has its own gate, and the other changes the request itself."""
    ours = load_filters(["hpet", "owner"], None)
    theirs = LoadedFilter("theirs", _nova_style, nova_style=True)
    gated = LoadedFilter(
        "gated",
        lambda _request: require(_E1000, "a rule"),
        declaration=Declaration(gate="owner_is_reported"),
    )
    service = _waiting(_reports(set()), *ours, theirs, gated)
    decision = service.apply(spec_of({"hw_time_hpet": "yes"}))
    traits = {item.trait for item in decision.requirements}
    assert traits == {"OWNER_NOVA", "HW_CPU_X86_AVX2", _E1000}


def test_requirements_are_enforced_at_once_if_the_option_says_so() -> None:
    queries: list[object] = []
    conf = conf_with(enabled_filters=["hpet"], wait_for_reports=False)
    service = Service.from_conf(conf, {"reports": queries.append})
    assert service.apply(spec_of({"hw_time_hpet": "yes"})).requirements
    assert queries == []


def test_requirements_are_enforced_at_once_without_the_fact(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    service = Service.from_conf(conf_with(enabled_filters=["hpet"]))
    message = (
        "enabled: hpet; enforced at once, as this service provides no fact"
        " 'reports'."
    )
    assert message in caplog.text
    assert service.apply(spec_of({"hw_time_hpet": "yes"})).requirements


def test_service_without_filters_starts_without_the_fact(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    Service.from_conf(conf_with(enabled_filters=[]))
    assert "at once" not in caplog.text
