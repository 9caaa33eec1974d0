"""The law by enumeration: the filters require what a host has if and only if its late check accepts the request."""

from collections.abc import Callable, Iterable, Sequence

import pytest

from os_prefilter.capabilities import capability_traits, known_traits, owns, reporter_of
from os_prefilter.reporters import HostFacts
from os_prefilter.vocabulary import ROWS
from tests.corpus import corpus_hosts
from tests.hosts import few_libvirt_hosts, libvirt_hosts, other_hosts
from tests.property.law import Case, disagreements, pair_cases, platform_cases, single_cases

Record = Callable[[str, object], None]


def _compare(cases: Sequence[Case], hosts: Iterable[HostFacts], record: Record) -> None:
    hosts = list(hosts)
    assert hosts
    assert cases
    found = [each for facts in hosts for each in disagreements(cases, facts)]
    assert not found, f"{len(found)} disagreements, the first: {found[0]}"
    record("law_cases", len(cases) * len(hosts))


_FEW = list(few_libvirt_hosts())
_OTHERS = list(other_hosts())


def _name(facts: HostFacts) -> str:
    return f"{facts.driver}-{facts.architecture}-{getattr(facts, 'virt_type', '')}"


def test_each_value_alone_on_every_libvirt_host(record_property: Record) -> None:
    _compare(single_cases(), libvirt_hosts(), record_property)


@pytest.mark.parametrize("facts", [*_FEW, *_OTHERS], ids=_name)
def test_each_two_values_on_a_host_of_each_kind(facts: HostFacts, record_property: Record) -> None:
    _compare([*single_cases(), *pair_cases()], [facts], record_property)


@pytest.mark.parametrize("facts", [*_FEW, *_OTHERS], ids=_name)
def test_each_value_on_each_machine_type_of_emulated_architectures(facts: HostFacts, record_property: Record) -> None:
    _compare(platform_cases(), [facts], record_property)


@pytest.mark.parametrize("facts", corpus_hosts(), ids=lambda facts: facts.host)
def test_the_law_on_what_libvirt_really_answers(facts: HostFacts, record_property: Record) -> None:
    _compare([*single_cases(), *pair_cases()], [facts], record_property)
    _compare(platform_cases(), [facts], record_property)


@pytest.mark.parametrize("facts", [*_FEW, *_OTHERS, *corpus_hosts()], ids=_name)
def test_a_reporter_answers_for_each_trait_that_it_owns(facts: HostFacts) -> None:
    reporter = reporter_of(facts)
    expected = {trait for trait in known_traits() if owns(reporter, trait, facts)}
    assert set(capability_traits(facts)) == expected
    assert expected


@pytest.mark.parametrize("facts", [*_FEW, *_OTHERS], ids=_name)
def test_rows_that_share_a_trait_say_the_same_of_it(facts: HostFacts) -> None:
    """A disk's bus and a CD-ROM's are one trait; one value requires HW_CPU_HYPERTHREADING, another forbids it."""
    reporter = reporter_of(facts)
    said: dict[str, set[bool]] = {}
    for row in ROWS:
        for value, term in row.values.items():
            if term.trait and row.name in reporter.owns:
                can = not reporter.refusal(facts, row.name, value, "")
                said.setdefault(term.trait, set()).add(can == term.required)
    assert {trait for trait, answers in said.items() if len(answers) > 1} == set()


def test_enough_kinds_of_hosts_are_enumerated() -> None:
    hosts = list(libvirt_hosts())
    assert {facts.virt_type for facts in hosts} == {"kvm", "qemu", "lxc", "parallels"}
    assert {facts.architecture for facts in hosts} >= {"x86_64", "aarch64", "armv7l", "s390x", "ppc64", "ppc64le"}
    assert {facts.driver for facts in _OTHERS} == {"vmware", "fake", "ironic"}
