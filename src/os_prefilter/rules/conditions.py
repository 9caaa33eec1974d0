# SPDX-License-Identifier: Apache-2.0

"""Conditions of rules, and the values of a request that they match."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Union

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.request.named_traits import written_requirements
from os_prefilter.request.requirements import Requirement
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.image_properties import BOOLEANS, LOWER_CASED
from os_prefilter.vocabulary.model import canonical_boolean

IMAGE_PROPERTY = "image property"
EXTRA_SPEC = "flavor extra spec"
HINT = "hint"
PROJECT = "project"
ZONE = "availability zone"
FLAVOR = "flavor"
REQUIRES = "required trait"
FORBIDS = "forbidden trait"
NAMED = (IMAGE_PROPERTY, EXTRA_SPEC, HINT)
"""Places of a request that hold named values.

The author of the request has written them, so that messages may name them.
"""
PLACES = (*NAMED, FLAVOR, ZONE, PROJECT, REQUIRES, FORBIDS)
"""All places that conditions may be about.

First places that rarely differ between requests of one image and flavor.
"""
SEVERAL_VALUES = frozenset((HINT, REQUIRES, FORBIDS))
"""Places that may hold several values at once, each of which may match."""

# Bits: Python refuses the text of an integer of more than 4,300 digits.
_LONGEST_INTEGER = 64
_RESPELT = {
    row.image_property: row
    for row in ROWS
    if row.image_property
    and row.spelling.ignores_case
    and not row.spelling.prefixes
}

ConditionValue = Union[str, bool]
"""A value of a condition.

A text matches exactly, a boolean matches every spelling of it.
"""


@dataclass(frozen=True, slots=True)
class RuleCondition:
    """One thing that a request may say, and the values that it may have."""

    place: str
    """One of :data:`PLACES`."""
    name: str = ""
    """The name of the property, extra spec or hint; empty for other places."""
    values: frozenset[ConditionValue] = frozenset()
    """The values that match; empty: any value."""
    in_list: bool = False
    """True if the value is a list, separated by commas.

    One item of it must match.
    """

    @property
    def key(self) -> tuple[str, str]:
        """Place and name that the condition is about."""
        return self.place, self.name

    def holds(self, value: object) -> bool:
        """Return whether a request's value matches."""
        return self.matches(read_value(*self.key, self.in_list, value))

    def matches(self, found: frozenset[ConditionValue] | None) -> bool:
        """Return whether the result of :func:`read_value` matches."""
        if found is None:
            return False
        return not self.values or not self.values.isdisjoint(found)

    def __str__(self) -> str:
        if not self.values:
            return f"{self.place} {self.name} is present"
        values = sorted(map(format_value, self.values))
        what = f"{self.place} {self.name}".rstrip()
        if self.in_list:
            return f"{what} with {' or '.join(values)}"
        if len(values) > 1:
            return f"{what} in {', '.join(values)}"
        sign = "=" if self.name else " "
        return f"{what}{sign}{values[0]}"


Clause = tuple[RuleCondition, ...]
"""Conditions that must all hold. An empty one always holds."""


