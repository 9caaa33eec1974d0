"""Where a command that makes one document puts it: on the standard output, or into a file, whole or not at all."""

import argparse
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from os_prefilter.errors import DocumentError


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say where to."""
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to this file, at once or not at all; default: standard output"
    )
    parser.add_argument("--force", action="store_true", help="replace the file if there is one already")


def check_output(arguments: argparse.Namespace) -> None:
    """Refuse, before anything is asked of anybody, what could not be written.

    :raises DocumentError: the file is there already, or its directory is not.
    """
    if arguments.output is None:
        return
    try:
        path = _target(arguments)
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            advice = "there is no such directory. Make it, or give another path."
            raise DocumentError(arguments.output, advice) from None
        return
    except (OSError, ValueError) as error:
        raise _unwritable(arguments.output, error) from error
    if not stat.S_ISREG(mode):
        raise DocumentError(arguments.output, "this is not a file; give the path of one, which may be new.")
    if not arguments.force:
        raise DocumentError(arguments.output, "the file exists already. Give another path, or --force to replace it.")


def write_output(text: str, arguments: argparse.Namespace, stdout: Any, *, private: bool = False) -> None:
    """Write a document to where the arguments say.

    :param private: whether it says what not everybody may know: a new file is its owner's alone
    :raises DocumentError: it cannot be written, or a file came there meanwhile.
    """
    if arguments.output is None:
        stdout.write(text)
        return
    check_output(arguments)
    path = _target(arguments)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".os-prefilter.", suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(handle, _mode(path, private=private))
            os.fsync(handle)
        Path(temporary).replace(path)
    except OSError as error:
        raise _unwritable(arguments.output, error) from error
    finally:
        if temporary:
            with suppress(OSError):
                Path(temporary).unlink()


def _target(arguments: argparse.Namespace) -> Path:
    """Return the file to write; where a link is named, the one that it leads to."""
    return Path(arguments.output).resolve()


def _mode(path: Path, *, private: bool) -> int:
    """Return who may do what with the file: as now, or as with any that the user makes."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        if private:
            return 0o600
        # The one way to ask for it.
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _unwritable(path: str, error: Exception) -> DocumentError:
    reason = getattr(error, "strerror", None) or error
    return DocumentError(path, f"the file cannot be written: {reason}. Check the directory, and who may write to it.")
