# SPDX-License-Identifier: Apache-2.0

"""Reconcile the traits of a host's resource providers with a goal.

The goal comes from :mod:`os_prefilter.hosts.desired_traits`.

All traits of a provider are written at once, with the generation of the read
that they come from: a writer that is killed, or overtaken by another, leaves
the old set or the new one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from enum import Enum
from math import inf
from random import uniform
from typing import NamedTuple

import os_traits

from os_prefilter.adapters.placement.client import (
    PlacementClient,
    ResourceProvider,
)
from os_prefilter.common import errors
from os_prefilter.common.logs import get_logger
from os_prefilter.common.placement_values import is_hyphenated_uuid
from os_prefilter.common.quoting import escape_line, quote
from os_prefilter.common.trait_names import CUSTOM_PREFIX
from os_prefilter.hosts import desired_traits
from os_prefilter.hosts.marker_traits import ON_PROVIDERS, REPORTED, keys_in
from os_prefilter.vocabulary.options import Options

LOG = get_logger(__name__)

ATTEMPTS = 10
"""Number of attempts while other services write at the same time."""

SECOND_LOOK = 10.0
"""Seconds before a single report looks at new providers again."""

RECHECK_INTERVAL = 3600.0
"""Seconds after which all traits are read again.

It is done even if no generation has changed.

A provider that was deleted and created again with its UUID counts its
generations from 0, and may be at the old one.
"""

UNWANTED_AFTER = 3600.0
"""Seconds for which a trait is still reported after it is no longer wanted.

