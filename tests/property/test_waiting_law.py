"""The law of waiting: a waiting filter excludes no host that a late check accepts, whichever hosts have reported."""

from collections.abc import Sequence
from copy import deepcopy
from random import Random

import pytest

from os_prefilter import Pipeline, allocation_candidates_query
from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.adapters.placement.coverage import ReportCoverage
from os_prefilter.common.errors import RequestRejected
from os_prefilter.fleet.model import Fleet
from os_prefilter.hosts.desired_traits import knows_all
from os_prefilter.hosts.driver_check import unsupported
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.operators.readiness import coverage_of
from os_prefilter.pipeline.deployment_facts import ReadFact
from os_prefilter.testing.law import Case, list_requiring_filters, single_cases
from tests.conftest import conf_with, one_in, times
from tests.support.hosts import few_libvirt_hosts, other_hosts
from tests.support.reporting_fleets import REPORTS, Report, by_nova_alone, by_provider_config, by_the_agent, fleet_of

_HOSTS: list[HostFacts] = [*few_libvirt_hosts(), *other_hosts()]


def _pipeline(answers: ReadFact, waiting: Sequence[str] = ("*",)) -> Pipeline:
    options = {
        "enabled_filters": list(list_requiring_filters()),
        "reported_traits": ["*"],
        "wait_for_answers": list(waiting),
    }
    return Pipeline.from_conf(conf_with(**options), {"answers": answers})


def _told(fleet: Fleet) -> ReadFact:
    """Return what a scheduler is told of a fleet, found out once."""
    coverage = coverage_of(fleet)
    return lambda _context: coverage


def _excluded(hosts: Sequence[HostFacts], fleet: Fleet, pipeline: Pipeline) -> list[str]:
    """Return each request that excludes a host which can."""
    found = []
    for case in single_cases():
        try:
            required = pipeline.apply(deepcopy(case.spec)).requirements
        except RequestRejected:
            continue
        for facts, host in zip(hosts, fleet.hosts, strict=True):
            missing = [str(item) for item in required if (item.trait in host.traits) != item.required]
            if missing and _accepts(case, facts):
                found.append(f"{case} on {facts}: {missing}")
    return found


def _accepts(case: Case, facts: HostFacts) -> bool:
    try:
        return not unsupported(case.spec, facts)
    except RequestRejected:
        return False


def _fleet(hosts: Sequence[HostFacts], reports: Sequence[Report]) -> Fleet:
    return fleet_of([report(facts) for facts, report in zip(hosts, reports, strict=True)])


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.__name__)
def test_gates_exclude_no_capable_host_for_any_single_way_of_reporting(report: Report) -> None:
    """One host after the other: where others are silent, a gate that opens too early would not show."""
    for facts in _HOSTS[:: one_in(5)]:
        fleet = _fleet([facts], [report])
        excluded = _excluded([facts], fleet, _pipeline(_told(fleet)))
        assert not excluded, f"{len(excluded)}, the first: {excluded[0]}"


@pytest.mark.parametrize("seed", range(times(5)))
def test_gates_exclude_no_capable_host_in_a_mixed_fleet(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    hosts = random.sample(_HOSTS, random.randint(2, 4))
    reports = random.choices(REPORTS[: random.randint(2, 4)], k=len(hosts))
    fleet = _fleet(hosts, reports)
    excluded = _excluded(hosts, fleet, _pipeline(_told(fleet)))
    assert not excluded, f"{len(excluded)}, the first: {excluded[0]}"


def test_capable_hosts_are_excluded_without_gates() -> None:
    """So the tests above prove something."""
    fleet = _fleet(_HOSTS, [by_nova_alone] * len(_HOSTS))
    assert len(_excluded(_HOSTS, fleet, _pipeline(_told(fleet), ()))) > 300


def test_gates_of_a_fully_reported_fleet_drop_only_forbidden_traits_no_host_has() -> None:
    """What is required is the same; of what is forbidden, only traits that no host has are left out."""
    hosts = [facts for facts in _HOSTS if knows_all(facts)]
    fleet = _fleet(hosts, [by_the_agent] * len(hosts))
    waiting, at_once = (_pipeline(_told(fleet), names) for names in (("*",), ()))
    compared = 0
    for case in single_cases():
        if case.required is None:
            continue
        expected = at_once.apply(deepcopy(case.spec)).requirements
        seen = [item for item in expected if item.required or item.trait in fleet.traits]
        assert list(waiting.apply(deepcopy(case.spec)).requirements) == seen
        compared += len(expected)
    assert compared > 100


def test_provider_config_opens_only_the_gates_of_the_traits_it_can_report() -> None:
    """The CUSTOM_ traits; the standard ones that Nova's drivers do not report stay closed."""
    facts = [each for each in _HOSTS if each.driver == "libvirt"]
    fleet = _fleet(facts, [by_provider_config] * len(facts))
    pipeline = _pipeline(_told(fleet))
    asked = {
        item.trait
        for case in single_cases()
        if case.required is not None
        for item in pipeline.apply(deepcopy(case.spec)).requirements
    }
    assert {"CUSTOM_COMPUTE_TIME_HPET", "CUSTOM_HYPERVISOR_TYPE_KVM", "CUSTOM_VM_MODE_HVM"} <= asked
    assert not asked & {"COMPUTE_FIRMWARE_UEFI", "COMPUTE_USB_MODEL_QEMU_XHCI"}


@pytest.mark.parametrize("seed", range(times(2)))
def test_placement_offers_every_capable_host_while_filters_are_gated(seed: int) -> None:
    """With its own coverage of reports, and with the query that a scheduler sends."""
    random = Random(seed)  # noqa: S311
    hosts = random.sample(_HOSTS, 6)
    reports: list[Report] = random.choices(REPORTS, weights=(6, 3, 2, seed), k=len(hosts))
    fleet = _fleet(hosts, reports)
    # Requirements of Nova's own never wait.
    ours = [
        case
        for case in single_cases()
        if case.required and case.choices and "query" not in case.choices[0][0].required_by
    ]
    cases = random.sample(ours, 40)
    with EmbeddedPlacement(fleet) as placement:
        pipeline = _pipeline(ReportCoverage(placement.client))
        for case in cases:
            spec = deepcopy(case.spec)
            decision = pipeline.apply(spec)
            # As the agent does: the names exist, whether or not a host has them.
            placement.know(item.trait for item in decision.requirements)
            offered = placement.client.allocation_candidates(allocation_candidates_query(spec)).hosts
            able = {each.name for facts, each in zip(hosts, fleet.hosts, strict=True) if _accepts(case, facts)}
            assert able <= set(offered), case
