# SPDX-License-Identifier: Apache-2.0

"""The model of the vocabulary: terms, and rows of values."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, replace
from enum import Enum
from typing import Literal

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.trait_names import CUSTOM_PREFIX, Trait
from os_prefilter.vocabulary.image_properties import LEGACY_NAMES

# Spellings that oslo.utils' bool_from_string, and so Nova, takes for a
# boolean.
_TRUE = frozenset(("1", "t", "true", "on", "y", "yes"))
_FALSE = frozenset(("0", "f", "false", "off", "n", "no"))


class UnknownValues(Enum):
    """Treatment of a value that is not in the vocabulary."""

    SKIP = "skip"
    """Leave it out with a note.

    It is rejected only in a row that refuses unknown values
    (``Row.refuses_unknown``).
    """
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Term:
    """The requirement that one value of a row makes on a host.

    ``trait`` is None for a value that requires no trait; ``reason`` then says
    why. ``required`` is False where hosts that *have* the trait are the wrong
    ones. ``unknown_to_nova`` is True for a standard trait that no virt driver
    of Nova 34 reports.
    """

    trait: Trait | None
    required: bool = True
    reason: str = ""
    unknown_to_nova: bool = False
    more_traits: tuple[Trait, ...] = ()
    """Further traits, of which a bare-metal configuration may need several."""

    @property
    def traits(self) -> tuple[Trait, ...]:
        """All traits of the value."""
        return (self.trait, *self.more_traits) if self.trait else ()

    @property
    def kind(self) -> str:
        """``standard`` (in os-traits), ``custom`` (``CUSTOM_``), ``none``."""
        if self.trait is None:
            return "none"
        return "custom" if self.trait.startswith(CUSTOM_PREFIX) else "standard"

    @property
    def opt_in(self) -> bool:
        """True if Nova's own virt drivers do not report the trait."""
        return self.unknown_to_nova or self.kind == "custom"


@dataclass(frozen=True, slots=True)
class Spelling:
    """Other spellings of a value than the keys of :attr:`Row.values`."""

    any_case: bool = False
    """True if Nova lower-cases the value before it compares.

    So it does wherever there are older spellings.
    """
    older: Mapping[str, str] = field(default_factory=dict)
    """Spelling of an older Nova, in lower case -> value."""
    prefixes: Mapping[str, str] = field(default_factory=dict)
    """The start of longer names -> the value: ``pc-q35-`` of ``pc-q35-9.1``.
    """

    @property
    def ignores_case(self) -> bool:
        """True if a value may be written in any case."""
        return self.any_case or bool(self.older)


