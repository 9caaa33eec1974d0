# SPDX-License-Identifier: Apache-2.0

"""The schema of rule files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from os_prefilter.documents.schema import (
    LINE,
    NAME,
    TRAITS,
    at_least_one,
    exactly_one,
    mapping,
)
from os_prefilter.request.requirements import ROOT, UNSUFFIXED
from os_prefilter.rules.conditions import (
    EXTRA_SPEC,
    FLAVOR,
    FORBIDS,
    HINT,
    IMAGE_PROPERTY,
    PROJECT,
    REQUIRES,
    ZONE,
)
from os_prefilter.rules.model import PORTS

NAMED_KEYS = {
    "image_property": IMAGE_PROPERTY,
    "extra_spec": EXTRA_SPEC,
    "hint": HINT,
}
OTHER_KEYS = {
    "project": PROJECT,
    "availability_zone": ZONE,
    "flavor": FLAVOR,
    "requires": REQUIRES,
    "forbids": FORBIDS,
}


def _list_of(items: Mapping[str, Any], expected: str) -> dict[str, Any]:
    return {
        "type": "array",
        "minItems": 1,
        "items": items,
        "uniqueItems": True,
        "expected": expected,
    }


_TEXT = {
    **LINE,
    "maxLength": 255,
    "expected": "a text of one line, of at most 255 characters",
}
_VALUE = {
    "if": {"type": "boolean"},
    "else": {**_TEXT, "expected": "a text, true or false"},
}
_COMPARISONS = {
    "is": _VALUE,
    "in": _list_of(_VALUE, "a list of at least one value"),
    "present": {"const": True, "expected": "true"},
    "contains": _VALUE,
}
TRAIT_LIST = _list_of(TRAITS["items"], "a list of at least one trait")
_EFFECTS: dict[str, Any] = {
    "require": TRAIT_LIST,
    "forbid": TRAIT_LIST,
    "prefer": TRAIT_LIST,
    "scope": {
        "type": "string",
        "pattern": r"^[A-Za-z0-9_-]{1,64}\Z",
        "expected": (
            f"{PORTS}, {ROOT}, {UNSUFFIXED}, or the suffix of a request group"
            " such as _GPU"
        ),
    },
    "because": _TEXT,
    "needs": _TEXT,
}


def _one_or_list(schema: Any, what: str) -> dict[str, Any]:
    return {
        "if": {"type": "array"},
        "then": _list_of(schema, f"{what}, or a list of at least one"),
        "else": schema,
    }


_NESTED = {"$ref": "#/$defs/condition"}
_SOME = {
    "type": "array",
    "minItems": 1,
    "items": _NESTED,
    "expected": "a list of at least one condition",
}
_JOINED = ("any", "all")
_IS_JOINED = {"type": "object", **at_least_one(*_JOINED)}
_IS_OTHER = {"type": "object", **at_least_one(*OTHER_KEYS)}
_OTHERS: dict[str, Any] = {
    **dict.fromkeys(
        ("project", "availability_zone", "flavor"),
        _one_or_list(_TEXT, "a text"),
    ),
    **dict.fromkeys(
        ("requires", "forbids"), _one_or_list(TRAITS["items"], "a trait")
    ),
}
_COMPARED = mapping(
    {},
    # The others are there for advice on misspelt keys.
    {
        **dict.fromkeys(NAMED_KEYS, _TEXT),
        **_COMPARISONS,
        **dict.fromkeys((*_OTHERS, *_JOINED), True),
    },
    exactly_one(*NAMED_KEYS),
    exactly_one(*_COMPARISONS),
)
_CONDITION = {
    "if": _IS_JOINED,
    "then": mapping({}, dict.fromkeys(_JOINED, _SOME), exactly_one(*_JOINED)),
    "else": {
        "if": _IS_OTHER,
        "then": mapping({}, _OTHERS, exactly_one(*_OTHERS)),
        "else": _COMPARED,
    },
}
_WHEN: dict[str, Any] = {
    "if": {"type": "array"},
    "then": {
        **_SOME,
        "expected": "a condition, or a list of them that must all hold",
    },
    "else": _NESTED,
}
RULE = {
    **mapping(
        {"name": NAME},
        {"when": _WHEN, "unless": _NESTED, **_EFFECTS},
        at_least_one("when", "unless"),
        at_least_one("require", "forbid", "prefer"),
    ),
    "$defs": {"condition": _CONDITION},
}
DOCUMENT = mapping(
    {},
    {"rules": {"type": "array"}, "hint_traits": TRAIT_LIST},
    at_least_one("rules", "hint_traits"),
)
