"""A provider configuration file for nova-compute, which then reports the ``CUSTOM_`` traits of the host by itself.

The format is version 1.0 of ``nova/compute/provider_config.py``, which takes ``CUSTOM_`` traits only. nova-compute
reads the files ``*.yaml`` of ``[compute] provider_config_location`` when it starts.
"""

import os
import re
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from os_prefilter.errors import DocumentError
from os_prefilter.files import read_bytes
from os_prefilter.operators.provider_plan import Change, check_traits, is_uuid
from os_prefilter.terms import CUSTOM_PREFIX

COMPUTE_NODE = "$COMPUTE_NODE"
"""Stands for the provider of each compute node of the nova-compute that reads the file."""

_MARK = "# Written by os-prefilter, which replaces it; do not edit.\n"
_MODE = 0o644
_TRAIT = re.compile(r"^ +- (CUSTOM_[A-Z0-9_]+)$", re.MULTILINE)


def document(traits: Mapping[str, bool], provider: str = COMPUTE_NODE) -> str:
    """Return the file for a host with these traits, in YAML.

    :param provider: the name or the UUID of its resource provider
    :raises ConfigurationError: if one of them is not a trait.
    """
    check_traits(traits)
    names = sorted(name for name, has in traits.items() if has and name.startswith(CUSTOM_PREFIX))
    listed = "".join(f"\n        - {name}" for name in names) or " []"
    return f"{_head(provider)}{listed}\n"


def _head(provider: str) -> str:
    kind = "uuid" if provider == COMPUTE_NODE or is_uuid(provider) else "name"
    return (
        f"{_MARK}meta:\n  schema_version: '1.0'\n"
        f"providers:\n  - identification:\n      {kind}: {_quoted(provider)}\n    traits:\n      additional:"
    )


def _quoted(text: str) -> str:
    plain = (
        char if char.isascii() and char.isprintable() and char not in '"\\' else f"\\U{ord(char):08x}" for char in text
    )
    return f'"{"".join(plain)}"'


def write_document(
    path: str | Path, traits: Mapping[str, bool], provider: str = COMPUTE_NODE, *, dry_run: bool = False
) -> list[Change]:
    """Make the file say which traits the host has; return what was changed, or would be with ``dry_run``.

    The file is replaced at once, and not touched if it says so already.

    :raises DocumentError: if it cannot be written, or somebody else wrote what is there.
    :raises ConfigurationError: if one of the traits is none.
    """
    new = document(traits, provider)
    # Where it is a link, the file that it leads to is replaced.
    target = Path(path).resolve()
    old = _read(target)
    if old != new and not dry_run:
        _replace(target, new)
    # What it said of another provider is gone.
    before = set(_TRAIT.findall(old)) if old.startswith(_head(provider)) else set()
    now = set(_TRAIT.findall(new))
    added = [Change(provider, trait, "add") for trait in sorted(now - before)]
    return added + [Change(provider, trait, "remove") for trait in sorted(before - now)]


def _read(path: Path) -> str:
    """Return what is there; nothing where there is no file."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise _unwritable(path, error) from error
    if not stat.S_ISREG(mode):
        raise DocumentError(path, "this is not a file; give the path of one, which may be new.")
    text = read_bytes(path).decode("utf-8", errors="replace")
    if text and not text.startswith(_MARK):
        raise DocumentError(
            path, "this file was not written by os-prefilter, and would be lost. Give another path, or move it away."
        )
    return text


def _replace(path: Path, text: str) -> None:
    temporary = ""
    try:
        # Not *.yaml: nova-compute must not read it if it stays behind.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".os-prefilter.", suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(handle, _MODE)
            os.fsync(handle)
        Path(temporary).replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        if temporary:
            with suppress(OSError):
                Path(temporary).unlink()


def _unwritable(path: Path, error: OSError) -> DocumentError:
    return DocumentError(
        path, f"the file cannot be written: {error.strerror}. Check the directory, and who may write to it."
    )
