"""Gates: which traits a compute node reports together, and what filters defer until all have reported."""

import logging
from collections.abc import Iterator, Sequence
from hashlib import sha256
from math import inf
from typing import Any

import pytest

from os_prefilter import Options, allocation_candidates_query
from os_prefilter.adapters.placement.coverage import ReportCoverage
from os_prefilter.common.errors import FilterFailed, InvalidOption
from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.desired_traits import Mode, select_managed
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.requirements import ROOT, UNSUFFIXED, Requirement, Requirements, require
from os_prefilter.service import Service
from os_prefilter.service.deployment_facts import Fact
from os_prefilter.service.loading import load_filters
from os_prefilter.service.report_gates import GATES, Coverage, Unreported, deferral, gates_by_trait
from os_prefilter.service.report_scope import EVERY_TRAIT, report_scope
from os_prefilter.vocabulary import HPET, QUALIFIED, REPORTED, REPORTED_CUSTOM, ROWS
from os_prefilter.vocabulary.config_templates import BUNDLED, BiosChange, Template, Templates, Variant
from os_prefilter.vocabulary.model import REVISION, is_reported_marker
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.operators.readiness import coverage_of
from tests.conftest import conf_with, spec_of
from tests.support.hosts import libvirt_hosts, other_hosts
from tests.support.placements import Observed, put_traits
from tests.support.reporting_fleets import fleet_of

_BY_TRAIT = gates_by_trait(Options().templates)


def test_every_vocabulary_trait_has_a_gate_and_all_gates_of_a_trait_accept_one_answer() -> None:
    answers: dict[str, set[frozenset[str]]] = {}
    for gate in GATES:
        for trait in gate.traits:
            answers.setdefault(trait, set()).add(frozenset(gate.reported_by))
    assert answers.keys() == {trait for row in ROWS for trait in row.traits} | set(QUALIFIED.values())
    assert {trait for trait, each in answers.items() if len(each) > 1} == set()
    assert answers.keys() | BUNDLED.found_traits == _BY_TRAIT.keys()


def test_found_traits_of_the_operators_configurations_share_one_gate_and_others_have_none() -> None:
    way = Variant((BiosChange("X", ("1",)),))
    found = [Template("x", value, (Trait(f"CUSTOM_{value}"),), (way,)) for value in "AB"]
    by_hand = Template("raid", "10", (Trait("CUSTOM_RAID"),))
    gates = gates_by_trait(Templates((*found, by_hand)))
    assert (new := gates.keys() - _BY_TRAIT.keys()) == {"CUSTOM_A", "CUSTOM_B"}
    assert {gates[trait].row: gates[trait].traits for trait in new} == {"deploy-config": new}


def test_agent_beside_nova_manages_all_traits_of_a_gate_or_none() -> None:
    """Where it reports one trait of a gate, our agent beside it manages none: so the driver's trait is an answer."""
    compared = 0
    for facts in (*libvirt_hosts(), *other_hosts()):
        ours = select_managed(capability_traits(facts), Mode.BESIDE, facts)
        if facts.driver == "ironic":
            # What is on a node of these rows is its operator's.
            continue
        for gate in GATES:
            if not gate.traits <= gate.reported_by:
                continue
            assert gate.traits <= ours.keys() or not gate.traits & ours.keys(), (gate.row, facts)
            compared += 1
    assert compared > 1000


# Add a line; a changed one would let hosts that reported before count as if they had answered for the new traits.
_TRAITS_OF_REVISION = {2: "89cccc4dafb91d81", 3: "010c47bbd70c27d2"}


