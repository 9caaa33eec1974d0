"""The desired traits of a host's resource providers. Pure: nothing is read or written here.

Only traits that a capability reporter owns are added or removed; all others stay. Operators set some of these by hand,
for flavors that require them, so a trait that the host has is not removed because no filter requires it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from os_prefilter.common.errors import ConfigurationError
from os_prefilter.common.trait_names import CUSTOM_PREFIX, Trait, trait_named
from os_prefilter.hosts.capabilities import reporter_of
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.vocabulary import REPORTED, REPORTED_CUSTOM
from os_prefilter.vocabulary.model import is_custom_marker, is_reported_marker
from os_prefilter.vocabulary.options import Options

_OWNER_PREFIX = "OWNER_"
# Of providers that Neutron's agents report: neutron_lib.placement.constants.
_NEUTRON_PREFIX = "CUSTOM_VNIC_TYPE_"


class Mode(Enum):
    """How the traits of a host are shared with another service that writes some."""

    BESIDE = "beside"
    """A nova-compute does: only the traits that its virt driver does not write are managed."""
    ALONE = "alone"
    """No other service does: all traits of the reporter are managed."""


class TraitChange(NamedTuple):
    """One difference between the traits in Placement and the desired ones."""

    provider: str
    """The name of the resource provider; empty for a trait that is created in Placement."""
    trait: str
    change: str
    """``add``, ``remove``, ``create``; for a node in Ironic also ``keep``: not desired, but set by another service."""


def changes_between(provider: str, before: Iterable[str], after: Iterable[str]) -> list[TraitChange]:
    """Return the traits that are added to a provider, and then those that are removed, each sorted."""
    old, new = set(before), set(after)
    added = [TraitChange(provider, trait, "add") for trait in sorted(new - old)]
    return added + [TraitChange(provider, trait, "remove") for trait in sorted(old - new)]


@dataclass(frozen=True)
class Goal:
    """The desired traits of a host in Placement."""

    traits: Mapping[str, bool]
    """The managed traits, and whether the root provider has each."""
    owner: Options | None = None
    """The owner trait, and how to recognize the owner's providers; None leaves ownership as it is."""
    known: frozenset[str] = frozenset()
    """``CUSTOM_`` traits that must exist, whether or not a host has them: a query with an unknown one fails."""
    spare: frozenset[str] = frozenset()
    """Traits that the host has and no filter requires: not added, and removed only where an earlier report may have set
    them."""


def check_traits(names: Iterable[str]) -> None:
    """Check the trait names of a capability reporter, perhaps of another package.

    :raises ConfigurationError: if one is not the name of a trait
    """
    try:
        for name in names:
            trait_named(name)
    except ValueError as error:
        message = f"A capability reporter owns {error}. Update or fix the package that provides it."
        raise ConfigurationError(message) from error


def select_managed(traits: Mapping[str, bool], mode: Mode, facts: HostFacts) -> dict[str, bool]:
    """Return the traits of a reporter that are written in this mode."""
    if mode is Mode.ALONE:
        return dict(traits)
    reporter = reporter_of(facts)
    left = reporter.reported_by_nova(facts) | reporter.unknown(facts)
    return {trait: has for trait, has in traits.items() if trait not in left}


def with_marker(traits: Mapping[str, bool], facts: HostFacts, marker: Trait = REPORTED) -> dict[str, bool]:
    """Return the managed traits with the marker of their report; without it where the facts lack something.

    Ironic may not have read a node's BIOS settings yet.
    """
    return dict(traits) if reporter_of(facts).unknown(facts) else {**traits, marker: True}


def withdraw_all(traits: Iterable[str]) -> dict[str, bool]:
    """Return the managed traits and the markers, all to be removed."""
    return {**dict.fromkeys(traits, False), REPORTED: False, REPORTED_CUSTOM: False}


def with_traits(
    present: frozenset[str], traits: Mapping[str, bool], spare: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Return the traits of a provider after the change.

    A marker replaces those of other releases and other scopes of its kind. Such a marker tells that an earlier report
    may have set the ``CUSTOM_`` traits that are spare now; without one an operator did. Standard traits that are spare
    always stay: no marker tells who set them.
    """
    has = {trait for trait, wanted in traits.items() if wanted}
    kinds = [is_marker for is_marker in (is_reported_marker, is_custom_marker) if any(map(is_marker, traits))]
    outdated = {trait for trait in present - has if any(is_marker(trait) for is_marker in kinds)}
    earlier = {trait for trait in spare if outdated and trait.startswith(CUSTOM_PREFIX)}
    return (present - traits.keys()) - outdated - earlier | has


def is_foreign(traits: Iterable[str], owner: Options) -> bool:
    """Return whether the traits of a provider say that it belongs to another service than the owner."""
    return any(
        trait in owner.foreign_owner_traits
        or trait.startswith(_NEUTRON_PREFIX)
        or (trait.startswith(_OWNER_PREFIX) and trait != owner.owner_trait)
        for trait in traits
    )


def is_recognized(resource_classes: Iterable[str], owner: Options) -> bool:
    """Return whether a provider below one of the owner's has an inventory, and only of what the owner creates."""
    return set(map(owner.owns, resource_classes)) == {True}
