"""What hosts report for the enabled filters: all that these may require, and a marker that says which that is."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import cycle, permutations, product

import pytest

from os_prefilter import Pipeline, allocation_candidates_query
from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.coverage import ReportCoverage
from os_prefilter.adapters.placement.trait_sync import HostTraits
from os_prefilter.common.errors import RequestRejected
from os_prefilter.common.trait_names import Trait
from os_prefilter.conf import options_from
from os_prefilter.filters.loading import load_filters
from os_prefilter.filters.report_scope import EVERY_TRAIT, ReportScope, configured_scope
from os_prefilter.fleet.model import Fleet
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.desired_traits import Goal, Mode, select_managed, with_marker
from os_prefilter.hosts.driver_check import unsupported
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.operators.readiness import CLOSED, OPEN, coverage_of, readiness
from os_prefilter.pipeline.report_gates import Coverage
from os_prefilter.testing.law import Case, list_requiring_filters, single_cases
from os_prefilter.vocabulary import REPORTED, REPORTED_CUSTOM
from os_prefilter.vocabulary.model import is_custom_marker, is_reported_marker
from tests.conftest import conf_with, one_in
from tests.support.hosts import ARM, EVERY_ARCHITECTURE, KVM, X86, other_hosts
from tests.support.reporting_fleets import by_nova_alone, by_the_agent, fleet_of

_MACHINES, _HYPERVISORS, _MODES = "CUSTOM_COMPUTE_*MACHINE_*", "CUSTOM_HYPERVISOR_TYPE_*", "CUSTOM_VM_MODE_*"


def section(
    filters: Sequence[str] = ("image_metadata", "hpet"),
    reported: Sequence[str] = (_MACHINES, _HYPERVISORS, _MODES),
    emulated: Sequence[str] = (),
) -> dict[str, list[str]]:
    """Return options of [prefilter]; by default the recommended ones."""
    names = ("enabled_filters", "reported_traits", "emulated_architectures")
    return dict(zip(names, map(list, (filters, reported, emulated)), strict=True))


RECOMMENDED = section()
BARE = section(reported=())
EVERY_PATTERN = section(reported=("*",))
EVERYTHING = section(list_requiring_filters(), ("*",), sorted(EVERY_ARCHITECTURE))
SECTIONS = {
    "recommended": RECOMMENDED,
    "bare": BARE,
    "hpet": section(("hpet",), ()),
    "hypervisors": section(reported=(_HYPERVISORS,)),
    "every-pattern": EVERY_PATTERN,
    "arm-guests": section(reported=("*",), emulated=("aarch64",)),
    "more-filters": section(list_requiring_filters(), ("*",)),
    "everything": EVERYTHING,
}


def scope_of(options: dict[str, list[str]]) -> ReportScope:
    return configured_scope(conf_with(**options))


def by_the_agent_of(options: dict[str, list[str]] | None, facts: HostFacts) -> set[str]:
    """Return the traits of a host whose agent has these options; without any, of an earlier version or ``--all``."""
    scope = EVERY_TRAIT if options is None else scope_of(options)
    return by_the_agent(replace(facts, emulated_architectures=_emulated(options)), scope)


def _emulated(options: dict[str, list[str]] | None) -> frozenset[str]:
    return EVERY_ARCHITECTURE if options is None else frozenset(options["emulated_architectures"])


class TestMarker:
    """The traits ``CUSTOM_PREFILTER_REPORTED_N_DIGEST``."""

    def test_is_the_same_for_sections_by_which_hosts_report_the_same(self) -> None:
        found = {
            scope_of(section(filters, reported, emulated)).marker
            for filters in permutations(("image_metadata", "hpet", "deploy_config"))
            for reported in permutations((_MACHINES, _HYPERVISORS, "CUSTOM_AARCH64_*"))
            for emulated in permutations(("aarch64", "ppc64le"))
        }
        assert len(found) == 1
        for patterns in (("CUSTOM_*", "COMPUTE_*", "HW_*"), ("*", _MODES)):
            assert scope_of(section(reported=patterns)) == scope_of(EVERY_PATTERN)

    def test_differs_for_sections_by_which_hosts_report_other_traits(self) -> None:
        scopes = [EVERY_TRAIT, *map(scope_of, SECTIONS.values())]
        assert len({scope.marker for scope in scopes}) == len({scope.custom_marker for scope in scopes}) == len(scopes)
        for scope in scopes:
            for marker, of_all, of_custom in ((scope.marker, True, False), (scope.custom_marker, False, True)):
                assert (is_reported_marker(marker), is_custom_marker(marker)) == (of_all, of_custom)

    def test_of_a_scope_counts_beside_that_of_everything(self) -> None:
        scope = scope_of(RECOMMENDED)
        driver = frozenset((Trait("COMPUTE_STORAGE_BUS_IDE"),))
        assert scope.markers(frozenset((REPORTED,)) | driver) == {REPORTED, scope.marker, *driver}
        both = frozenset((REPORTED, REPORTED_CUSTOM))
        assert scope.markers(both) == {*both, scope.marker, scope.custom_marker}
        assert EVERY_TRAIT.markers(both) == both


class TestTraits:
    """Which traits are reported."""

    @pytest.mark.parametrize("options", SECTIONS.values(), ids=SECTIONS)
    def test_all_that_the_filters_may_require_is_reported(self, options: dict[str, list[str]]) -> None:
        """Of every value alone: what is required or forbidden beyond the scope would never be on a host."""
        reported, pipeline = scope_of(options).traits, Pipeline.from_conf(conf_with(**options))
        assert reported
        owned = {trait for facts in (KVM, *other_hosts()) for trait in capability_traits(facts)}
        for case in _cases():
            try:
                decision = pipeline.apply(deepcopy(case.spec))
            except RequestRejected:
                continue
            beyond = {item.trait for item in decision.requirements if item.trait in owned} - reported
            assert not beyond, case

    def test_a_name_in_full_is_reported_whatever_the_filters_are(self) -> None:
        """For flavors and rules. Of an architecture that the cloud does not emulate, it never is."""
        names = ("CUSTOM_VM_MODE_HVM", "COMPUTE_FIRMWARE_UEFI", "CUSTOM_AARCH64_COMPUTE_MACHINE_VIRT")
        found = scope_of(section(("hpet",), (*names, _HYPERVISORS))).traits or ()
        assert {name for name in names if name in found} == set(names[:2])
        assert not any(trait.startswith("CUSTOM_HYPERVISOR_TYPE_") for trait in found)
        assert names[2] in (scope_of(section(("hpet",), names, ("aarch64",))).traits or ())

    def test_answers_stay_total_and_only_become_no(self) -> None:
        """What is not to be reported is removed where an earlier report has set it."""
        traits = capability_traits(replace(KVM, emulated_architectures=EVERY_ARCHITECTURE))
        for options in SECTIONS.values():
            scope = scope_of(options)
            restricted = scope.restrict(traits)
            assert restricted.keys() == traits.keys()
            assert {trait for trait, has in restricted.items() if has} == {
                trait for trait, has in traits.items() if has and trait in (scope.traits or ())
            }
        assert EVERY_TRAIT.restrict(traits) == traits


@cache
def _cases() -> tuple[Case, ...]:
    return single_cases(EVERY_ARCHITECTURE)


_REPORTS = {
    "of another section": (by_the_agent_of(BARE, KVM), CLOSED),
    "of the same section": (by_the_agent_of(RECOMMENDED, KVM), OPEN),
    "of everything, as an earlier version": (by_the_agent_of(None, KVM), OPEN),
    "of more patterns": (by_the_agent_of(EVERY_PATTERN, KVM), CLOSED),
    "by Nova alone": (by_nova_alone(KVM), CLOSED),
}


def test_readiness_takes_only_hosts_for_reported_that_cover_the_section() -> None:
    """And names the others; where Nova's driver itself reports a row, no marker is needed."""
    filters = load_filters(RECOMMENDED["enabled_filters"], None)
    same = by_the_agent_of(RECOMMENDED, KVM)
    expected = {"machine_type", "hypervisor_type", "vm_mode", "time_hpet"}
    for what, (traits, state) in _REPORTS.items():
        lines = readiness(fleet_of([same, traits]), filters, options_from(conf_with(**RECOMMENDED)))
        opt_in = [line for line in lines if line.kind == "if reported"]
        assert {line.row for line in opt_in} | {"default_machine"} == expected | {"default_machine"}
        unreported = ("host-1",) if state == CLOSED else ()
        assert {(line.state, line.unreported) for line in opt_in} == {(state, unreported)}, what