def test_changed_vocabulary_traits_require_a_new_report_revision() -> None:
    """An earlier report has no answer for a new trait: raise REVISION, and add the digest of its traits above."""
    traits = sorted({trait for row in ROWS for trait in row.traits} | set(QUALIFIED.values()))
    digest = sha256(" ".join(traits).encode()).hexdigest()[:16]
    assert (REVISION, digest) == list(_TRAITS_OF_REVISION.items())[-1]
    # Hosts of another release have theirs.
    assert is_reported_marker(REPORTED)
    assert is_reported_marker("CUSTOM_PREFILTER_REPORTED_7")
    for other in ("CUSTOM_PREFILTER_REPORTED_", "CUSTOM_PREFILTER_REPORTED_2_OF_MINE", REPORTED_CUSTOM):
        assert not is_reported_marker(other)


_E1000 = "COMPUTE_NET_VIF_MODEL_E1000"
_SOME = {"COMPUTE_NET_VIF_MODEL_VIRTIO"}
_DEFERRED: list[tuple[list[set[str]], str, bool, str]] = [
    # (the traits of the compute nodes, the trait, required, a part of the reason)
    ([_SOME], _E1000, True, ""),
    ([{REPORTED}], _E1000, True, ""),
    ([{REPORTED_CUSTOM}], _E1000, True, "1 compute node (host-0) has not reported"),
    ([_SOME, set()], _E1000, True, "1 compute node (host-1) has not reported"),
    ([_SOME, set(), set()], _E1000, True, "2 compute nodes (host-1, host-2) have not reported"),
    ([set()] * 4, _E1000, True, "4 compute nodes (among them host-0, host-1, host-2) have not reported"),
    ([{HPET}], HPET, True, "1 compute node (host-0)"),
    ([{HPET, REPORTED_CUSTOM}, {REPORTED}], HPET, True, ""),
    ([{"HW_CPU_HYPERTHREADING"}, {REPORTED}], "HW_CPU_HYPERTHREADING", True, ""),
    ([], _E1000, True, "there is no compute node"),
    ([{"CUSTOM_LICENSED"}, set()], "CUSTOM_LICENSED", True, ""),
    ([set()], "CUSTOM_LICENSED", True, "CUSTOM_LICENSED is not required yet: no provider has it"),
    ([set()], "CUSTOM_LICENSED", False, "CUSTOM_LICENSED need not be forbidden: no provider has it"),
    ([{"CUSTOM_LICENSED"}], "CUSTOM_LICENSED", False, ""),
    ([set()], "COMPUTE_STATUS_DISABLED", False, ""),
]


def _deferral(trait: str, required: bool, coverage: Coverage | None) -> str:
    return deferral(Requirement(Trait(trait), required, ROOT, "x"), coverage, _BY_TRAIT)


def test_requirement_is_deferred_until_every_compute_node_reported_or_the_trait_is_in_use() -> None:
    for nodes, trait, required, reason in _DEFERRED:
        found = _deferral(trait, required, coverage_of(fleet_of(nodes)))
        assert reason in found
        assert bool(found) == bool(reason), (nodes, trait, required)
    # While it is not known, what Placement may not know is neither required nor forbidden.
    for trait, required, expected in ((_E1000, True, True), ("CUSTOM_X", False, True), ("COMPUTE_NODE", False, False)):
        assert bool(_deferral(trait, required, None)) is expected, trait
    odd = Coverage({gate.reported_by: Unreported(1, ("a\nb\x1b",)) for gate in GATES})
    assert (repr(odd) + _deferral(_E1000, True, odd)).isprintable()


def test_requirement_of_a_trait_that_hosts_are_not_to_report_is_deferred() -> None:
    """A rule requires it, and no host that could has it: by the section, they report other traits only."""
    filters = load_filters(["image_metadata"], None)
    for patterns, reason in ((("CUSTOM_VM_MODE_*",), "it is not among that"), (("CUSTOM_HYPERVISOR_TYPE_*",), "")):
        scope = report_scope(filters, Options(reported_traits=patterns))
        found = _deferral("CUSTOM_HYPERVISOR_TYPE_QEMU", True, coverage_of(fleet_of([{scope.marker}]), scope))
        assert reason in found
        assert bool(found) == bool(reason)


# -- filters on a real Placement ---------------------------------------------------------------------------------------

