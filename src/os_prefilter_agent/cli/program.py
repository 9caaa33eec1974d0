# SPDX-License-Identifier: Apache-2.0

"""Common parts of the programs: exit codes, output, logs without passwords."""

from __future__ import annotations

import io
import logging
import os
import sys
from pathlib import Path

from os_prefilter.common.quoting import mask_passwords

ERROR = 1
NO_HOST = 2
"""Exit code of a command that succeeds but finds no host."""
BROKEN_PIPE = 141


class PasswordMaskingFormatter(logging.Formatter):
    """Another formatter's lines, without the passwords in URLs.

    Client libraries and tracebacks show URLs.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        return mask_passwords(self._formatter.format(record))


def prepare_output() -> None:
    """Let the standard output take any text.

    Errors of writing show in :func:`flush` alone.
    """
    if sys.stdout is None:
        # A script closed it.
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names may have letters that the terminal does not have. Argparse
        # ignores errors of writing, and where Python does not buffer
        # (PYTHONUNBUFFERED) there would be no second one.
        sys.stdout.reconfigure(errors="backslashreplace", write_through=False)


def flush(
    code: int,
    error_code: int = ERROR,
    text: str = "",
    failed: OSError | None = None,
) -> int:
    """Write out a text and what was printed; return the exit code.

    It is that of an error if the standard output cannot be written.

    :param failed: the error of an earlier writing
    """
    try:
        if failed:
            raise failed
        if text:
            sys.stdout.write(text)
        # autopage closes it where the reader of a help has gone.
        if not sys.stdout.closed:
            sys.stdout.flush()
    except OSError as error:
        # The interpreter would try again when it ends, and print a traceback.
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return BROKEN_PIPE
        advice = (
            "Check where it is redirected to, and how much space there is."
        )
        print(  # noqa: T201
            f"The standard output cannot be written: {error.strerror}."
            f" {advice}",
            file=sys.stderr,
        )
        return error_code
    return code