@dataclass(frozen=True, slots=True)
class Precedence:
    """Choice between different values of image and flavor.

    Without it they contradict each other.
    """

    wins: Literal["", "image", "flavor"] = ""
    """The source whose value counts, whatever the other one says."""
    flavor_over: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Value of the flavor -> the values of the image over which it counts."""


@dataclass(frozen=True, slots=True)
class DependsOn:
    """Another row, without which a row means nothing.

    The model of a TPM depends on its version.
    """

    row: str
    values: frozenset[str] = frozenset()
    """The values of that row with which this one has a meaning.

    Empty for all that require a trait.
    """
    default: str | None = None
    """The value of this row with one of those, where it is not set."""


@dataclass(frozen=True, slots=True)
class Incompatible:
    """A value of another row with which Nova's drivers build no guest.

    It does not start, or starts without one of both.
    """

    row: str
    value: str
    """Empty where the other row has no value."""
    unless: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(row, values) that make both possible; the first one is the advice."""
    on: Trait | None = None
    """The trait of the hosts where that holds; None if it holds on every host.
    """
    is_certain: bool = True
    """False if it depends on what no request says: noted, not rejected."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """Constraints of a value on the values of other rows."""

    incompatible: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(row, values) that no guest has together with it."""
    incompatible_in_nova: tuple[Incompatible, ...] = ()
    """The values that no guest of Nova has together with it."""
    needs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(row, values) of which it needs one."""
    implied_by: tuple[str, str] | None = None
    """(row, value) that includes it, so that it requires no trait itself."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One property of a request that may require a trait.

    Where its value comes from is in the row itself; :class:`Spelling`,
    :class:`Precedence`, :class:`DependsOn` and :class:`Constraints` say what
    is special about some.
    """

    name: str
    values: Mapping[str, Term]
    """Value -> its requirement on a host.

    With "true" and "false" alone, any spelling of a boolean is one of them,
    unless they are configurations.
    """
    image_property: str | None = None
    extra_spec: str | None = None
    image_attribute: str | None = None
    """A field of the image itself, not one of its properties: ``disk_format``.
    """
    required_by: tuple[str, ...] = ("image_metadata",)
    """The request filters that require it.

    ``query`` where Nova translates it while it builds the query.
    """
    refuses_unknown: bool = False
    """True if unknown values are rejected with ``skip``, too.

    As Nova's own filter does, whatever ``unknown_values`` is.
    """
    namespace: str = ""
    """Start of a configuration's extra spec: ``deploy-config:``.

    For a configuration that the driver applies to its host.

    An extra spec that starts so and has no row is an unknown configuration.
    """
    spelling: Spelling = field(default_factory=Spelling)
    precedence: Precedence = field(default_factory=Precedence)
    depends_on: DependsOn | None = None
    constraints: Mapping[str, Constraints] = field(default_factory=dict)
    """By value."""
    boolean: bool = field(init=False)
    device: Trait | None = field(init=False)
    """The trait that switches the device of this row on as well.

    In guest settings; None if it is no switch.
    """
    _numbers: Mapping[int, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Each request reads them for each of its values.
        boolean = set(self.values) == {"true", "false"} and not self.namespace
        object.__setattr__(self, "boolean", boolean)
        object.__setattr__(
            self, "device", self.values["true"].trait if boolean else None
        )
        object.__setattr__(
            self,
            "_numbers",
            {int(value): value for value in self.values if value.isdecimal()},
        )

    @property
    def traits(self) -> frozenset[Trait]:
        """All traits of the row."""
        return frozenset(
            trait for term in self.values.values() for trait in term.traits
        )

    @property
    def request_names(self) -> tuple[str, ...]:
        """Its names in a request: the image property and the extra spec."""
        return tuple(filter(None, (self.image_property, self.extra_spec)))

    @property
    def legacy_names(self) -> tuple[str, ...]:
        """Older names of the image property; the current name wins.

        They are still found in Glance.
        """
        return tuple(
            old
            for old, current in LEGACY_NAMES.items()
            if current == self.image_property
        )

    def canonical(self, value: object) -> str | None:
        """Return the key of :attr:`values` for ``value``, or None."""
        if isinstance(value, str) and value in self.values:
            return value
        if self.boolean:
            return canonical_boolean(value)
        if self._numbers:
            # Nova reads a text such as "05" as a number.
            number = value
            if isinstance(value, str) and len(value) <= _LONGEST_VALUE:
                with suppress(ValueError):
                    number = int(value)
            if (
                isinstance(number, int)
                and not isinstance(number, bool)
                and number in self._numbers
            ):
                return self._numbers[number]
        if not isinstance(value, str):
            return None
        if self.spelling.ignores_case:
            # No known value is longer: do not copy megabytes of a tenant's
            # text.
            value = value[:_LONGEST_VALUE].lower()
            value = self.spelling.older.get(value, value)
        for prefix, family in self.spelling.prefixes.items():
            if value.startswith(prefix):
                return family
        return value if value in self.values else None


def terms(prefix: str, values: str, **exceptions: str) -> dict[str, Term]:
    """Map each value to a trait: ``prefix`` plus the value in capitals.

    Or plus the suffix given for it.
    """
    suffixes = {
        value: exceptions.get(value, value.upper().replace("-", "_"))
        for value in values.split()
    }
    return {
        value: Term(Trait(f"{prefix}_{suffix}"))
        for value, suffix in suffixes.items()
    }


def unknown_to_nova(some: Mapping[str, Term]) -> dict[str, Term]:
    """Return the terms, marked as traits that no driver of Nova reports."""
    return {
        value: replace(term, unknown_to_nova=True)
        for value, term in some.items()
    }


def nothing(reason: str) -> Term:
    """Return the term of a value that requires no trait."""
    return Term(None, reason=reason)


def switch(
    trait: str, reason: str = "not having a device is possible everywhere"
) -> dict[str, Term]:
    """Return the terms of a device that is on or off."""
    return {"true": Term(Trait(trait)), "false": nothing(reason)}


_LONGEST_VALUE = 64


def canonical_boolean(value: object) -> str | None:
    """Return "true" or "false" for a boolean as Nova spells it, or None."""
    if isinstance(value, (bool, int)):
        return {1: "true", 0: "false"}.get(value)
    if not isinstance(value, str):
        return None
    spelling = value.strip()[:_LONGEST_VALUE].lower()
    if spelling in _TRUE:
        return "true"
    return "false" if spelling in _FALSE else None


def as_boolean(value: object) -> bool | None:
    """Parse the boolean value of an image property or extra spec.

    None if it is not set, or is none.

    Nova's objects have True where Glance and JSON have "true", "yes" or
    another spelling.
    """
    return {"true": True, "false": False}.get(canonical_boolean(value) or "")


RESERVED = "CUSTOM_PREFILTER_"
"""Prefix of the marker traits of schedulers and agents.

They say what is wanted and reported (``hosts/marker_traits.py``).
"""
