"""What is wanted by the schedulers' options, what hosts then report, and that this excludes no capable host."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace

import pytest

from os_prefilter import Options, allocation_candidates_query
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.coverage import placement_facts
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.common.errors import RequestRejected
from os_prefilter.common.trait_names import is_trait_name
from os_prefilter.hosts import desired_traits
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.desired_traits import Mode, goal_of
from os_prefilter.hosts.driver_check import unsupported
from os_prefilter.hosts.reports import REPORTED, WANTED, emulated_in, keys_in, names_with, parts_by_trait, parts_of
from os_prefilter.service import Service
from os_prefilter.service.wanted import configured_filters, traits_to_create, wanted_parts
from os_prefilter.vocabulary import HPET, QUALIFIED, TRAITS_OF_EMULATION, table
from os_prefilter.vocabulary.config_templates import BUNDLED
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.testing.law import single_cases
from tests.conftest import conf_with, one_in, spec_of
from tests.support.hosts import ARM, EVERY_ARCHITECTURE, KVM, X86, other_hosts
from tests.support.placements import put_traits
from tests.support.reporting_fleets import (
    RECOMMENDED,
    SECTIONS,
    Section,
    by_nova_alone,
    by_the_agent,
    fleet_of,
    wanted_by,
)

BARE, EVERY_PATTERN = SECTIONS["bare"], SECTIONS["every-pattern"]


def test_each_trait_is_in_one_part_and_no_two_parts_share_a_key() -> None:
    """Two rows of the same traits have parts that are alike. Of an emulated architecture, a host answers otherwise."""
    found: dict[str, frozenset[str]] = {}
    traits: dict[str, frozenset[str]] = {}
    for emulated in (frozenset[str](), EVERY_ARCHITECTURE):
        for part in parts_of(BUNDLED, emulated):
            for key in part.keys if len(part.keys) == 1 else ():
                assert found.setdefault(key, part.traits) == part.traits, key
            for trait in part.traits:
                assert traits.setdefault(trait, part.traits) == part.traits, trait
    rows = {trait for row in table() for trait in row.traits}
    assert traits.keys() == rows | set(QUALIFIED.values()) | set(TRAITS_OF_EMULATION) | BUNDLED.found_traits
    emulations = [
        {key for part in parts_of(BUNDLED, emulated) for key in part.keys} for emulated in ((), EVERY_ARCHITECTURE)
    ]
    assert emulated_in(emulations[0]) < emulated_in(emulations[1]) == EVERY_ARCHITECTURE
    for prefix in (WANTED, REPORTED):
        names = names_with(prefix, found)
        assert all(map(is_trait_name, names))
        assert len(names) == -(-len(found) // len(keys_in(prefix, names[:1])))
        assert keys_in(prefix, {*names, "CUSTOM_OTHER"}) == found.keys()


@pytest.mark.parametrize("options", SECTIONS.values(), ids=SECTIONS)
def test_all_that_the_filters_may_require_is_wanted(options: Section) -> None:
    """Of every value alone: what is required or forbidden beyond would never be on a host."""
    conf = conf_with(**options)
    wanted = {trait for part in wanted_parts(*configured_filters(conf)) for trait in part.traits}
    owned = {trait for facts in (KVM, *other_hosts()) for trait in capability_traits(facts)}
    pipeline = Service.from_conf(conf)
    for case in single_cases(EVERY_ARCHITECTURE):
        try:
            decision = pipeline.apply(deepcopy(case.spec))
        except RequestRejected:
            continue
        assert not {item.trait for item in decision.requirements if item.trait in owned} - wanted, case


def test_a_name_in_full_is_wanted_whatever_the_filters_are_but_not_of_an_architecture_that_is_not_emulated() -> None:
    """For flavors and rules."""
    names = ("CUSTOM_VM_MODE_HVM", "COMPUTE_FIRMWARE_UEFI", "CUSTOM_AARCH64_COMPUTE_MACHINE_VIRT")
    options = {"enabled_filters": ["hpet"], "reported_traits": [*names, "CUSTOM_HYPERVISOR_TYPE_*"]}
    for emulated, number in (([], 2), (["aarch64"], 3)):
        parts = wanted_parts(*configured_filters(conf_with(**options, emulated_architectures=emulated)))
        wanted = {trait for part in parts for trait in part.traits}
        assert wanted.intersection(names) == set(names[:number])
        assert not any(trait.startswith("CUSTOM_HYPERVISOR_TYPE_") for trait in wanted)


def test_placement_gets_the_names_of_the_traits_and_of_the_wishes() -> None:
    found = traits_to_create(*configured_filters(conf_with(**BARE)))
    assert found == {HPET, *names_with(WANTED, wanted_by(**BARE))}
    assert traits_to_create((), Options(reported_traits=("*",))) == frozenset()


def test_plain_kvm_host_gets_few_custom_traits_by_default_and_by_the_recommended_section() -> None:
    """Placement sends each with every candidate."""
    default = by_the_agent(KVM, wanted_by(reported_traits=[]))
    assert len([trait for trait in default if trait.startswith("CUSTOM_")]) <= 8
    plain = replace(KVM, guests={"x86_64": replace(X86, machines=frozenset(("pc", "q35")))})
    assert len([trait for trait in by_the_agent(plain, wanted_by()) if trait.startswith("CUSTOM_")]) <= 9


# -- a real Placement: what schedulers create, agents read and report --------------------------------------------------

_ROOM = {
    "host-0": KVM,
    "host-1": replace(KVM, architecture="aarch64", guests={"aarch64": ARM}),
    "host-2": replace(KVM, virt_type="qemu"),
}
# Each is for some of the hosts.
_TELLING = ({"hw_machine_type": "q35"}, {"hw_machine_type": "virt"}, {"img_hv_type": "kvm"}, {"hw_time_hpet": "true"})
_CAPABLE = [{host for host in _ROOM if not unsupported(spec_of(each), _ROOM[host])} for each in _TELLING]


@pytest.fixture
def placement() -> Iterator[EmbeddedPlacement]:
    with EmbeddedPlacement(fleet_of([by_nova_alone(facts) for facts in _ROOM.values()])) as placement:
        yield placement


def _scheduler(client: PlacementClient, options: Section) -> Service:
    """Start a scheduler: it creates what it wants before it reads its facts."""
    conf = conf_with(**options, facts_interval=0)
    facts = placement_facts(conf, client)
    # In one reading: it creates 60 names at once.
    client.ensure_traits(traits_to_create(*configured_filters(conf)))
    return Service.from_conf(conf, facts)


def _report(client: PlacementClient, host: str) -> None:
    """Let the agent of a host report once."""
    ProviderTraits(client, host).sync(goal_of(_ROOM[host], client.wanted(), Mode.BESIDE))


def _candidates(client: PlacementClient, scheduler: Service) -> list[set[str]]:
    """Return the hosts that remain for each request."""
    found = []
    for properties in _TELLING:
        spec = spec_of(properties)
        scheduler.apply(spec)
        found.append(set(client.allocation_candidates(allocation_candidates_query(spec)).hosts))
    return found


@pytest.mark.parametrize(("one", "other"), [(BARE, RECOMMENDED), (EVERY_PATTERN, BARE)][: 2 // one_in(2)])
def test_schedulers_with_different_sections_exclude_no_capable_host_at_any_step(one: Section, other: Section) -> None:
    """Host by host; in the end each has exactly the capable hosts for what it may require."""
    every = set(_ROOM)
    assert all(0 < len(hosts) < len(every) for hosts in _CAPABLE)
    with EmbeddedPlacement(fleet_of([by_nova_alone(facts) for facts in _ROOM.values()])) as placement:
        schedulers = []
        for options in (one, other):
            schedulers.append(_scheduler(placement.client, options))
            for host in _ROOM:
                for scheduler in schedulers:
                    for hosts, found in zip(_CAPABLE, _candidates(placement.client, scheduler), strict=True):
                        assert hosts <= found, host
                _report(placement.client, host)
        for scheduler, options in zip(schedulers, (one, other), strict=True):
            expected = _CAPABLE if options["reported_traits"] else [*[every] * 3, _CAPABLE[3]]
            assert _candidates(placement.client, scheduler) == expected
        # As of one that joins.
        put_traits(placement, lambda traits: traits.difference_update([t for t in traits if REPORTED in t]), "host-1")
        assert _candidates(placement.client, schedulers[1])[0] == every


def test_trait_that_an_older_agent_does_not_know_is_deferred_alone(
    placement: EmbeddedPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = placement.client
    scheduler = _scheduler(client, RECOMMENDED)
    new = parts_by_trait(Options().templates, frozenset())["CUSTOM_COMPUTE_MACHINE_Q35"]
    with monkeypatch.context() as patch:
        patch.setattr(
            desired_traits, "parts_of", lambda *options: tuple(part for part in parts_of(*options) if part != new)
        )
        for host in _ROOM:
            _report(client, host)
    assert new.keys <= client.wanted()
    assert not new.keys & keys_in(REPORTED, client.traits_in_use())
    assert _candidates(client, scheduler) == [set(_ROOM), *_CAPABLE[1:]]
    for host in _ROOM:
        _report(client, host)
    assert _candidates(client, scheduler) == _CAPABLE
