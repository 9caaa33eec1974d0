"""Operators' own rules: conditions on image properties and extra specs, and the traits that hosts must have for them.

A rule set never changes; :mod:`os_prefilter.rules.reader` reads it from YAML files, and the request filter ``rules``
applies it. Traits are literals of the file: a tenant's text is only compared.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from zlib import crc32

from os_prefilter.common.quoting import pluralize, shorten
from os_prefilter.common.trait_names import Trait
from os_prefilter.request.requirements import ROOT
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.image_properties import BOOLEANS, LOWER_CASED
from os_prefilter.vocabulary.model import canonical_boolean

IMAGE_PROPERTY = "image property"
EXTRA_SPEC = "flavor extra spec"
PLACES = (IMAGE_PROPERTY, EXTRA_SPEC)
"""What a condition may be about."""

_LONGEST_INTEGER = 64  # bits
_MOST_NAMES_SHOWN = 5
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


@dataclass(frozen=True, slots=True)
class Rule:
    """Traits that hosts must have, must not have, or preferably have, for requests that match all conditions."""

    name: str
    when: tuple[Condition, ...]
    """At least one; each about another name."""
    require: tuple[Trait, ...] = ()
    forbid: tuple[Trait, ...] = ()
    scope: str = ROOT
    """``root``, ``unsuffixed``, or the suffix of a request group; the rule does not apply to flavors without it."""
    because: str = ""
    """The operator's reason, for people."""
    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)
    prefer: tuple[Trait, ...] = ()
    """Traits of the root that hosts preferably have."""

    def source(self, request: Request) -> str:
        """Return the source of the requirements for a request that matches the conditions."""
        met = " and ".join(map("{0.place} {1}".format, self.when, self.properties(request)))
        return f"rule {self.name}: {met}" + (f" ({self.because})" if self.because else "")

    def properties(self, request: Request) -> tuple[str, ...]:
        """Return what matches each condition: ``os_license=gold``."""
        return tuple(each.describe_match(value_of(request, each.place, each.name)) for each in self.when)


class RuleSet:
    """All rules of a deployment, indexed by name and value, so that rules about others cost nothing."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self.traits = frozenset(trait for rule in self.rules for trait in (*rule.require, *rule.forbid))
        """All traits that rules require and forbid; preferred ones need not exist."""
        # Place -> name -> value, or None for any -> numbers of rules. Each rule is indexed by one of its conditions.
        self._index: dict[str, dict[str, dict[Value | None, list[int]]]] = {place: {} for place in PLACES}
        for number, rule in enumerate(self.rules):
            # A condition with values matches fewer requests than one without.
            first = min(rule.when, key=lambda each: not each.values)
            by_value = self._index[first.place].setdefault(first.name, {})
            for value in first.values or (None,):
                by_value.setdefault(value, []).append(number)

    def __repr__(self) -> str:
        names = [rule.name for rule in self.rules]
        shown = ", ".join(shorten(names, _MOST_NAMES_SHOWN)) or "none"
        return f"<{pluralize(len(names), 'rule')}, {self.checksum}: {shown}>"

    @property
    def checksum(self) -> str:
        """Eight characters that are the same for the same rules on every machine."""
        contents = [
            (
                rule.name,
                [(each.place, each.name, sorted(map(repr, each.values))) for each in rule.when],
                rule.require,
                rule.forbid,
                rule.scope,
                rule.because,
                *([rule.prefer] if rule.prefer else []),
            )
            for rule in self.rules
        ]
        return f"{crc32(repr(contents).encode()):08x}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RuleSet) and self.rules == other.rules

    def __hash__(self) -> int:
        return hash(self.rules)

    def match(self, request: Request) -> list[Rule]:
        """Return the rules whose conditions all match, in the order of the files."""
        found: set[int] = set()
        for place, by_name in self._index.items():
            # A view's intersection goes through the smaller of the two.
            for name in by_name.keys() & _all_of(request, place).keys():
                found.update(self._numbers(place, name, value_of(request, place, name)))
        rules = (self.rules[number] for number in sorted(found))
        return [
            rule for rule in rules if all(each.holds(value_of(request, each.place, each.name)) for each in rule.when)
        ]

    def _numbers(self, place: str, name: str, value: object) -> Iterable[int]:
        if not is_set(value):
            return
        by_value = self._index[place][name]
        for key in (None, *readings(place, name, value)):
            yield from by_value.get(key, ())


NO_RULES = RuleSet()
"""The rules of a deployment without ``rules_dirs``."""


def value_of(request: Request, place: str, name: str) -> object:
    """Return what a request has under a name; None if it is not set."""
    if place != IMAGE_PROPERTY:
        return request.extra_spec(name)
    value = request.image_property(name)
    # Nova's image reads a text that is no boolean as False.
    return False if name in BOOLEANS and value is not None and canonical_boolean(value) is None else value


def _all_of(request: Request, place: str) -> Mapping[str, object]:
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
