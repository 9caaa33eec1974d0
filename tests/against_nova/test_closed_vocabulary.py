# SPDX-License-Identifier: Apache-2.0

"""The vocabulary is closed: what the installed Nova knows has a row, or a
reason for having none.
"""

import ast
from itertools import chain
from pathlib import Path

from nova import virt
from nova.api.validation.extra_specs import validators
from nova.objects.image_meta import ImageMetaProps

from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.config_templates import PREFIX
from os_prefilter_tools.operators.property_names import (
    properties_without_rows,
    reason_without_row,
)

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
