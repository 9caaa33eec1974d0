"""History of decisions, one line of JSON each: to the service's log, or to files of each worker (ADR 0036)."""

import errno
import fcntl
import json
import os
import tempfile
import threading
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Any, Final

from oslo_config import cfg

from os_prefilter.common.errors import InvalidOption, PrefilterError, RequestRejected
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import describe_error, mask_passwords, quote
from os_prefilter.conf import GROUP
from os_prefilter.pipeline.decision import Decision
from os_prefilter.request.view import field_of

LOG = get_logger(__name__)

FORMAT: Final = 1
"""Raised when a program that reads the lines must be changed. It is their first key, ``decision``."""
FILES: Final = "decisions-*.jsonl*"
"""The pattern of the files in ``[prefilter] decision_history_dir``."""
MAX_BYTES: Final = 128 * 1024
"""No line is longer, whatever a request has in it."""

_MOST_REQUIREMENTS = 100
# Preferences, and notes.
_MOST_OTHERS = 10
# Of one requirement.
_MOST_AGGREGATES = 20
# Of a trait; no suffix of a group and no identifier is longer than 64.
_TRAIT_LENGTH = 255
_NAME_LENGTH = 80
_TEXT_LENGTH = 200
_REASON_LENGTH = 1000
# What is beyond a text's end may show that a password is before it (common.quoting).
_LONGEST_LOGIN = 1000
# Another user's link, pipe or device is an error, not something to wait for.
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# The group of a service often includes those who may read its log.
_MODE = 0o640
_READ_AT_ONCE = 1024 * 1024


class DecisionLog:
    """The decisions of a pipeline, for an operator to read later. Safe to use from many threads, and after a fork.

    A line has identifiers of the request and the server, but neither names of users nor any other text of tenants than
    the sources of requirements, and is at most 128 KiB long. Failing to write one fails no request.

    :param most: how many decisions each worker keeps at least; at most it keeps twice as many
    :param folder: the directory of their files; empty for the log, at INFO
    """

    def __init__(self, most: int, folder: str = "") -> None:
        self._files = _Files(folder, most) if folder else None
        self._lost = 0

    @staticmethod
    def describe(decision: Decision) -> str:
        """Return the part of a line that is the same each time the decision is applied."""
        requirements, preferences = decision.requirements, decision.preferences
        aggregates, notes = decision.aggregates, decision.notes
        described = {
            "requirements": [
                {
                    "trait": _cut(item.trait, _TRAIT_LENGTH),
                    "required": item.required,
                    "scope": _cut(item.scope, _NAME_LENGTH),
                    "filter": _cut(item.filter, _NAME_LENGTH),
                    "source": _cut(item.source, _TEXT_LENGTH),
                }
                for item in requirements[:_MOST_REQUIREMENTS]
            ],
            "preferences": [
                {
                    "trait": _cut(item.trait, _TRAIT_LENGTH),
                    "filter": _cut(item.filter, _NAME_LENGTH),
                    "source": _cut(item.source, _TEXT_LENGTH),
                }
                for item in preferences[:_MOST_OTHERS]
            ],
            "aggregates": [
                {
                    "aggregates": list(item.aggregates[:_MOST_AGGREGATES]),
                    "required": item.required,
                    "filter": _cut(item.filter, _NAME_LENGTH),
                    "source": _cut(item.because, _TEXT_LENGTH),
                }
                for item in aggregates[:_MOST_OTHERS]
            ],
            "notes": [_cut(note, _TEXT_LENGTH) for note in notes[:_MOST_OTHERS]],
            "left_out": sum(
                (
                    len(requirements[_MOST_REQUIREMENTS:]),
                    len(preferences[_MOST_OTHERS:]),
                    len(aggregates[_MOST_OTHERS:]),
                    sum(len(item.aggregates[_MOST_AGGREGATES:]) for item in aggregates[:_MOST_OTHERS]),
                    len(notes[_MOST_OTHERS:]),
                )
            ),
        }
        return json.dumps(described)[1:]

    def record(
        self,
        request_spec: Any,
        context: Any,
        described: str,
        error: BaseException | None = None,
        hosts: int | None = None,
    ) -> None:
        """Write a decision.

        :param context: an oslo.context RequestContext, whose request ID is written; None or any other object without
        :param described: what :meth:`describe` returned; empty if there is no decision because of the error
        :param error: why the request was not scheduled
        :param hosts: how many hosts meet the requirements; None if that is not known
        """
        try:
            line = _line(request_spec, context, described or _NOTHING_DECIDED, error, hosts)
            if self._files:
                self._files.write(f"{line}\n".encode("ascii"))
            else:
                LOG.info("%s", line)
        except Exception as problem:  # noqa: BLE001 - the request matters, its history does not
            self._lost += 1
            if self._lost == 1:
                LOG.warning(
                    "Failed to write a decision to the history, and those that follow are lost until it can be written "
                    "again: %s. Check [prefilter] decision_history_dir and how much space there is.",
                    describe_error(problem),
                )
        else:
            if self._lost:
                lost, self._lost = self._lost, 0
                LOG.info("The history of decisions is written again; %d decisions were lost.", lost)


