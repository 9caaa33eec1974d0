# SPDX-License-Identifier: Apache-2.0

"""The options of the library as plain values, for the core.

:mod:`os_prefilter.service.conf` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache

import os_traits

from os_prefilter.common.placement_values import HOST_CLASSES
from os_prefilter.common.trait_names import Trait
from os_prefilter.vocabulary import LACKING, table
from os_prefilter.vocabulary.config_templates import BUNDLED, Templates
from os_prefilter.vocabulary.model import Row, UnknownValues


class TraitScope(Enum):
    """Scopes in which a host's traits are required: ``trait_scope``.

    The values of that option in ``[prefilter]``.
    """

    AUTO = "auto"
    ROOT = "root"
    ROOT_AND_UNSUFFIXED = "root_and_unsuffixed"


@dataclass(frozen=True)
class Options:
    """Options of the filters, as :mod:`os_prefilter.service.conf` reads them.

    There is the meaning of each option.
    """

    trait_scope: TraitScope = TraitScope.AUTO
    unknown_values: UnknownValues = UnknownValues.SKIP
    reported_traits: tuple[str, ...] = ()
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
    """True if Nova's own drivers build the guests.

    By properties alone, and so that some do not start.
    """
    wait_for_reports: bool = True
    """True to defer requirements until every compute node has reported."""

    preferred_properties: tuple[str, ...] = ()
    """Rows, image properties or extra specs to prefer, not to require."""
    tenant_aggregate_required: bool = False
    """True to reject requests of a tenant without an aggregate.

    The filter ``tenant_isolation`` does.
    """

    def __hash__(self) -> int:
        # Part of a key that is looked up for each value of each request.
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, each.name) for each in fields(self)))

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows: the vocabulary, and the configuration templates."""
        return rows_with(self.templates)

    def prefers(self, row: Row) -> bool:
        """Return whether the traits of a row are preferred, not required."""
        return bool(self.preferred_properties) and not names_of(
            row
        ).isdisjoint(self.preferred_properties)

    def reports(self, trait: str) -> bool:
        """Return whether hosts report a trait that no driver of Nova reports.

        Filters may require it then.
        """
        return matches_any(trait, self.reported_traits)

    def forbids_lacking(self, trait: str) -> bool:
        """Return whether to forbid the hosts where Nova reports it wrongly."""
        lacking = LACKING.get(Trait(trait))
        return lacking is not None and self.forbids(lacking)

    def forbids(self, trait: Trait) -> bool:
        """Return whether to forbid a trait of hosts where Nova's reports err.

        Without a look at what hosts report, only if they certainly report
        that: Placement refuses a trait that it does not know.
        """
        return self.nova_builds_guests and (
            self.wait_for_reports or self.reports(trait)
        )

    @property
    def owns_hosts(self) -> bool:
        """True if the owning service creates the root providers of hosts.

        Otherwise it creates only providers below them.
        """
        return any(map(self.owns, HOST_CLASSES))

    def owns(self, resource_class: str) -> bool:
        """Return whether the owning service creates providers of a class."""
        return matches_any(resource_class, self.owned_resource_classes)


def names_of(row: Row) -> frozenset[str]:
    """Return the names of a row: its own, its property, its extra spec.

    An operator may write any of them.
    """
    return frozenset((row.name, *row.request_names))


@lru_cache(maxsize=1024)
def matches_any(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a name is one of the patterns, which may have a ``*``."""
    return name in patterns or any(
        "*" in pattern and fnmatchcase(name, pattern) for pattern in patterns
    )


def rows_with(templates: Templates) -> tuple[Row, ...]:
    """Return the vocabulary and the rows of configuration templates."""
    return (*table(), *templates.rows)
