"""Gates: which traits a compute node answers for together, what an answer is, and what is held back meanwhile."""

from hashlib import sha256

import pytest

from os_prefilter.conf.options import effective_templates
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.desired_traits import Mode, managed
from os_prefilter.operators.readiness import coverage_of
from os_prefilter.pipeline.report_gates import (
    GATES,
    Coverage,
    Unreported,
    deferral,
    gates_by_trait,
)
from os_prefilter.request.requirements import ROOT, Requirement
from os_prefilter.vocabulary import BY_NAME, QUALIFIED, REPORTED, REPORTED_CUSTOM, ROWS
from os_prefilter.vocabulary.model import REVISION, Trait, is_reported_marker
from tests.support.hosts import libvirt_hosts, other_hosts
from tests.support.reporting_fleets import fleet_of

_BY_TRAIT = gates_by_trait(effective_templates(None))


def test_every_vocabulary_trait_has_a_gate_and_all_gates_of_a_trait_accept_one_answer() -> None:
    answers: dict[str, set[frozenset[str]]] = {}
    for gate in GATES:
        for trait in gate.traits:
            answers.setdefault(trait, set()).add(frozenset(gate.reported_by))
    assert answers.keys() == {trait for row in ROWS for trait in row.traits} | set(QUALIFIED.values())
    assert {trait for trait, each in answers.items() if len(each) > 1} == set()
    assert answers.keys() | effective_templates(None).found_traits == _BY_TRAIT.keys()


def test_agent_beside_nova_manages_all_traits_of_a_gate_or_none() -> None:
    """Where it reports one trait of a gate, our agent beside it manages none: so the driver's trait is an answer."""
    compared = 0
    for facts in (*libvirt_hosts(), *other_hosts()):
        ours = managed(capability_traits(facts), Mode.BESIDE, facts)
        if facts.driver == "ironic":
            # What is on a node of these rows is its operator's.
            continue
        for gate in GATES:
            if not gate.traits <= gate.reported_by:
                continue
            assert gate.traits <= ours.keys() or not gate.traits & ours.keys(), (gate.row, facts)
            compared += 1
    assert compared > 1000


def test_changed_vocabulary_traits_require_a_new_report_revision() -> None:
    """An older report has no answer for a new trait. After a release, raise REVISION with what makes this fail."""
    traits = sorted({trait for row in ROWS for trait in row.traits} | set(QUALIFIED.values()))
    assert (REVISION, sha256(" ".join(traits).encode()).hexdigest()[:16]) == (2, "89cccc4dafb91d81")


@pytest.mark.parametrize(
    ("trait", "expected"),
    [
        (REPORTED, True),
        ("CUSTOM_PREFILTER_REPORTED_7", True),
        ("CUSTOM_PREFILTER_REPORTED_", False),
        ("CUSTOM_PREFILTER_REPORTED_2_OF_MINE", False),
        (REPORTED_CUSTOM, False),
    ],
)
def test_report_markers_of_other_releases_are_recognized(trait: str, expected: bool) -> None:
    assert is_reported_marker(trait) is expected


_E1000 = BY_NAME["vif_model"].values["e1000"].trait
_HPET = BY_NAME["time_hpet"].values["true"].trait
_SOME = {"COMPUTE_NET_VIF_MODEL_VIRTIO"}

_DEFERRED = [
    # (the traits of the compute nodes, the trait, required, a part of the reason)
    ([_SOME], _E1000, True, ""),
    ([{REPORTED}], _E1000, True, ""),
    ([{REPORTED_CUSTOM}], _E1000, True, "1 compute node (host-0) has not reported"),
    ([_SOME, set()], _E1000, True, "1 compute node (host-1) has not reported"),
    ([_SOME, set(), set()], _E1000, True, "2 compute nodes (host-1, host-2) have not reported"),
    ([set()] * 4, _E1000, True, "4 compute nodes (among them host-0, host-1, host-2) have not reported"),
    ([{_HPET}], _HPET, True, "1 compute node (host-0)"),
    ([{_HPET, REPORTED_CUSTOM}, {REPORTED}], _HPET, True, ""),
    ([{"HW_CPU_HYPERTHREADING"}, {REPORTED}], "HW_CPU_HYPERTHREADING", True, ""),
    ([], _E1000, True, "there is no compute node"),
    ([{"CUSTOM_LICENSED"}, set()], "CUSTOM_LICENSED", True, ""),
    ([set()], "CUSTOM_LICENSED", True, "CUSTOM_LICENSED is not required yet: no provider has it"),
    ([set()], "CUSTOM_LICENSED", False, "CUSTOM_LICENSED need not be forbidden: no provider has it"),
    ([{"CUSTOM_LICENSED"}], "CUSTOM_LICENSED", False, ""),
    ([set()], "COMPUTE_STATUS_DISABLED", False, ""),
]


@pytest.mark.parametrize(("nodes", "trait", "required", "reason"), _DEFERRED)
def test_requirement_is_deferred_until_every_compute_node_reported_or_the_trait_is_in_use(
    nodes: list[set[str]], trait: str, required: bool, reason: str
) -> None:
    found = deferral(Requirement(Trait(trait), required, ROOT, "x"), coverage_of(fleet_of(nodes)), _BY_TRAIT)
    assert reason in found
    assert bool(found) == bool(reason)


@pytest.mark.parametrize(
    ("trait", "required", "expected"),
    [(_E1000, True, True), ("CUSTOM_X", True, True), ("CUSTOM_X", False, True), ("COMPUTE_NODE", False, False)],
)
def test_unknown_coverage_defers_required_traits_and_forbidden_custom_traits(
    trait: str, required: bool, expected: bool
) -> None:
    """And nothing forbidden that Placement may not know; what it knows for sure is forbidden as ever."""
    assert bool(deferral(Requirement(Trait(trait), required, ROOT, "x"), None, _BY_TRAIT)) is expected


def test_control_characters_in_host_names_are_escaped_in_gate_messages() -> None:
    unreported = {gate.reported_by: Unreported(1, ("a\nb\x1b",)) for gate in GATES}
    coverage = Coverage(unreported)
    assert repr(coverage).isprintable()
    assert deferral(Requirement(Trait("COMPUTE_NET_VIF_MODEL_IGB"), True, ROOT, "x"), coverage, _BY_TRAIT).isprintable()
