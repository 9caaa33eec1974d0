# SPDX-License-Identifier: Apache-2.0

"""Deployment facts that Placement knows: reports, traits, nested providers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

import os_traits

from os_prefilter.adapters.placement.client import (
    PlacementClient,
    check_response,
)
from os_prefilter.adapters.placement.reasons import ReasonReader
from os_prefilter.common.errors import UnknownTraits
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import describe_error
from os_prefilter.common.threads import start_thread
from os_prefilter.common.trait_names import is_trait_name
from os_prefilter.hosts.marker_traits import REPORTED, TraitGroup
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.service.deferral import Reports, Unreported, read_reports
from os_prefilter.service.known_traits import TraitNames
from os_prefilter.service.shared import scope_of
from os_prefilter.service.traits_to_report import (
    traits_to_create,
    wanted_groups,
)
from os_prefilter.vocabulary.options import Options

LOG = get_logger(__name__)

# Traits in one query: some front ends take no URL of more than 4,096 bytes,
# and a name may have 255.
_MOST_FORBIDDEN = 14
# Seconds until traits that could not be created are tried again.
_CREATE_AGAIN = 60.0


def _no_nodes(_context: Any) -> Iterable[str]:
    return ()


class CloudPlacement:
    """The Placement of a cloud, for ``Service.from_conf(placement=...)``.

    :param client: with the microversion of the scheduler's own queries, at
        least 1.22
    :param compute_nodes: as for :class:`PlacementFacts`
    :param create: ``(names)``: creates traits in the background; without it,
        the client does
    :param delay: seconds until it begins; a service that forks its workers
        does so before: a thread that was at work would leave them its locks
    """

    def __init__(
        self,
        client: PlacementClient,
        compute_nodes: Callable[[Any], Iterable[str]] = _no_nodes,
        *,
        create: Callable[[Collection[str]], Collection[str]] | None = None,
        delay: float = 0.0,
    ) -> None:
        self.client = client
        self.reasons = ReasonReader(client, compute_nodes)
        self.ensure_traits = client.ensure_traits
        self._compute_nodes = compute_nodes
        self._create = create or client.ensure_traits
        self._delay = delay
        self._stopped = threading.Event()
        # The process in which a thread creates traits.
        self._creator = 0

    def facts(
        self,
        names: Collection[str],
        filters: Collection[LoadedFilter],
        options: Options,
    ) -> PlacementFacts:
        """Return what reads the facts of these names.

        :param filters: the enabled ones
        """
        return PlacementFacts(
            self.client,
            names,
            wanted_groups(filters, options),
            options.owner_trait,
            self._compute_nodes,
            needed=traits_to_create(filters, options),
            create=self.create_traits,
        )

    def create_traits(self, names: Collection[str]) -> None:
        """Create traits in the background, until Placement has them.

        Requests do not wait for that: a hundred traits take five seconds. It
        is done once at a time.
        """
        # After a fork, the thread of the parent is in the parent only.
        if names and self._creator != os.getpid():
            self._creator = os.getpid()
            # Where no thread can be started, a later reading tries again.
            with suppress(RuntimeError):
                start_thread(
                    partial(self._keep_creating, names), "wanted traits"
                )
                return
            self._creator = 0

    def stop(self) -> None:
        """Create no more traits."""
        self._stopped.set()

    def _keep_creating(self, names: Collection[str]) -> None:
        pause = self._delay
        has_warned = False
        try:
            while not self._stopped.wait(pause):
                pause = _CREATE_AGAIN
                try:
                    created = self._create(names)
                except Exception as error:  # noqa: BLE001 - of any plugin that authenticates; requests go on without
                    # Requirements for what is missing are left out, with a
                    # note.
                    if not has_warned:
                        LOG.warning(
                            "Traits that request filters may require cannot be"
                            " created in Placement yet: %s",
                            describe_error(error),
                        )
                    has_warned = True
                    continue
                if created:
                    LOG.info(
                        "Created in Placement, as request filters may require"
                        " them: %s.",
                        ", ".join(created),
                    )
                return
        finally:
            self._creator = 0


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


class PlacementFacts:
    """Reads the facts that Placement knows as one document, by name.

    Each fact has a method of its name.

    :param client: of a Placement with microversion 1.22
    :param names: of the facts in the document
    :param groups: what the enabled filters may require
    :param owner_trait: the trait that the compute nodes of the owner have
    :param compute_nodes: ``(context) -> UUIDs`` of some compute nodes; each
        takes one more request
    :param needed: traits that filters may require
    :param create: called with the traits that do not exist
    """

    def __init__(  # noqa: PLR0913 - all but the first have defaults
        self,
        client: PlacementClient,
        names: Iterable[str] = (),
        groups: Iterable[TraitGroup] = (),
        owner_trait: str = os_traits.OWNER_NOVA,
        compute_nodes: Callable[[Any], Iterable[str]] = _no_nodes,
        *,
        needed: Collection[str] = (),
        create: Callable[[Collection[str]], object] = lambda _names: None,
    ) -> None:
        self.names = sorted(names)
        self._client = client
        self._groups = tuple(groups)
        self._owner_trait = owner_trait
        self._compute_nodes = compute_nodes
        self._needed = frozenset(needed)
        self._create = create
        self._nested = ""
        self._latest: tuple[Any, Mapping[str, Any]] = (None, {})
        # Of the groups, the keys: a key stands for the traits of its group.
        self.scope = scope_of(
            self.names,
            [sorted(group.keys) for group in self._groups],
            owner_trait,
            sorted(self._needed),
        )
        """What the document depends on."""

    def __call__(self, context: Any = None) -> dict[str, Any]:
        """Return the facts as JSON, for this process and others.

        :raises os_prefilter.common.errors.PlacementError: if Placement fails
            or does not respond, as each method does
        """
        document = {}
        for name in self.names:
            value = getattr(self, name)(context)
            if isinstance(value, Reports):
                groups = [
                    value.unreported[min(group.traits)]
                    for group in self._groups
                ]
                unreported = [[each.number, *each.examples] for each in groups]
                value = [unreported, sorted(value.in_use)]
            elif isinstance(value, TraitNames):
                value = sorted(value)
            document[name] = value
        return document

    def values(self, document: Any) -> Mapping[str, Any]:
        """Return the facts of a document by name.

        The same object where it is the same document: a new one would empty
        the cache of decisions.

        :raises Exception: any, if it is no such document
        """
        if document != self._latest[0]:
            values = {}
            for name in self.names:
                values[name] = self._value(name, document[name])
            self._latest = document, MappingProxyType(values)
        return self._latest[1]

    def _value(self, name: str, document: Any) -> Any:
        if name == "reports":
            unreported, in_use = document
            return self._reports_of(
                [_unreported(*group) for group in unreported],
                frozenset(_trait_names(in_use)),
            )
        if name == "known_traits":
            traits = TraitNames(_trait_names(document))
            if os_traits.COMPUTE_NODE not in traits:
                raise ValueError("it has not all traits")
            return traits
        if type(document) is not bool:
            raise TypeError("it is no boolean")
        return document

    def reports(self, _context: Any = None) -> Reports:
        """Return the compute nodes that have not reported, by trait.

        It takes two requests once every compute node has reported, and before
        that one or two more for each group.
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
        return self._reports_of(found.values(), in_use)

    def _reports_of(
        self, unreported: Iterable[Unreported], in_use: frozenset[str]
    ) -> Reports:
        """Return the reports.

        :param unreported: by group, the compute nodes without a report
        :raises ValueError: if there are not as many as groups
        """
        by_group = list(unreported)
        if len(by_group) != len(self._groups):
            raise ValueError(f"{len(by_group)} groups in place of ours")
        by_trait: dict[str, Unreported] = {}
        for group, nodes in zip(self._groups, by_group):
            by_trait.update(dict.fromkeys(group.traits, nodes))
        return Reports(by_trait, os_traits.COMPUTE_NODE in in_use, in_use)

    def owner_is_reported(self, _context: Any = None) -> bool:
        """Return whether all compute nodes, at least one, have the trait.

        It is false while a compute node lacks the trait, while there is no
        compute node (the first one may be old), and while Placement does not
        know the trait. It takes two short requests once all have it.
        """
        try:
            if _compute_nodes_without(self._client, (self._owner_trait,)):
                return False
        except UnknownTraits:
            return False
        # Not the compute nodes themselves: this response is short for any
        # fleet.
        return self._is_in_use(os_traits.COMPUTE_NODE)

    def known_traits(self, _context: Any = None) -> TraitNames:
        """Return the names of all traits; begin to create missing ones.

        No host may have reported yet, and Placement refuses a query with a
        trait that it does not know. It takes one request.
        """
        found = TraitNames(self._client.traits())
        with check_response("GET /traits"):
            # Each Placement has it. Where it is missing, the list is not the
            # whole one.
            if os_traits.COMPUTE_NODE not in found:
                raise ValueError(
                    f"the trait {os_traits.COMPUTE_NODE} is not in it"
                )
        self._create(self._needed - found)
        return found

    def nested_providers(self, context: Any = None) -> bool:
        """Return whether any provider is below another, or shares resources.

        Placement finds out the same for each query, and evaluates it in
        another way then (placement/objects/research_context.py and
        allocation_candidate.py, read in 9.0.0 and 16.0.0). Its API cannot be
        asked that. These queries are exact as long as no nested provider has
        the trait ``COMPUTE_NODE``, which Nova gives to the root providers of
        hosts only.

        It takes two short requests. The second lists the providers that are
        not compute nodes, or looks for the nested provider that was found
        before. Only until one was found may that list be long: 800 bytes for
        each provider. It is not requested if one of the given compute nodes
        has a nested provider.
        """
        shares = os_traits.MISC_SHARES_VIA_AGGREGATE
        return self._is_in_use(shares) or any(
            map(self._finds_nested, self._queries(context))
        )

    def _queries(self, context: Any) -> Iterator[str]:
        """Yield queries for providers, those with short responses first."""
        if self._nested:
            yield f"uuid={self._nested}"
        for uuid in self._compute_nodes(context):
            yield f"in_tree={uuid}"
        yield urlencode({"required": f"!{os_traits.COMPUTE_NODE}"})

    def _finds_nested(self, query: str) -> bool:
        """Return whether a query finds a nested provider; keep its UUID."""
        providers = self._client.providers(query)
        self._nested = next(
            (each.uuid for each in providers if each.parent), ""
        )
        return bool(self._nested)

    def _is_in_use(self, trait: str) -> bool:
        url = f"/traits?associated=true&name=in:{trait}"
        return bool(self._client.get_list(url, "traits"))


def _unreported(number: int, *examples: str) -> Unreported:
    if type(number) is not int or bool(number) != bool(examples):
        raise TypeError("it is no number of compute nodes with examples")
    return Unreported(number, tuple(map(str, examples)))


def _trait_names(document: Any) -> list[str]:
    """Return names of traits that another process has read."""
    if not (isinstance(document, list) and all(map(is_trait_name, document))):
        raise TypeError("it is no list of traits")
    return document


def _markers(traits: Iterable[str]) -> set[str]:
    return {trait for trait in traits if trait.startswith(REPORTED)}
