# SPDX-License-Identifier: Apache-2.0

"""Read and replace files that an operator named."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import escape_line

MAX_BYTES = 64 * 1024 * 1024
"""The most that is read of a file, unless its reader has a limit of its own.
"""

_AT_ONCE = 1024 * 1024


def read_bytes(path: str | Path, most: int = MAX_BYTES) -> bytes:
    """Return what is in a file, or in a pipe of a shell.

    :param most: how many bytes it may have
    :raises DocumentError: if there is no such file, it is a directory or a
        device, is larger, or cannot be read.
    """
    with open_file(path) as file:
        # Not most + 1 bytes at once: a read takes the memory for what it is
        # asked for, however small the file is.
        parts = [file.read(min(os.fstat(file.fileno()).st_size, most) + 1)]
        # A pipe has no size.
        while sum(map(len, parts)) <= most and (more := file.read(_AT_ONCE)):
            parts.append(more)
    data = b"".join(parts)
    if len(data) > most:
        raise DocumentError(
            path,
            f"the file is larger than {most >> 20} MiB, the most that is"
            " read.",
        )
    return data


def decode(data: bytes, path: object) -> str:
    """Return the text of a file.

    :raises DocumentError: if it is not UTF-8
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from error


def describe_value(error: Exception) -> str:
    """Return what is wrong with a value that a parser refused."""
    # Python's advice is for programmers.
    if "integer string conversion" in str(error):
        return "a number has thousands of digits. Correct it."
    return f"a value cannot be read: {error}."


def not_utf8(path: object, error: UnicodeDecodeError) -> DocumentError:
    """Return the error about a file that is not UTF-8."""
    return DocumentError(
        path, f"byte {error.start} is not UTF-8; save the file as UTF-8."
    )


@contextmanager
def open_file(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file, or a pipe of a shell, for reading.

    :raises DocumentError: if there is no such file, it is neither of the two,
        or reading it fails.
    """
    try:
        check_readable(path)
        with Path(path).open("rb") as file:
            yield file
    except FileNotFoundError as error:
        raise DocumentError(
            path, "there is no such file. Check the path."
        ) from error
    except IsADirectoryError as error:
        raise DocumentError(
            path, "this is a directory; give the path of a file."
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DocumentError(
            path,
            f"the file cannot be read: {reason}. Check the path and its"
            " permissions.",
        ) from error


def check_readable(path: str | Path) -> None:
    """Refuse what could keep its reader waiting, or never end.

    That is a named pipe, a socket or a device.

    :raises DocumentError: if the path leads to one of them.
    """
    with suppress(OSError, ValueError, RuntimeError):
        # A pipe of a shell, /dev/fd/63 or /dev/stdin, leads to no path, and
        # has a writer that is running.
        mode = Path(path).resolve().stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            advice = (
                "this is a named pipe, a socket or a device; give the path of"
                " a regular file."
            )
            raise DocumentError(path, advice)


def is_file(path: str) -> bool:
    """Return whether there is a file or a pipe of this path.

    False for text that can be no path.
    """
    return os.path.exists(path) and not os.path.isdir(path)  # noqa: PTH110, PTH112 - Path's may raise errors


def status_to_replace(path: str | Path) -> os.stat_result | None:
    """Return the status of the file to replace; None for a new file.

    That is the file which :func:`replace_file` would replace.

    :raises DocumentError: if something other than a regular file is there, or
        the directory is missing.
    """
    path = Path(path)
    try:
        status = path.lstat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise DocumentError(
                path,
                "there is no such directory. Make it, or give another path.",
            ) from None
        return None
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error
    if stat.S_ISLNK(status.st_mode):
        # Followed, it could lead a process of root anywhere; replaced, it
        # could be /dev/stdout.
        target = Path(os.path.realpath(path))
        if target.is_symlink():
            raise DocumentError(
                path,
                "this is a symbolic link that leads to itself. Remove it, or"
                " give another path.",
            )
        raise DocumentError(
            path,
            f"this is a symbolic link to {escape_line(str(target))}, and links"
            " are not followed. Give that path.",
        )
    if not stat.S_ISREG(status.st_mode):
        raise DocumentError(
            path, "this is not a file; give the path of one, which may be new."
        )
    return status


def replace_file(path: str | Path, text: str, mode: int) -> None:
    """Replace a file: write a new one, and rename it to ``path``.

    Readers find the old or the new one, whole. No link is followed.

    :param mode: who may do what with the file
    :raises DocumentError: if it cannot be written; nothing is left behind
        then.
    """
    path, temporary = Path(path), ""
    try:
        # Not named as the file: a program that reads all *.yaml must not read
        # it if it stays behind.
        handle, temporary = tempfile.mkstemp(
            dir=path.parent, prefix=".os-prefilter.", suffix=".tmp"
        )
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(handle, mode)
            os.fsync(handle)
        Path(temporary).replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        if temporary:
            with suppress(OSError):
                Path(temporary).unlink()


def _unwritable(path: Path, error: Exception) -> DocumentError:
    reason = getattr(error, "strerror", None) or error
    return DocumentError(
        path,
        f"the file cannot be written: {reason}. Check the directory and its"
        " permissions.",
    )
