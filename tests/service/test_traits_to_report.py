# SPDX-License-Identifier: Apache-2.0

"""What is wanted by the schedulers' options: all that their filters may
require, and each trait in one group.
"""

from __future__ import annotations

from copy import deepcopy

import pytest

from os_prefilter import Options
from os_prefilter.common.errors import RequestRejected
from os_prefilter.common.trait_names import is_trait_name
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.marker_traits import (
    REPORTED,
    WANTED,
    keys_in,
    marker_key,
    names_with,
    trait_groups,
)
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.requirements import Requirements
from os_prefilter.service import Service
from os_prefilter.service.traits_to_report import (
    traits_to_create,
    wanted_groups,
)
from os_prefilter.vocabulary import (
    BY_NAME,
    HPET,
    I686,
    LACKING,
    opt_in_traits,
    table,
)
from os_prefilter.vocabulary.config_templates import BUNDLED
from os_prefilter.vocabulary.nova_rows import TRANSLATED_BY_NOVA
from os_prefilter_tools.operators.readiness import configured_filters
from os_prefilter_tools.testing.law import single_cases
from tests.conftest import conf_with
from tests.support.hosts import KVM, other_hosts
from tests.support.reporting_fleets import SECTIONS, Section, wanted_by

BARE = SECTIONS["bare"]


def test_each_trait_is_in_one_part_and_no_two_parts_share_a_key() -> None:
    """Two rows of the same traits have groups that are alike."""
    found: dict[str, frozenset[str]] = {}
    traits: dict[str, frozenset[str]] = {}
    for group in trait_groups(BUNDLED):
        for key in group.keys if len(group.keys) == 1 else ():
            assert found.setdefault(key, group.traits) == group.traits, key
        for trait in group.traits:
            assert traits.setdefault(trait, group.traits) == group.traits
    rows = {trait for row in table() for trait in row.traits}
    every = rows | set(I686.values()) | BUNDLED.found_traits
    assert traits.keys() == every
    modes = [
        marker_key((trait,)) for trait in opt_in_traits((BY_NAME["vm_mode"],))
    ]
    for prefix, number in ((WANTED, len(modes)), (REPORTED, 1)):
        names = names_with(prefix, found)
        assert all(map(is_trait_name, names))
        assert len(names) == -(-len(found) // len(keys_in(prefix, names[:1])))
        # Only a host's marker has one key for all optional traits of a row: an
        # older agent must know what is wanted.
        assert [len(name) for name in names_with(prefix, modes)] == [
            len(prefix) + number * 5
        ]
        assert keys_in(prefix, {*names, "CUSTOM_OTHER"}) == found.keys()


@pytest.mark.parametrize("options", SECTIONS.values(), ids=SECTIONS)
def test_all_that_the_filters_may_require_is_wanted(options: Section) -> None:
    conf = conf_with(**options)
    wanted = {
        trait
        for group in wanted_groups(*configured_filters(conf))
        for trait in group.traits
    }
    owned = {
        trait
        for facts in (KVM, *other_hosts())
        for trait in capability_traits(facts)
    }
    pipeline = Service.from_conf(conf)
    for case in single_cases():
        try:
            decision = pipeline.apply(deepcopy(case.spec))
        except RequestRejected:
            continue
        assert (
            not {
                item.trait
                for item in decision.requirements
                if item.trait in owned
            }
            - wanted
        ), case


def test_a_name_in_full_is_wanted_whatever_the_filters_are() -> None:
    """For flavors and rules."""
    names = (
        "CUSTOM_VM_MODE_HVM",
        "COMPUTE_FIRMWARE_UEFI",
        "CUSTOM_COMPUTE_MACHINE_VIRT",
    )
    options = {
        "enabled_filters": ["hpet"],
        "reported_traits": [*names, "CUSTOM_HYPERVISOR_TYPE_*"],
    }
    groups = wanted_groups(*configured_filters(conf_with(**options)))
    wanted = {trait for group in groups for trait in group.traits}
    assert wanted >= set(names)
    assert not any(
        trait.startswith("CUSTOM_HYPERVISOR_TYPE_") for trait in wanted
    )


def test_what_novas_own_query_requires_is_wanted_beside_a_filter_that_declares_nothing() -> (
    None
):
    groups = wanted_groups(
        (LoadedFilter("mine", lambda _request: Requirements()),),
        Options(reported_traits=("*",)),
    )
    assert {group.row for group in groups} == {
        row.name for row in TRANSLATED_BY_NOVA if row.traits
    }


def test_placement_gets_the_names_of_the_traits_and_of_the_wishes() -> None:
    assert traits_to_create(*configured_filters(conf_with(**BARE))) == {
        HPET,
        *LACKING.values(),
        *names_with(WANTED, wanted_by(**BARE)),
    }
    assert traits_to_create((), Options(reported_traits=("*",))) == frozenset()
