# SPDX-License-Identifier: Apache-2.0

"""Deployment facts that Placement knows: reports, traits, nested providers."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any
from urllib.parse import urlencode

import os_traits
from oslo_config import cfg

from os_prefilter.adapters.placement.client import (
    PlacementClient,
    check_response,
)
from os_prefilter.common.errors import PlacementError, UnknownTraits
from os_prefilter.common.logs import get_logger
from os_prefilter.common.trait_names import CUSTOM_PREFIX, is_trait_name
from os_prefilter.hosts.marker_traits import REPORTED, WANTED, TraitGroup
from os_prefilter.service.deferral import Reports, Unreported, read_reports
from os_prefilter.service.deployment_facts import ReadFact
from os_prefilter.service.known_traits import TraitNames
from os_prefilter.service.shared import scope_of
from os_prefilter.service.traits_to_report import (
    configured_filters,
    traits_to_create,
    wanted_groups,
)

LOG = get_logger(__name__)

# Traits that a reading creates: the first request waits for it. The next
# reading creates others.
_AT_ONCE = 60
# Traits in one query: some front ends take no URL of more than 4,096 bytes,
# and a name may have 255.
_MOST_FORBIDDEN = 14


def placement_facts(
    conf: cfg.ConfigOpts,
    client: PlacementClient,
    compute_nodes: Callable[[Any], Iterable[str]] = lambda _context: (),
) -> dict[str, ReadFact]:
    """Return the facts that Placement knows.

    They are the ``facts`` of ``Service.from_conf``.

    They are made for the filters and traits that ``conf`` enables.

    :param client: of a Placement with microversion 1.22
    :param compute_nodes: as for :class:`NestedProviders`
    :raises ConfigurationError: if an option is wrong, or a filter does not
        load
    """
    filters, options = configured_filters(conf)
    groups = wanted_groups(filters, options)
    needed = traits_to_create(filters, options)
    return {
        "reports": ReadReports(client, groups),
        "known_traits": KnownTraits(client, needed),
        "nested_providers": NestedProviders(client, compute_nodes),
        "owner_coverage": OwnerCoverage(client, options.owner_trait),
    }


def _compute_nodes_without(
    client: PlacementClient, traits: Iterable[str]
) -> Unreported:
    """Return the compute nodes that have none of ``traits``.

    It takes one request where the URL allows it.
    """
    ordered = sorted(traits)
    found: set[str] | None = None
    while True:
        forbidden = ordered[:_MOST_FORBIDDEN]
        del ordered[:_MOST_FORBIDDEN]
        required = [os_traits.COMPUTE_NODE]
        required += [f"!{trait}" for trait in forbidden]
        query = urlencode({"required": ",".join(required)})
        names = (
            each.name
            for each in client.each_provider(query)
            if found is None or each.name in found
        )
        if not ordered:
            return Unreported.of(names)
        # A compute node without all of them is in the result of each query.
        found = set(names)


class ReadReports:
    """The fact ``reports`` of :func:`placement_facts`.

    It takes two requests once every compute node has reported, and before that
    one or two more for each group.

    :param client: of a Placement with microversion 1.22
    :param groups: what the enabled filters may require
    """

    def __init__(
        self, client: PlacementClient, groups: Iterable[TraitGroup]
    ) -> None:
        self._client = client
        self._groups = tuple(groups)
        # Of the keys alone: a key stands for the traits of its group.
        self.scope = scope_of(*(sorted(group.keys) for group in self._groups))

    def __call__(self, _context: Any = None) -> Reports:
        """Ask Placement.

        :raises os_prefilter.common.errors.PlacementError: if Placement fails
            or does not respond.
        """
        in_use = self._client.traits_in_use()
        while True:
            found = read_reports(
                self._groups,
                in_use,
                partial(_compute_nodes_without, self._client),
            )
            again = (
                self._client.traits_in_use() if any(found.values()) else in_use
            )
            if _markers(again) <= _markers(in_use):
                break
            # A host that has reported meanwhile with a new marker is no host
            # that has not reported.
            in_use = again
        return self._of(found.values(), in_use)

    def _of(
        self, unreported: Iterable[Unreported], in_use: frozenset[str]
    ) -> Reports:
        """Return the reports.

        :param unreported: by group, the compute nodes without a report
        """
        by_group = zip(self._groups, unreported, strict=True)
        by_trait: dict[str, Unreported] = {}
        for group, nodes in by_group:
            by_trait.update(dict.fromkeys(group.traits, nodes))
        return Reports(by_trait, os_traits.COMPUTE_NODE in in_use, in_use)

    def to_json(self, value: Reports) -> Any:
        """Return the reports as JSON, for other processes."""
        groups = (
            value.unreported[min(group.traits)] for group in self._groups
        )
        return [
            [[nodes.number, *nodes.examples] for nodes in groups],
            sorted(value.in_use),
        ]

    def from_json(self, document: Any) -> Reports:
        """Return what another process has read."""
        groups, in_use = document
        return self._of(
            [_unreported(*group) for group in groups],
            frozenset(_names(in_use)),
        )


def _unreported(number: int, *examples: str) -> Unreported:
    if type(number) is not int or bool(number) != bool(examples):
        raise TypeError("it is no number of compute nodes with examples")
    return Unreported(number, tuple(map(str, examples)))


def _names(document: Any) -> list[str]:
    """Return names of traits that another process has read."""
    if not (isinstance(document, list) and all(map(is_trait_name, document))):
        raise TypeError("it is no list of traits")
    return document


class _SharedBoolean:
    """Conversion of a boolean fact to JSON and back."""

    scope = ""

    @staticmethod
    def to_json(value: bool) -> bool:  # noqa: FBT001 - what it reads
        """Return the value, for other processes."""
        return value

    @staticmethod
    def from_json(document: Any) -> bool:
        """Return what another process has read."""
        if type(document) is not bool:
            raise TypeError("it is no boolean")
        return document


def _markers(traits: Iterable[str]) -> set[str]:
    return {trait for trait in traits if trait.startswith(REPORTED)}


class OwnerCoverage(_SharedBoolean):
    """The fact ``owner_coverage`` of :func:`placement_facts`.

    It is false while a compute node lacks the trait, while there is no compute
    node (the first one may be old), and while Placement does not know the
    trait.

    :param client: of a Placement with microversion 1.22
    :param owner_trait: the trait that the compute nodes must have
    """

    def __init__(
        self, client: PlacementClient, owner_trait: str = os_traits.OWNER_NOVA
    ) -> None:
        self._client = client
        self._owner_trait = owner_trait
        self.scope = owner_trait

    def __call__(self, _context: Any = None) -> bool:
        """Return whether all compute nodes, at least one, have the trait.

        It takes two short requests once all have it.

        :raises os_prefilter.common.errors.PlacementError: if Placement fails
            or does not respond.
        """
        try:
            if _compute_nodes_without(self._client, (self._owner_trait,)):
                return False
        except UnknownTraits:
            return False
        # Not the compute nodes themselves: this response is short for any
        # fleet.
        return bool(
            self._client.get_list(
                f"/traits?associated=true&name=in:{os_traits.COMPUTE_NODE}",
                "traits",
            )
        )


class KnownTraits:
    """The fact ``known_traits`` of :func:`placement_facts`.

    It takes one request, and one more for each of ``needed`` that is missing.

    :param client: of a Placement with microversion 1.6
    :param needed: traits that filters may require; the ``CUSTOM_`` ones are
        created before a query names one, as it may be that no host has
        reported yet
    """

    def __init__(
        self, client: PlacementClient, needed: Iterable[str] = ()
    ) -> None:
        self._client = client
        self._needed = frozenset(
            trait for trait in needed if trait.startswith(CUSTOM_PREFIX)
        )
        self._has_warned = False
        self.scope = scope_of(*sorted(self._needed))

    def __call__(self, _context: Any = None) -> TraitNames:
        """Return the names of all traits.

        :raises os_prefilter.common.errors.PlacementError: if Placement fails
            or does not respond.
        """
        found = set(self._client.traits())
        with check_response("GET /traits"):
            # Each Placement has it. Where it is missing, the list is not the
            # whole one.
            if os_traits.COMPUTE_NODE not in found:
                raise ValueError(
                    f"the trait {os_traits.COMPUTE_NODE} is not in it"
                )
        # First what is wanted: the agents can begin.
        missing = sorted(
            self._needed - found,
            key=lambda trait: (not trait.startswith(WANTED), trait),
        )[:_AT_ONCE]
        try:
            for trait in missing:
                self._client.create_trait(trait)
                found.add(trait)
            if missing:
                LOG.info(
                    "Created in Placement, as request filters may require"
                    " them: %s.",
                    ", ".join(missing),
                )
            self._has_warned = False
        except PlacementError as error:
            # Requirements for what is missing are left out, with a note.
            if not self._has_warned:
                LOG.warning(
                    "Traits that request filters may require cannot be created"
                    " in Placement: %s",
                    error,
                )
            self._has_warned = True
        return TraitNames(found)

    def to_json(self, value: TraitNames) -> list[str]:
        """Return the names, for other processes."""
        return sorted(value)

    def from_json(self, document: Any) -> TraitNames:
        """Return the names that another process has read."""
        names = TraitNames(_names(document))
        if os_traits.COMPUTE_NODE not in names:
            raise ValueError("it has not all traits")
        return names


class NestedProviders(_SharedBoolean):
    """The fact ``nested_providers`` of :func:`placement_facts`.

    Whether any provider is below another one, or shares its resources:
    Placement finds out the same for each query, and evaluates it in another
    way then (placement/objects/research_context.py and
    allocation_candidate.py, read in 9.0.0 and 16.0.0). Its API cannot be asked
    that. These queries are exact as long as no nested provider has the trait
    ``COMPUTE_NODE``, which Nova gives to the root providers of hosts only.

    It takes two short requests. The second lists the providers that are not
    compute nodes, or looks for the nested provider that was found before. Only
    until one was found may that list be long: 800 bytes for each provider. It
    is not requested if one of ``compute_nodes`` has a nested provider.

    :param client: of a Placement with microversion 1.22
    :param compute_nodes: ``(context) -> UUIDs`` of some compute nodes; each
        takes one more request
    """

    def __init__(
        self,
        client: PlacementClient,
        compute_nodes: Callable[[Any], Iterable[str]] = lambda _context: (),
    ) -> None:
        self._client = client
        self._compute_nodes = compute_nodes
        self._found = ""

    def __call__(self, context: Any = None) -> bool:
        """Ask Placement.

        :raises os_prefilter.common.errors.PlacementError: if Placement fails
            or does not respond.
        """
        shares = os_traits.MISC_SHARES_VIA_AGGREGATE
        sharing = f"/traits?associated=true&name=in:{shares}"
        return bool(self._client.get_list(sharing, "traits")) or any(
            map(self._finds, self._queries(context))
        )

    def _queries(self, context: Any) -> Iterator[str]:
        """Yield queries for providers, those with short responses first."""
        if self._found:
            yield f"uuid={self._found}"
        for uuid in self._compute_nodes(context):
            yield f"in_tree={uuid}"
        yield urlencode({"required": f"!{os_traits.COMPUTE_NODE}"})

    def _finds(self, query: str) -> bool:
        """Return whether a query finds a nested provider; keep its UUID."""
        providers = self._client.providers(query)
        self._found = next(
            (each.uuid for each in providers if each.parent), ""
        )
        return bool(self._found)