def _pipeline(options: dict[str, list[str]], coverage: Coverage | None, *waiting: str) -> Pipeline:
    conf = conf_with(**options, wait_for_answers=list(waiting))
    return Pipeline.from_conf(conf, {"answers": lambda _context: coverage})


def _accepts(case: Case, facts: HostFacts) -> bool:
    try:
        return not unsupported(case.spec, facts)
    except RequestRejected:
        return False


def _excluded(
    pipeline: Pipeline, hosts: Sequence[HostFacts], fleet: Fleet, offered: frozenset[str]
) -> Iterator[tuple[Case, HostFacts]]:
    """Yield each request that excludes a capable host.

    :param offered: the architectures that both sides offer to emulate: no host is capable of others
    """
    for case in _cases():
        try:
            required = pipeline.apply(deepcopy(case.spec)).requirements
        except RequestRejected:
            continue
        for facts, host in zip(hosts, fleet.hosts, strict=True):
            if any((item.trait in host.traits) != item.required for item in required) and _accepts(
                case, replace(facts, emulated_architectures=offered)
            ):
                yield case, facts


_EMULATING = replace(KVM, guests={"x86_64": X86, "aarch64": ARM})
_ARM = replace(KVM, architecture="aarch64", guests={"aarch64": ARM})
_HOSTS: tuple[HostFacts, ...] = (KVM, _EMULATING, _ARM, *other_hosts())


