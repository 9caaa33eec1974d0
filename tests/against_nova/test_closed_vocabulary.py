# SPDX-License-Identifier: Apache-2.0

"""The vocabulary is closed: what the installed Nova knows has a row, or a
reason for having none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import nova
import pytest
from nova import virt
from nova.api.openstack.compute.schemas import servers
from nova.api.validation.extra_specs import validators
from nova.objects.image_meta import ImageMetaProps
from nova.virt.driver import CAPABILITY_TRAITS_MAP

from os_prefilter.service import Service
from os_prefilter.vocabulary import ROWS, rows_required_by
from os_prefilter.vocabulary.config_templates import PREFIX
from os_prefilter_tools.operators.property_names import (
    properties_without_rows,
    reason_without_row,
)
from tests.against_nova.sources import (
    BOOT_FIELDS,
    CAPABILITIES,
    REQUIRED,
    Source,
    names_of,
)
from tests.support.project import our_entry_points

_LISTED = tuple(
    chain.from_iterable(
        (*each.image_properties, *each.extra_specs)
        for each in properties_without_rows()
    )
)

_PROPERTIES = ("properties", "img_props", "image_props")


def _known_names() -> set[str]:
    validators.load_validators()
    return set(ImageMetaProps.fields) | {
        name for name in validators.VALIDATORS if not name.startswith(PREFIX)
    }


def test_every_image_property_and_extra_spec_of_nova_has_a_row_or_a_reason() -> (
    None
):
    rows = {
        name for row in ROWS for name in (row.image_property, row.extra_spec)
    }
    assert [
        name
        for name in sorted(_known_names() - rows)
        if not reason_without_row(name)
    ] == []


def test_no_property_has_both_a_row_and_a_reason_for_having_none_or_two_reasons() -> (
    None
):
    assert len(set(_LISTED)) == len(_LISTED)
    rows = {
        name
        for row in ROWS
        for name in (row.image_property, row.extra_spec)
        if name
    }
    assert {name for name in rows if reason_without_row(name)} == set()
    for name in _known_names():
        reasons = [
            one
            for one in properties_without_rows()
            if name in one.image_properties or one.has_extra_spec(name)
        ]
        assert len(reasons) <= 1, name


def _reads_of_properties() -> dict[str, set[str]]:
    """Return the image properties that Nova's virt drivers read, each with the
    modules that do.
    """
    found: dict[str, set[str]] = {}
    folder = Path(virt.__file__).parent
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = ""
            if isinstance(node, ast.Attribute) and ast.unparse(
                node.value
            ).endswith(_PROPERTIES):
                name = node.attr
            elif (
                isinstance(node, ast.Call)
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                function, first = (
                    ast.unparse(node.func),
                    str(node.args[0].value),
                )
                if function.endswith("flavor_image_meta"):
                    name = f"hw_{first.replace('-', '_')}"
                elif function.endswith(
                    tuple(f"{each}.get" for each in _PROPERTIES)
                ):
                    name = first
            if name in ImageMetaProps.fields:
                found.setdefault(name, set()).add(
                    str(path.relative_to(folder))
                )
    return found


def test_each_property_that_a_driver_of_nova_reads_has_a_row_or_a_reason() -> (
    None
):
    """So that no device comes from a property of which nothing is said;
    libosinfo's are in two places.
    """
    reads = _reads_of_properties()
    assert len(reads) > 50
    rows = {row.image_property for row in ROWS}
    assert [
        name
        for name in sorted(reads.keys() - rows)
        if not reason_without_row(name)
    ] == []
    assert reads["os_distro"] == {"osinfo.py", "zvm/driver.py"}
    folder = Path(virt.__file__).parent
    users = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if "osinfo.Hardware" in path.read_text()
    }
    assert users == {"libvirt/vif.py", "libvirt/blockinfo.py"}


def _capabilities() -> set[str]:
    """Return the capabilities that Nova reports as traits, and those that any
    code of Nova looks up in a driver.
    """
    found = set(CAPABILITY_TRAITS_MAP)
    root = Path(nova.__file__).parent
    for path in (*root.glob("compute/*.py"), *root.glob("virt/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            # capabilities["supports_x"], or capabilities.get("supports_x").
            key: ast.expr | None = None
            if isinstance(node, ast.Subscript):
                key, owner = node.slice, ast.unparse(node.value)
            elif isinstance(node, ast.Call) and node.args:
                key, owner = node.args[0], ast.unparse(node.func)
            if isinstance(key, ast.Constant) and "capabilities" in owner:
                found.add(str(key.value))
    return {name for name in found if name.startswith("supports_")}


def test_every_capability_of_novas_drivers_has_a_row_or_a_verdict() -> None:
    capabilities = _capabilities()
    assert len(capabilities) > 25
    traits = {trait for row in ROWS for trait in row.traits}
    in_rows = {
        name
        for name, trait in CAPABILITY_TRAITS_MAP.items()
        if trait in traits
    }
    verdicts = names_of(CAPABILITIES)
    assert sorted(capabilities - in_rows - set(verdicts)) == []
    assert sorted(in_rows.intersection(verdicts)) == []
    assert len(set(verdicts)) == len(verdicts)


def _fields_of(schema: Any, prefix: str = "") -> Iterator[str]:
    """Yield the fields of a JSON schema: ``server.networks.tag``."""
    if not isinstance(schema, dict):
        return
    parts = [schema.get("items")]
    for choice in ("allOf", "anyOf", "oneOf"):
        parts += schema.get(choice, ())
    for part in parts:
        yield from _fields_of(part, prefix)
    for name, field in schema.get("properties", {}).items():
        yield f"{prefix}{name}"
        yield from _fields_of(field, f"{prefix}{name}.")


def test_every_field_of_a_boot_request_has_a_verdict() -> None:
    versions = [
        getattr(servers, name)
        for name in dir(servers)
        if re.fullmatch(r"create(_v\d+)?", name)
    ]
    assert len(versions) > 10
    fields = {name for schema in versions for name in _fields_of(schema)}
    # The body as a whole.
    fields.remove("server")
    verdicts = names_of(BOOT_FIELDS)
    assert sorted(fields - set(verdicts)) == []
    assert len(set(verdicts)) == len(verdicts)


@pytest.mark.parametrize(
    "source",
    [each for each in CAPABILITIES if each.verdict == REQUIRED],
    ids=lambda source: source.why,
)
def test_filter_that_a_verdict_names_requires_the_traits(
    source: Source,
) -> None:
    service = Service.from_names(source.why)
    (loaded,) = service.filters
    traits = {
        *loaded.declaration.other_traits(service.options),
        *(
            trait
            for row in rows_required_by(source.why)
            for trait in row.traits
        ),
    }
    known = {
        str(CAPABILITY_TRAITS_MAP[name])
        for name in source.names
        if name in CAPABILITY_TRAITS_MAP
    }
    assert known <= traits


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            name
            for source in (*CAPABILITIES, *BOOT_FIELDS)
            if source.verdict == REQUIRED
            for name in source.why.split()
        }
    ),
)
def test_filter_that_a_verdict_names_exists(name: str) -> None:
    assert name in {
        each.name for each in our_entry_points("os_prefilter.request_filters")
    }
