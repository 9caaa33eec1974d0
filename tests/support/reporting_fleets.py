"""Fleets of hosts that have reported all, a part, or nothing: what Placement knows of hosts that really can."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.desired_traits import Mode, select_managed, with_marker
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.service.report_scope import EVERY_TRAIT, ReportScope
from os_prefilter.vocabulary import REPORTED_CUSTOM
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider, provider_uuid


def by_nova_alone(facts: HostFacts) -> set[str]:
    """Return the traits of a host without a report of ours: what Nova's own driver answers for, and operators'."""
    traits = capability_traits(facts)
    ours = select_managed(traits, Mode.BESIDE, facts)
    return {trait for trait, has in traits.items() if has and trait not in ours} | facts.other_traits


def by_the_agent(facts: HostFacts, scope: ReportScope = EVERY_TRAIT) -> set[str]:
    """Return the traits of a host that runs the agent beside Nova."""
    ours = select_managed(scope.restrict(capability_traits(facts)), Mode.BESIDE, facts)
    traits = with_marker(ours, facts, scope.marker)
    return by_nova_alone(facts) - ours.keys() | {trait for trait, has in traits.items() if has}


def by_provider_config(facts: HostFacts) -> set[str]:
    """Return the traits of a host whose nova-compute reads a provider configuration file of ours."""
    ours = with_marker(capability_traits(facts), facts, REPORTED_CUSTOM)
    return by_nova_alone(facts) | {trait for trait, has in ours.items() if has and trait.startswith("CUSTOM_")}


def by_no_report(facts: HostFacts) -> set[str]:
    """Return the traits of a host whose nova-compute has not reported yet what it can."""
    return set(facts.other_traits)


Report = Callable[[HostFacts], set[str]]
REPORTS: tuple[Report, ...] = (by_the_agent, by_nova_alone, by_provider_config, by_no_report)


def fleet_of(traits: Sequence[AbstractSet[str]]) -> Fleet:
    """Return a fleet of compute nodes with these traits and room for anything: ``host-0``, ``host-1`` and so on."""
    room = {"VCPU": Inventory(64), "MEMORY_MB": Inventory(65536), "DISK_GB": Inventory(1000)}
    names = [f"host-{number}" for number in range(len(traits))]
    return Fleet(
        tuple(
            Provider(name, provider_uuid(name), room, frozenset({"COMPUTE_NODE", *each}))
            for name, each in zip(names, traits, strict=True)
        )
    )