_HOSTS = ("host-0", "host-1", "host-2")
_CAN = frozenset(("host-0", "host-2"))


@pytest.fixture
def placement() -> Iterator[EmbeddedPlacement]:
    """Return a real Placement before any host has reported; the HPET is known, as after a first report."""
    with EmbeddedPlacement(fleet_of([set() for _ in _HOSTS])) as placement:
        placement.know([HPET])
        yield placement


def _report(placement: EmbeddedPlacement, host: str) -> None:
    """Report as the agent does: all in one request."""
    placement.know([REPORTED])
    put_traits(placement, lambda traits: traits.update({REPORTED, *([HPET] if host in _CAN else [])}), host)


def _pipeline(observed: Observed, **options: Any) -> Service:
    options = {"enabled_filters": ["hpet"], "wait_for_answers": ["hpet"], "facts_interval": 0, **options}
    return Service.from_conf(conf_with(**options), {"answers": ReportCoverage(observed.client, EVERY_TRAIT)})


def _hosts(placement: EmbeddedPlacement, pipeline: Service) -> set[str]:
    spec = spec_of({"hw_time_hpet": "yes"})
    pipeline.apply(spec)
    return set(placement.client.allocation_candidates(allocation_candidates_query(spec)).hosts)


def test_rolling_upgrade_excludes_no_host_until_the_last_one_has_reported(
    placement: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
) -> None:
    """Host by host; one that joins without an answer closes the gate again. What waits is a note, and no warning."""
    caplog.set_level(logging.INFO, "os_prefilter")
    pipeline = _pipeline(Observed(placement))
    (note,) = pipeline.apply(spec_of({"hw_time_hpet": "yes"})).notes
    assert str(note) == (
        f"image property hw_time_hpet=true: {HPET} is not required yet: 3 compute nodes (host-0, host-1, host-2) "
        "have not reported; 'os-prefilter readiness' shows more"
    )
    assert note.waits
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
    for host in _HOSTS:
        assert _hosts(placement, pipeline) == set(_HOSTS)
        _report(placement, host)
    assert _hosts(placement, pipeline) == _CAN
    put_traits(placement, lambda traits: traits.discard(REPORTED), "host-1")
    assert _hosts(placement, pipeline) == set(_HOSTS)


def _rules(_request: Any) -> Requirements:
    """Ask for what an operator sets by hand, and for what a host is asked, in two scopes."""
    return require("CUSTOM_LICENSED", "a rule") + require(HPET, "a rule") + require(HPET, "a rule", UNSUFFIXED)


_NODES: list[tuple[Sequence[set[str]], set[tuple[str, str]]]] = [
    ([set(), set()], set()),
    ([{"CUSTOM_LICENSED"}, set()], {("CUSTOM_LICENSED", ROOT)}),
    ([{REPORTED}, {REPORTED}], {(HPET, ROOT), (HPET, UNSUFFIXED)}),
    ([{REPORTED, "CUSTOM_LICENSED"}], {("CUSTOM_LICENSED", ROOT), (HPET, ROOT), (HPET, UNSUFFIXED)}),
]


def _waiting(filters: Sequence[LoadedFilter], coverage: Coverage | None, *names: str) -> Service:
    facts = {
        "answers": Fact("answers", lambda _context: coverage, 60),
        "owner_is_reported": Fact("owner_is_reported", lambda _context: True, 60),
    }
    return Service(tuple(filters), Options(wait_for_answers=names), {**facts, "options": facts["answers"]})


def test_requirements_of_a_third_party_filter_are_gated_in_every_scope() -> None:
    """A trait that no reporter owns waits until some provider has it; later filters do not see what waits."""
    seen: list[tuple[Requirement, ...]] = []

    def after(_request: Any, *, required_before: tuple[Requirement, ...]) -> Requirements:
        seen.append(required_before)
        return Requirements()

    filters = [LoadedFilter("mine", _rules), LoadedFilter("after", after, ("required_before",))]
    for nodes, asked in _NODES:
        decision = _waiting(filters, coverage_of(fleet_of(nodes)), "mine").apply(spec_of())
        assert {(item.trait, item.scope) for item in decision.requirements} == asked
        assert len(decision.notes) == 3 - len(asked)
        assert {(item.trait, item.scope) for item in seen[-1]} == asked


