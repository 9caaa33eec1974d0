"""What :func:`os_prefilter.operators.diagnose.diagnose.diagnose` answers; the codes are stable, for machines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from os_prefilter.request.demand import Condition

REJECTED = "rejected"
"""Stage: a filter, or the building of the query, rejected the request."""
REFUSED = "refused"
"""Stage: Placement refused the query."""
NO_ANSWER = "no-answer"
"""Stage: Placement did not answer."""
NO_CANDIDATES = "no-candidates"
"""Stage: no host meets all that is asked for."""
CANDIDATES = "candidates"
"""Stage: there are candidates; if the instance was not built, what failed comes after Placement."""

UNKNOWN = "unknown"
"""State of a requirement: the trait does not exist in Placement."""
NOWHERE = "nowhere"
"""No provider of any host has the trait, or any of the resource class."""
TOO_LARGE = "too-large"
"""No host has so much of the resource, even empty."""
FULL = "full"
"""Hosts would have so much of the resource if they were empty; none has it now."""
NO_HOST = "no-host"
"""No host meets it, though some have the trait or the resource: on another provider than it is asked of, say."""
ELSEWHERE = "elsewhere"
"""Hosts meet it, and each lacks something else."""
MET = "met"
"""Candidates meet it."""

DISABLED, AGGREGATE, OWNER, RESOURCES, TRAITS, PLACE = "disabled", "aggregate", "owner", "resources", "traits", "place"
"""What may keep a host out that meets a requirement."""


@dataclass(frozen=True)
class Finding:
    """One requirement, and how the hosts stand to it."""

    number: int
    """From 1; the other parts of a diagnosis name requirements by it."""
    condition: Condition
    by: str
    because: str
    state: str
    lack: int
    """Hosts that Placement returns for no part of the query with it: they do not meet it, whatever else is dropped."""
    lack_only: int
    """Those of them that would be candidates without it."""
    if_dropped: int
    """The hosts that Placement would return if it were not asked for."""
    kept_out: Mapping[str, int]
    """Of the hosts that meet it and are no candidates: what they lack -> how many."""
    help: str
    """The change that would help; empty if it is met."""


@dataclass(frozen=True)
class Conflict:
    """A smallest set of requirements that no host meets together."""

    numbers: tuple[int, ...]
    ever: bool
    """True: no host could, even if all were empty. False: only now."""


@dataclass(frozen=True)
class Account:
    """Hosts that lack the same; each host is in one account."""

    ways: tuple[tuple[int, ...], ...]
    """The smallest sets of requirements without any one of which these hosts would do; one empty set: candidates.

    Where a set has all resources of a group, the group's other requirements go with them and are not named.
    """
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Near:
    """Hosts that lack little, and the same."""

    hosts: tuple[str, ...]
    lacks: tuple[tuple[int, str], ...]
    """Number of a requirement, and what the host has instead."""


@dataclass(frozen=True)
class Diagnosis:
    """Why there is a host for a request, or none."""

    stage: str
    message: str
    """One sentence for people."""
    by: str = ""
    """The filter that rejected the request."""
    query: str = ""
    candidates: tuple[str, ...] = ()
    hosts: int = 0
    """All hosts of the fleet."""
    if_empty: int = 0
    """Candidates if all hosts were empty."""
    findings: tuple[Finding, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    accounts: tuple[Account, ...] = ()
    nearest: tuple[Near, ...] = ()
    notes: tuple[str, ...] = ()
    """What limits this answer, and what was not asked for."""
    taken_at: str = ""
    """When the fleet was read, ISO 8601; empty for a fleet file written by hand."""

    def as_document(self) -> dict[str, Any]:
        """Return it in plain types, for JSON."""
        return {
            "stage": self.stage,
            "message": self.message,
            "by": self.by,
            "query": self.query,
            "taken_at": self.taken_at,
            "hosts": self.hosts,
            "candidates": list(self.candidates),
            "candidates_if_empty": self.if_empty,
            "requirements": [_requirement(each) for each in self.findings],
            "conflicts": [{"requirements": list(each.numbers), "ever": each.ever} for each in self.conflicts],
            "accounts": [
                {"without": [list(way) for way in each.ways], "count": len(each.hosts), "hosts": list(each.hosts)}
                for each in self.accounts
            ],
            "nearest": [
                {
                    "hosts": list(each.hosts),
                    "lacks": [{"requirement": number, "has": has} for number, has in each.lacks],
                }
                for each in self.nearest
            ],
            "notes": list(self.notes),
        }


def _requirement(finding: Finding) -> dict[str, Any]:
    condition = finding.condition
    return {
        "number": finding.number,
        "kind": condition.kind,
        "names": list(condition.names),
        "amount": condition.amount,
        "rule": "required" if condition.wanted else "forbidden",
        "on": condition.scope,
        "by": finding.by,
        "because": finding.because,
        "state": finding.state,
        "hosts_lacking": finding.lack,
        "hosts_lacking_only_this": finding.lack_only,
        "candidates_without_it": finding.if_dropped,
        "others_kept_out_by": dict(finding.kept_out),
        "help": finding.help,
    }
