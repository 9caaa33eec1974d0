"""What a pipeline answers: what the filters required of one request."""

from dataclasses import dataclass
from typing import NamedTuple

from os_prefilter.request.requirements import Note, Requirement


class Run(NamedTuple):
    """What one filter did for one request."""

    filter: str
    asked: tuple[Requirement, ...]
    notes: tuple[Note, ...]
    seconds: float
    """How long it took when it ran; a filter is not run again for what it has answered before."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the filters required of one request, who did, because of what, and how long each took."""

    runs: tuple[Run, ...]

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """All requirements, in the order of the filters."""
        return tuple(item for run in self.runs for item in run.asked)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What was asked and did not become a requirement, and why."""
        return tuple(note for run in self.runs for note in run.notes)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by filter."""
        return {run.filter: run.seconds for run in self.runs}
