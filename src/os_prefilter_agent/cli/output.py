# SPDX-License-Identifier: Apache-2.0

"""Documents to the standard output or a file, and progress on a terminal."""

from __future__ import annotations

import argparse
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from os_prefilter.common.errors import DocumentError
from os_prefilter.documents.files import replace_file, status_to_replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from os_prefilter.common.progress import Progress


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--output`` and ``--force``."""
    text = "write to this file, whole or not at all; default: standard output"
    parser.add_argument("-o", "--output", metavar="FILE", help=text)
    parser.add_argument(
        "--force", action="store_true", help="replace an existing file"
    )


def check_output(path: str | None, *, force: bool) -> None:
    """Refuse a path that could not be written, before any work is done.

    :raises DocumentError: if the file exists, is a link, or its directory is
        missing.
    """
    if path is not None and status_to_replace(path) is not None and not force:
        raise DocumentError(
            path,
            "the file exists already. Give another path, or --force to"
            " replace it.",
        )


def write_output(
    text: str,
    path: str | None,
    stdout: Any,
    *,
    force: bool,
    private: bool = False,
) -> None:
    """Write a document to a file, or to the standard output without a path.

    :param private: True if only the owner may read and write the file; else a
        file keeps its permissions
    :raises DocumentError: if it cannot be written, or the file has appeared
        meanwhile.
    """
    if path is None:
        stdout.write(text)
        return
    check_output(path, force=force)
    if private:
        mode = 0o600
    elif status := status_to_replace(path):
        mode = stat.S_IMODE(status.st_mode)
    else:
        # The only way to read the user's default.
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    replace_file(path, text, mode)


@contextmanager
def progress_on(
    stream: TextIO, *, is_wanted: bool = True
) -> Iterator[Progress]:
    """Show progress on ``stream`` within the context, if it is a terminal."""
    if not (is_wanted and stream.isatty()):
        yield lambda _what, _done, _of: None
        return
    # Slow to import.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bars  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=Console(file=stream), transient=True) as bars:
        tasks: dict[str, object] = {}

        def show(what: str, done: int, of: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=of)
            bars.update(tasks[what], completed=done, total=of)  # type: ignore[arg-type]

        yield show
