"""Reading configuration templates from YAML: strictly, with the place of each mistake."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from math import isfinite
from pathlib import Path
from typing import Any

import os_traits

from os_prefilter.common.quoting import join_names, quote
from os_prefilter.documents.strict_yaml import parse_yaml, read_yaml
from os_prefilter.errors import DocumentError
from os_prefilter.vocabulary.config_templates import (
    BIOS_STEP,
    INTERFACES,
    NODE_FIELDS,
    BiosChange,
    Step,
    Template,
    Templates,
    Variant,
)
from os_prefilter.vocabulary.model import CUSTOM_PREFIX, Trait, is_trait_name

_BUNDLED = "config-templates.yaml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_MOST_VALUES = 10_000
_NAME_HELP = "1 to 64 of a-z A-Z 0-9 _ . -; in quotes where YAML takes it for something else (on, off, yes, no, 1)"


@lru_cache(maxsize=1)
def bundled_templates() -> Templates:
    """Return the templates that come with the library."""
    data = resources.files("os_prefilter.data").joinpath(_BUNDLED).read_bytes()
    return Templates(_templates(parse_yaml(data, _BUNDLED), _BUNDLED))


def load_templates(path: str | Path) -> Templates:
    """Return the bundled templates with those of a file in place of, or beside, them.

    :raises DocumentError: if the file cannot be read, or is not such a document; says where in it.
    """
    templates = bundled_templates().replaced_by(_templates(read_yaml(path), path))
    for each in templates:
        if each.is_found and templates.found_traits.isdisjoint(each.traits):
            # Else it would be found out on the node, after the scheduler has chosen it.
            raise DocumentError(
                path,
                f"{each}: its variants fit some nodes alone, and none of its traits says which. Give it a trait that "
                "only such templates need.",
            )
    return templates


class _Place:
    """A value in the document, and where it is."""

    def __init__(self, value: object, path: object, where: str) -> None:
        self.value = value
        self._path = path
        self._where = where

    def error(self, problem: str) -> DocumentError:
        return DocumentError(self._path, f"{self._where} {problem}.")

    def unexpected(self, expected: str) -> DocumentError:
        return self.error(f"is {quote(self.value)}; expected {expected}")

    def fields(self, required: str, optional: str = "") -> "dict[str, _Place]":
        """Return the fields of a mapping; those that it does not have are left out."""
        known = (required + " " + optional).split()
        if not isinstance(self.value, dict):
            raise self.unexpected(f"a mapping of {', '.join(known)}")
        for key in self.value:
            if key not in known:
                raise self.error(f"has {quote(key)}, which nobody knows; there are {join_names(known)}")
        for key in required.split():
            if key not in self.value:
                raise self.error(f"has no {key}")
        return {key: self._inner(value, f".{key}") for key, value in self.value.items()}

    def items(self) -> "list[_Place]":
        if not isinstance(self.value, list):
            raise self.unexpected("a list")
        return [self._inner(value, f"[{number}]") for number, value in enumerate(self.value)]

    def pairs(self) -> "list[tuple[str, _Place]]":
        if not isinstance(self.value, dict) or not self.value or not all(isinstance(key, str) for key in self.value):
            raise self.unexpected("names with values")
        return [
            (key, self._inner(value, f".{key}" if key.isidentifier() else f"[{quote(key)}]"))
            for key, value in self.value.items()
        ]

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value or not self.value.isprintable():
            raise self.unexpected("a text of one line, in quotes where YAML takes it for something else")
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.unexpected("true or false")
        return self.value

    def name(self) -> str:
        if not isinstance(self.value, str) or not _NAME.fullmatch(self.value):
            raise self.unexpected(_NAME_HELP)
        return self.value

    def _inner(self, value: object, where: str) -> "_Place":
        return _Place(value, self._path, self._where + where)


def _templates(document: object, path: object) -> Iterator[Template]:
    items = _Place(document, path, "the document").fields("templates")["templates"]
    seen: set[tuple[str, str]] = set()
    for place in _Place(items.value, path, "templates").items():
        template = _template(place)
        key = (template.config_type, template.value)
        if key in seen:
            raise place.error(f"is the second of {template.config_type}={template.value}. Keep one")
        seen.add(key)
        yield template


def _template(place: _Place) -> Template:
    fields = place.fields("config-type config-value", "traits variants")
    return Template(
        fields["config-type"].name(),
        fields["config-value"].name(),
        tuple(_trait(each) for each in fields["traits"].items()) if "traits" in fields else (),
        tuple(_variant(each) for each in fields["variants"].items()) if "variants" in fields else (),
    )


def _trait(place: _Place) -> Trait:
    if not is_trait_name(place.value):
        raise place.unexpected("the name of a trait: A-Z, 0-9 and _")
    if not str(place.value).startswith(CUSTOM_PREFIX) and place.value not in os_traits.get_traits():
        raise place.unexpected("a standard trait that the installed os-traits has, or one that begins with CUSTOM_")
    return Trait(str(place.value))


def _variant(place: _Place) -> Variant:
    fields = place.fields("", "bios steps node in-use")
    bios = tuple(_bios(name, each) for name, each in fields["bios"].pairs()) if "bios" in fields else ()
    steps = tuple(_step(each) for each in fields["steps"].items()) if "steps" in fields else ()
    if not bios and not steps:
        raise place.error("does nothing. Give bios, steps, or both")
    for (interface, step), times in Counter(step.key for step in steps).items():
        if (interface, step) == BIOS_STEP:
            raise place.error(f"has the step {step} of the interface {interface}. Give its settings as bios")
        if times > 1:
            raise place.error(f"has the step {step} of the interface {interface} {times} times. Keep one")
    node = _node(fields["node"]) if "node" in fields else {}
    return Variant(bios, steps, node, in_use="in-use" in fields and fields["in-use"].flag())


def _bios(name: str, place: _Place) -> BiosChange:
    if not name.strip("*") or not name.isprintable():
        raise place.error(f"is for {quote(name)}; expected the name of a BIOS setting")
    values = place.items() if isinstance(place.value, list) else [place]
    if not values:
        raise place.unexpected("a value, or a list of its spellings")
    return BiosChange(name, tuple(each.text() for each in values))


def _node(place: _Place) -> dict[str, str]:
    return {name: each.text() for name, each in place.fields("", " ".join(NODE_FIELDS)).items()}


def _step(place: _Place) -> Step:
    fields = place.fields("interface step args priority")
    interface, args, priority = fields["interface"], fields["args"], fields["priority"]
    if interface.value not in INTERFACES:
        raise interface.unexpected(f"one of Ironic's interfaces: {join_names(INTERFACES)}")
    if not isinstance(args.value, dict) or not all(isinstance(key, str) for key in args.value):
        raise args.unexpected("names with values; {} for none")
    # Ironic leaves out a step of priority 0.
    if isinstance(priority.value, bool) or not isinstance(priority.value, int) or priority.value < 1:
        raise priority.unexpected("a whole number of at least 1")
    return Step(str(interface.value), fields["step"].name(), _plain(args), priority.value)


def _plain(args: _Place) -> dict[str, Any]:
    """Return arguments that JSON can hold: YAML also knows dates and sets."""
    found: dict[str, Any] = {}
    for key, value in dict(args.value).items():  # type: ignore[call-overload]
        if not _is_json(value):
            raise args.error(f"has {quote(key)} with something that JSON cannot hold; put it into quotes")
        found[key] = value
    return found


def _is_json(value: object) -> bool:
    """Whether JSON can hold a value; not one that contains itself, or repeats itself without end (YAML's aliases)."""
    left = [value]
    for _ in range(_MOST_VALUES):
        if not left:
            return True
        each = left.pop()
        if isinstance(each, dict):
            if not all(isinstance(key, str) for key in each):
                return False
            left += each.values()
        elif isinstance(each, list):
            left += each
        elif isinstance(each, float):
            if not isfinite(each):
                return False
        elif not (each is None or isinstance(each, (str, bool, int))):
            return False
    return False