class RuleSubject:
    """A request that conditions are about.

    It includes the requirements of the filters before the rules.
    """

    def __init__(
        self, request: Request, required_before: Iterable[Requirement] = ()
    ) -> None:
        self._request = request
        self._required_before = required_before
        # Once for all rules: a tenant's text may be long.
        self._readings: dict[
            tuple[str, str, bool], frozenset[ConditionValue] | None
        ] = {}

    def all_of(self, place: str) -> Collection[str]:
        """Return the names that are set in one of :data:`PLACES`."""
        if place == IMAGE_PROPERTY:
            return self._request.image_properties.keys()
        if place == EXTRA_SPEC:
            return self._request.extra_specs.keys()
        if place == HINT:
            return self._request.scheduler_hints.keys()
        return ("",)

    def readings_of(
        self,
        place: str,
        name: str,
        in_list: bool,  # noqa: FBT001 - of a key
    ) -> frozenset[ConditionValue] | None:
        """Return what :func:`read_value` makes of the request's value."""
        key = place, name, in_list
        if key not in self._readings:
            self._readings[key] = read_value(*key, self.value_of(place, name))
        return self._readings[key]

    def value_of(self, place: str, name: str) -> object:
        """Return the value under a name; None if it is not set.

        Hints and traits have a tuple of values.
        """
        request = self._request
        value: object
        if place == EXTRA_SPEC:
            value = request.extra_spec(name)
        elif place == IMAGE_PROPERTY:
            value = self._image_property(name)
        elif place == HINT:
            values = filter(None, request.scheduler_hints.get(name, ()))
            # Once each: a tenant may repeat one ten thousand times.
            value = tuple(dict.fromkeys(values))
        elif place == PROJECT:
            value = request.project_id
        elif place == ZONE:
            value = request.availability_zone
        elif place == FLAVOR:
            value = request.flavor_attribute("name")
        else:
            value = self._traits(is_required=place == REQUIRES)
        return value

    def _image_property(self, name: str) -> object:
        value = self._request.image_property(name)
        # A tuple is several values here; a list in an image is none of them.
        value = list(value) if isinstance(value, tuple) else value
        if name not in BOOLEANS or value is None:
            return value
        # Nova's image reads a text that is no boolean as False.
        return False if canonical_boolean(value) is None else value

    def _traits(self, *, is_required: bool) -> tuple[str, ...]:
        """Return the traits that are required of the host, or forbidden."""
        request = self._request
        on_root = request.root_forbidden
        if is_required:
            on_root = request.root_required
        items = chain(written_requirements(request), self._required_before)
        named = (
            item.trait
            for item in items
            if item.required is is_required and request.is_of_host(item.scope)
        )
        return (*sorted(on_root), *named)

    def meets(self, clause: Clause) -> bool:
        """Return whether all conditions hold."""
        return all(
            each.matches(self.readings_of(*each.key, each.in_list))
            for each in clause
        )

    def describe(self, clause: Clause) -> str:
        """Return what matches the conditions, in the words of the file."""
        return " and ".join(
            f"{each.place} {self._match_of(each)}" for each in clause
        )

    def properties(self, clause: Clause) -> tuple[str, ...]:
        """Return the request's properties that a clause matches.

        As their author wrote them: ``os_license=gold``, ``hint
        trait:X=required``.
        """
        return tuple(
            ("hint " if each.place == HINT else "") + self._match_of(each)
            for each in clause
            if each.place in NAMED
        )

    def _match_of(self, condition: RuleCondition) -> str:
        """Return a condition that holds, in the words of the file.

        The words of the request are never shown.
        """
        readings = self.readings_of(*condition.key, condition.in_list) or ()
        found = sorted(
            condition.values.intersection(readings), key=format_value
        )[:1]
        texts = list(map(format_value, found))
        if condition.name:
            sign = " with " if condition.in_list else "="
            return sign.join((condition.name, *texts))
        return " ".join(texts)


def describe_clauses(clauses: Sequence[Clause]) -> str:
    """Return alternatives in words."""
    texts = [" and ".join(map(str, each)) for each in clauses]
    if len(texts) == 1:
        return texts[0]
    return " or ".join(f"({text})" for text in texts)


def read_value(
    place: str,
    name: str,
    in_list: bool,  # noqa: FBT001 - of a key
    value: object,
) -> frozenset[ConditionValue] | None:
    """Return the values of a file that match; None if nothing is set.

    With ``in_list``, the values that match one of its items.
    """
    # As in Nova, an empty value is not set.
    if value is None or value in ("", ()):
        return None
    # All of it: behind a bound, a tenant could hide an item that a rule names.
    items = items_of(value) if in_list else value
    return frozenset(readings(place, name, items))


def items_of(value: object) -> object:
    """Return the items of a list that is separated by commas, each once.

    Of several such lists, all items are returned.

    Any other value is returned as it is.
    """
    if not isinstance(value, (str, tuple)):
        return value
    texts = (value,) if isinstance(value, str) else value
    items = {item.strip() for text in texts for item in text.split(",")}
    return tuple(items - {""})


def readings(place: str, name: str, value: object) -> list[ConditionValue]:
    """Return the texts and booleans that a request's value matches.

    The spelling of an image property is changed as Nova changes it, so that an
    image read from Glance and Nova's object of it match the same rules.
    """
    if isinstance(value, tuple):
        return [each for item in value for each in readings(place, name, item)]
    found: list[ConditionValue] = []
    if isinstance(value, str):
        found.append(
            as_nova_spells(name, value) if place == IMAGE_PROPERTY else value
        )
    elif (
        isinstance(value, int)
        and not isinstance(value, bool)
        and value.bit_length() <= _LONGEST_INTEGER
    ):
        found.append(str(value))
    boolean = canonical_boolean(value)
    return found if boolean is None else [*found, boolean == "true"]


def as_nova_spells(name: str, value: str) -> str:
    """Return an image property's value as Nova's object spells it."""
    if name in LOWER_CASED:
        return value.lower()
    row = _RESPELT.get(name)
    return (row and row.canonical(value)) or value


def format_value(value: ConditionValue) -> str:
    """Return a condition's value as it is in the file."""
    return str(value).lower() if isinstance(value, bool) else value
