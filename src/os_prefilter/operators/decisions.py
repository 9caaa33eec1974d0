"""Read the history of decisions: from the files of ``decision_history_dir``, or from the log of a service."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import escape_line
from os_prefilter.documents.files import decode, open_file
from os_prefilter.documents.strict_json import DECODER, strict
from os_prefilter.pipeline.decision_log import FILES, FORMAT, MAX_BYTES

Kinds = dict[str, type | tuple[type, ...]]

# Not what an operator has copied or compressed beside them.
_OF_HISTORY = re.compile(r"decisions-\d+\.jsonl(\.1)?", re.ASCII)

_ID = (str, type(None))
_FIELDS: Final[Kinds] = {
    "time": str,
    "worker": int,
    "request": _ID,
    "server": _ID,
    "result": str,
    "reason": _ID,
    "hosts": (int, type(None)),
    "requirements": list,
    "preferences": list,
    "aggregates": list,
    "notes": list,
    "left_out": int,
}
_PREFERENCE: Final[Kinds] = {"trait": str, "filter": str, "source": str}
_AGGREGATES: Final[Kinds] = {"aggregates": list, "required": bool, "filter": str, "source": str}
_REQUIREMENT: Final[Kinds] = {"trait": str, "required": bool, "scope": str, "filter": str, "source": str}

_START = f'{{"decision": {FORMAT}, '.encode()
# In the message of oslo.log's JSON formatter.
_ESCAPED = json.dumps(_START.decode())[1:-1].encode()
# With the prefix and the other keys of a log line, each character escaped.
_LONGEST_LINE = 8 * MAX_BYTES


class Decision(NamedTuple):
    """A decision as it was recorded. Its text is printable, whatever the file has."""

    time: str
    """In UTC, as ``2026-11-03T14:02:11.123Z``."""
    worker: int
    """The process ID of the worker."""
    request: str | None
    """The request ID; None where the service gave no context."""
    server: str | None
    """The UUID of the server."""
    result: str
    """``passed``, ``rejected`` because of what the request requires, or ``failed`` because of an error."""
    reason: str | None
    """Why the request was rejected, or failed."""
    hosts: int | None
    """How many hosts met the requirements; None if that was not known."""
    requirements: list[dict[str, Any]]
    """The requirements, each with ``trait``, ``required``, ``scope``, ``filter`` and ``source``."""
    preferences: list[dict[str, Any]]
    """The preferred traits, each with ``trait``, ``filter`` and ``source``."""
    aggregates: list[dict[str, Any]]
    """The aggregates that the host had to be, or not to be, in, each with ``aggregates``, ``required``, ``filter`` and
    ``source``."""
    notes: list[str]
    """The parts of the request that did not become requirements, and why."""
    left_out: int
    """How many more requirements, preferences and notes there were than a line has room for."""


class DecisionFile:
    """A file with decisions.

    :param path: a file of ``decision_history_dir``, or a log; also a pipe of a shell
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged: list[int] = []
        """After the file was read: the lines with a decision that cannot be read, such as half of one."""

    def __iter__(self) -> Iterator[Decision]:
        """Read the decisions; there may be millions of them.

        :raises DocumentError: if the file cannot be read, or it has lines but no decision
        """
        found, first = False, b""
        with open_file(self.path) as file:
            number = 0
            while line := file.readline(_LONGEST_LINE):
                number += 1
                first = first or line
                decision = None
                with suppress(ValueError, RecursionError):
                    decision = _decision_in(line)
                    if decision is None:
                        continue
                found = True
                if decision:
                    yield decision
                else:
                    self.damaged.append(number)
        if first and not found:
            decode(first, self.path)
            raise DocumentError(
                self.path,
                "there is no decision in this file. Give a file of [prefilter] decision_history_dir, or the log of a "
                "service without that option.",
            )


def decision_files(path: str) -> list[DecisionFile]:
    """Return the files of a directory, or the one file of that path.

    :raises DocumentError: if the directory has none, or cannot be read
    """
    folder = Path(path)
    try:
        if not folder.is_dir():
            return [DecisionFile(folder)]
        # Not Path.glob, which finds nothing in a directory that cannot be read.
        files = sorted(each for each in folder.iterdir() if _OF_HISTORY.fullmatch(each.name))
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        raise DocumentError(path, f"the directory cannot be read: {problem}. Check its permissions.") from error
    if not files:
        raise DocumentError(
            path, f"the directory has no file {FILES}. Give [prefilter] decision_history_dir of the service."
        )
    return [DecisionFile(each) for each in files]


def _decision_in(line: bytes) -> Decision | None:
    """Return the decision in a line; None if there is none.

    :raises ValueError: if it cannot be read
    :raises RecursionError: if it is nested too deep
    """
    start = line.find(_START)
    if start >= 0:
        text = line[start:].decode()
    elif _ESCAPED in line:
        fields = strict(line.decode())
        text = str(fields.get("message")) if isinstance(fields, dict) else ""
    elif line.strip() and _START.startswith(line.strip()):
        raise ValueError("half a line")
    else:
        return None
    # What follows is the log's.
    found, _ = DECODER.raw_decode(text)
    if isinstance(found, dict):
        # Of before there were any.
        found.setdefault("aggregates", [])
    if not (_has(found, _FIELDS) and all(isinstance(each, str) for each in found["notes"])):
        raise ValueError("not a decision")
    own = {name: _printable(found[name]) for name in _FIELDS}
    own["notes"] = list(map(_printable, found["notes"]))
    for name, kinds in (("requirements", _REQUIREMENT), ("preferences", _PREFERENCE), ("aggregates", _AGGREGATES)):
        if not all(_has(each, kinds) for each in found[name]):
            raise ValueError("not a requirement")
        own[name] = [{key: _printable(each[key]) for key in kinds} for each in found[name]]
    return Decision(**own)


def _has(found: Any, kinds: Kinds) -> bool:
    return isinstance(found, dict) and all(name in found and isinstance(found[name], kinds[name]) for name in kinds)


def _printable(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_printable, value))
    return escape_line(value) if isinstance(value, str) else value
