# SPDX-License-Identifier: Apache-2.0

"""The decision on one request, and its builder."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field
from typing import Any, NamedTuple

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.pipeline.writer import (
    NO_ADDITIONS,
    Additions,
    prepare,
    write,
)
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.requirements import (
    NOTHING,
    ROOT,
    AggregateRequirement,
    Note,
    Preference,
    Requirement,
    Requirements,
)
from os_prefilter.request.spec import RequestGroup
from os_prefilter.request.view import Request


class Run(NamedTuple):
    """The result of one filter for one request."""

    filter: str
    requirements: tuple[Requirement, ...]
    notes: tuple[Note, ...]
    seconds: float
    """How long it took when it ran; a cached result keeps the time of its run.
    """
    preferences: tuple[Preference, ...] = ()
    aggregates: tuple[AggregateRequirement, ...] = ()


class ShadowRun(NamedTuple):
    """What a shadow filter would have done to a request."""

    filter: str
    result: str
    """``passed``, ``deferred``, ``rejected`` or ``failed``.

    It is deferred if all that it would require waits for reports of hosts.
    """
    reason: str | None = None
    """The error, or what waits for reports."""
    requirements: tuple[Requirement, ...] = ()
    aggregates: tuple[AggregateRequirement, ...] = ()
    own_groups: tuple[RequestGroup, ...] = ()
    """New groups for resource classes of the unsuffixed group."""
    notes: tuple[Note, ...] = ()
    """What became no requirement, and why; not what waits for reports."""

    @property
    def changes(self) -> bool:
        """Whether the filter would have changed the request, now or later."""
        return bool(
            self.reason is not None or self.requirements or self.aggregates
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The requirements for one request, with their filters and sources.

    It also says how long each filter took.
    """

    runs: tuple[Run, ...]
    remarks: tuple[Note, ...] = ()
    """Notes on the request itself, whatever the filters require."""
    additions: Additions = field(
        default=NO_ADDITIONS, repr=False, compare=False
    )
    """Changes to the request spec.

    :func:`os_prefilter.pipeline.writer.write` makes them.
    """
    removed_later: frozenset[Requirement] = frozenset()
    """Requirements that a later, Nova-style filter removed from the root."""
    shadow: tuple[ShadowRun, ...] = ()
    """Of the shadow filters, none of which is in what else is here."""

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """All required and forbidden traits, in the order of the filters."""
        return tuple(item for run in self.runs for item in run.requirements)

    @property
    def aggregates(self) -> tuple[AggregateRequirement, ...]:
        """Required and forbidden aggregates, in the order of the filters."""
        return tuple(item for run in self.runs for item in run.aggregates)

    @property
    def preferences(self) -> tuple[Preference, ...]:
        """All preferences, in the order of the filters."""
        return tuple(item for run in self.runs for item in run.preferences)

    def preferred_share(self, traits: Collection[str]) -> float:
        """Return the share of the preferred traits that a host has.

        It is from 0.0 to 1.0, and 0.0 if no trait is preferred.

        :param traits: of the host's root provider
        """
        # A share of all of them, not stretched over the candidates as Nova's
        # weights are: where each host lacks one of two traits, the other one
        # must not count twice.
        preferred = {item.trait for item in self.preferences}
        if not preferred:
            return 0.0
        return len(preferred.intersection(traits)) / len(preferred)

    @property
    def notes(self) -> tuple[Note, ...]:
        """Parts of the request that did not become requirements, and why."""
        return (
            *(note for run in self.runs for note in run.notes),
            *self.remarks,
        )


class DecisionBuilder:
    """Builds a decision from the results of the filters that have run.

    :param request: the view of it
    :param context: handed to filters written the Nova way
    """

    def __init__(self, request: Request, context: Any = None) -> None:
        self.request = request
        self.context = context
        self.draft: Any = None
        """A copy of the request spec as Nova-style filters changed it.

        None without such a filter.
        """
        self.runs: list[Run] = []
        self.pending: list[Requirement] = []
        """Requirements that are not in :attr:`draft` yet.

        All of it is written at the end, or nothing.
        """
        self.own_groups = list(NOTHING.own_groups)
        self._preferences: list[Preference] = []
        self._aggregates: list[AggregateRequirement] = []
        self._removed_later: set[Requirement] = set()

    def add(
        self, each: LoadedFilter, result: Requirements, seconds: float
    ) -> None:
        """Add the result of a filter."""
        name = each.name
        # Not _replace(), which takes three times as long: each requirement of
        # each request comes here.
        requirements = tuple(
            [
                Requirement(
                    item.trait,
                    item.required,
                    item.scope,
                    item.source,
                    name,
                    item.properties,
                    item.public,
                )
                for item in result.requirements
            ]
        )
        preferences = (
            tuple([item._replace(filter=name) for item in result.preferences])
            if result.preferences
            else ()
        )
        aggregates = (
            tuple([item._replace(filter=name) for item in result.aggregates])
            if result.aggregates
            else ()
        )
        if not each.nova_style:
            # What such a filter has done is in the draft already.
            self.pending += requirements
        self.own_groups += result.own_groups
        self._preferences += preferences
        self._aggregates += aggregates
        self.runs.append(
            Run(
                name,
                requirements,
                result.notes,
                seconds,
                preferences,
                aggregates,
            )
        )

    def flush_to_draft(self) -> Any:
        """Return the draft with all that is required so far.

        :raises UnsuitableRequestSpec: if the request spec cannot be copied, or
            has no place to write to
        """
        if self.draft is None:
            self.draft = self.request.copy_spec()
        write(
            prepare(
                self.request,
                self.pending,
                self.own_groups,
                aggregates=self._aggregates,
            ),
            self.draft,
        )
        self.pending = []
        self.own_groups = []
        return self.draft

    def fork(self) -> DecisionBuilder:
        """Return a builder that goes on from here, with no run yet.

        Not for filters that change the request spec: it has neither a draft
        nor a context.
        """
        forked = DecisionBuilder(self.request)
        forked.pending += self.pending
        forked.own_groups += self.own_groups
        forked._aggregates += self._aggregates
        return forked

    def reload_request(self) -> None:
        """Read the draft as the request, after a Nova-style filter."""
        before = self.request
        self.request = Request(
            self.draft,
            before.kept_machine_type,
            None,
            before.implied,
            before.has_new_flavor,
            before.given_server_options,
        )
        on_root = {(trait, True) for trait in self.request.root_required}
        on_root |= {(trait, False) for trait in self.request.root_forbidden}
        earlier = (
            item
            for run in self.runs
            for item in run.requirements
            if item.scope == ROOT
        )
        self._removed_later.update(
            item
            for item in earlier
            if (item.trait, item.required) not in on_root
        )

    def decision(self, remarks: tuple[Note, ...] = ()) -> Decision:
        """Return the decision, with what it adds to the request spec.

        :raises RequestRejected: if the requirements contradict each other
        :raises FilterFailed: if a filter returned what cannot be written
        """
        additions = prepare(
            self.request,
            self.pending,
            self.own_groups,
            self._preferences,
            self._aggregates,
        )
        if self.draft is not None:
            additions = additions._replace(draft=self.draft)
        return Decision(
            tuple(self.runs),
            remarks,
            additions,
            frozenset(self._removed_later),
        )
