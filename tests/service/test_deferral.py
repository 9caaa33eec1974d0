# SPDX-License-Identifier: Apache-2.0

"""Deferral: which traits a compute node reports together, and what filters
defer until all have reported.
"""

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

_BY_TRAIT = groups_by_trait(Options().templates, frozenset())


def test_agent_beside_nova_manages_all_traits_of_a_part_or_none() -> None:
    """Where it reports one trait of a group, our agent beside it manages none:
    so the driver's trait is a report.
    """
    compared = 0
    for facts in (*libvirt_hosts(), *other_hosts()):
        ours = goal_of(facts, (), Mode.BESIDE).traits
        if facts.driver == "ironic":
            # What is on a node of these rows is its operator's.
            continue
        for group in EVERY_GROUP:
            if len(group.implied_by) > 1:
                assert (
                    group.traits <= ours.keys()
                    or not group.traits & ours.keys()
                ), (group.row, facts)
                compared += 1
    assert compared > 1000


_E1000, _DEFAULT = (
    "COMPUTE_NET_VIF_MODEL_E1000",
    "CUSTOM_COMPUTE_DEFAULT_MACHINE_PC",
)
_SOME = {"COMPUTE_NET_VIF_MODEL_VIRTIO"}
_ALL, _HPET, _MACHINES = (
    marker_of(_E1000),
    marker_of(HPET),
    marker_of("CUSTOM_COMPUTE_MACHINE_PC"),
)
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
    (
        [{HPET, _HPET}, {marker_of(HPET, "CUSTOM_COMPUTE_MACHINE_PC")}],
        HPET,
        True,
        "",
    ),
    (
        [{"HW_CPU_HYPERTHREADING"}, {marker_of("HW_CPU_HYPERTHREADING")}],
        "HW_CPU_HYPERTHREADING",
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
    return deferral(
        Requirement(Trait(trait), required, ROOT, "x"), reports, _BY_TRAIT
    )


def test_requirement_is_deferred_until_every_compute_node_reported_or_the_trait_is_in_use() -> (
    None
):
    for nodes, trait, required, reason in _DEFERRED:
        found = _deferral(
            trait, required, reports_of(fleet_of(nodes), EVERY_GROUP)
        )
        assert reason in found, (nodes, trait, required)
        assert bool(found) == bool(reason), (nodes, trait, required)
    # While it is not known, what Placement may not know is neither required
    # nor forbidden.
    for trait, required, expected in (
        (_E1000, True, True),
        (_DEFAULT, False, True),
        ("CUSTOM_X", True, False),
        ("COMPUTE_NODE", False, False),
    ):
        assert bool(_deferral(trait, required, None)) is expected, trait
    odd = Reports({trait: Unreported(1, ("a\nb\x1b",)) for trait in _BY_TRAIT})
    assert (repr(odd) + _deferral(_E1000, True, odd)).isprintable()
    assert repr(Reports({}, compute_nodes=False)) == "<no compute node>"
    assert repr(Reports({"A": Unreported(0)})) == "<not reported: nothing>"
    some = Reports(
        {
            "B": Unreported(1, ("h",)),
            "A": Unreported(1, ("h",)),
            "C": Unreported(4, ("i",)),
        }
    )
    shown = (
        "2 traits by 1 compute node (h); 1 trait by 4 compute nodes (among"
        " them i)"
    )
    assert repr(some) == f"<not reported: {shown}>"


def test_placement_is_asked_once_where_every_compute_node_has_reported() -> (
    None
):
    asked: list[frozenset[str]] = []
    assert list(
        read_reports(
            [_BY_TRAIT[HPET]], frozenset((_HPET, HPET)), asked.append
        ).values()
    ) == [None]
    assert asked == [{_HPET}]


def test_rule_about_a_trait_that_no_filter_wants_is_enforced() -> None:
    """An operator's rule may require what agents are not asked for; what a
    filter wants waits for reports.
    """
    filters, trait = (
        load_filters(["image_metadata"], None),
        "CUSTOM_HYPERVISOR_TYPE_QEMU",
    )
    for patterns, is_deferred in (
        (("CUSTOM_VM_MODE_*",), False),
        (("CUSTOM_HYPERVISOR_TYPE_*",), True),
    ):
        groups = wanted_groups(filters, Options(reported_traits=patterns))
        assert (
            bool(_deferral(trait, True, reports_of(fleet_of([set()]), groups)))
            == is_deferred
        )


_NODES: list[tuple[Sequence[set[str]], set[tuple[str, str]]]] = [
    ([set(), set()], {("CUSTOM_LICENSED", ROOT)}),
    ([{_HPET}, set()], {("CUSTOM_LICENSED", ROOT)}),
    (
        [{_HPET}, {_HPET}],
        {("CUSTOM_LICENSED", ROOT), (HPET, ROOT), (HPET, UNSUFFIXED)},
    ),
]


def _waiting(
    filters: Sequence[LoadedFilter], reports: Reports | None
) -> Service:
    facts = {
        "reports": lambda _context: reports,
        "owner_is_reported": lambda _context: True,
    }
    return Service(
        tuple(filters),
        Options(),
        {name: Fact(name, read, 60) for name, read in facts.items()},
    )


def test_requirements_of_a_third_party_filter_are_deferred_in_every_scope() -> (
    None
):
    """A trait that no reporter owns waits for nothing; later filters do not
    see what waits.
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
    filters = [
        LoadedFilter("mine", lambda _request: wants),
        LoadedFilter("after", after, ("required_before",)),
    ]
    for nodes, asked in _NODES:
        decision = _waiting(
            filters, reports_of(fleet_of(nodes), EVERY_GROUP)
        ).apply(spec_of())
        assert {
            (item.trait, item.scope) for item in decision.requirements
        } == asked
        notes = [
            (note.source, note.reason.partition(" ")[0], note.waits)
            for note in decision.notes
        ]
        assert notes == [("a rule", HPET, True)] * (3 - len(asked))
        assert {(item.trait, item.scope) for item in seen[-1]} == asked


def test_forbidden_trait_waits_only_while_it_is_not_known_whether_any_provider_has_it() -> (
    None
):
    mine = LoadedFilter("mine", lambda _request: forbid(_DEFAULT, "a rule"))
    for reports in (None, reports_of(fleet_of([set()]), EVERY_GROUP)):
        assert [
            note.waits
            for note in _waiting([mine], reports).apply(spec_of()).notes
        ] == [reports is None]


def test_requirement_in_the_group_of_a_device_does_not_wait_for_compute_nodes() -> (
    None
):
    """Their reports say nothing of devices."""
    mine = LoadedFilter(
        "mine", lambda _request: require(HPET, "a rule", "_gpu")
    )
    for classes, in_use, asked in (
        ("VGPU", True, True),
        ("VGPU", False, True),
        ("VCPU", True, False),
    ):
        reports = reports_of(
            fleet_of([{HPET} if in_use else set(), set()]), EVERY_GROUP
        )
        decision = _waiting([mine], reports).apply(
            spec_of(extra_specs={f"resources_gpu:{classes}": "1"})
        )
        assert [item.scope for item in decision.requirements] == [
            "_gpu"
        ] * asked, (classes, in_use)


def _nova_style(_context: Any, request_spec: Any) -> bool:
    request_spec.root_required.add("HW_CPU_X86_AVX2")
    return True


def test_filter_owner_and_nova_style_ones_defer_nothing() -> None:
    """The one has its own gate, and the other changes the request itself."""
    gated = Declaration(gate="owner_is_reported")
    filters = [
        *load_filters(["hpet", "owner"], None),
        LoadedFilter("theirs", _nova_style, nova_style=True),
    ]
    filters.append(
        LoadedFilter(
            "gated",
            lambda _request: require(_E1000, "a rule"),
            declaration=gated,
        )
    )
    decision = _waiting(
        filters, reports_of(fleet_of([set()]), EVERY_GROUP)
    ).apply(spec_of({"hw_time_hpet": "yes"}))
    assert {item.trait for item in decision.requirements} == {
        "OWNER_NOVA",
        "HW_CPU_X86_AVX2",
        _E1000,
    }


def test_requirements_are_enforced_at_once_if_the_option_says_so_or_without_the_fact(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked: list[object] = []
    conf = conf_with(enabled_filters=["hpet"], wait_for_reports=False)
    services = [Service.from_conf(conf, {"reports": asked.append})]
    Service.from_conf(conf_with(enabled_filters=[]))
    caplog.set_level(logging.INFO)
    services.append(Service.from_conf(conf_with(enabled_filters=["hpet"])))
    assert (
        "enabled: hpet; enforced at once, as this service provides no fact"
        " 'reports'." in caplog.text
    )
    for service in services:
        assert service.apply(spec_of({"hw_time_hpet": "yes"})).requirements
    assert asked == []
