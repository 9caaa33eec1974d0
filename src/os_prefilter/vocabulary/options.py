# SPDX-License-Identifier: Apache-2.0

"""The options of the library as plain values, for the core;
:mod:`os_prefilter.service.conf` reads them.
"""

from collections.abc import Collection
from dataclasses import dataclass, fields
from enum import Enum
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache

import os_traits

from os_prefilter.common.placement_values import HOST_CLASSES
from os_prefilter.common.trait_names import Trait
from os_prefilter.vocabulary import TRAITS_OF_EMULATION, table
from os_prefilter.vocabulary.config_templates import BUNDLED, Templates
from os_prefilter.vocabulary.machine_types import guest_architecture
from os_prefilter.vocabulary.model import Row, UnknownValues


class TraitScope(Enum):
    """Scopes in which the traits of a host are required: the values of
    ``[prefilter] trait_scope``.
    """

    AUTO = "auto"
    ROOT = "root"
    ROOT_AND_UNSUFFIXED = "root_and_unsuffixed"


@dataclass(frozen=True)
class Options:
    """How filters turn requests into requirements. See
    :mod:`os_prefilter.service.conf` for each option's meaning.
    """

    trait_scope: TraitScope = TraitScope.AUTO
    unknown_values: UnknownValues = UnknownValues.SKIP
    reported_traits: tuple[str, ...] = ()
    emulated_architectures: frozenset[str] = frozenset()
    """The architectures, as Nova spells them, of which hosts of another one
    may run guests.
    """
    templates: Templates = BUNDLED
    """The deployment's configuration templates."""
    owner_trait: str = os_traits.OWNER_NOVA
    foreign_owner_traits: tuple[str, ...] = (os_traits.OWNER_CYBORG,)
    owned_resource_classes: tuple[str, ...] = (
        "VCPU",
        "PCPU",
        "MEMORY_MB",
        "MEM_ENCRYPTION_CONTEXT",
        "VGPU",
        "CUSTOM_PCI_*",
    )

    nova_builds_guests: bool = False
    """True if Nova's own drivers build the guests, by properties alone and in
    ways with which some do not start.
    """
    wait_for_reports: bool = True
    """True if a requirement is deferred until every compute node has reported
    whether it has the trait.
    """

    preferred_properties: tuple[str, ...] = ()
    """Names of rows, image properties or extra specs whose traits are
    preferred instead of required.
    """
    tenant_aggregate_required: bool = False
    """True if the filter ``tenant_isolation`` rejects the requests of a tenant
    for which no aggregate is.
    """

    def __hash__(self) -> int:
        # Part of a key that is looked up for each value of each request.
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, each.name) for each in fields(self)))

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows of the deployment: the vocabulary, and its configuration
        templates.
        """
        return rows_with(self.templates)

    def prefers(self, row: Row) -> bool:
        """Return whether the traits of a row are preferred instead of
        required.
        """
        return bool(self.preferred_properties) and not names_of(
            row
        ).isdisjoint(self.preferred_properties)

    def reports(self, trait: str) -> bool:
        """Return whether hosts report this trait, which no driver of Nova
        reports, so that filters may require it.
        """
        emulated = TRAITS_OF_EMULATION.get(Trait(trait))
        return (not emulated or self.emulates(emulated)) and matches_any(
            trait, self.reported_traits
        )

    def emulates(self, architecture: str) -> bool:
        """Return whether the cloud offers to emulate an architecture."""
        return is_offered(architecture, self.emulated_architectures)

    @property
    def owns_hosts(self) -> bool:
        """True if the owning service creates the root providers of hosts, not
        only what is below them.
        """
        return any(map(self.owns, HOST_CLASSES))

    def owns(self, resource_class: str) -> bool:
        """Return whether the owning service creates the providers of that
        resource class.
        """
        return matches_any(resource_class, self.owned_resource_classes)


def names_of(row: Row) -> frozenset[str]:
    """Return the names under which an operator may write a row: its own, its
    image property and its extra spec.
    """
    return frozenset(
        filter(None, (row.name, row.image_property, row.extra_spec))
    )


@lru_cache(maxsize=1024)
def matches_any(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether ``name`` is one of ``patterns`` or matches one that has a
    ``*``.
    """
    return name in patterns or any(
        "*" in pattern and fnmatchcase(name, pattern) for pattern in patterns
    )


def is_offered(architecture: str, emulated: Collection[str]) -> bool:
    """Return whether an architecture is among those to be emulated; a guest of
    i686 has the platform of x86_64.
    """
    return architecture in emulated or architecture in map(
        guest_architecture, emulated
    )


def rows_with(templates: Templates) -> tuple[Row, ...]:
    """Return the vocabulary and the rows of a deployment's configuration
    templates.
    """
    return (*table(), *templates.rows)
