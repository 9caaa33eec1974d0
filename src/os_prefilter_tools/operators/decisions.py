# SPDX-License-Identifier: Apache-2.0

"""Read the history of decisions out of the log of a service."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, BinaryIO, Final, NamedTuple

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import escape_line, pluralize
from os_prefilter.documents.files import open_file
from os_prefilter.documents.strict_json import strict
from os_prefilter.request.requirements import (
    AggregateRequirement,
    Preference,
    Requirement,
)
from os_prefilter.service.decision_log import LOGGER, MAX_BYTES

_TEXT_OR_NONE: Final = (str, type(None))
_NUMBER_OR_NONE: Final = (int, type(None))
_PARTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "requirements": {
        "trait": str,
        "required": bool,
        "scope": str,
        "filter": str,
        "source": str,
    },
    "preferences": {"trait": str, "filter": str, "source": str},
    "hosts": {"by": str, "before": int, "after": int},
    "aggregates": {
        "aggregates": list,
        "required": bool,
        "filter": str,
        "source": str,
    },
    "shadow": {
        "filter": str,
        "result": str,
        "reason": _TEXT_OR_NONE,
        "candidates": _NUMBER_OR_NONE,
        "lacking": _NUMBER_OR_NONE,
        "requirements": list,
        "aggregates": list,
    },
}
"""Keys of each item of these fields."""
SHADOW: Final = "shadow"
"""The result of a line about shadow filters."""

# A quotation mark within a text of JSON is escaped, so that no text of a
# decision has it.
_START = b'{"time": "'
# The beginning of a line in oslo.log's text formats, in ours with the level
# and the logger.
_TEXT = re.compile(rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,]\d{1,6} \d+ ")
_OURS = re.compile(
    _TEXT.pattern + rb"INFO " + re.escape(LOGGER.encode()) + rb" \["
)
# No text of UTF-8 has it.
_GZIP = b"\x1f\x8b\x08"
# An older oslo.log ends each line with the end of a colour.
_RESET = b"\x1b[00m"
# With the prefix and the other keys of a log line, each character escaped.
_LONGEST_LINE = 8 * MAX_BYTES


class LoggedDecision(NamedTuple):
    """A decision as it was recorded, as printable text."""

    time: str
    """In UTC, as ``2026-11-03T14:02:11.123Z``."""
    worker: int
    """The process ID of the worker."""
    request: str | None
    """The request ID; None where the service gave no context."""
    server: str | None
    """The UUID of the server."""
    result: str
    """What became of the request.

    ``passed``, ``rejected`` because of what the request requires, ``failed``
    because of an error, or ``no_host``: no host was left for a request that
    had passed; ``shadow``: what filters in ``shadow_filters`` would have
    changed.
    """
    reason: str | None
    """Why the request was rejected, failed, or has no host."""
    hosts: list[dict[str, Any]]
    """Of ``no_host``: what excluded hosts.

    Each host filter or resource class (``by``), with the hosts ``before`` and
    ``after`` it.
    """
    requirements: list[dict[str, Any]]
    """The requirements.

    Each with ``trait``, ``required``, ``scope``, ``filter`` and ``source``.
    """
    preferences: list[dict[str, Any]]
    """The preferred traits, each with ``trait``, ``filter`` and ``source``."""
    aggregates: list[dict[str, Any]]
    """The required and forbidden aggregates of the host.

    Each with ``aggregates``, ``required``, ``filter`` and ``source``.
    """
    notes: list[str]
    """The parts of the request that did not become requirements, and why."""
    left_out: int
    """How many requirements, preferences and notes the line leaves out."""
    shadow: list[dict[str, Any]]
    """What shadow filters would have changed; empty for other results.

    Each with ``filter``, ``result``, ``reason``, the number of ``candidates``
    and of those ``lacking`` what it requires, ``requirements`` and
    ``aggregates``.
    """

    @property
    def outcome(self) -> str:
        """The result in one line, with its reason or numbers."""
        if self.reason is not None:
            numbers = "; ".join(
                f"{each['by']}: {each['after']} of {each['before']} hosts"
                for each in self.hosts
            )
            text = f"{self.result}: {self.reason}"
            return f"{text} ({numbers})" if numbers else text
        if self.result == SHADOW:
            parts = map(_describe_shadow, self.shadow)
            return f"shadow: {'; '.join(parts) or 'no change'}"
        number = len(self.requirements) + len(self.aggregates)
        return pluralize(number, "requirement") if number else "no requirement"

    def items(
        self,
    ) -> Iterator[Requirement | AggregateRequirement | Preference]:
        """Yield the requirements and preferences as for a new request."""
        for part in (self._asdict(), *self.shadow):
            yield from (Requirement(**item) for item in part["requirements"])
            for item in part["aggregates"]:
                names = tuple(map(str, item["aggregates"]))
                yield AggregateRequirement(**{**item, "aggregates": names})
        yield from (Preference(**item) for item in self.preferences)


def _describe_shadow(part: Mapping[str, Any]) -> str:
    if part["result"] == "rejected":
        return f"{part['filter']} would reject: {part['reason']}"
    if part["result"] != "passed":
        return f"{part['filter']} {part['result']}: {part['reason']}"
    numbers = f"{part['lacking']} of {part['candidates']} candidates"
    text = f"{part['filter']} would exclude {numbers}"
    return f"{text}; deferred: {part['reason']}" if part["reason"] else text


_TYPES: Final[Mapping[str, Any]] = {
    "time": str,
    "worker": int,
    "request": _TEXT_OR_NONE,
    "server": _TEXT_OR_NONE,
    "result": str,
    "reason": _TEXT_OR_NONE,
    "hosts": list,
    "requirements": list,
    "preferences": list,
    "aggregates": list,
    "notes": list,
    "left_out": int,
    "shadow": list,
}


def distinct_logs(paths: Iterable[str]) -> list[str]:
    """Return the paths of logs, one of each file."""
    files = {}
    for path in paths:
        files[path if path == "-" else os.path.realpath(path)] = path
    return list(files.values())


def decisions_in(
    paths: Iterable[str], warn: Callable[[str], None]
) -> Iterator[LoggedDecision]:
    """Yield the decisions in logs; a log that is named twice is read once.

    :param paths: logs, also pipes of a shell; ``-`` for the standard input
    :param warn: gets a sentence about the damaged lines of a log
    :raises DocumentError: if a file cannot be read, is packed, or has lines
        but no decision
    """
    for path in distinct_logs(paths):
        yield from _decisions_in(path, warn)


def _decisions_in(
    path: str, warn: Callable[[str], None]
) -> Iterator[LoggedDecision]:
    """Yield the decisions in one log; there may be millions of them."""
    is_empty, has_decision, is_text = True, False, None
    damaged = []
    log = nullcontext(sys.stdin.buffer) if path == "-" else open_file(path)
    with log as file:
        for number, line in enumerate(_whole_lines(file), 1):
            is_empty = False
            # Also after other lines, if rotated files were put together.
            if line.startswith(_GZIP):
                problem = (
                    "a part of it is packed by gzip. Unpack it, and read the"
                    " standard input: zcat -f FILE ... | os-prefilter verdict"
                    " -, or decisions -."
                )
                raise DocumentError(path, problem)
            is_bare = line.startswith(_START)
            if is_text is None and (is_bare or _TEXT.match(line)):
                # The whole file has one format: what a tenant has another
                # logger write may have several lines.
                is_text = not is_bare
            if is_text is None or (is_text and not _OURS.match(line)):
                continue
            message = line
            if is_text:
                message = line[max(line.rfind(_START), 0) :]
            try:
                decision = _parse(message)
            except (ValueError, RecursionError):
                damaged.append(number)
            else:
                has_decision = True
                yield decision
    if damaged:
        problem = (
            f"left out {pluralize(len(damaged), 'damaged decision')}, the"
            " first one here."
        )
        warn(str(DocumentError(path, problem, damaged[0])))
    elif not (is_empty or has_decision):
        raise DocumentError(
            path,
            "there is no decision in this file. Give a log with the lines of"
            f" the logger {LOGGER}: in oslo.log's text format, or a file with"
            " nothing but the messages.",
        )


def _whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file, cut at the longest decision.

    The rest of a line is no line of its own.
    """
    while line := file.readline(_LONGEST_LINE):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(_LONGEST_LINE)
        yield line


