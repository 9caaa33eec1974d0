# SPDX-License-Identifier: Apache-2.0

"""The desired traits of a host's resource providers.

Pure: nothing is read or written here.

Only traits that a capability reporter owns are added. Only traits that a
report marker covers, or that an agent has noted, are removed: operators set
some by hand, for flavors that require them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple
from uuid import NAMESPACE_DNS, uuid3

import os_traits

from os_prefilter.common.errors import ConfigurationError
from os_prefilter.common.trait_names import CUSTOM_PREFIX, trait_named
from os_prefilter.hosts.capabilities import capability_traits, reporter_of
from os_prefilter.hosts.marker_traits import (
    NOT_CONFIGURED,
    ON_PROVIDERS,
    REPORTED,
    keys_in,
    marker_key,
    names_noting,
    names_of_cpu,
    names_of_deprecated,
    names_with,
    noted_among,
    trait_groups,
)
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.vocabulary.options import Options

_OWNER_PREFIX = "OWNER_"
# Of providers that Neutron's agents report: neutron_lib.placement.constants.
_NEUTRON_PREFIX = "CUSTOM_VNIC_TYPE_"
# Filters forbid these: one that is left over excludes capable hosts, and one
# that is missing excludes none.
_FORBIDDEN = ("_COMPUTE_DEFAULT_MACHINE_", "_COMPUTE_LACKS_")


class Mode(Enum):
    """How the traits of a host are shared with a service that writes some."""

    BESIDE = "beside"
    """A nova-compute runs there, and writes the traits of its virt driver.

    Only the others are managed.
    """
    ALONE = "alone"
    """No other service does: all traits of the reporter are managed."""


class TraitChange(NamedTuple):
    """One difference between the traits in Placement and the desired ones."""

    provider: str
    """The name of the resource provider; empty for a trait to create."""
    trait: str
    change: str
    """``add``, ``remove`` or ``create``.

    For a node in Ironic also ``keep``: not desired, but set by another
    service.
    """


def changes_between(
    provider: str, before: Iterable[str], after: Iterable[str]
) -> list[TraitChange]:
    """Return the traits added to a provider, then those removed, sorted."""
    old, new = set(before), set(after)
    added = [
        TraitChange(provider, trait, "add") for trait in sorted(new - old)
    ]
    return added + [
        TraitChange(provider, trait, "remove") for trait in sorted(old - new)
    ]


@dataclass(frozen=True)
class Goal:
    """The desired traits of a host in Placement."""

    traits: Mapping[str, bool]
    """The managed traits, and whether the host has each."""
    groups: Mapping[str, frozenset[str]]
    """Key of a group that the host can report -> the managed traits in it."""
    wanted: frozenset[str] | None
    """Keys of the groups that schedulers want; None withdraws the report."""
    owner: Options | None = None
    """The owner trait, and how to recognize the owner's providers.

    None leaves ownership as it is.
    """
    unsure: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Key -> traits of groups whose facts are unavailable now.

    Their earlier report is kept.
    """
    reported_by_nova: Mapping[str, bool] = field(default_factory=dict)
    """Trait that the host's nova-compute reports -> whether the host has it.

    One that an agent has set before Nova reported it is Nova's now.
    """
    deprecated_machines: frozenset[str] | None = None
    """The machine types that libvirt marks; None leaves them out."""
    cpu: str = ""
    """The CPU of the host's guests; empty leaves it out."""


def check_traits(names: Iterable[str]) -> None:
    """Check the trait names of a capability reporter.

    It may come from another package.

    :raises ConfigurationError: if one is not the name of a trait
    """
    try:
        for name in names:
            trait_named(name)
    except ValueError as error:
        message = (
            f"A capability reporter owns {error}. Update or fix the package"
            " that provides it."
        )
        raise ConfigurationError(message) from error


def goal_of(
    facts: HostFacts,
    wanted: Iterable[str],
    mode: Mode,
    owner: Options | None = None,
) -> Goal:
    """Return the desired traits of a host.

    A trait of which the facts say nothing now stays as it is, and so does what
    was reported of its group: Ironic may not have read a node's BIOS settings
    yet.

    :param wanted: the keys of the groups that schedulers want
    """
    wanted = frozenset(wanted)
    reporter = reporter_of(facts)
    unknown = frozenset(reporter.unknown(facts))
    novas_own: frozenset[str] = frozenset()
    if mode is Mode.BESIDE:
        novas_own = reporter.reported_by_nova(facts)
    # Nova decides on its own ones, also while our facts say nothing of them.
    unsure_of = unknown - novas_own
    known = {
        trait: has
        for trait, has in capability_traits(facts).items()
        if trait not in unknown
    }
    reported_by_nova = {
        trait: has for trait, has in known.items() if trait in novas_own
    }
    traits = {
        trait: has for trait, has in known.items() if trait not in novas_own
    }
    groups: dict[str, frozenset[str]] = {}
    if not reporter.configured:
        groups[NOT_CONFIGURED] = frozenset()
    unsure = {}
    for group in trait_groups(facts.templates):
        key = marker_key(group.traits)
        if not group.traits.isdisjoint(unsure_of):
            unsure[key] = frozenset[str](group.traits)
            continue
        if not reporter.configured and NOT_CONFIGURED in group.keys:
            # The one key covers the traits of all templates.
            continue
        groups[key] = group.traits & traits.keys()
    return Goal(
        traits,
        groups,
        wanted,
        owner,
        unsure,
        reported_by_nova,
        # Where no scheduler wants anything, an agent writes nothing.
        facts.deprecated_machines if wanted else None,
        facts.cpu if wanted else "",
    )


