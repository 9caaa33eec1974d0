# SPDX-License-Identifier: Apache-2.0

"""Provider configuration file, whose traits nova-compute itself reports.

The format is version 1.0 of ``nova/compute/provider_config.py``, which takes
``CUSTOM_`` traits only. nova-compute reads the files ``*.yaml`` of ``[compute]
provider_config_location`` when it starts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.logs import get_logger
from os_prefilter.common.placement_values import is_hyphenated_uuid
from os_prefilter.common.quoting import escape_line, quote
from os_prefilter.common.trait_names import CUSTOM_PREFIX, trait_named
from os_prefilter.documents.files import (
    read_bytes,
    replace_file,
    status_to_replace,
)
from os_prefilter.documents.strict_yaml import parse_yaml
from os_prefilter.hosts.desired_traits import (
    TraitChange,
    changes_between,
    check_traits,
)
from os_prefilter.hosts.marker_traits import ON_PROVIDERS, noted_among

LOG = get_logger(__name__)

COMPUTE_NODE = "$COMPUTE_NODE"
"""Stands for each compute node of the nova-compute that reads the file."""

_MARK = "# Written by os-prefilter, which replaces it; do not edit.\n"
_MODE = 0o644
# What PyYAML raises for broken values, and we for another format.
_UNREADABLE = (
    yaml.YAMLError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class _Entry(NamedTuple):
    """What one entry of another file gives to a provider."""

    path: Path
    provider: str
    """Its name or its UUID, or :data:`COMPUTE_NODE`."""
    traits: frozenset[str]
    inventories: Mapping[str, Any]


def document(
    traits: Mapping[str, bool],
    provider: str = COMPUTE_NODE,
    inventories: Mapping[str, Any] | None = None,
) -> str:
    """Return the file for a host with these traits, in YAML.

    :param provider: the name or the UUID of its resource provider
    :param inventories: those that operators add to it, by resource class
    :raises ConfigurationError: if one of them is not a trait.
    """
    check_traits(traits)
    is_uuid = provider == COMPUTE_NODE or is_hyphenated_uuid(provider)
    entry: dict[str, Any] = {
        "identification": {"uuid" if is_uuid else "name": provider},
        "traits": {"additional": sorted(_custom_traits(traits))},
    }
    if inventories:
        entry["inventories"] = {"additional": [dict(inventories)]}
    content = {"meta": {"schema_version": "1.0"}, "providers": [entry]}
    return yaml.safe_dump(content, sort_keys=False)


def write_document(
    path: str | Path,
    traits: Mapping[str, bool],
    provider: str = COMPUTE_NODE,
    *,
    names: Collection[str] = (),
    dry_run: bool = False,
) -> list[TraitChange]:
    """Make the file list the traits of the host; return the changes.

    The file is replaced at once, and not touched if nothing changes, or with
    ``dry_run``.

    :param names: the name and the UUID of the host's provider, as far as they
        are known
    :raises DocumentError: if it cannot be written, is a link, or was not
        written by os-prefilter; or if another file of its directory is about
        the same provider, or cannot be read
    :raises ConfigurationError: if one of the traits is none.
    """
    if is_hyphenated_uuid(provider):
        # Nova compares it with Placement's spelling.
        provider = provider.lower()
    new = f"{_MARK}{document(traits, provider)}"
    old = (
        ""
        if status_to_replace(path) is None
        else read_bytes(path).decode("utf-8", errors="replace")
    )
    if old and not old.startswith(_MARK):
        raise DocumentError(
            path,
            "this file was not written by os-prefilter, and would be lost."
            " Give another path, or move it away.",
        )
    mine = _custom_traits(traits)
    # Nova passes over an entry without any.
    if mine:
        _check_others(Path(path), traits, provider, names)
    if old != new and not dry_run:
        replace_file(path, new, _MODE)
    return changes_between(provider, _traits(old, provider), mine)


def _custom_traits(traits: Mapping[str, bool]) -> set[str]:
    return {
        name
        for name, has in traits.items()
        if has and name.startswith(CUSTOM_PREFIX)
    }


def _check_others(
    path: Path,
    traits: Mapping[str, bool],
    provider: str,
    names: Collection[str],
) -> None:
    """Refuse a directory where another file has an entry for the provider.

    With two, nova-compute does not start, or uses only one of them. Source:
    Nova 34, ``nova/compute/provider_config.py`` and
    ``_merge_provider_configs`` of the resource tracker.
    """
    same = {provider, *names}
    known_forms = set(map(is_hyphenated_uuid, same - {COMPUTE_NODE}))
    named: list[_Entry] = []
    of_each_node: list[_Entry] = []
    for entry in _entries_beside(path):
        if entry.provider == COMPUTE_NODE:
            of_each_node.append(entry)
        elif entry.provider in same:
            named.append(entry)
        elif is_hyphenated_uuid(entry.provider) not in known_forms:
            text = (
                "%s: it names the provider %s: if that is this host,"
                " nova-compute does not use both entries. Give --provider, or"
                " run the command again when Placement has the host."
            )
            LOG.warning(
                text, escape_line(str(entry.path)), quote(entry.provider)
            )
    # Nova prefers an entry of a provider to that of each compute node.
    found = named or of_each_node
    if found:
        raise _conflict(path, traits, provider, found)


def _conflict(
    path: Path,
    traits: Mapping[str, bool],
    provider: str,
    found: Sequence[_Entry],
) -> DocumentError:
    """Return the error about other entries, with one entry that has it all."""
    first = found[0]
    if first.provider == provider:
        effect = "with two entries nova-compute does not start"
    elif COMPUTE_NODE in (first.provider, provider):
        effect = f"nova-compute ignores the entry of {COMPUTE_NODE} then"
    else:
        effect = (
            "with its name and its UUID nova-compute does not report the host"
        )
    merged = dict(traits)
    inventories: dict[str, Any] = {}
    problems = ""
    for entry in found:
        # What an operator pasted from here before may be outdated.
        ours = noted_among(entry.traits)
        for trait in entry.traits - ours:
            if not trait.startswith(ON_PROVIDERS):
                merged[trait] = True
        for name, inventory in entry.inventories.items():
            if inventories.setdefault(name, inventory) != inventory:
                problems += (
                    f" {quote(name)} cannot be merged:"
                    f" {escape_line(str(entry.path))} has another inventory of"
                    " it; correct the one below."
                )
    target = provider if provider != COMPUTE_NODE else first.provider
    outdated = [path] if path.exists() else []
    if target == first.provider or first.provider != COMPUTE_NODE:
        outdated += [entry.path for entry in found]
    removal = ""
    if outdated:
        paths = ", ".join(dict.fromkeys(map(str, outdated)))
        removal = f" and remove the entry from {escape_line(paths)}"
    text = document(merged, target, inventories)
    return DocumentError(
        first.path,
        f"it names the provider {quote(first.provider)} too, and {effect}."
        f" Nothing was written.{problems} Put this into another file of the"
        f" directory{removal}:\n\n{text}",
    )


def _entries_beside(path: Path) -> list[_Entry]:
    """Return the entries of the other files that nova-compute reads.

    :raises DocumentError: if one cannot be read, or has another format
    """
    unknown = (
        " Until then it is not known whether it has an entry for the host,"
        " with which nova-compute would not start. Nothing was written."
    )
    # Path.glob would pass over a directory that cannot be read, and find
    # hidden files, which Nova does not read.
    try:
        others = sorted(path.parent.iterdir())
    except OSError as error:
        raise DocumentError(
            path.parent,
            f"the directory cannot be read: {error.strerror}. Check its"
            f" permissions.{unknown}",
        ) from error
    found: list[_Entry] = []
    for other in others:
        if other.name[0] == "." or other.suffix != ".yaml":
            continue
        if other.name == path.name:
            continue
        try:
            found += _entries_of(other)
        except DocumentError as error:
            raise DocumentError(other, f"{error.problem}{unknown}") from error
        except _UNREADABLE as error:
            mark = getattr(error, "problem_mark", None)
            raise DocumentError(
                other,
                "nova-compute does not start with this file: it is no YAML, or"
                " no provider configuration. Correct it, or move it away."
                f"{unknown}",
                mark.line + 1 if mark else 0,
            ) from error
    return found


def _entries_of(path: Path) -> Iterator[_Entry]:
    """Yield the entries of a file, read as Nova reads it."""
    content: Any = yaml.safe_load(read_bytes(path).decode())
    # Nova needs it.
    content["meta"]["schema_version"]
    for entry in content.get("providers", ()):
        (provider,) = entry["identification"].values()
        names = entry.get("traits", {}).get("additional", ())
        traits = frozenset(map(trait_named, names))
        inventories: dict[str, Any] = {}
        for each in entry.get("inventories", {}).get("additional", ()):
            inventories.update(each)
        if traits or inventories:
            yield _Entry(path, str(provider), traits, inventories)


def _traits(text: str, provider: str) -> set[str]:
    """Return the traits of a provider in our file.

    None if the file is of another provider, or was edited beyond use.
    """
    try:
        content: Any = parse_yaml(text.encode(), "")
        (entry,) = content["providers"]
        names = (
            entry["traits"]["additional"]
            if provider in entry["identification"].values()
            else ()
        )
        return {name for name in names if isinstance(name, str)}
    except (DocumentError, LookupError, TypeError, ValueError, AttributeError):
        return set()
