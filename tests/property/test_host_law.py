# SPDX-License-Identifier: Apache-2.0

"""The law by enumeration: the filters require what a host has if and only if
its late check accepts the request.

Here a sample of the hosts and of the requests; ``tox -e exhaustive`` takes
all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest

from os_prefilter.hosts.capabilities import REPORTERS, reporter_of
from os_prefilter.vocabulary import BY_NAME, DEVICES
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.testing import reporter_conformance
from os_prefilter_tools.testing.law import (
    Case,
    case_of,
    choices,
    options_of,
    pair_cases,
    platform_cases,
    single_cases,
)
from os_prefilter_tools.testing.reporters import compare
from tests.conftest import one_in
from tests.support.corpus import corpus_hosts
from tests.support.hosts import (
    few_libvirt_hosts,
    libvirt_hosts,
    other_hosts,
)
from tests.support.pages import installed_by_us

Record = Callable[[str, object], None]

_FEW = list(few_libvirt_hosts())[:: one_in(3)]
_OTHERS = list(other_hosts())


for _driver in installed_by_us(REPORTERS):
    # A name tells each from the others.
    _facts = [
        replace(
            facts,
            host=f"{facts.architecture}-{getattr(facts, 'virt_type', '')}",
        )
        for facts in (*_FEW, *_OTHERS)
        if facts.driver == _driver
    ]
    globals()[f"Test_{_driver}"] = reporter_conformance(
        _driver, facts=_facts, one_in=one_in(30)
    )

if corpus_hosts():
    # What libvirt really answers.
    TestCorpus = reporter_conformance(
        "libvirt", facts=corpus_hosts(), one_in=one_in(30)
    )


def test_required_traits_and_late_check_agree_for_each_value_on_libvirt_hosts(
    record_property: Record,
) -> None:
    """And for each in an i686 image: one in ten on each host, different ones
    on the next.
    """
    step = one_in(10)
    for number, facts in enumerate(libvirt_hosts()):
        cases = (
            *single_cases(options_of(facts)),
            *_i686_cases(options_of(facts)),
        )
        compare(cases[number % step :: step], facts, record_property)


@cache
def _i686_cases(options: Options) -> list[Case]:
    i686 = (BY_NAME["architecture"], "i686")
    return [case_of((i686, choice), options=options) for choice in choices()]


@pytest.mark.parametrize("driver", installed_by_us(REPORTERS))
def test_required_traits_and_late_check_agree_for_pairs_of_values_not_owned(
    driver: str, record_property: Record
) -> None:
    """Those with one that it owns are among the tests of each reporter."""
    for facts in (*_FEW, *_OTHERS):
        if facts.driver == driver:
            compare(
                _pairs_without(reporter_of(facts).owns, options_of(facts)),
                facts,
                record_property,
            )


def test_required_traits_and_late_check_agree_for_each_bus_of_an_iso_image(
    record_property: Record,
) -> None:
    """Its CD-ROM needs a machine type that has the bus, and its disk bus may
    be of no device.
    """
    for facts in _FEW:
        compare(_iso_cases(options_of(facts)), facts, record_property)


@cache
def _iso_cases(options: Options) -> list[Case]:
    machine, iso = BY_NAME["machine_type"], (BY_NAME["image_type"], "iso")
    buses = [
        (row, value)
        for row in (BY_NAME["cdrom_bus"], BY_NAME["disk_bus"])
        for value in row.values
    ]
    machines = [(), *(((machine, family),) for family in machine.values)]
    return [
        case_of((iso, bus, *of), options=options)
        for bus in buses
        for of in machines
    ]


@cache
def _pairs_without(owned: frozenset[str], options: Options) -> list[Case]:
    others = [choice for choice in choices() if choice[0].name not in owned]
    pairs = [
        pair
        for pair in combinations(others, 2)
        if pair[0][0] is not pair[1][0]
    ]
    return [case_of(pair, options=options) for pair in pairs]


def test_whole_requests_are_compared() -> None:
    """The filters must require all that the late check looks at; what they
    note instead, devices of emulated guests, is left out.
    """
    for case in (*single_cases(), *platform_cases(0, one_in(30))):
        assert case.is_complete or case.required is None, case
    for case in pair_cases(None, 0, one_in(30)):
        names = {row.name for row, _ in case.choices}
        is_emulated = "emulation_architecture" in names
        assert not (is_emulated and names & DEVICES), case


def test_enumerated_hosts_cover_all_drivers_virt_types_and_main_architectures() -> (
    None
):
    hosts = list(libvirt_hosts())
    assert {facts.virt_type for facts in hosts} == {
        "kvm",
        "qemu",
        "lxc",
        "parallels",
    }
    assert {facts.architecture for facts in hosts} >= {
        "x86_64",
        "aarch64",
        "armv7l",
        "s390x",
        "ppc64",
        "ppc64le",
    }
    assert {facts.driver for facts in _OTHERS} == {"vmware", "fake", "ironic"}
