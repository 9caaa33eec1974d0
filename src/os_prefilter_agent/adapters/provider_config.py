# SPDX-License-Identifier: Apache-2.0

"""Provider configuration file, whose traits nova-compute itself reports.

The format is version 1.0 of ``nova/compute/provider_config.py``, which takes
``CUSTOM_`` traits only. nova-compute reads the files ``*.yaml`` of ``[compute]
provider_config_location`` when it starts.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.logs import get_logger
from os_prefilter.common.placement_values import is_hyphenated_uuid
from os_prefilter.common.quoting import escape_line, quote
from os_prefilter.common.trait_names import CUSTOM_PREFIX
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

LOG = get_logger(__name__)

COMPUTE_NODE = "$COMPUTE_NODE"
"""Stands for each compute node of the nova-compute that reads the file."""

_MARK = "# Written by os-prefilter, which replaces it; do not edit.\n"
_MODE = 0o644


def document(traits: Mapping[str, bool], provider: str = COMPUTE_NODE) -> str:
    """Return the file for a host with these traits, in YAML.

    :param provider: the name or the UUID of its resource provider
    :raises ConfigurationError: if one of them is not a trait.
    """
    check_traits(traits)
    names = sorted(
        name
        for name, has in traits.items()
        if has and name.startswith(CUSTOM_PREFIX)
    )
    is_uuid = provider == COMPUTE_NODE or is_hyphenated_uuid(provider)
    entry = {
        "identification": {"uuid" if is_uuid else "name": provider},
        "traits": {"additional": names},
    }
    content = {"meta": {"schema_version": "1.0"}, "providers": [entry]}
    return f"{_MARK}{yaml.safe_dump(content, sort_keys=False)}"


def write_document(
    path: str | Path,
    traits: Mapping[str, bool],
    provider: str = COMPUTE_NODE,
    *,
    host: str = "",
    dry_run: bool = False,
) -> list[TraitChange]:
    """Make the file list the traits of the host; return the changes.

    The file is replaced at once, and not touched if nothing changes, or with
    ``dry_run``.

    :param host: the host's name, which its resource provider has
    :raises DocumentError: if it cannot be written, is a link, or was not
        written by os-prefilter; or if another file of its directory is about
        the same provider
    :raises ConfigurationError: if one of the traits is none.
    """
    new = document(traits, provider)
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
    _check_others(Path(path), provider, host)
    if old != new and not dry_run:
        replace_file(path, new, _MODE)
    return changes_between(
        provider, _traits(old, provider), _traits(new, provider)
    )


def _check_others(path: Path, provider: str, host: str) -> None:
    """Refuse a directory where another file has an entry for the provider.

    With two, nova-compute does not start, or reads only one of them. Source:
    Nova 34, ``nova/compute/provider_config.py`` and
    ``_merge_provider_configs`` of the resource tracker.
    """
    advice = (
        "Add the traits that --dry-run lists to the entry there by hand, or"
        " leave --provider-config out and report to Placement."
    )
    for other in sorted(path.parent.glob("*.yaml")):
        if other.name == path.name:
            continue
        for key, named in _providers_in(other):
            if named == provider:
                raise DocumentError(
                    other,
                    f"it names the provider {quote(named)} too, and with two"
                    f" nova-compute does not start. {advice}",
                )
            # Nova prefers the entry by name to that of each compute node.
            is_host = provider == COMPUTE_NODE and named == host
            if is_host or named == COMPUTE_NODE:
                raise DocumentError(
                    other,
                    f"it names {quote(named)}, and nova-compute reads only one"
                    f" of the two entries. {advice}",
                )
            if key == "uuid":
                text = (
                    "%s: it names the provider %s: if that is this host,"
                    " nova-compute does not read both entries. %s"
                )
                LOG.warning(
                    text, escape_line(str(other)), quote(named), advice
                )


def _providers_in(path: Path) -> Iterator[tuple[str, str]]:
    """Yield how each provider of a file is identified, and the value.

    Nothing of a file that cannot be read: a warning names it.
    """
    try:
        content: Any = parse_yaml(read_bytes(path), path)
    except DocumentError as error:
        LOG.warning(
            "Failed to look for other entries of the provider. %s",
            escape_line(str(error)),
        )
        return
    providers = content.get("providers") if isinstance(content, dict) else None
    for entry in providers if isinstance(providers, list) else ():
        identification = (
            entry.get("identification") if isinstance(entry, dict) else None
        )
        if isinstance(identification, dict):
            for key, named in identification.items():
                yield key, str(named)


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
