"""Conditions of rules: what they are about, and which values of a request they match."""

from collections.abc import Mapping
from dataclasses import dataclass

from os_prefilter.request.view import Request
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.image_properties import BOOLEANS, LOWER_CASED
from os_prefilter.vocabulary.model import canonical_boolean

IMAGE_PROPERTY = "image property"
EXTRA_SPEC = "flavor extra spec"
PLACES = (IMAGE_PROPERTY, EXTRA_SPEC)
"""What a condition may be about."""

_LONGEST_INTEGER = 64  # bits
_RESPELT = {
    row.image_property: row
    for row in ROWS
    if row.image_property and (row.any_case or row.legacy_values) and not row.prefixes
}

Value = str | bool
"""A value of a condition: a text matches exactly, a boolean matches every spelling of it."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A property or an extra spec, and the values that it may have."""

    place: str
    """One of :data:`PLACES`."""
    name: str
    values: frozenset[Value] = frozenset()
    """The values that match; empty: any value."""

    def holds(self, value: object) -> bool:
        """Whether a request's value matches."""
        return is_set(value) and (not self.values or not self.values.isdisjoint(readings(self.place, self.name, value)))

    def describe_match(self, value: object) -> str:
        """Return the condition that a value matches, in the words of the file and never in those of the request."""
        found = self.values.intersection(readings(self.place, self.name, value))
        return self.name + "".join(f"={format_value(each)}" for each in sorted(found, key=format_value)[:1])

    def __str__(self) -> str:
        if not self.values:
            return f"{self.place} {self.name} is present"
        values = sorted(map(format_value, self.values))
        return f"{self.place} {self.name}" + (f" in {', '.join(values)}" if len(values) > 1 else f"={values[0]}")


def value_of(request: Request, place: str, name: str) -> object:
    """Return what a request has under a name; None if it is not set."""
    if place != IMAGE_PROPERTY:
        return request.extra_spec(name)
    value = request.image_property(name)
    # Nova's image reads a text that is no boolean as False.
    return False if name in BOOLEANS and value is not None and canonical_boolean(value) is None else value


def all_of(request: Request, place: str) -> Mapping[str, object]:
    """Return all that a request has of one of :data:`PLACES`."""
    return request.image_properties if place == IMAGE_PROPERTY else request.extra_specs


def is_set(value: object) -> bool:
    """Whether a value is set; as in Nova, an empty one is not."""
    return value is not None and value != ""


def readings(place: str, name: str, value: object) -> list[Value]:
    """Return the values that a request's value matches: its text, and the boolean that it spells.

    The spelling of an image property is changed as Nova changes it, so that an image read from Glance and Nova's object
    of it match the same rules.
    """
    found: list[Value] = []
    if isinstance(value, str):
        found.append(as_nova_spells(name, value) if place == IMAGE_PROPERTY else value)
    elif isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _LONGEST_INTEGER:
        found.append(str(value))
    boolean = canonical_boolean(value)
    return found if boolean is None else [*found, boolean == "true"]


def as_nova_spells(name: str, value: str) -> str:
    """Return an image property's value as Nova's object spells it."""
    if name in LOWER_CASED:
        return value.lower()
    row = _RESPELT.get(name)
    return (row and row.canonical(value)) or value


def format_value(value: Value) -> str:
    """Return a condition's value as it is in the file."""
    return str(value).lower() if isinstance(value, bool) else value
