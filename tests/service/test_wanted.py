"""What hosts report for the enabled filters: all that these may require, and a marker that says which that is."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import cycle, permutations, product

import pytest

from os_prefilter import allocation_candidates_query
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.coverage import ReportCoverage
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.common.errors import RequestRejected
from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.desired_traits import Goal, Mode, select_managed, with_marker
from os_prefilter.hosts.driver_check import unsupported
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.service import Service
from os_prefilter.service.report_gates import Coverage
from os_prefilter.service.report_scope import EVERY_TRAIT, ReportScope, configured_scope
from os_prefilter.vocabulary import REPORTED, REPORTED_CUSTOM
from os_prefilter.vocabulary.model import is_custom_marker, is_reported_marker
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.operators.readiness import coverage_of
from os_prefilter_tools.testing.law import Case, list_requiring_filters, single_cases
from tests.conftest import conf_with, one_in, spec_of
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
        reported, pipeline = scope_of(options).traits, Service.from_conf(conf_with(**options))
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


def _pipeline(options: dict[str, list[str]], coverage: Coverage | None, *waiting: str) -> Service:
    conf = conf_with(**options, wait_for_answers=list(waiting))
    return Service.from_conf(conf, {"answers": lambda _context: coverage})


def _accepts(case: Case, facts: HostFacts) -> bool:
    try:
        return not unsupported(case.spec, facts)
    except RequestRejected:
        return False


def _excluded(
    pipeline: Service, hosts: Sequence[HostFacts], fleet: Fleet, offered: frozenset[str]
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


@pytest.mark.parametrize(("old", "new"), list(product(SECTIONS, SECTIONS))[:: one_in(13)])
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


# Each is for some of the hosts.
_TELLING = ({"hw_machine_type": "q35"}, {"hw_machine_type": "virt"}, {"img_hv_type": "kvm"}, {"hw_time_hpet": "true"})


def _report(client: PlacementClient, host: str, options: dict[str, list[str]] | None) -> None:
    """Let the agent of a host report by a section; without one, everything."""
    scope, facts = (EVERY_TRAIT if options is None else scope_of(options)), _ROOM[host]
    traits = scope.restrict(capability_traits(replace(facts, emulated_architectures=_emulated(options))))
    traits = with_marker(select_managed(traits, Mode.BESIDE, facts), facts, scope.marker)
    ProviderTraits(client, host).sync(Goal(traits, known=scope.known))


def _candidates(client: PlacementClient, options: dict[str, list[str]]) -> list[set[str]]:
    """Return the hosts that remain for each request, by the scheduler's section and the reports of now."""
    pipeline, found = _pipeline(options, ReportCoverage(client, scope_of(options))(), "*"), []
    for properties in _TELLING:
        spec = spec_of(properties)
        pipeline.apply(spec)
        found.append(set(client.allocation_candidates(allocation_candidates_query(spec)).hosts))
    return found


_STEPS: list[tuple[dict[str, list[str]] | None, dict[str, list[str]], bool]] = [
    (RECOMMENDED, EVERY_PATTERN, False),
    (BARE, RECOMMENDED, True),
    (None, RECOMMENDED, True),
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
    capable = [{host for host in _ROOM if not unsupported(spec_of(each), _ROOM[host])} for each in _TELLING]
    assert all(0 < len(hosts) < len(_ROOM) for hosts in capable)
    with EmbeddedPlacement(fleet_of([by_nova_alone(facts) for facts in _ROOM.values()])) as placement:
        for host in _ROOM:
            _report(placement.client, host, old)
        section = old or EVERY_PATTERN
        for step in (*_ROOM, "scheduler") if computes_first else ("scheduler", *_ROOM):
            if step == "scheduler":
                section = new
            else:
                _report(placement.client, step, new)
            for hosts, found in zip(capable, _candidates(placement.client, section), strict=True):
                assert hosts <= found, step
        assert _candidates(placement.client, section) == capable