def _parse(message: bytes) -> LoggedDecision:
    """Return the decision in a message of the history.

    :raises ValueError: if it is not one whole decision
    :raises RecursionError: if it is nested too deep
    """
    found = strict(message.rstrip().removesuffix(_RESET).decode())
    if isinstance(found, dict):
        # Other releases, and other results, have no such key.
        found.setdefault("shadow", [])
    if not (
        _has(found, _TYPES)
        and all(isinstance(each, str) for each in found["notes"])
    ):
        raise ValueError("not a decision")
    _check_parts(found, _PARTS)
    for part in found["shadow"]:
        _check_parts(part, ("requirements", "aggregates"))
    return LoggedDecision(**{name: _printable(found[name]) for name in _TYPES})


def _check_parts(found: dict[str, Any], names: Iterable[str]) -> None:
    """Keep the known keys of each item of these fields.

    :raises ValueError: if one is missing
    """
    for name in names:
        types = _PARTS[name]
        parts = []
        for each in found[name]:
            if not _has(each, types):
                raise ValueError("not a requirement")
            parts.append({key: each[key] for key in types})
        found[name] = parts


def _has(found: Any, types: Mapping[str, Any]) -> bool:
    return isinstance(found, dict) and all(
        name in found and isinstance(found[name], types[name])
        for name in types
    )


def _printable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _printable(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(_printable, value))
    return escape_line(value) if isinstance(value, str) else value
