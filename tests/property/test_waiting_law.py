#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""The law of waiting: a waiting filter excludes no host that a late check accepts, whichever hosts have reported."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import cycle, product
from random import Random

import pytest
from oslo_config.cfg import ConfigOpts

from os_prefilter import allocation_candidates_query
from os_prefilter.adapters.placement.coverage import ReadReports
from os_prefilter.common.errors import RequestRejected
from os_prefilter.hosts.capabilities import reporter_of
from os_prefilter.hosts.driver_check import unsupported
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.hosts.reports import emulated_in
from os_prefilter.service import Service
from os_prefilter.service.wanted import configured_filters, wanted_parts
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.operators.readiness import reports_of
from os_prefilter_tools.testing.law import Case, Cloud, list_requiring_filters, single_cases
from tests.conftest import conf_with, one_in, times
from tests.support.hosts import ARM, KVM, OFFERED, X86, few_libvirt_hosts, other_hosts
from tests.support.reporting_fleets import REPORTS, SECTIONS, Report, by_nova_alone, by_the_agent, fleet_of, wanted_by

_KINDS: list[HostFacts] = [host for host in (*few_libvirt_hosts(), *other_hosts()) if not host.emulated_architectures]
_OFFERED = pytest.mark.parametrize("offered", OFFERED, ids=["own-architecture", "every-architecture"])
"""What the cloud offers to emulate: all its hosts and schedulers have the same option."""


def _hosts(offered: frozenset[str]) -> list[HostFacts]:
    return [replace(facts, emulated_architectures=offered) for facts in _KINDS]


def _conf(offered: frozenset[str], *, wait: bool = True) -> ConfigOpts:
    return conf_with(
        emulated_architectures=sorted(offered),
        enabled_filters=list(list_requiring_filters()),
        reported_traits=["*"],
        wait_for_reports=wait,
    )


def _pipeline(fleet: Fleet, offered: frozenset[str], *, wait: bool = True) -> Service:
    conf = _conf(offered, wait=wait)
    reports = reports_of(fleet, wanted_parts(*configured_filters(conf)))
    return Service.from_conf(conf, {"reports": lambda _context: reports})


_ARM = replace(KVM, architecture="aarch64", guests={"aarch64": ARM})
_MIXED: tuple[HostFacts, ...] = (KVM, replace(KVM, guests={"x86_64": X86, "aarch64": ARM}), _ARM, *other_hosts())


def _excluded(hosts: Sequence[HostFacts], fleet: Fleet, pipeline: Service) -> list[str]:
    found = []
    for case in single_cases(Cloud(pipeline.options.emulated_architectures)):
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


@_OFFERED
@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.__name__)
def test_waiting_excludes_no_capable_host_for_any_single_way_of_reporting(
    report: Report, offered: frozenset[str]
) -> None:
    """One host after the other: beside silent ones, a requirement that is enforced too early would not show."""
    for facts in _hosts(offered)[:: one_in(13)]:
        fleet = fleet_of([report(facts)])
        excluded = _excluded([facts], fleet, _pipeline(fleet, offered))
        assert not excluded, f"{len(excluded)}, the first: {excluded[0]}"


@_OFFERED
def test_capable_hosts_are_excluded_without_waiting(offered: frozenset[str]) -> None:
    """So the tests above prove something."""
    hosts = _hosts(offered)
    fleet = fleet_of([by_nova_alone(each) for each in hosts])
    assert len(_excluded(hosts, fleet, _pipeline(fleet, offered, wait=False))) > 300


@_OFFERED
def test_of_a_fully_reported_fleet_waiting_drops_only_forbidden_traits_no_host_has(offered: frozenset[str]) -> None:
    """What is required is the same; of what is forbidden, only traits that no host has are left out."""
    hosts = [facts for facts in _hosts(offered) if not reporter_of(facts).unknown(facts)]
    fleet = fleet_of([by_the_agent(each) for each in hosts])
    waiting, at_once = (_pipeline(fleet, offered, wait=wait) for wait in (True, False))
    compared = 0
    for case in single_cases(Cloud(offered)):
        if case.required is None:
            continue
        expected = at_once.apply(deepcopy(case.spec)).requirements
        seen = [item for item in expected if item.required or item.trait in fleet.traits]
        assert list(waiting.apply(deepcopy(case.spec)).requirements) == seen
        compared += len(expected)
    assert compared > 100


@pytest.mark.parametrize(("one", "other"), list(product(SECTIONS, SECTIONS))[:: one_in(13)])
def test_no_capable_host_is_excluded_while_sections_differ(one: str, other: str) -> None:
    """Hosts reported for the section of before; every second one has; two schedulers have one each; or an old agent."""
    options = SECTIONS[other]
    old, new = wanted_by(**SECTIONS[one]), wanted_by(**options)
    hosts = [replace(facts, emulated_architectures=emulated_in(new)) for facts in _MIXED]
    conf = conf_with(**options)
    parts = wanted_parts(*configured_filters(conf))
    for by_host in ([old], [old, new], [frozenset(), new], [old | new], [old - frozenset(sorted(new)[::2])]):
        fleet = fleet_of([by_the_agent(facts, each) for each, facts in zip(cycle(by_host), hosts, strict=False)])
        reports = reports_of(fleet, parts)
        assert not _excluded(hosts, fleet, Service.from_conf(conf, {"reports": lambda _context: reports}))  # noqa: B023


@_OFFERED
@pytest.mark.parametrize("seed", range(times(1)))
def test_placement_offers_every_capable_host_while_filters_wait(seed: int, offered: frozenset[str]) -> None:
    """By what it says of reports, and with the query that a scheduler sends."""
    random = Random(seed)  # noqa: S311
    hosts = random.sample(_hosts(offered), 6)
    reports: list[Report] = random.choices(REPORTS, weights=(6, 3, 2, seed), k=len(hosts))
    fleet = fleet_of([report(facts) for facts, report in zip(hosts, reports, strict=True)])
    # Requirements of Nova's own never wait.
    asking = [case for case in single_cases(Cloud(offered)) if case.required and case.choices]
    cases = random.sample([case for case in asking if "query" not in case.choices[0][0].required_by], 25)
    with EmbeddedPlacement(fleet) as placement:
        conf = _conf(offered)
        parts = wanted_parts(*configured_filters(conf))
        pipeline = Service.from_conf(conf, {"reports": ReadReports(placement.client, parts)})
        for case in cases:
            spec = deepcopy(case.spec)
            decision = pipeline.apply(spec)
            # As the agent does: the names exist, whether or not a host has them.
            placement.know(item.trait for item in decision.requirements)
            candidates = placement.client.allocation_candidates(allocation_candidates_query(spec)).hosts
            able = {each.name for facts, each in zip(hosts, fleet.hosts, strict=True) if _accepts(case, facts)}
            assert able <= set(candidates), case
