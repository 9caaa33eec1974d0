# SPDX-License-Identifier: Apache-2.0

"""Fleets of hosts that have reported all, a part, or nothing: what Placement
knows of hosts that really can.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from os_prefilter.hosts.capabilities import (
    capability_traits,
    reporter_of,
    unknown_traits,
)
from os_prefilter.hosts.desired_traits import Mode, goal_of, with_traits
from os_prefilter.hosts.marker_traits import trait_groups
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.service.traits_to_report import wanted_groups
from os_prefilter_tools.fleet.model import (
    Fleet,
    Inventory,
    Provider,
    provider_uuid,
)
from os_prefilter_tools.operators.readiness import configured_filters
from os_prefilter_tools.testing.law import list_requiring_filters
from tests.conftest import conf_with
from tests.support.zipping import zip_equal

Section = dict[str, list[str]]
RECOMMENDED: Section = {
    "enabled_filters": ["image_metadata", "hpet"],
    "reported_traits": [
        "CUSTOM_COMPUTE_*MACHINE_*",
        "CUSTOM_HYPERVISOR_TYPE_*",
        "CUSTOM_VM_MODE_*",
    ],
}
"""What the documentation recommends for the section [prefilter]."""
_BARE: Section = {**RECOMMENDED, "reported_traits": []}
_EVERY: Section = {**RECOMMENDED, "reported_traits": ["*"]}
SECTIONS: dict[str, Section] = {
    "recommended": RECOMMENDED,
    "bare": _BARE,
    "hpet": {**_BARE, "enabled_filters": ["hpet"]},
    "hypervisors": {
        **RECOMMENDED,
        "reported_traits": ["CUSTOM_HYPERVISOR_TYPE_*"],
    },
    "every-pattern": _EVERY,
    "more-filters": {
        **_EVERY,
        "enabled_filters": list(list_requiring_filters()),
    },
    "everything": {
        "enabled_filters": list(list_requiring_filters()),
        "reported_traits": ["*"],
    },
}


def wanted_by(**options: object) -> frozenset[str]:
    """Return the keys of what schedulers with these options want; by default
    the recommended ones.
    """
    groups = wanted_groups(
        *configured_filters(conf_with(**{**RECOMMENDED, **options}))
    )
    return frozenset(key for group in groups for key in group.keys)


def by_nova_alone(facts: HostFacts) -> set[str]:
    """Return the traits of a host without a report of ours: what Nova's own
    driver answers for, and operators'.
    """
    ours = goal_of(facts, (), Mode.BESIDE).traits
    # Its lists have what QEMU may lack.
    listed = reporter_of(facts).reported_by_nova(facts)
    listed = listed.intersection(unknown_traits(facts))
    has = {trait for trait, has in capability_traits(facts).items() if has}
    return (has - ours.keys()) | listed | facts.other_traits


def by_the_agent(
    facts: HostFacts, wanted: Collection[str] | None = None
) -> set[str]:
    """Return the traits of a host that runs the agent beside Nova; by default
    everything is wanted.
    """
    if wanted is None:
        wanted = {
            key
            for group in trait_groups(facts.templates)
            for key in group.keys
        }
    return set(
        with_traits(
            frozenset(by_nova_alone(facts)),
            goal_of(facts, wanted, Mode.BESIDE),
        )
    )


def by_provider_config(facts: HostFacts) -> set[str]:
    """Return the traits of a host whose nova-compute reads a provider
    configuration file of ours.
    """
    wanted = {
        key for group in trait_groups(facts.templates) for key in group.keys
    }
    goal = goal_of(facts, wanted, Mode.BESIDE)
    own = {
        trait
        for trait, has in goal.traits.items()
        if has and not trait.startswith("CUSTOM_")
    }
    groups = {
        key: traits for key, traits in goal.groups.items() if not traits & own
    }
    return by_nova_alone(facts) | with_traits(
        frozenset(), replace(goal, groups=groups)
    )


def by_no_report(facts: HostFacts) -> set[str]:
    """Return the traits of a host whose nova-compute has not reported yet what
    it can.
    """
    return set(facts.other_traits)


Report = Callable[[HostFacts], set[str]]
REPORTS: tuple[Report, ...] = (
    by_the_agent,
    by_nova_alone,
    by_provider_config,
    by_no_report,
)


def fleet_of(traits: Sequence[AbstractSet[str]]) -> Fleet:
    """Return a fleet of compute nodes with these traits and room for anything:
    ``host-0``, ``host-1`` and so on.
    """
    room = {
        "VCPU": Inventory(64),
        "MEMORY_MB": Inventory(65536),
        "DISK_GB": Inventory(1000),
    }
    return Fleet(
        tuple(
            Provider(
                name,
                provider_uuid(name),
                room,
                frozenset({"COMPUTE_NODE", *each}),
            )
            for name, each in zip_equal(
                [f"host-{number}" for number in range(len(traits))], traits
            )
        )
    )
