"""Where a command that makes one document puts it: on the standard output, or into a file, whole or not at all."""

import argparse
import os
import stat
from pathlib import Path
from typing import Any

from os_prefilter.documents.files import opened, replace_file, status_to_replace
from os_prefilter.errors import DocumentError


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say where to."""
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to this file, at once or not at all; default: standard output"
    )
    add_force_argument(parser)


def add_force_argument(parser: Any, text: str = "replace the file if there is one already") -> None:
    """Add ``--force`` to a parser or a group."""
    parser.add_argument("--force", action="store_true", help=text)


def check_output(path: str | None, *, force: bool, mark: str = "") -> None:
    """Refuse, before anything is asked of anybody, what could not be written.

    :param mark: how a document of this kind begins; a file that begins so is replaced without ``force``
    :raises DocumentError: the file is there already, is a link, or its directory is not there.
    """
    if path is None or status_to_replace(path) is None or force:
        return
    if not mark:
        raise DocumentError(path, "the file exists already. Give another path, or --force to replace it.")
    with opened(path) as file:
        beginning = file.read(len(mark))
    if beginning not in (b"", mark.encode()):
        advice = "this is no page of this version of os-prefilter, and would be lost. Give another path, or --force."
        raise DocumentError(path, advice)


def write_output(  # noqa: PLR0913 - what the options of a command say
    text: str, path: str | None, stdout: Any, *, force: bool, mark: str = "", private: bool = False
) -> None:
    """Write a document into a file, or to the standard output if there is no path.

    :param private: whether it says what not everybody may know: the file is its owner's alone
    :raises DocumentError: it cannot be written, or a file came there meanwhile.
    """
    if path is None:
        stdout.write(text)
        return
    check_output(path, force=force, mark=mark)
    replace_file(path, text, _mode(path, private=private))


def _mode(path: str, *, private: bool) -> int:
    """Return who may do what with the file: as now, or as with any that the user makes."""
    if private:
        return 0o600
    try:
        return stat.S_IMODE(Path(path).lstat().st_mode)
    except FileNotFoundError:
        # The one way to ask for it.
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