def decision_log_from(conf: cfg.ConfigOpts) -> DecisionLog | None:
    """Return the history that the options of ``conf`` define; None if it is off.

    :raises InvalidOption: if its directory is missing or cannot be written
    """
    most, folder = conf[GROUP].decision_history, conf[GROUP].decision_history_dir
    if not most:
        if folder:
            LOG.warning("[prefilter] decision_history_dir is set, but decision_history is 0: no decision is recorded.")
        return None
    if folder:
        _check_folder(folder)
    return DecisionLog(most, folder)


def _check_folder(folder: str) -> None:
    option, name = "decision_history_dir", quote(folder, _TEXT_LENGTH)
    try:
        if not Path(folder).is_dir():
            raise InvalidOption(option, f"{name} is no directory. Create it, or correct the path.")
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        # There may be space again before the first request.
        if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            problem = getattr(error, "strerror", None) or error
            advice = "Give that user the directory, or use another one."
            raise InvalidOption(
                option, f"the service's user (UID {os.geteuid()}) cannot write to {name}: {problem}. {advice}"
            ) from error


class _Files:
    """Files of a directory: each process writes to its own, and renames it to ``.1`` when it is full.

    Workers are forked after the pipeline is loaded, so that each opens its file at its first decision: the first one
    that no other process has locked. A restarted worker so continues a file of before.
    """

    def __init__(self, folder: str, most: int) -> None:
        self._folder = Path(folder)
        self._most = most
        self._lock = threading.Lock()
        self._path = self._folder
        # A file descriptor; None before the first decision of a process.
        self._file: int | None = None
        self._process = 0
        self._lines = 0
        # Whether the file ends in half a line: the process was killed, or the disk was full.
        self._is_torn = False

    def write(self, line: bytes) -> None:
        """Append a line, at once.

        :raises OSError: if it cannot be written as a whole
        """
        with self._lock:
            file = self._usable_file()
            data = b"\n" + line if self._is_torn else line
            written = os.write(file, data)
            self._is_torn = written < len(data)
            if self._is_torn:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._lines += 1

    def _usable_file(self) -> int:
        """Return the file of this process, which has room for a line."""
        file = self._file
        if file is None or self._process != os.getpid() or not _is_file_at(self._path, file):
            file = self._open()
        if self._lines >= self._most:
            self._path.replace(f"{self._path}.1")
            file = self._open()
        return file

    def _open(self) -> int:
        """Open the first file that no other process uses, and count its lines."""
        self._close()
        for slot in count():
            path = self._folder / f"decisions-{slot}.jsonl"
            file = _lock_file(path)
            if file is not None:
                self._path, self._file, self._process = path, file, os.getpid()
                self._lines, self._is_torn = _count_lines(file)
                return file
        raise AssertionError

    def _close(self) -> None:
        """Close the file, and so give up its lock; after a fork the parent keeps it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self._close()


def _lock_file(path: Path) -> int | None:
    """Open a file, which may be new, and lock it; None if another process has locked it."""
    file = os.open(path, _FLAGS, _MODE)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The process that had locked it may have renamed it meanwhile.
        if _is_file_at(path, file):
            return file
    except BlockingIOError:
        pass
    except BaseException:
        os.close(file)
        raise
    os.close(file)
    return None


def _is_file_at(path: Path, file: int) -> bool:
    """Whether an open file is still the one of that path: it may have been removed or renamed."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except OSError:
        return False


def _count_lines(file: int) -> tuple[int, bool]:
    """Return the number of lines of a file, and whether it ends within one."""
    lines, end = 0, b"\n"
    while data := os.read(file, _READ_AT_ONCE):
        lines, end = lines + data.count(b"\n"), data[-1:]
    return lines, end != b"\n"


_NOTHING_DECIDED = DecisionLog.describe(Decision(()))


def _line(request_spec: Any, context: Any, described: str, error: BaseException | None, hosts: int | None) -> str:
    result = "passed" if error is None else "rejected" if isinstance(error, RequestRejected) else "failed"
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    own = {
        "decision": FORMAT,
        "time": f"{now.isoformat(timespec='milliseconds')}Z",
        "worker": os.getpid(),
        "request": _identifier(getattr(context, "request_id", None)),
        "server": _identifier(field_of(request_spec, "instance_uuid")),
        "result": result,
        "reason": None if error is None else _cut(_reason(error), _REASON_LENGTH),
        "hosts": hosts,
    }
    return f"{json.dumps(own)[:-1]}, {described}"


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, PrefilterError) else describe_error(error)


def _identifier(value: object) -> str | None:
    return None if value is None else _cut(value, _NAME_LENGTH)


def _cut(value: object, length: int) -> str:
    """Return text for a line of JSON: printable ASCII without passwords in URLs, cut after ``length``."""
    text = str(value)[: length + _LONGEST_LOGIN]
    # Without a colon there is no password; most texts are names.
    if ":" in text:
        text = mask_passwords(text)
    if not (text.isascii() and text.isprintable()):
        text = ascii(text)[1:-1]
    return text if len(text) <= length else text[:length] + "..."
