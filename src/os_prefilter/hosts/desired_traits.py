"""What the traits of a host's resource providers should be, and what they become; nothing is asked or written here.

Only traits that a capability reporter answers for are ever added or removed; all others survive, whoever set them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from os_prefilter.conf.options import Options
from os_prefilter.errors import ConfigurationError
from os_prefilter.hosts.capabilities import reporter_of
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.vocabulary import REPORTED, REPORTED_CUSTOM, opt_in_traits
from os_prefilter.vocabulary.model import CUSTOM_PREFIX, is_reported_marker, trait_named

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_OWNER_PREFIX = "OWNER_"
# On what Neutron's agents report: neutron_lib.placement.constants.
_NEUTRON_PREFIX = "CUSTOM_VNIC_TYPE_"


class Mode(Enum):
    """Who else writes traits of the host."""

    BESIDE = "beside"
    """A running nova-compute: only what its own virt driver does not answer for is managed."""
    ALONE = "alone"
    """Nobody: everything that the reporter answers for is managed."""


class Change(NamedTuple):
    """One difference between what Placement has and what it should have."""

    provider: str
    """The name of the resource provider; empty where a trait is made known to Placement."""
    trait: str
    change: str
    """``add``, ``remove``, ``create``; of a node in Ironic also ``keep``: not as it should be, and somebody else's."""


@dataclass(frozen=True)
class Goal:
    """What Placement should say of a host."""

    traits: Mapping[str, bool]
    """The managed traits, and whether the root provider has each."""
    owner: Options | None = None
    """The trait of the service that owns the providers, and how they are recognized; None: ownership stays as it is."""
    known: frozenset[str] = frozenset()
    """``CUSTOM_`` traits that must exist, whether or not a host has them: a query with an unknown one fails."""


def is_uuid(provider: str) -> bool:
    """Whether a resource provider is named by its UUID, in the usual form."""
    return _UUID.fullmatch(provider) is not None


def check_traits(names: Iterable[str]) -> None:
    """Check what a capability reporter, perhaps of another package, answers for.

    :raises ConfigurationError: if one is not the name of a trait.
    """
    for name in names:
        try:
            trait_named(name)
        except ValueError as error:
            raise ConfigurationError(
                f"A capability reporter answers for {error}. Have its package repaired."
            ) from error


def managed(traits: Mapping[str, bool], mode: Mode, facts: HostFacts) -> dict[str, bool]:
    """Return those of a reporter's answers that are written in this mode.

    :param facts: of the host: its virt driver says what a nova-compute beside us writes.
    """
    if mode is Mode.ALONE:
        return dict(traits)
    reporter = reporter_of(facts)
    left = reporter.reported_by_nova(facts) | reporter.unknown(facts)
    return {trait: has for trait, has in traits.items() if trait not in left}


def knows_all(facts: HostFacts) -> bool:
    """Whether the facts decide every trait of the reporter: Ironic may not have read a node's BIOS settings yet."""
    return not reporter_of(facts).unknown(facts)


def with_marker(traits: Mapping[str, bool], facts: HostFacts) -> dict[str, bool]:
    """Return all managed traits of a host with the one that says so: a host that has it was asked for each.

    Where a part of the answers is not known now, that one is left out: it stays as it is.
    """
    return {**traits, REPORTED: True} if knows_all(facts) else dict(traits)


def with_custom_marker(traits: Mapping[str, bool], facts: HostFacts) -> dict[str, bool]:
    """Return the same where only ``CUSTOM_`` traits are written."""
    return {**traits, REPORTED_CUSTOM: True} if knows_all(facts) else dict(traits)


def withdrawn(traits: Iterable[str]) -> dict[str, bool]:
    """Return that a host has none of the managed traits, and was not asked for any."""
    return {**dict.fromkeys(traits, False), REPORTED: False, REPORTED_CUSTOM: False}


def traits_to_know() -> frozenset[str]:
    """Return the ``CUSTOM_`` traits of the vocabulary: requests may name each, also where no host has it."""
    return frozenset(trait for trait in opt_in_traits() if trait.startswith(CUSTOM_PREFIX))


def with_traits(present: frozenset[str], traits: Mapping[str, bool]) -> frozenset[str]:
    """Return what a provider with the traits ``present`` has once each of ``traits`` is as told.

    Who says that a host was asked takes back what another release of this library said of that.
    """
    has = {trait for trait, wanted in traits.items() if wanted}
    outdated = filter(is_reported_marker, present) if REPORTED in traits else ()
    return (present - traits.keys()).difference(outdated) | has


def is_foreign(traits: Iterable[str], owner: Options) -> bool:
    """Whether the traits of a provider say that it belongs to another service than the owner."""
    return any(
        trait in owner.foreign_owner_traits
        or trait.startswith(_NEUTRON_PREFIX)
        or (trait.startswith(_OWNER_PREFIX) and trait != owner.owner_trait)
        for trait in traits
    )


def is_recognized(resource_classes: Iterable[str], owner: Options) -> bool:
    """Whether a provider below one of the owner's has an inventory, and only of what the owner creates."""
    classes = tuple(resource_classes)
    return bool(classes) and all(map(owner.owns, classes))