def withdrawn(goal: Goal, mode: Mode) -> Goal:
    """Return the goal without a report.

    Beside a nova-compute, standard traits that the host has stay.
    """
    traits = goal.traits
    if mode is Mode.ALONE:
        traits = dict.fromkeys(goal.traits, False)
    return replace(
        goal,
        traits=traits,
        wanted=None,
        owner=None,
        deprecated_machines=None,
        cpu="",
    )


def with_traits(
    present: frozenset[str], goal: Goal, still_wanted: Iterable[str] = ()
) -> frozenset[str]:
    """Return the traits of a provider after the change.

    Only what the report marker on the provider covers, or an agent has noted,
    is removed: operators set other traits by hand. A standard trait that the
    host has also stays when it is no longer wanted: flavors may require it.

    :param still_wanted: keys that were wanted until a short time ago
    """
    covered = keys_in(REPORTED, present)
    # Another release may have written the marker: this one does not know the
    # key of a group with other traits.
    noted = noted_among(present)
    wanted = (
        frozenset() if goal.wanted is None else goal.wanted.union(still_wanted)
    )
    after = {trait for trait in present if not trait.startswith(ON_PROVIDERS)}
    keys: set[str] = set()
    ours: set[str] = set()
    for key, traits in goal.groups.items():
        there = traits & present
        set_by_agent = there if key in covered else there & noted
        has = {trait for trait in traits if goal.traits[trait]}
        if key in wanted:
            after -= set_by_agent - has
            after |= has
            by_hand = there - set_by_agent
            # What an operator has set is not covered: without the marker it
            # would look like ours.
            if all(
                trait in has and not _is_custom(trait) for trait in by_hand
            ):
                keys.add(key)
                by_hand = frozenset()
            ours |= has - by_hand
        else:
            gone = {
                trait
                for trait in set_by_agent
                if _is_custom(trait) or trait not in has
            }
            after -= gone
            ours |= set_by_agent - gone
    for key, traits in goal.unsure.items():
        set_by_agent = traits & present if key in covered else traits & noted
        if goal.wanted is None:
            after -= set_by_agent
        else:
            ours |= set_by_agent
            if key in covered:
                keys.add(key)
    decided = frozenset().union(*goal.groups.values(), *goal.unsure.values())
    for trait in noted - decided:
        if goal.reported_by_nova.get(trait):
            # Without our note: its nova-compute keeps it as it should be.
            continue
        if trait not in goal.reported_by_nova and _may_stay(
            trait, goal, wanted
        ):
            ours.add(trait)
        else:
            after.discard(trait)
    note = names_noting(ours & after) if goal.wanted is not None else ()
    return frozenset(after).union(
        names_with(REPORTED, keys),
        note,
        names_of_deprecated(goal.deprecated_machines),
        names_of_cpu(goal.cpu),
    )


def _may_stay(trait: str, goal: Goal, wanted: frozenset[str]) -> bool:
    """Return whether a trait that only another release knows stays.

    Schedulers that want it would exclude the host without it.
    """
    if goal.wanted is None or any(part in trait for part in _FORBIDDEN):
        return False
    return not _is_custom(trait) or marker_key((trait,)) in wanted


def _is_custom(trait: str) -> bool:
    return trait.startswith(CUSTOM_PREFIX)


def is_foreign(
    traits: Iterable[str], owner: Options, *, uuid: str = "", name: str = ""
) -> bool:
    """Return whether a provider belongs to another service than the owner.

    :param uuid: its UUID, if it is known: with the name it shows which
        providers are Cyborg's, of which many have no owner trait, and the
        others get it after their inventory
    """
    if owner.owner_trait != os_traits.OWNER_CYBORG and uuid == _uuid_by_cyborg(
        name
    ):
        return True
    return any(
        trait in owner.foreign_owner_traits
        or trait.startswith(_NEUTRON_PREFIX)
        or (trait.startswith(_OWNER_PREFIX) and trait != owner.owner_trait)
        for trait in traits
    )


def _uuid_by_cyborg(name: str) -> str:
    """Return the UUID that Cyborg gives to its provider of that name.

    Source: ``_get_sub_provider`` in cyborg/conductor/manager.py, the same in
    10.1.0, 12.0.0, 14.1.0 and 17.0.0.
    """
    return str(uuid3(NAMESPACE_DNS, name))


def is_recognized(resource_classes: Iterable[str], owner: Options) -> bool:
    """Return whether a provider has an inventory of what the owner creates.

    It is below one of the owner's providers.

    It may have others: a ``provider.yaml`` may add some to Nova's. A provider
    of another service is foreign by other signs.
    """
    return any(map(owner.owns, resource_classes))
