"""Reading a file that somebody named on a command line or in a configuration."""

from pathlib import Path

from os_prefilter.errors import DocumentError

MAX_BYTES = 64 * 1024 * 1024
"""The most that is read: a fleet of 10,000 hosts with 90 traits each is less than half of it."""


def read_bytes(path: str | Path) -> bytes:
    """Return what is in a file, or in a pipe, of at most 64 MiB.

    :raises DocumentError: if there is no such file, it is a directory, is larger, or cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise DocumentError(path, "there is no such file. Check the path.") from error
    except IsADirectoryError as error:
        raise DocumentError(path, "this is a directory; give the path of a file.") from error
    except (OSError, ValueError) as error:
        raise DocumentError(path, f"the file cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if len(data) > MAX_BYTES:
        raise DocumentError(path, "the file is larger than 64 MiB, the most that is read.")
    return data


def is_file(path: str) -> bool:
    """Whether there is a file, or a pipe, of this path; not where the text can be no path at all."""
    try:
        return Path(path).exists() and not Path(path).is_dir()
    except (OSError, ValueError):
        return False