def test_requirement_in_the_group_of_a_device_does_not_wait_for_compute_nodes() -> None:
    """Their reports say nothing of devices: the trait of one waits until some provider has it."""
    mine = LoadedFilter("mine", lambda _request: require(HPET, "a rule", "_gpu"))
    for classes, in_use, asked in (("VGPU", True, True), ("VGPU", False, False), ("VCPU", True, False)):
        coverage = coverage_of(fleet_of([{HPET} if in_use else set(), set()]))
        decision = _waiting([mine], coverage, "mine").apply(spec_of(extra_specs={f"resources_gpu:{classes}": "1"}))
        assert [item.scope for item in decision.requirements] == ["_gpu"] * asked, (classes, in_use)


def test_gated_filter_that_returns_none_fails_and_a_nova_style_one_cannot_be_gated() -> None:
    broken: Any = lambda _request: None  # noqa: E731
    with pytest.raises(Exception, match="it returned a NoneType, not Requirements"):
        _waiting([LoadedFilter("mine", broken)], None, "*").apply(spec_of())
    with pytest.raises(InvalidOption, match="'theirs' is written the Nova way"):
        _waiting([_THEIRS], None, "theirs")


def _nova_style(_context: Any, request_spec: Any) -> bool:
    request_spec.root_required.add("HW_CPU_X86_AVX2")
    return True


_THEIRS = LoadedFilter("theirs", _nova_style, nova_style=True)


def test_wildcard_gates_every_filter_except_owner_and_nova_style_ones() -> None:
    """Not for the filter owner, which has its own gate, and not for one that changes the request itself."""
    filters = [*load_filters(["hpet", "owner"], None), _THEIRS]
    decision = _waiting(filters, coverage_of(fleet_of([set()])), "*").apply(spec_of({"hw_time_hpet": "yes"}))
    assert {item.trait for item in decision.requirements} == {"OWNER_NOVA", "HW_CPU_X86_AVX2"}


@pytest.mark.parametrize("names", [["image_metadata"], ["*", "image_metadata"]])
def test_disabled_filter_in_wait_for_answers_is_a_warning(names: list[str], caplog: pytest.LogCaptureFixture) -> None:
    pipeline = Service.from_conf(
        conf_with(enabled_filters=["hpet"], reported_traits=["*"], wait_for_answers=[*names]),
        {"answers": lambda _context: coverage_of(fleet_of([set()]))},
    )
    (record,) = (each for each in caplog.records if each.levelno == logging.WARNING)
    assert record.getMessage() == (
        "[prefilter] wait_for_answers names image_metadata, not in enabled_filters: ignored. Remove it there, or "
        "enable it."
    )
    assert bool(pipeline.apply(spec_of({"hw_time_hpet": "yes"})).requirements) == ("*" not in names)


def test_answers_fact_is_neither_needed_nor_queried_if_no_filter_is_gated() -> None:
    asked: list[object] = []
    conf = conf_with(enabled_filters=["hpet"])
    Service.from_conf(conf, {"answers": asked.append}).apply(spec_of({"hw_time_hpet": "yes"}))
    assert asked == []
    Service.from_conf(conf_with(enabled_filters=[], wait_for_answers=["*"]))


def test_coverage_that_is_none_is_an_error_of_the_filter_and_not_of_the_scheduler() -> None:
    facts = {"answers": Fact("answers", lambda _context: {}, inf, unknown={})}
    service = Service(load_filters(["hpet"], ["options"]), Options(wait_for_answers=("*",)), facts)
    with pytest.raises(FilterFailed, match="'hpet' failed with AttributeError"):
        service.apply(spec_of({"hw_time_hpet": "yes"}))
