"""A decision in the making: what filters have required so far, and of which request."""

from typing import Any

from os_prefilter.pipeline.decision import Decision, Run
from os_prefilter.pipeline.writer import prepare, write
from os_prefilter.request.requirements import (
    NOTHING,
    ROOT,
    AggregateRequirement,
    Note,
    Preference,
    Requirement,
    Requirements,
)
from os_prefilter.request.view import Request


class Progress:
    """The results of the filters that have run for a request.

    :param request: the view of it
    :param context: handed to filters written the Nova way
    """

    def __init__(self, request: Request, context: Any = None) -> None:
        self.request = request
        self.context = context
        self.draft: Any = None
        """A copy of the request spec with what filters written the Nova way changed; None without such a filter."""
        self.runs: list[Run] = []
        self.pending: list[Requirement] = []
        """What is required and not in :attr:`draft` yet: all of it is written at the end, or nothing."""
        self._own_groups = list(NOTHING.own_groups)
        self._preferences: list[Preference] = []
        self._aggregates: list[AggregateRequirement] = []
        self._taken_back: set[Requirement] = set()

    def add(self, name: str, result: Requirements, seconds: float) -> None:
        """Add the result of a filter."""
        requirements = tuple([item._replace(filter=name) for item in result.requirements])
        preferences = tuple([item._replace(filter=name) for item in result.preferences])
        aggregates = tuple([item._replace(filter=name) for item in result.aggregates])
        self.pending += requirements
        self._own_groups += result.own_groups
        self._preferences += preferences
        self._aggregates += aggregates
        self.runs.append(Run(name, requirements, result.notes, seconds, preferences, aggregates))

    def written(self) -> Any:
        """Return the draft with all that is required so far: a filter written the Nova way may look at it.

        :raises UnsuitableRequestSpec: if the request spec cannot be copied, or has no place to write to
        """
        if self.draft is None:
            self.draft = self.request.copy_spec()
        write(prepare(self.request, self.pending, self._own_groups, aggregates=self._aggregates), self.draft)
        self.pending, self._own_groups = [], []
        return self.draft

    def look_again(self) -> None:
        """Take the draft for the request, after a filter written the Nova way has changed it."""
        self.request = Request(self.draft, self.request.kept_machine_type)
        on_root = {(trait, True) for trait in self.request.root_required}
        on_root |= {(trait, False) for trait in self.request.root_forbidden}
        before = (item for run in self.runs for item in run.requirements if item.scope == ROOT)
        self._taken_back.update(item for item in before if (item.trait, item.required) not in on_root)

    def decision(self, remarks: tuple[Note, ...] = ()) -> Decision:
        """Return the decision, with what it adds to the request spec.

        :raises RequestRejected: if the requirements contradict each other
        :raises FilterFailed: if a filter returned what cannot be written
        """
        additions = prepare(self.request, self.pending, self._own_groups, self._preferences, self._aggregates)
        return Decision(tuple(self.runs), remarks, additions._replace(draft=self.draft), frozenset(self._taken_back))