They begin when that is first seen. If the marker was removed by mistake, a
scheduler that wants the trait creates it again within ``facts_interval``.
"""

# Seconds. The waits are random, up to a bound that doubles each time.
_FIRST_BOUND = 0.05
_LAST_BOUND = 2.0


class _Ownership(Enum):
    """Whether a provider gets the owner trait."""

    OWNED = "owned"
    BY_NOVA = "by Nova"
    """A PCI device of Nova's.

    Before version 34, nova-compute replaces its traits by its own.
    """
    NEW = "new"
    """Looks like the owner's in this round.

    It gets the trait if the next round sees the same: other services, too,
    write the inventory first and their owner trait later.
    """
    FOREIGN = "foreign"
    NOT_RECOGNIZED = "not recognized"


class _Verdict(NamedTuple):
    """Traits that a provider has and should have for a goal."""

    provider: ResourceProvider
    """With the generation at which it has the traits ``present``."""
    goal: desired_traits.Goal
    below_foreign: bool
    """Whether a provider above it belongs to another owner."""
    ownership: _Ownership
    present: frozenset[str]
    wanted: frozenset[str]


class ProviderTraits:
    """Traits of the resource providers of one host.

    Verdicts are cached: a report that finds nothing changed, here or there,
    costs one request.

    :param provider: the name or the UUID of the root provider. A name is the
        host's: a provider that is renamed is left alone, and the one that has
        this name now is looked up
    :param sleep: waits a number of seconds between two attempts
    :param clock: returns seconds
    """

    def __init__(
        self,
        client: PlacementClient,
        provider: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._name = provider
        self._uuid = provider.lower() if is_hyphenated_uuid(provider) else ""
        self._sleep = sleep
        self._clock = clock
        self._recheck_due = -inf
        # Until when each key is wanted: inf while it is. Not when it was seen
        # to be wanted last: after an hour without Placement, what is no longer
        # wanted would go at once.
        self._wanted_until: dict[str, float] = {}
        # What the report on the root provider covers, and what of it is there,
        # as this agent left it.
        self._left = frozenset[str](), frozenset[str]()
        # Of the providers whose traits are as they should be.
        self._verdicts: dict[str, _Verdict] = {}
        # UUIDs of the providers below the root that looked like the owner's in
        # this round, and in the one before.
        self._looked_owned: set[str] = set()
        self._looked_owned_before: set[str] = set()
        # The CUSTOM_ traits that Placement has.
        self._known: frozenset[str] = frozenset()

    def sync(
        self, goal: desired_traits.Goal, *, dry_run: bool = False
    ) -> list[desired_traits.TraitChange]:
        """Write what ``goal`` requires to Placement; return the changes.

        :param dry_run: return the changes without making them

        :raises UnknownProvider: there is no such provider
        :raises GenerationConflict: others changed a provider in each attempt
        :raises UnknownTraits: Placement lacks a standard trait
        :raises ConfigurationError: the goal has an invalid trait, or the
            provider is not that of a host
        :raises PlacementError: Placement does not respond, or refuses
        """
        desired_traits.check_traits(goal.traits)
        self._looked_owned_before = self._looked_owned
        self._looked_owned = set()
        now = self._clock()
        ends = now + UNWANTED_AFTER
        self._wanted_until = {
            key: min(until, ends) for key, until in self._wanted_until.items()
        }
        self._wanted_until.update(dict.fromkeys(goal.wanted or (), inf))
        if now >= self._recheck_due:
            self._verdicts.clear()
            self._recheck_due = now + RECHECK_INTERVAL
        changes: list[desired_traits.TraitChange] = []
        outdated: errors.PlacementError
        for attempt in range(ATTEMPTS):
            if attempt:
                # Random: writers that met once would meet again after equal
                # waits.
                bound = min(_FIRST_BOUND * 2.0 ** (attempt - 1), _LAST_BOUND)
                self._sleep(uniform(0, bound))  # noqa: S311 - no secret
            tree = self._tree()
            try:
                self._reconcile(tree, goal, changes, dry_run=dry_run)
            except (
                errors.GenerationConflict,
                errors.UnknownProvider,
            ) as error:
                outdated = error
            except errors.UnknownTraits as error:
                # A CUSTOM_ trait was deleted after it was seen; a standard one
                # does not come by waiting.
                if not any(
                    trait.startswith(CUSTOM_PREFIX) for trait in error.traits
                ):
                    raise
                self._known = frozenset()
                outdated = error
            else:
                return changes
        if isinstance(outdated, errors.GenerationConflict):
            raise errors.GenerationConflict(self._name, ATTEMPTS) from outdated
        raise outdated

    def sync_once(
        self, goal: desired_traits.Goal, *, dry_run: bool = False
    ) -> list[desired_traits.TraitChange]:
        """Sync for a report without later rounds.

        Where the first round sees new providers, a second one follows.

        :raises PlacementError, ConfigurationError: as :meth:`sync`
        """
        changes = self.sync(goal, dry_run=dry_run)
        if self.has_new_providers and not dry_run:
            self._sleep(SECOND_LOOK)
            changes += self.sync(goal)
        return changes

    @property
    def has_new_providers(self) -> bool:
        """Whether the last round saw new providers.

        They get the owner trait in the next one, if they look the same.
        """
        return not self._looked_owned <= self._looked_owned_before

    def _tree(self) -> list[ResourceProvider]:
        """Return the root provider, and those below it after their parents."""
        tree = self._read_tree() if self._uuid else []
        if not tree:
            # One that was deleted may come back with its UUID, and other
            # traits.
            self._verdicts.clear()
            self._left = frozenset(), frozenset()
            if not is_hyphenated_uuid(self._name):
                # Not looked up yet, deleted, or renamed: another provider may
                # have the name by now.
                self._uuid = self._client.provider_named(self._name).uuid
                tree = self._read_tree()
        if not tree:
            raise errors.UnknownProvider(self._name)
        if tree[0].parent:
            raise errors.ConfigurationError(
                f"The resource provider {quote(self._name, 200)} is not that"
                " of a host: it is below another one. Name the root provider"
                " of the host."
            )
        return tree

    def _read_tree(self) -> list[ResourceProvider]:
        """Return the tree of the host's provider.

        It is empty if the provider is gone, or has another name now.
        """
        providers = self._client.providers(f"in_tree={self._uuid}")
        any_name = is_hyphenated_uuid(self._name)
        tree = [
            each
            for each in providers
            if each.uuid == self._uuid
            and (any_name or each.name == self._name)
        ]
        for parent in tree:
            # Each once, whatever the response says of parents.
            tree += [
                each
                for each in providers
                if each.parent == parent.uuid and each not in tree
            ]
        return tree

    def _reconcile(
        self,
        tree: Sequence[ResourceProvider],
        goal: desired_traits.Goal,
        changes: list[desired_traits.TraitChange],
        *,
        dry_run: bool,
    ) -> None:
        writes = self._writes(tree, goal, dry_run=dry_run)
        needed = set[str]()
        for write in writes:
            for trait in write.wanted - write.present:
                if trait.startswith(CUSTOM_PREFIX):
                    needed.add(trait)
        if not needed <= self._known:
            self._known = self._client.custom_traits()
        for trait in sorted(needed - self._known):
            if not dry_run:
                self._client.create_trait(trait)
                self._known |= {trait}
            changes.append(desired_traits.TraitChange("", trait, "create"))
        # The root last, as Nova does: a reader that sees the owner's trait
        # there finds it on all below.
        for write in reversed(writes):
            provider = write.provider
            if not dry_run:
                generation = self._client.set_provider_traits(
                    provider.uuid, provider.generation, write.wanted
                )
                written = provider._replace(generation=generation)
                self._remember(
                    write._replace(provider=written, present=write.wanted)
                )
            changes += desired_traits.changes_between(
                provider.name, write.present, write.wanted
            )

    def _writes(
        self,
        tree: Sequence[ResourceProvider],
        goal: desired_traits.Goal,
        *,
        dry_run: bool,
    ) -> list[_Verdict]:
        """Return the verdicts of the providers whose traits must change."""
        uuids = {provider.uuid for provider in tree}
        self._verdicts = {
            uuid: verdict
            for uuid, verdict in self._verdicts.items()
            if uuid in uuids
        }
        found: dict[str, _Verdict] = {}
        for provider in tree:
            above = found.get(provider.parent)
            if provider.parent and (
                above is None or above.ownership is _Ownership.NOT_RECOGNIZED
            ):
                continue
            below_foreign = (
                above is not None and above.ownership is _Ownership.FOREIGN
            )
            verdict = self._verdicts.get(provider.uuid)
            if verdict is None or verdict[:3] != (
                provider,
                goal,
                below_foreign,
            ):
                verdict = self._judge(
                    provider, goal, below_foreign=below_foreign
                )
            found[provider.uuid] = verdict
        if not dry_run and any(
            verdict.ownership is _Ownership.NEW for verdict in found.values()
        ):
            found = {
                uuid: _postponed(verdict) for uuid, verdict in found.items()
            }
        writes = []
        for verdict in found.values():
            if verdict.wanted != verdict.present:
                writes.append(verdict)
            else:
                self._remember(verdict)
        return writes

    def _remember(self, verdict: _Verdict) -> None:
        """Keep the verdict on a provider that needs no change."""
        provider, present = verdict.provider, verdict.present
        if verdict.ownership is not _Ownership.NEW:
            self._verdicts[provider.uuid] = verdict
        if not provider.parent:
            markers = {
                trait for trait in present if trait.startswith(ON_PROVIDERS)
            }
            covered = markers.union(
                *(
                    verdict.goal.groups.get(key, ())
                    for key in keys_in(REPORTED, markers)
                )
            )
            self._left = frozenset(covered), present & covered

    def _judge(
        self,
        provider: ResourceProvider,
        goal: desired_traits.Goal,
        *,
        below_foreign: bool,
    ) -> _Verdict:
        generation, present = self._client.provider_traits(provider.uuid)
        wanted = (
            present if provider.parent else self._with_report(present, goal)
        )
        ownership = _Ownership.NOT_RECOGNIZED
        if goal.owner:
            ownership = (
                _Ownership.FOREIGN
                if below_foreign
                else self._ownership(provider, present, goal.owner)
            )
            if ownership in (_Ownership.OWNED, _Ownership.NEW):
                wanted |= {goal.owner.owner_trait}
            elif ownership is _Ownership.FOREIGN:
                wanted -= {goal.owner.owner_trait}
        provider = provider._replace(generation=generation)
        return _Verdict(
            provider, goal, below_foreign, ownership, present, wanted
        )

    def _ownership(
        self,
        provider: ResourceProvider,
        present: frozenset[str],
        owner: Options,
    ) -> _Ownership:
        if desired_traits.is_foreign(
            present, owner, uuid=provider.uuid, name=provider.name
        ):
            # A foreign root is left alone, with all below it.
            return (
                _Ownership.FOREIGN
                if provider.parent
                else _Ownership.NOT_RECOGNIZED
            )
        if not provider.parent or owner.owner_trait in present:
            return _Ownership.OWNED
        if os_traits.COMPUTE_MANAGED_PCI_DEVICE in present:
            return _Ownership.BY_NOVA
        # Read after the traits: if it changes in between, the write is
        # refused.
        if not desired_traits.is_recognized(
            self._client.provider_resource_classes(provider.uuid), owner
        ):
            return _Ownership.NOT_RECOGNIZED
        self._looked_owned.add(provider.uuid)
        return (
            _Ownership.OWNED
            if provider.uuid in self._looked_owned_before
            else _Ownership.NEW
        )

    def _with_report(
        self, present: frozenset[str], goal: desired_traits.Goal
    ) -> frozenset[str]:
        """Return the traits of the root provider after the change."""
        if present & self._left[0] != self._left[1]:
            LOG.warning(
                "Another program has changed the reported traits of the"
                " resource provider %s: run one for a host.",
                escape_line(self._name),
            )
        # Of a write that fails it is not known whether it was made.
        self._left = frozenset(), frozenset()
        # What an earlier agent has reported was wanted a moment ago, as far as
        # this one knows.
        now = self._clock()
        for key in keys_in(REPORTED, present):
            self._wanted_until.setdefault(key, now + UNWANTED_AFTER)
        still_wanted = [
            key for key, until in self._wanted_until.items() if until > now
        ]
        return desired_traits.with_traits(present, goal, still_wanted)


def _postponed(verdict: _Verdict) -> _Verdict:
    """Return the verdict of a round that has seen new providers.

    These get the owner trait in the next round.

    So does a root without it: schedulers take the trait on the root for a sign
    that all below it have it.
    """
    owner, is_root = verdict.goal.owner, not verdict.provider.parent
    if (
        owner is None
        or owner.owner_trait in verdict.present
        or not (is_root or verdict.ownership is _Ownership.NEW)
    ):
        return verdict
    return verdict._replace(
        wanted=verdict.wanted - {owner.owner_trait}, ownership=_Ownership.NEW
    )
