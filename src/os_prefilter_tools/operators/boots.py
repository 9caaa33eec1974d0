# SPDX-License-Identifier: Apache-2.0

"""Boots in a history of decisions, and what became of their servers.

Nova's API shows the outcome: a server, the action that created it, and in the
action an event for each host that tried to build it.
"""

from __future__ import annotations

from collections.abc import (
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.placement_values import is_hyphenated_uuid
from os_prefilter.common.progress import Progress, no_progress
from os_prefilter.common.quoting import escape_line
from os_prefilter.documents.files import read_bytes
from os_prefilter.documents.strict_json import parse_json
from os_prefilter.request.requirements import Requirement
from os_prefilter_tools.operators.decisions import LoggedDecision

REJECTED, FAILED, DEFERRED = "rejected", "failed", "deferred"

# The first that shows administrators the host of an event: Nova 18.0.0
# (Rocky). Since 2.21 the actions of deleted servers are shown.
_MICROVERSION = "2.62"
_HYPERVISORS = "/os-hypervisors/detail?limit=1000"
# With this parameter, deleted servers are in the list as well. From the
# beginning of the hour: clocks differ a little.
_SERVERS = "/servers/detail?all_tenants=1&limit=1000&changes-since={}:00:00Z"
_OF_HYPERVISORS = (
    "a list 'hypervisors', each with hypervisor_hostname and, in service, host"
)
_OF_SERVERS = (
    "a list 'servers', each with id, status and OS-SRV-USG:launched_at"
)
_OF_ACTION = (
    "an object 'instanceAction' with action and a list 'events', each with"
    " event and host"
)
# nova-compute handles what fails within, so that the result of this event is
# "Success" for an attempt that failed as well.
_ATTEMPT = "compute__do_build_and_run_instance"
_HOST = "OS-EXT-SRV-ATTR:host"
_FAULT_LENGTH = 300
# With one request each, a cloud has answered within minutes.
_MOST_BOOTS = 10_000
_SHOWN_EVERY = 1000

BootKey = tuple[str, str]
"""The UUID of a server, and the ID of the request that created it."""


class Part(NamedTuple):
    """What one filter required for one boot."""

    filter: str
    is_shadow: bool
    requirements: tuple[Requirement, ...]
    result: str = "passed"
    """Of a shadow filter also ``rejected``, ``failed`` or ``deferred``."""
    reason: str = ""
    candidates: int = 0
    lacking: int = 0
    """How many candidates lacked what a shadow filter requires."""

    @property
    def changes(self) -> bool:
        """True if the shadow filter would have excluded a candidate."""
        return self.result == REJECTED or self.lacking > 0


@dataclass
class History:
    """The boots of a history, with no more than a verdict needs."""

    boots: dict[BootKey, dict[tuple[bool, str], Part]] = field(
        default_factory=dict
    )
    """Each boot, with its parts: those of shadow filters have False."""
    decisions: int = 0
    first: str = ""
    """When the first decision was made."""
    unnamed: int = 0
    """Decisions that required something, of no known server or request."""


def read_boots(
    decisions: Iterable[LoggedDecision], progress: Progress = no_progress
) -> History:
    """Return the boots of a history that reached Placement."""
    found = History()
    # Requests of a cloud ask for few different things: equal parts are one
    # object.
    same: dict[Part, Part] = {}
    for each in decisions:
        found.decisions += 1
        if found.decisions % _SHOWN_EVERY == 0:
            progress("decisions", found.decisions, None)
        found.first = min(found.first or each.time, each.time)
        if each.result in (REJECTED, FAILED):
            continue
        found_parts = list(_parts_of(each))
        # Of several servers of a request, only the first is named.
        if not (each.request and is_hyphenated_uuid(each.server or "")):
            if found_parts:
                found.unnamed += 1
            continue
        for part in found_parts:
            key = str(each.server), each.request
            parts = found.boots.setdefault(key, {})
            # The last of several decisions is the one that Nova followed.
            parts[not part.is_shadow, part.filter] = same.setdefault(
                part, part
            )
    return found


def _parts_of(decision: LoggedDecision) -> Iterator[Part]:
    required: dict[str, list[Requirement]] = {}
    for each in decision.requirements:
        item = Requirement(**each)
        required.setdefault(item.filter, []).append(item)
    for name, items in required.items():
        yield Part(name, False, tuple(items))
    for each in decision.shadow:
        yield Part(
            each["filter"],
            True,
            tuple(Requirement(**item) for item in each["requirements"]),
            each["result"],
            each["reason"] or "",
            each["candidates"] or 0,
            each["lacking"] or 0,
        )


class NovaFile:
    """Responses of Nova's API in a file, in place of a CloudService.

    It is an object with the response to each path.

    :raises DocumentError: if the file cannot be read, or is not an object
    """

    def __init__(self, path: str) -> None:
        self._responses: Any = parse_json(read_bytes(path), path)
        if not isinstance(self._responses, dict):
            problem = (
                "expected a JSON object with Nova's response to each path of"
                " its API."
            )
            raise DocumentError(path, problem)

    def rows(self, path: str, name: str, _microversion: str) -> Any:
        """Return the rows of a listing."""
        return self._responses[path.partition("?")[0]][name]

    def find(self, path: str, _microversion: str) -> Any:
        """Return a response; None if there is none."""
        return self._responses.get(path)


class Outcome(NamedTuple):
    """What became of a boot that is over."""

    attempts: tuple[tuple[str, bool], ...]
    """The compute nodes that tried it, and whether each has failed.

    Its name is empty for an unknown one.
    """
    fault: str

    @property
    def has_failed(self) -> bool:
        """True if a host has failed to build the server."""
        return any(has_failed for _, has_failed in self.attempts)


def read_outcomes(
    history: History,
    nova: Any,
    source: str,
    progress: Progress = no_progress,
) -> dict[BootKey, Outcome | None]:
    """Return the outcome of each judged boot; None where it is not known.

    Moves, whose decisions look like those of boots, are dropped from the
    history.

    :param nova: a CloudService, or a :class:`NovaFile`
    :param source: what errors name: the service, or the file
    :raises DocumentError: if no server of the history is known, or what is
        read is not of Nova
    :raises PrefilterError: if the cloud does not respond
    """
    keys = _sample(history.boots)
    with _reading(source, _HYPERVISORS, _OF_HYPERVISORS):
        nodes = _read_nodes(nova)
    path = _SERVERS.format(quote(history.first[:13]))
    wanted = {server for server, _ in keys}
    with _reading(source, path, _OF_SERVERS):
        servers = _read_servers(nova, path, wanted)
    if wanted and not servers:
        problem = (
            f"none of the {len(wanted)} servers of the history is there: they"
            " are of another cloud or project, or purged. Check the cloud, and"
            " the roles of the login."
        )
        raise DocumentError(source, problem)
    found: dict[BootKey, Outcome | None] = {}
    for number, key in enumerate(keys, 1):
        progress("boots", number, len(keys))
        server, request = key
        found[key] = None
        if server not in servers:
            continue
        path = f"/servers/{server}/os-instance-actions/{quote(request, '')}"
        is_over, has_run, fault = servers[server]
        with _reading(source, path, _OF_ACTION):
            response = nova.find(path, _MICROVERSION) or {}
            action = response.get("instanceAction")
            if action and action["action"] != "create":
                del history.boots[key], found[key]
            elif action and is_over:
                attempts = _attempts_in(
                    action["events"], nodes, has_run=has_run
                )
                found[key] = Outcome(attempts, fault)
    return found


@contextmanager
def _reading(source: str, path: str, expected: str) -> Iterator[None]:
    """Say of a response that is not Nova's where it is wrong.

    :param expected: what Nova's API returns for the path
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        wrong = "a value is of another type"
        if isinstance(error, KeyError):
            wrong = f"there is no {escape_line(str(error))}"
        where = path.partition("?")[0]
        problem = f"{where}: {wrong}. Nova's API returns {expected}."
        raise DocumentError(source, problem) from error


def _sample(
    boots: Mapping[BootKey, Mapping[tuple[bool, str], Part]],
) -> list[BootKey]:
    """Return the boots to judge, spread over the time of the history.

    First those that a shadow filter would have changed, of each filter
    equally many: one server decides, on a rare filter as well.
    """
    if len(boots) <= _MOST_BOOTS:
        return list(boots)
    changed: dict[str, list[BootKey]] = {}
    for key, parts in boots.items():
        for part in parts.values():
            if part.changes:
                changed.setdefault(part.filter, []).append(key)
    # A filter with few leaves the rest of its share to those with more.
    groups = sorted(changed.values(), key=len)
    found: dict[BootKey, None] = {}
    for number, group in enumerate([*groups, list(boots)]):
        others = [key for key in group if key not in found]
        filters_left = max(len(groups) - number, 1)
        share = (_MOST_BOOTS - len(found)) // filters_left
        count = min(share, len(others))
        for index in range(count):
            found[others[index * len(others) // count]] = None
    return list(found)


def _read_nodes(nova: Any) -> dict[str, set[str]]:
    """Return the compute nodes of each compute service."""
    nodes: dict[str, set[str]] = {}
    for row in nova.rows(_HYPERVISORS, "hypervisors", _MICROVERSION):
        of_host = nodes.setdefault(row["service"]["host"], set())
        of_host.add(row["hypervisor_hostname"])
    return nodes


def _read_servers(
    nova: Any, path: str, wanted: Collection[str]
) -> dict[str, tuple[bool, bool, str]]:
    """Return whether each server is over and has run, and its fault."""
    servers = {}
    for row in nova.rows(path, "servers", _MICROVERSION):
        if row["id"] in wanted:
            fault = (row.get("fault") or {}).get("message") or ""
            has_run = bool(row["OS-SRV-USG:launched_at"])
            # Nova keeps no fault of a deleted server. One that was deleted
            # while a host built it has that host, and is not judged.
            is_over = bool(has_run or fault or row["status"] == "ERROR") or (
                row["status"] == "DELETED" and row.get(_HOST, "?") is None
            )
            text = escape_line(fault[:_FAULT_LENGTH])
            servers[row["id"]] = is_over, has_run, text
    return servers


def _attempts_in(
    events: Sequence[Any], nodes: Mapping[str, set[str]], *, has_run: bool
) -> tuple[tuple[str, bool], ...]:
    found: list[tuple[str, bool]] = []
    for event in events:
        if event["event"] == _ATTEMPT:
            host = event.get("host") or ""
            # One nova-compute may have several nodes of bare metal.
            names = nodes.get(host, {host})
            name = "".join(names) if len(names) == 1 else ""
            # Nova lists the latest first: the one that may have succeeded.
            found.append((name, bool(found) or not has_run))
    if has_run and not found:
        # A host built it, but Nova shows no event of that.
        found.append(("", False))
    return tuple(found)
