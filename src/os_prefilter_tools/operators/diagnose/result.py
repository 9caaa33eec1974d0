# SPDX-License-Identifier: Apache-2.0

"""The result of a diagnosis; its codes are stable.

Of :func:`os_prefilter_tools.operators.diagnose.diagnose.diagnose`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from os_prefilter_tools.fleet.demand import Condition
from os_prefilter_tools.fleet.server import HostFilter

REJECTED = "rejected"
"""Stage: a filter rejected the request, or no query can be built from it."""
REFUSED = "refused"
"""Stage: Placement refused the query."""
NO_ANSWER = "no-answer"
"""Stage: Placement did not respond."""
NO_CANDIDATES = "no-candidates"
"""Stage: no host meets all requirements."""
HOST_FILTERS = "host-filters"
"""Stage: there are candidates, and Nova's host filters leave none of them."""
CANDIDATES = "candidates"
"""Stage: there are candidates.

If the instance was not built, a step after Placement failed.
"""

UNKNOWN = "unknown"
"""State of a requirement: the trait does not exist in Placement."""
NOWHERE = "nowhere"
"""No provider of any host has the trait or the resource class."""
TOO_LARGE = "too-large"
"""No host has that much of the resource, even empty."""
FULL = "full"
"""Hosts would have that much if they were empty; none has it now."""
NO_HOST = "no-host"
"""No host meets it, though some have the trait or resource.

For example on another provider.
"""
ELSEWHERE = "elsewhere"
"""Hosts meet it, and each fails another requirement."""
MET = "met"
"""Candidates meet it."""

DISABLED, AGGREGATE, RESOURCES, TRAITS, PLACE = (
    "disabled",
    "aggregate",
    "resources",
    "traits",
    "place",
)
"""Reasons that exclude a host which meets a requirement.

A filter may declare another (``Declaration.excludes``).
"""


@dataclass(frozen=True)
class Finding:
    """One requirement, and how many hosts fail it."""

    number: int
    """From 1; the other parts of a diagnosis refer to requirements by it."""
    condition: Condition
    by: str
    """The filter that adds it, or ``request``."""
    because: str
    """The image property, the extra spec or the field that requires it."""
    state: str
    hosts_lacking: int
    """Hosts that fail it even if all other requirements are dropped."""
    hosts_lacking_only_this: int
    """The hosts among them that would be candidates without it."""
    candidates_without_it: int
    """The hosts that Placement would return without this requirement."""
    others_kept_out_by: Mapping[str, int]
    """Reason -> number of the hosts that meet it and are no candidates."""
    free_on: tuple[str, ...]
    """For an amount: the hosts on which to free some of it.

    With what else must change for a host there.
    """
    help: str
    """The suggested change; empty if the requirement is met."""

    def as_document(self) -> dict[str, Any]:
        """Return it in plain types, with the condition taken apart."""
        document = asdict(self)
        number, (kind, scope, wanted, names, amount) = (
            document.pop("number"),
            document.pop("condition"),
        )
        rule = "required" if wanted else "forbidden"
        condition = {
            "kind": kind,
            "names": names,
            "amount": amount,
            "rule": rule,
            "on": scope,
        }
        return {"number": number, **condition, **document}


@dataclass(frozen=True)
class Conflict:
    """A smallest set of requirements that no host meets together."""

    requirements: tuple[int, ...]
    """Their numbers."""
    ever: bool
    """True if no host could even if all were empty."""


@dataclass(frozen=True)
class Account:
    """Hosts that fail the same requirements; each host is in one account."""

    without: tuple[tuple[int, ...], ...]
    """The smallest sets to drop so that these hosts are candidates.

    One empty set if they are.

    Where a set has all resources of a group, the group's other requirements go
    with them. They are named if the host would fail them also when free.
    """
    count: int
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Lack:
    """A requirement that a host fails."""

    requirement: int
    has: str
    """The host's own value instead."""


@dataclass(frozen=True)
class Near:
    """Hosts that fail few requirements, and the same ones."""

    hosts: tuple[str, ...]
    lacks: tuple[Lack, ...]


@dataclass(frozen=True)
class Diagnosis:
    """Why a request has a host, or none."""

    stage: str
    message: str
    """One sentence for people."""
    by: str = ""
    """The filter that rejected the request."""
    query: str = ""
    taken_at: str = ""
    """When the fleet was read, ISO 8601; empty for one written by hand."""
    hosts: int = 0
    """All hosts of the fleet."""
    candidates: tuple[str, ...] = ()
    candidates_if_empty: int = 0
    """Candidates if all hosts were empty."""
    requirements: tuple[Finding, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    accounts: tuple[Account, ...] = ()
    nearest: tuple[Near, ...] = ()
    host_filters: tuple[HostFilter, ...] = ()
    """Nova's host filters that ran, until one left no host.

    Only for a server of a cloud.
    """
    notes: tuple[str, ...] = ()
    """Limits of this result, and ignored parts of the request."""
    recorded: tuple[dict[str, Any], ...] = ()
    """The scheduler's recorded decisions on the server, the latest first."""

    def as_document(self) -> dict[str, Any]:
        """Return it in plain types, for JSON."""
        return asdict(self) | {
            "requirements": [each.as_document() for each in self.requirements]
        }
