# SPDX-License-Identifier: Apache-2.0

"""Record what the installed Nova knows, beside what we know:
``python -m tests.against_nova.record``.

Run it in the environment of each release, after its tests:
``.tox/nova29/bin/python -m tests.against_nova.record``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import nova
import os_traits
import yaml
from nova import exception
from nova.api.validation.extra_specs import validators
from nova.objects import fields
from nova.objects.image_meta import ImageMetaProps
from nova.scheduler import request_filter
from nova.scheduler.host_manager import HostState

from os_prefilter.hosts.drivers.nova_releases import NOVA_RELEASES
from os_prefilter.nova.activation import SAME_PURPOSE, STAYS_WITH_NOVA
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.config_templates import PREFIX
from os_prefilter.vocabulary.image_properties import KEPT_BY_NOVA, LISTS
from os_prefilter.vocabulary.model import Row
from tests.against_nova.nova import NOVA
from tests.against_nova.releases import Release, write
from tests.support.project import ROOT

VALUES = ROOT / "src/os_prefilter_tools/data/values-of-nova.yaml"
"""What commands read on machines without Nova: that of the newest release."""

"""Image properties that are no texts, numbers or booleans: Nova's own
business.
"""
_PARTS = (
    "compute/provider_tree.py",
    "virt/driver.py",
    "virt/libvirt",
    "virt/vmwareapi",
    "virt/ironic",
)
"""The source of what a nova-compute reports."""


def record() -> Release:
    """Return what the installed Nova does and we do not, and the reverse."""
    named, known = (
        [row for row in ROWS if row.image_property],
        set(os_traits.get_traits()),
    )
    standard = {
        str(term.trait)
        for row in ROWS
        for term in row.values.values()
        if term.kind == "standard"
    }
    filters = {each.__name__ for each in request_filter.ALL_REQUEST_FILTERS}
    elsewhere = {name for name, _ in STAYS_WITH_NOVA.values()}
    words = _words()
    return Release(
        pythons=_pythons(),
        properties=sorted(
            {str(row.image_property) for row in named}
            - set(ImageMetaProps.fields)
        ),
        values=_difference(
            named, lambda row, enumerated: set(row.values) - enumerated
        ),
        extra_specs={
            str(row.extra_spec): refused
            for row in sorted(ROWS, key=lambda row: str(row.extra_spec))
            if row.extra_spec
            and (
                refused := sorted(
                    value for value in row.values if _is_refused(row, value)
                )
            )
        },
        request_filters=sorted(set(SAME_PURPOSE.values()) - filters),
        traits=sorted(standard - known),
        unreported=sorted(
            trait for trait in standard & known if not _is_named(trait, words)
        ),
        novas_request_filters=sorted(
            filters - set(SAME_PURPOSE.values()) - elsewhere
        ),
        novas_properties=sorted(
            set(ImageMetaProps.fields) - LISTS - KEPT_BY_NOVA
        ),
        novas_values=_difference(
            named,
            lambda row, enumerated: (
                enumerated - set(row.values) - set(row.spelling.older)
            ),
        ),
    )


def _pythons() -> list[str]:
    classifiers: list[str] = metadata("nova").get_all("Classifier", [])
    found = [
        each.rpartition(" :: ")[2]
        for each in classifiers
        if "Python :: 3." in each
    ]
    return sorted(found, key=lambda text: int(text.partition(".")[2]))


def _difference(
    rows: list[Row], of: Callable[[Row, set[str]], set[str]]
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: str(row.image_property)):
        enumerated = getattr(
            getattr(
                ImageMetaProps.fields.get(row.image_property),
                "AUTO_TYPE",
                None,
            ),
            "ALL",
            None,
        )
        if enumerated and (different := sorted(of(row, set(enumerated)))):
            found[str(row.image_property)] = different
    return found


def _is_refused(row: Row, value: str) -> bool:
    try:
        validators.validate(row.extra_spec, value)
    except exception.ValidationError:
        return True
    return False


def _words() -> set[str]:
    root = Path(str(nova.__file__)).parent
    places = [root / part for part in _PARTS]
    files = [
        path
        for place in places
        for path in (
            [place] if place.is_file() else sorted(place.rglob("*.py"))
        )
    ]
    return {
        word
        for path in files
        for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))
    }


def _is_named(trait: str, words: set[str]) -> bool:
    """Whether the source names the trait, or makes it of its prefix:
    ``f"COMPUTE_STORAGE_BUS_{bus}"``.
    """
    parts = trait.split("_")
    prefixes = (
        "_".join(parts[:number]) + "_" for number in range(2, len(parts))
    )
    return trait in words or any(prefix in words for prefix in prefixes)


def values() -> dict[str, Any]:
    """Return the values that the installed nova-api takes: those of images at
    each boot, those of flavors when an extra spec is set.

    A list of them, or what they are; without those that may be any text. And
    the fields of a host with which Nova compares extra specs.
    """
    host = HostState("host", "node", "11111111-2222-4333-8444-555555555555")
    properties = {
        name: _kind_of_property(field)
        for name, field in sorted(ImageMetaProps.fields.items())
    }
    extra_specs = {
        # The patterns of names are those of numbered nodes.
        re.sub(r"\{.*\}", "*", name): _kind_of_extra_spec(validator.value)
        for name, validator in sorted(validators.VALIDATORS.items())
        if not name.startswith(("resources", "trait", PREFIX))
    }
    without_texts = {
        title: {name: kind for name, kind in found.items() if kind}
        for title, found in (
            ("image_properties", properties),
            ("extra_specs", extra_specs),
        )
    }
    # The last ones are set with what a compute node reports.
    names = {*dir(host), "stats", "io_workload"}
    fields_of_host = sorted(name for name in names if name[0] != "_")
    return {**without_texts, "host_fields": fields_of_host}


def _kind_of_property(field: Any) -> list[str] | str | None:
    kinds = {
        fields.IntegerField: "number",
        fields.VersionPredicateField: "comparison",
    }
    if type(field) in kinds:
        return kinds[type(field)]
    kind = getattr(field, "AUTO_TYPE", None)
    return list(getattr(kind, "valid_values", ())) or None


def _kind_of_extra_spec(value: dict[str, Any]) -> Any:
    if value["type"] is int:
        bounds = {
            name: value[name] for name in ("min", "max") if name in value
        }
        return bounds or "number"
    if value["type"] is bool:
        return "boolean"
    return list(value.get("enum", ())) or None


def write_values() -> None:
    head = (
        "# Values that nova-api takes, of the newest supported Nova; written"
        " by python -m tests.against_nova.record: do not edit.\n"
    )
    text = yaml.safe_dump(values(), default_flow_style=None, width=118)
    VALUES.write_text(head + text, encoding="utf-8")


if __name__ == "__main__":
    write(NOVA, record())
    if max(NOVA_RELEASES) == NOVA:
        write_values()
