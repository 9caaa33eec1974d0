# SPDX-License-Identifier: Apache-2.0

"""A fleet of hosts and their nested providers, as plain values.

They come from a file (:mod:`os_prefilter_tools.fleet.reader`) or from a live
Placement (:mod:`os_prefilter_tools.adapters.fleet_reader`). Meaning and limits
of each field are those of Placement (its API reference, "Update resource
provider inventories").
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import field

import os_traits

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.placement_values import HOST_CLASSES

MAX_INT = 2_147_483_647

# Must never change, or a reloaded fleet would get other providers.
_NAMESPACE = uuid.UUID("4a1a4f0c-6a55-5d6b-9d0f-5c1d3f0f7a11")


@dataclass(frozen=True, slots=True)
class Inventory:
    """How much of one resource class a provider has.

    Amounts are in the units of the class (``MEMORY_MB``: MiB).
    """

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_INT
    step_size: int = 1
    allocation_ratio: float = 1.0
    used: int = 0
    """The amount that is allocated."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A host aggregate of Nova, or a named aggregate in Placement."""

    uuid: str
    name: str
    availability_zone: str = ""
    """The availability zone of its hosts; empty if it defines none."""
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The metadata that request filters read, without the zone.

    ``filter_tenant_id*`` and ``trait:NAME``.
    """


@dataclass(frozen=True, slots=True)
class Provider:
    """A resource provider, the root of a tree (a host) or a node below one."""

    name: str
    uuid: str
    resources: Mapping[str, Inventory] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: tuple[str, ...] = ()  # UUIDs
    providers: tuple[Provider, ...] = ()
    description: str = ""

    def walk(self) -> Iterator[Provider]:
        """Yield this provider and all below it, parents first."""
        yield self
        for child in self.providers:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Fleet:
    """Hosts, in the order of the file."""

    hosts: tuple[Provider, ...]
    """The root providers.

    Providers that only share their resources are among them: see
    :attr:`instance_hosts`.
    """
    taken_at: str = ""
    """When it was read from a live Placement, in UTC (ISO 8601).

    Empty for a file written by hand.
    """
    aggregates: Mapping[str, Aggregate] = field(default_factory=dict)
    """The aggregates whose names are known, by UUID."""
    has_inventories: bool = True
    """False if only traits and aggregates were read."""
    changed_while_read: int = 0
    """How many providers changed, or were deleted, while being read.

    Their data may be partly old.
    """

    def walk(self) -> Iterator[Provider]:
        """Yield every provider of every host, parents first."""
        for host in self.hosts:
            yield from host.walk()

    @property
    def instance_hosts(self) -> tuple[Provider, ...]:
        """The :attr:`hosts` that can run instances.

        Providers that only share their resources are not among them.
        """
        return tuple(host for host in self.hosts if not _only_shares(host))

    @property
    def traits(self) -> frozenset[str]:
        """All traits of all providers."""
        return frozenset().union(
            *(provider.traits for provider in self.walk())
        )

    @property
    def custom_traits(self) -> frozenset[str]:
        """The :attr:`traits` that must be created in Placement before use."""
        return frozenset(
            trait for trait in self.traits if trait.startswith("CUSTOM_")
        )

    def every_compute_has(self, trait: str) -> bool:
        """Return whether every compute node has ``trait`` on its root.

        A compute node has ``COMPUTE_NODE``; there must be some host with the
        trait.
        """
        nodes = [
            host
            for host in self.hosts
            if os_traits.COMPUTE_NODE in host.traits
        ]
        return all(trait in host.traits for host in nodes) and any(
            trait in host.traits for host in self.hosts
        )

    @property
    def has_nested_providers(self) -> bool:
        """Return whether any provider is nested or shares its resources."""
        return (
            any(host.providers for host in self.hosts)
            or os_traits.MISC_SHARES_VIA_AGGREGATE in self.traits
        )

    @property
    def resource_classes(self) -> frozenset[str]:
        """All resource classes of all providers."""
        return frozenset().union(
            *(provider.resources for provider in self.walk())
        )


def _only_shares(root: Provider) -> bool:
    if (
        os_traits.MISC_SHARES_VIA_AGGREGATE not in root.traits
        or os_traits.COMPUTE_NODE in root.traits
    ):
        return False
    return all(
        provider.resources.keys().isdisjoint(HOST_CLASSES)
        for provider in root.walk()
    )


def provider_uuid(name: str) -> str:
    """Return the UUID of a provider with this name; it never changes."""
    return str(uuid.uuid5(_NAMESPACE, f"provider:{name}"))


def aggregate_uuid(name: str) -> str:
    """Return a UUID in its usual form, or that of an aggregate's name.

    It never changes.
    """
    return uuid_in(name) or str(uuid.uuid5(_NAMESPACE, f"aggregate:{name}"))


def uuid_in(text: str) -> str:
    """Return ``text`` as a UUID in its usual form; empty if it is none."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return ""
