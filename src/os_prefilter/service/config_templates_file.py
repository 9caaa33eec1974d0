# SPDX-License-Identifier: Apache-2.0

"""Read configuration templates from YAML.

An error has the line and the place of the first mistake.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import join_names
from os_prefilter.documents.files import read_bytes
from os_prefilter.documents.schema import (
    LINE,
    NAME,
    TRAITS,
    at_least_one,
    find_mistakes,
    mapping,
)
from os_prefilter.documents.strict_yaml import parse_document
from os_prefilter.vocabulary import config_templates

_STEP = mapping(
    {
        "interface": {
            "enum": config_templates.INTERFACES,
            "expected": (
                "one of Ironic's interfaces:"
                f" {join_names(config_templates.INTERFACES)}"
            ),
        },
        "step": NAME,
        "args": {
            "type": "object",
            "additionalProperties": {"$ref": "#/$defs/json"},
            "expected": "names with values; {} for none",
        },
        # Ironic leaves out a step of priority 0.
        "priority": {
            "type": "integer",
            "minimum": 1,
            "expected": "a whole number of at least 1",
        },
    },
    {},
)
_VARIANT = mapping(
    {},
    {
        "bios": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {
                "pattern": r"^.*[^*\s].*$",
                **LINE,
                "expected": "the name of a BIOS setting",
            },
            "additionalProperties": {
                "if": {"type": "array"},
                "then": {
                    "minItems": 1,
                    "items": LINE,
                    "expected": "a value, or a list of its spellings",
                },
                "else": LINE,
            },
            "expected": "names with values",
        },
        "steps": {
            "type": "array",
            "minItems": 1,
            "items": _STEP,
            "expected": "a list of steps",
        },
        "node": mapping({}, dict.fromkeys(config_templates.NODE_FIELDS, LINE)),
        "in-use": {"type": "boolean"},
    },
    at_least_one("bios", "steps"),
)
_TEMPLATE = mapping(
    {"config-type": NAME, "config-value": NAME},
    {
        "traits": TRAITS,
        "variants": {"type": "array", "items": _VARIANT},
        "default": {"type": "boolean"},
    },
)
_DOCUMENT = {
    **mapping({"templates": {"type": "array", "items": _TEMPLATE}}, {}),
    "$defs": {
        # YAML also knows dates, and 1e999 is infinite.
        "json": {
            "type": ["null", "boolean", "number", "string", "array", "object"],
            "items": {"$ref": "#/$defs/json"},
            "additionalProperties": {"$ref": "#/$defs/json"},
            "minimum": -sys.float_info.max,
            "maximum": sys.float_info.max,
            "expected": "what JSON can hold; put it into quotes",
        }
    },
}


def load_templates(path: str | Path) -> config_templates.Templates:
    """Return the bundled templates, replaced and extended by those of a file.

    :raises DocumentError: the file cannot be read, or is not such a document;
        says where in it
    """
    templates = config_templates.BUNDLED.replace_with(
        _parse(read_bytes(path), path)
    )
    for each in templates:
        if each.is_found and templates.found_traits.isdisjoint(each.traits):
            # Else it would be found out on the node, after the scheduler has
            # chosen it.
            raise DocumentError(
                path,
                f"{each}: its variants fit only some nodes, and none of its"
                " traits says which. Give it a trait that only such templates"
                " need.",
            )
    return templates


def _parse(data: bytes, path: object) -> list[config_templates.Template]:
    document = parse_document(data, path)
    for mistake in find_mistakes(_DOCUMENT, document.value):
        raise DocumentError(path, mistake.text, document.line(mistake.path))
    templates: dict[tuple[str, str], config_templates.Template] = {}
    for number, item in enumerate(document.value["templates"]):
        key = (item["config-type"], item["config-value"])
        line = document.line(("templates", number))
        name = f"templates[{number}]"
        if key in templates:
            raise DocumentError(
                path,
                f"{name} is the second of {'='.join(key)}. Keep one.",
                line,
            )
        variants = []
        for place, each in enumerate(item.get("variants", ())):
            variants.append(_variant(each))
            if problem := _contradiction(variants[-1]):
                line = document.line(("templates", number, "variants", place))
                raise DocumentError(
                    path, f"{name}.variants[{place}] {problem}.", line
                )
        is_default = item.get("default", False)
        if is_default and any(
            each.is_default and each.config_type == key[0]
            for each in templates.values()
        ):
            raise DocumentError(
                path,
                f"{name} is the second default of {key[0]}. Keep one.",
                line,
            )
        templates[key] = config_templates.Template(
            *key, tuple(item.get("traits", ())), tuple(variants), is_default
        )
    return list(templates.values())


def _variant(item: dict[str, Any]) -> config_templates.Variant:
    changes = []
    for name, value in item.get("bios", {}).items():
        spellings = (value,) if isinstance(value, str) else tuple(value)
        changes.append(config_templates.BiosChange(name, spellings))
    steps = [config_templates.Step(**each) for each in item.get("steps", ())]
    return config_templates.Variant(
        tuple(changes),
        tuple(steps),
        item.get("node", {}),
        in_use=item.get("in-use", False),
    )


def _contradiction(variant: config_templates.Variant) -> str:
    numbers = Counter(each.key for each in variant.steps)
    for (interface, step), times in numbers.items():
        if (interface, step) == config_templates.BIOS_STEP:
            return (
                f"has the step {step} of the interface {interface}. Give its"
                " settings as bios"
            )
        if times > 1:
            return (
                f"has the step {step} of the interface {interface} {times}"
                " times. Keep one"
            )
    return ""
