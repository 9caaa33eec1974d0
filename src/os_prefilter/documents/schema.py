"""Check documents against JSON schemas (draft 2020-12), with errors as plain sentences.

In a schema, ``expected`` is what the sentence "VALUE is not what was expected" names; jsonschema ignores that key.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.validators import extend

from os_prefilter.common.quoting import quote
from os_prefilter.common.trait_names import CUSTOM_PREFIX, is_trait_name, standard_traits

Path = tuple[str | int, ...]
"""Keys and indexes that lead to a part of a document."""

NAME = {"format": "name"}
LINE = {"format": "line"}
TRAITS = {"type": "array", "items": {"format": "trait"}}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,79}")
_EXPECTED = {
    "object": "a mapping",
    "array": "a list",
    "boolean": "true or false",
    "string": "a string",
    "integer": "a whole number",
}
_FORMATS = FormatChecker(formats=())


class Mistake(NamedTuple):
    """A part of a document that is not as its schema says."""

    path: Path
    text: str
    """A sentence."""


def find_mistakes(schema: Mapping[str, Any], value: object, root: str = "the document") -> list[Mistake]:
    """Return what is wrong with a value, each mistake once.

    :param root: what the value as a whole is called; its parts are called ``templates[0].variants``
    """
    errors = _Validator(schema, format_checker=_FORMATS).iter_errors(value)
    return list(dict.fromkeys(mistake for error in errors for mistake in _describe(error, root)))


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
    return {"oneOf": [{"required": [key]} for key in keys]}


def at_least_one(*keys: str) -> dict[str, Any]:
    """Return the schema of a mapping that has some of these keys."""
    return {"anyOf": [{"required": [key]} for key in keys]}


def mapping(required: Mapping[str, Any], optional: Mapping[str, Any], *conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a mapping that has these keys, and no others."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
        "allOf": list(conditions),
    }


def _describe(error: Any, root: str) -> Iterator[Mistake]:
    keyword, value, schema, path = error.validator, error.instance, error.schema, tuple(error.absolute_path)
    name = format_path(path) or root
    if keyword == "additionalProperties":
        known = list(schema["properties"])
        for key in (each for each in value if each not in known):
            close = get_close_matches(key[:100], known, n=1)
            advice = f"did you mean {close[0]}?" if close else f"valid keys are: {', '.join(known)}."
            yield Mistake((*path, key), f"{name} has the unknown key {quote(key)}; {advice}")
    elif keyword == "required":
        yield from (Mistake(path, f"{name} has no {key}.") for key in schema["required"] if key not in value)
    elif keyword in ("oneOf", "anyOf"):
        if isinstance(value, dict):
            keys = [each["required"][0] for each in schema[keyword]]
            found = " and ".join(key for key in keys if key in value) or f"none of {', '.join(keys)}"
            how_many = "one of them" if keyword == "oneOf" else "at least one"
            yield Mistake(path, f"{name} has {found}; give {how_many}.")
    elif keyword == "uniqueItems":
        ((item, _),) = Counter(each for each in value if isinstance(each, (str, bool))).most_common(1)
        yield Mistake(path, f"{name} has {_format(item)} twice. Keep one.")
    else:
        expected = schema.get("expected") or error.cause or _format_type(schema)
        verb = "has the key" if "propertyNames" in error.absolute_schema_path else "is"
        yield Mistake(path, f"{name} {verb} {_format(value)}; expected {expected}.")


def _format_type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type", "object")
    known = f" of {', '.join(schema['properties'])}" if "properties" in schema else ""
    return _EXPECTED[kind if isinstance(kind, str) else kind[0]] + known


def _format(value: object) -> str:
    if value is None or value in ([], {}):
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    return "a mapping" if isinstance(value, dict) else quote(value)


def check_format(name: str) -> Callable[[Callable[[object], str]], Callable[[object], str]]:
    """Register a function that says what was expected in place of a value, empty if the value is right."""

    def register(expected: Callable[[object], str]) -> Callable[[object], str]:
        def check(value: object) -> bool:
            if found := expected(value):
                raise ValueError(found)
            return True

        _FORMATS.checks(name, raises=ValueError)(check)
        return expected

    return register


@check_format("name")
def _expected_name(value: object) -> str:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return ""
    return "1 to 64 of a-z A-Z 0-9 _ . -; in quotes where YAML takes it for something else (on, off, yes, no, 1)"


@check_format("line")
def expected_line(value: object) -> str:
    """Return what was expected in place of a text of one line; empty if the value is one."""
    if isinstance(value, str) and value and value.isprintable():
        return ""
    return "a text of one line, in quotes where YAML takes it for something else"


@check_format("trait")
def _expected_trait(value: object) -> str:
    if not isinstance(value, str) or not is_trait_name(value):
        return "the name of a trait: A-Z, 0-9 and _"
    if value.startswith(CUSTOM_PREFIX) or value in standard_traits():
        return ""
    close = get_close_matches(value, standard_traits(), n=1)
    like = f" (close to it: {close[0]})" if close else ""
    return f"a standard trait that the installed os-traits has{like}, or one that begins with CUSTOM_"


def _is_integer(_checker: object, value: object) -> bool:
    # To JSON Schema 2.0 is an integer, and to Python True is one.
    return type(value) is int


_Validator: Any = extend(
    Draft202012Validator, type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer)
)
