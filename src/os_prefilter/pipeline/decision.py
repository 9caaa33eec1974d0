"""The result of a pipeline: what the filters require, and prefer, of a host for one request."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from os_prefilter.pipeline.writer import NO_ADDITIONS, Additions
from os_prefilter.request.requirements import AggregateRequirement, Note, Preference, Requirement


class Run(NamedTuple):
    """The result of one filter for one request."""

    filter: str
    requirements: tuple[Requirement, ...]
    notes: tuple[Note, ...]
    seconds: float
    """How long it took when it ran; a cached result keeps the time of its run."""
    preferences: tuple[Preference, ...] = ()
    aggregates: tuple[AggregateRequirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """The requirements for one request, each with its filter and source, and how long each filter took."""

    runs: tuple[Run, ...]
    remarks: tuple[Note, ...] = ()
    """Notes on the request itself, whatever the filters require."""
    additions: Additions = field(default=NO_ADDITIONS, repr=False, compare=False)
    """What :func:`os_prefilter.pipeline.writer.write` adds to the request spec."""
    taken_back: frozenset[Requirement] = frozenset()
    """Requirements that a later filter, written the Nova way, removed from the root."""

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """All required and forbidden traits, in the order of the filters."""
        return tuple(item for run in self.runs for item in run.requirements)

    @property
    def aggregates(self) -> tuple[AggregateRequirement, ...]:
        """The aggregates that the host must, or must not, be in, in the order of the filters."""
        return tuple(item for run in self.runs for item in run.aggregates)

    @property
    def preferences(self) -> tuple[Preference, ...]:
        """All preferences, in the order of the filters."""
        return tuple(item for run in self.runs for item in run.preferences)

    def preferred_share(self, has: Callable[[str], bool | None]) -> float:
        """Return the share of the preferred traits that a host has, from 0.0 to 1.0; 0.0 if none is preferred.

        :param has: whether the host has a trait; None, for one of which that is not known, counts as False
        """
        traits = {item.trait for item in self.preferences}
        return sum(map(bool, map(has, traits))) / len(traits) if traits else 0.0

    @property
    def notes(self) -> tuple[Note, ...]:
        """The parts of the request that did not become requirements, and why."""
        return (*(note for run in self.runs for note in run.notes), *self.remarks)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by filter."""
        return {run.filter: run.seconds for run in self.runs}
