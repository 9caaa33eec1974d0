# SPDX-License-Identifier: Apache-2.0

"""Check documents against JSON schemas, with errors as plain sentences.

The schemas are of draft 2020-12.

Keywords of ours in schemas: ``expected`` names what was expected in place of a
value, ``check`` is a function that returns it, and ``keys`` one that returns
what is wrong with the keys of a mapping.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, partial
from math import inf
from typing import Any, NamedTuple, Union

from os_prefilter.common.quoting import quote
from os_prefilter.common.trait_names import (
    CUSTOM_PREFIX,
    is_trait_name,
    standard_traits,
)

Path = tuple[Union[str, int], ...]
"""Keys and indexes that lead to a part of a document."""
Check = Callable[[object], str]
"""Returns what is wrong with a value, or was expected; empty if right."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,79}")
_EXPECTED = {
    "object": "a mapping",
    "array": "a list",
    "boolean": "true or false",
    "string": "a string",
    "integer": "a whole number",
}


class Mistake(NamedTuple):
    """A part of a document that is not as its schema says."""

    path: Path
    text: str
    """A sentence."""


def find_mistakes(
    schema: Mapping[str, Any], value: object, root: str = "the document"
) -> list[Mistake]:
    """Return what is wrong with a value, each mistake once.

    :param root: what the value as a whole is called; its parts are called
        ``templates[0].variants``
    """
    errors = _validator()(schema).iter_errors(value)
    return list(
        dict.fromkeys(
            mistake for error in errors for mistake in _describe(error, root)
        )
    )


def format_path(path: Iterable[str | int]) -> str:
    """Return the name of a part of a document."""
    name = ""
    for step in path:
        if isinstance(step, str) and _PLAIN_KEY.fullmatch(step):
            name += f".{step}" if name else step
        else:
            name += f"[{step if isinstance(step, int) else quote(step)}]"
    return name


def exactly_one(*keys: str) -> dict[str, Any]:
    """Return the schema of a mapping that has one of these keys."""
    return {"keys": partial(_check_keys, keys, most=1)}


def at_least_one(*keys: str) -> dict[str, Any]:
    """Return the schema of a mapping that has some of these keys."""
    return {"keys": partial(_check_keys, keys, most=inf)}


def mapping(
    required: Mapping[str, Any],
    optional: Mapping[str, Any],
    *conditions: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the schema of a mapping that has these keys, and no others."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
        "allOf": list(conditions),
    }


def _describe(error: Any, root: str) -> Iterator[Mistake]:
    keyword = error.validator
    value = error.instance
    schema = error.schema
    path = tuple(error.absolute_path)
    name = format_path(path) or root
    if keyword == "additionalProperties":
        known = list(schema["properties"])
        for key in (each for each in value if each not in known):
            close = get_close_matches(key[:100], known, n=1)
            advice = (
                f"did you mean {close[0]}?"
                if close
                else f"valid keys are: {', '.join(known)}."
            )
            yield Mistake(
                (*path, key),
                f"{name} has the unknown key {quote(key)}; {advice}",
            )
    elif keyword == "required":
        yield from (
            Mistake(path, f"{name} has no {key}.")
            for key in schema["required"]
            if key not in value
        )
    elif keyword == "keys":
        yield Mistake(path, f"{name} has {error.message}.")
    elif keyword == "uniqueItems":
        ((item, _),) = Counter(
            each for each in value if isinstance(each, (str, bool))
        ).most_common(1)
        yield Mistake(path, f"{name} has {_format(item)} twice. Keep one.")
    else:
        kinds = schema.get("type", "object")
        kind = _EXPECTED.get(kinds if isinstance(kinds, str) else kinds[0], "")
        keys = (
            f" of {', '.join(schema['properties'])}"
            if "properties" in schema
            else ""
        )
        expected = schema.get("expected") or (
            error.message if keyword == "check" else kind + keys
        )
        verb = (
            "has the key"
            if "propertyNames" in error.absolute_schema_path
            else "is"
        )
        yield Mistake(
            path, f"{name} {verb} {_format(value)}; expected {expected}."
        )


def _format(value: object) -> str:
    if value is None or value in ([], {}):
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    return "a mapping" if isinstance(value, dict) else quote(value)


def _check_name(value: object) -> str:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return ""
    return (
        "1 to 64 of a-z A-Z 0-9 _ . -; in quotes where YAML takes it for"
        " something else (on, off, yes, no, 1)"
    )


def _check_line(value: object) -> str:
    if isinstance(value, str) and value and value.isprintable():
        return ""
    return (
        "a text of one line, in quotes where YAML takes it for something else"
    )


def _check_trait(value: object) -> str:
    if not isinstance(value, str) or not is_trait_name(value):
        return "the name of a trait: A-Z, 0-9 and _"
    if value.startswith(CUSTOM_PREFIX) or value in standard_traits():
        return ""
    close = get_close_matches(value, standard_traits(), n=1)
    like = f" (close to it: {close[0]})" if close else ""
    return (
        f"a standard trait that the installed os-traits has{like}, or one that"
        " begins with CUSTOM_"
    )


NAME: Mapping[str, Any] = {"check": _check_name}
LINE: Mapping[str, Any] = {"check": _check_line}
TRAITS: Mapping[str, Any] = {"type": "array", "items": {"check": _check_trait}}


def _check_keys(keys: Sequence[str], value: object, most: float) -> str:
    found = [key for key in keys if isinstance(value, dict) and key in value]
    if not isinstance(value, dict) or 1 <= len(found) <= most:
        return ""
    has = " and ".join(found) or f"none of {', '.join(keys)}"
    return f"{has}; give {'one of them' if most == 1 else 'at least one'}"


@cache
def _validator() -> Any:
    """Return jsonschema's class of validators, with keywords of ours.

    Imported late: that takes 30 ms.
    """
    from jsonschema import (  # noqa: PLC0415
        Draft202012Validator,
        ValidationError,
    )
    from jsonschema.validators import extend  # noqa: PLC0415

    def validate(
        _validator: object, check: Check, value: object, _schema: object
    ) -> Iterator[ValidationError]:
        if problem := check(value):
            yield ValidationError(problem)

    # To JSON Schema 2.0 is an integer.
    types = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _checker, value: type(value) is int
    )
    return extend(
        Draft202012Validator,
        {"check": validate, "keys": validate},
        type_checker=types,
    )
