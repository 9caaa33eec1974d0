# SPDX-License-Identifier: Apache-2.0

"""What nova-api refuses in images and flavors, before any scheduler runs.

By a record of the fields and validators of the newest supported Nova: the
machines of operators have no Nova.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib import resources
from typing import Any, cast

from os_prefilter.common.quoting import quote
from os_prefilter.documents.strict_yaml import parse_yaml
from os_prefilter.request.fields import field_of
from os_prefilter.rules.conditions import as_nova_spells
from os_prefilter.vocabulary.image_properties import LEGACY_NAMES
from os_prefilter.vocabulary.model import canonical_boolean

_FILE = "values-of-nova.yaml"
# Of architectures, elsewhere; most are nearer to another one by spelling.
_ELSEWHERE = {
    "arm64": "aarch64",
    "armhf": "armv7l",
    "ppc64el": "ppc64le",
    "x64": "x86_64",
}
_IN_MIB = (
    "hw_video_ram",
    "hw_video:ram_max_mb",
    "hw_numa_mem.",
    "hw:numa_mem.",
)
_NUMBER_OF_NODE = re.compile(r"\.[0-9]+\Z")
_COMPARISON = r"\s*(<=|>=|<|>|!=|==)\s*[vV]?[0-9][^\s,]*\s*"
_COMPARISONS = re.compile(f"{_COMPARISON}(,{_COMPARISON})*")
_MEBIBYTES = re.compile(r"([0-9]{1,9}) ?(M|MB|MiB)", re.IGNORECASE)
# A tenant may write any length; the longest value of Nova has 20 characters.
_LONGEST = 64
_MOST_LISTED = 3
OF_IMAGE = "Nova refuses this image (400 at each boot)"
"""Begins the text on an image; a flavor is refused only when it is set."""
_FLAVOR = "Nova refuses to set this in flavors (400 from microversion 2.86 on)"
_ENCRYPTED = "cinder_encryption_key_id"


def refused_by_nova(request_spec: Any) -> tuple[str, ...]:
    """Return what nova-api refuses in an image and a flavor, and why."""
    in_image = [
        f"{OF_IMAGE}: {problem}" for problem in problems_of_image(request_spec)
    ]
    return (*in_image, *refusals_of_flavor(request_spec))


def problems_of_image(request_spec: Any) -> Iterator[str]:
    """Yield why nova-api answers each boot from the image with 400.

    Nothing of Nova's own objects, which it has taken.
    """
    image = field_of(request_spec, "image")
    properties = field_of(image, "properties")
    if not isinstance(properties, Mapping):
        return
    # API._detect_nonbootable_image_from_properties in nova/compute/api.py: a
    # volume that Cinder creates from the image has the key.
    if properties.get(_ENCRYPTED) and not field_of(request_spec, "is_bfv"):
        yield (
            f"{_ENCRYPTED} says that it was uploaded from an encrypted volume."
            " Create a volume from it, and boot from that"
        )
    for name, value in properties.items():
        if value is None:
            continue
        # Legacy names as well, if the current one is there: Nova reads both.
        text = str(value)
        is_short = len(text) <= _LONGEST
        find = _known_problem if is_short else _problem_of_property
        problem = find(str(name), text)
        if problem:
            yield f"{name}={quote(value)} is {problem}"


def refusals_of_flavor(request_spec: Any) -> Iterator[str]:
    """Yield which extra specs nova-api refuses to set, and why.

    From microversion 2.86 on; it takes a flavor that has it already.
    """
    extra_specs = field_of(field_of(request_spec, "flavor"), "extra_specs", {})
    kinds = _values()["extra_specs"]
    for name, value in extra_specs.items():
        pattern = _NUMBER_OF_NODE.sub(".*", str(name))
        problem = _problem_of_value(name, str(value), kinds.get(pattern))
        if problem:
            yield f"{_FLAVOR}: {name}={quote(value)} is {problem}"


def other_notes(notes: Iterable[str], refused: Iterable[str]) -> list[str]:
    """Return the notes on values that nova-api does not refuse.

    :param refused: of :func:`refused_by_nova`
    """
    left = []
    for note in notes:
        name = note.partition(": ")[0].rpartition(" ")[2]
        begins = f"{OF_IMAGE}: {name}=", f"{_FLAVOR}: {name}="
        if not any(text.startswith(begins) for text in refused):
            left.append(note)
    return left


def is_host_field(name: str) -> bool:
    """Return whether Nova may compare an extra spec with a field of a host."""
    # Counters of its servers: num_vm_active, num_proj_ID.
    return name in _values()["host_fields"] or name.startswith("num_")


@cache
def _values() -> Mapping[str, Any]:
    """Return the values that Nova takes, and the fields of its hosts.

    By image property and by extra spec; without those that may be any text.
    """
    folder = resources.files("os_prefilter_tools") / "data"
    found = parse_yaml(folder.joinpath(_FILE).read_bytes(), _FILE)
    return cast("Mapping[str, Any]", found)


def _problem_of_property(name: str, value: str) -> str:
    if name == "vmware_adaptertype":
        # Of ide Nova makes a bus, of all others a SCSI model.
        if value in ("", "ide"):
            return ""
        name = "hw_scsi_model"
    current = LEGACY_NAMES.get(name, name)
    kind = _values()["image_properties"].get(current)
    # Nova reads those of other nodes if it has read this one.
    if name == "hw_numa_mem.0":
        kind = "number"
    return _problem_of_value(name, as_nova_spells(current, value), kind)


# Finding the value that is meant takes 0.4 ms; a cloud may have thousands of
# images with one mistake.
_known_problem = lru_cache(maxsize=4096)(_problem_of_property)


def _problem_of_value(name: str, value: str, kind: Any) -> str:
    """Return what a value is instead of one that Nova takes, or "".

    :param kind: of the record; None if Nova takes any text
    """
    if isinstance(kind, list):
        return "" if value in kind else _not_one_of(kind, value)
    if kind == "comparison":
        is_one = _COMPARISONS.fullmatch(value)
        return "" if is_one else "no comparison of versions, such as >=2.6"
    if kind == "boolean":
        is_boolean = canonical_boolean(value) is not None
        return "" if is_boolean else "not a boolean. Write true or false"
    return _not_a_number(name, value, kind) if kind else ""


def _not_one_of(values: Collection[str], value: str) -> str:
    """Return that Nova does not have a value, and which is meant."""
    by_spelling = {each.lower(): each for each in values}
    meant = value[:_LONGEST].strip().lower()
    meant = _ELSEWHERE.get(meant, meant)
    close = get_close_matches(meant, by_spelling, n=1)
    if close:
        advice = f"Did you mean {by_spelling[close[0]]}?"
    elif len(values) <= _MOST_LISTED:
        advice = f"Write {' or '.join(values)}"
    else:
        advice = f"Write one of {', '.join(values)}"
    return f"not a value that Nova has. {advice}"


def _not_a_number(
    name: str, value: str, bounds: str | Mapping[str, int]
) -> str:
    is_amount = name.startswith(_IN_MIB)
    try:
        # As Nova does, which takes spaces, signs and underscores.
        number = int(value)
    except ValueError:
        unit = _MEBIBYTES.fullmatch(value)
        if is_amount and unit:
            return f"not a number of MiB. Did you mean {unit[1]}?"
        return f"not a number{' of MiB' if is_amount else ''}"
    if not isinstance(bounds, Mapping):
        return ""
    least, most = bounds.get("min", number), bounds.get("max", number)
    if least <= number <= most:
        return ""
    return (
        f"not from {least} to {most}" if "max" in bounds else f"below {least}"
    )
