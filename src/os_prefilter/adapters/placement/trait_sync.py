"""Reconcile the traits of a host's resource providers with the goal of :mod:`os_prefilter.hosts.desired_traits`.

All traits of a provider are written at once, with the generation of the read that they come from: a writer that is
killed, or overtaken by another, leaves the old set or the new one.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from os_prefilter.adapters.placement.client import PlacementClient, ResourceProvider
from os_prefilter.common.errors import (
    ConfigurationError,
    GenerationConflict,
    PlacementError,
    UnknownProvider,
    UnknownTraits,
)
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import join_first_names, quote
from os_prefilter.common.trait_names import CUSTOM_PREFIX
from os_prefilter.common.uuids import is_hyphenated_uuid
from os_prefilter.hosts.desired_traits import (
    Goal,
    TraitChange,
    changes_between,
    check_traits,
    is_foreign,
    is_recognized,
    with_traits,
)
from os_prefilter.vocabulary.model import is_reported_marker
from os_prefilter.vocabulary.options import Options

LOG = get_logger(__name__)

ATTEMPTS = 10
"""How often a report is tried when others write at the same time."""

RECHECK_INTERVAL = 3600.0
"""Seconds after which all traits are read again although no generation has changed.

A provider that was deleted and created again with its UUID counts its generations from 0, and may be at the old one.
"""

# Seconds. The waits are random, up to a bound that doubles each time.
_FIRST_BOUND = 0.05
_LAST_BOUND = 2.0
_SHOWN = 10


class _Verdict(NamedTuple):
    """The traits that a provider has and should have for a goal."""

    provider: ResourceProvider
    """With the generation at which it has the traits ``present``."""
    goal: Goal
    owned: bool
    present: frozenset[str]
    wanted: frozenset[str]


class _OutdatedError(Exception):
    """Something that was read has changed since, and a fresh read may help; ``error`` is raised if it does not."""

    def __init__(self, error: PlacementError) -> None:
        super().__init__(str(error))
        self.error = error


class HostTraits:
    """The traits of the resource providers of one host.

    Verdicts are cached: a report that finds nothing changed, here or there, costs one request.

    :param provider: the name or the UUID of the root provider. A name is the host's: a provider that is renamed is left
        alone, and the one that has this name now is looked up
    :param attempts: how often a report is tried when others write at the same time
    :param sleep: waits a number of seconds between two attempts
    :param clock: a monotonic clock, in seconds
    """

    def __init__(
        self,
        client: PlacementClient,
        provider: str,
        *,
        attempts: int = ATTEMPTS,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._name = provider
        self._uuid = provider.lower() if is_hyphenated_uuid(provider) else None
        self._attempts = attempts
        self._sleep = sleep
        self._clock = clock
        self._recheck_due = clock() + RECHECK_INTERVAL
        # Of the providers whose traits are as they should be.
        self._verdicts: dict[str, _Verdict] = {}
        self._known: frozenset[str] | None = None
        # The marker that the root had after the last report, and those that came in its place.
        self._marker: frozenset[str] = frozenset()
        self._foreign: set[str] = set()

    def sync(self, goal: Goal, *, dry_run: bool = False) -> list[TraitChange]:
        """Write what ``goal`` requires to Placement; return the changes, with ``dry_run`` without making them.

        :raises UnknownProvider: there is no such provider
        :raises GenerationConflict: others changed a provider in each attempt
        :raises UnknownTraits: Placement lacks a standard trait
        :raises ConfigurationError: the goal has an invalid trait, or the provider is not that of a host
        :raises PlacementError: Placement does not answer, or refuses
        """
        check_traits((*goal.traits, *goal.known))
        if self._clock() >= self._recheck_due:
            self._verdicts.clear()
            self._recheck_due = self._clock() + RECHECK_INTERVAL
        changes: list[TraitChange] = []
        retrying = Retrying(
            retry=retry_if_exception_type(_OutdatedError),
            stop=stop_after_attempt(self._attempts),
            wait=wait_random_exponential(multiplier=_FIRST_BOUND, max=_LAST_BOUND),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            retrying(self._attempt, goal, changes, dry_run=dry_run)
        except _OutdatedError as outdated:
            if isinstance(outdated.error, GenerationConflict):
                raise GenerationConflict(self._name, self._attempts) from outdated.error
            raise outdated.error from outdated.error.__cause__
        return changes

    def _attempt(self, goal: Goal, changes: list[TraitChange], *, dry_run: bool) -> None:
        tree = self._tree()
        try:
            writes = self._writes(tree, goal)
            for trait in self._missing(goal, writes):
                if not dry_run:
                    self._client.create_trait(trait)
                    self._known = (self._known or frozenset()) | {trait}
                changes.append(TraitChange("", trait, "create"))
            # The root last, as Nova does: a reader that sees the owner's trait there finds it on all below.
            for write in reversed(writes):
                if not dry_run:
                    self._write(write)
                changes += changes_between(write.provider.name, write.present, write.wanted)
        except (GenerationConflict, UnknownProvider) as error:
            raise _OutdatedError(error) from error
        except UnknownTraits as error:
            # A CUSTOM_ trait was deleted after it was seen; a standard one does not come by waiting.
            if not any(trait.startswith(CUSTOM_PREFIX) for trait in error.traits):
                raise
            self._known = None
            raise _OutdatedError(error) from error

    def _tree(self) -> list[ResourceProvider]:
        """Return the root provider, and those below it after their parents."""
        providers = self._client.providers(f"in_tree={self._uuid}") if self._uuid else ()
        found = list(filter(self._is_host, providers))
        if not found:
            # One that was deleted may come back with its UUID, and other traits.
            self._verdicts.clear()
        if not found and not is_hyphenated_uuid(self._name):
            # Not looked up yet, deleted, or renamed: another provider may have the name by now.
            self._uuid = None
            self._uuid = self._client.provider_named(self._name).uuid
            providers = self._client.providers(f"in_tree={self._uuid}")
            found = list(filter(self._is_host, providers))
        if not found:
            raise UnknownProvider(self._name)
        if found[0].parent:
            raise ConfigurationError(
                f"The resource provider {quote(self._name, 200)} is not that of a host: it is below another one. Name "
                "the root provider of the host."
            )
        for parent in found:
            # Each once, whatever the response says of parents.
            found += [each for each in providers if each.parent == parent.uuid and each not in found]
        return found

    def _is_host(self, provider: ResourceProvider) -> bool:
        return provider.uuid == self._uuid and (provider.name == self._name or is_hyphenated_uuid(self._name))

    def _writes(self, tree: Sequence[ResourceProvider], goal: Goal) -> list[_Verdict]:
        """Return the verdicts of the providers whose traits are not what they should be."""
        present = {provider.uuid for provider in tree}
        self._verdicts = {uuid: verdict for uuid, verdict in self._verdicts.items() if uuid in present}
        owned = set[str]()
        writes = []
        for provider in tree:
            if provider.parent and provider.parent not in owned:
                continue
            verdict = self._verdicts.get(provider.uuid)
            if verdict is None or (verdict.provider, verdict.goal) != (provider, goal):
                verdict = self._judge(provider, goal)
                if verdict.wanted != verdict.present:
                    writes.append(verdict)
                    self._check_marker(verdict)
                else:
                    self._done(verdict)
            if verdict.owned:
                owned.add(provider.uuid)
        return writes

    def _judge(self, provider: ResourceProvider, goal: Goal) -> _Verdict:
        generation, present = self._client.provider_traits(provider.uuid)
        wanted = present if provider.parent else with_traits(present, goal.traits, goal.spare)
        is_owned = goal.owner is not None and self._is_owned(provider, present, goal.owner)
        if goal.owner and is_owned:
            wanted |= {goal.owner.owner_trait}
        return _Verdict(provider._replace(generation=generation), goal, is_owned, present, wanted)

    def _is_owned(self, provider: ResourceProvider, traits: frozenset[str], owner: Options) -> bool:
        if is_foreign(traits, owner):
            return False
        if not provider.parent or owner.owner_trait in traits:
            return True
        # Read after the traits: if it changes in between, the write is refused.
        return is_recognized(self._client.provider_resource_classes(provider.uuid), owner)

    def _missing(self, goal: Goal, writes: Sequence[_Verdict]) -> list[str]:
        """Return the ``CUSTOM_`` traits that must be created before the writes, sorted."""
        added = frozenset(trait for write in writes for trait in write.wanted - write.present)
        needed = goal.known | {trait for trait in added if trait.startswith(CUSTOM_PREFIX)}
        if needed and (self._known is None or not needed <= self._known):
            self._known = self._client.custom_traits()
        return sorted(needed - (self._known or frozenset()))

    def _write(self, verdict: _Verdict) -> None:
        provider = verdict.provider
        generation = self._client.set_provider_traits(provider.uuid, provider.generation, verdict.wanted)
        written = provider._replace(generation=generation)
        self._done(verdict._replace(provider=written, present=verdict.wanted))

    def _done(self, verdict: _Verdict) -> None:
        self._verdicts[verdict.provider.uuid] = verdict
        if not verdict.provider.parent:
            self._marker = _markers(verdict.wanted)

    def _check_marker(self, verdict: _Verdict) -> None:
        """Warn once of another report that replaces this one: each would undo the other's for ever."""
        marker, foreign = _markers(verdict.wanted), _markers(verdict.present) - _markers(verdict.wanted)
        # What was there before the first report, or by another goal, is an earlier report of this host.
        if verdict.provider.parent or not marker or marker != self._marker or foreign <= self._foreign:
            return
        self._foreign |= foreign
        theirs, ours = (
            join_first_names(sorted(each - marker - foreign), _SHOWN) or "nothing"
            for each in (verdict.present - verdict.wanted, verdict.wanted - verdict.present)
        )
        LOG.warning(
            "Another report, by another section [prefilter], replaces this one on the resource provider %s, and is "
            "replaced by it, for ever. Its marker is %s, and only it has: %s. The marker here is %s, and only this one "
            "has: %s. Leave one of them on the host, or give both the section [prefilter] of the schedulers.",
            quote(verdict.provider.name, 200),
            ", ".join(sorted(foreign)),
            theirs,
            ", ".join(sorted(marker)),
            ours,
        )


def _markers(traits: frozenset[str]) -> frozenset[str]:
    return frozenset(filter(is_reported_marker, traits))