@pytest.mark.parametrize(("old", "new"), list(product(SECTIONS, SECTIONS))[:: one_in(7)])
def test_no_capable_host_is_excluded_while_sections_differ(old: str, new: str) -> None:
    """With filters that wait: the computes have one section and the schedulers another, or every second host has it."""
    before, after = SECTIONS[old], SECTIONS[new]
    offered = _emulated(before) & _emulated(after)
    for by_host in ([before], [before, after], [None, after]):
        sections = cycle(by_host)
        fleet = fleet_of([by_the_agent_of(each, facts) for each, facts in zip(sections, _HOSTS, strict=False)])
        pipeline = _pipeline(after, coverage_of(fleet, scope_of(after)), "*")
        assert next(_excluded(pipeline, _HOSTS, fleet, offered), None) is None


def test_capable_hosts_are_excluded_if_filters_do_not_wait() -> None:
    """So the test above proves something."""
    fleet = fleet_of([by_the_agent_of(BARE, facts) for facts in _HOSTS])
    assert len(list(_excluded(_pipeline(EVERY_PATTERN, None), _HOSTS, fleet, frozenset()))) > 50


_ROOM = {"host-0": KVM, "host-1": _ARM, "host-2": replace(KVM, virt_type="qemu")}


class _Cloud:
    """A real Placement, the agents of its hosts, and its scheduler."""

    def __init__(self, client: PlacementClient) -> None:
        self._client = client
        self.options: dict[str, list[str]] = {}
        """The scheduler's section."""

    def report(self, host: str, options: dict[str, list[str]] | None) -> None:
        """Let the agent of a host report by a section; without one, everything."""
        scope, facts = (EVERY_TRAIT if options is None else scope_of(options)), _ROOM[host]
        traits = scope.restrict(capability_traits(replace(facts, emulated_architectures=_emulated(options))))
        traits = with_marker(select_managed(traits, Mode.BESIDE, facts), facts, scope.marker)
        HostTraits(self._client, host).sync(Goal(traits, known=scope.known))

    def candidates(self, cases: Sequence[Case]) -> Iterator[set[str]]:
        """Yield the hosts that remain for each request, by the reports of now."""
        pipeline = _pipeline(self.options, ReportCoverage(self._client, scope_of(self.options))(), "*")
        for case in cases:
            spec = deepcopy(case.spec)
            pipeline.apply(spec)
            yield set(self._client.allocation_candidates(allocation_candidates_query(spec)).hosts)


def _capable(case: Case) -> set[str]:
    return {host for host, facts in _ROOM.items() if _accepts(case, facts)}


@cache
def _telling_cases() -> tuple[Case, ...]:
    """Return requests that some of the hosts can serve and others cannot, one of each row that opts in."""
    scope = scope_of(EVERY_PATTERN)
    found: dict[str, list[Case]] = {}
    for case in _cases():
        if case.choices and {trait for trait, _ in case.required or ()} & scope.known and 0 < len(_capable(case)) < 3:
            found.setdefault(case.choices[0][0].name, []).append(case)
    return tuple(case for cases in found.values() for case in cases[:1])


_STEPS: list[tuple[dict[str, list[str]] | None, dict[str, list[str]], bool]] = [
    (None, RECOMMENDED, True),
    (RECOMMENDED, EVERY_PATTERN, False),
    (BARE, RECOMMENDED, True),
    (EVERY_PATTERN, RECOMMENDED, False),
    (None, RECOMMENDED, False),
    (RECOMMENDED, EVERY_PATTERN, True),
    (BARE, RECOMMENDED, False),
    (EVERY_PATTERN, RECOMMENDED, True),
]


@pytest.mark.parametrize(("old", "new", "computes_first"), _STEPS[: 8 // one_in(4)], ids=range(8 // one_in(4)))
def test_section_is_changed_in_any_order_without_excluding_a_capable_host(
    old: dict[str, list[str]] | None, new: dict[str, list[str]], *, computes_first: bool
) -> None:
    """On a real Placement, host by host; at the end exactly the capable hosts are candidates."""
    traits, cases = [by_nova_alone(facts) for facts in _ROOM.values()], _telling_cases()
    with EmbeddedPlacement(fleet_of(traits)) as placement:
        cloud = _Cloud(placement.client)
        for host in _ROOM:
            cloud.report(host, old)
        cloud.options = old or EVERY_PATTERN
        for step in ("", *_ROOM, "scheduler") if computes_first else ("", "scheduler", *_ROOM):
            if step == "scheduler":
                cloud.options = new
            elif step:
                cloud.report(step, new)
            for case, found in zip(cases, cloud.candidates(cases), strict=True):
                assert _capable(case) <= found, (step, case)
        exact = [case for case in cases if {trait for trait, _ in case.required or ()} <= scope_of(new).known]
        assert exact
        assert [*cloud.candidates(exact)] == [_capable(case) for case in exact]
