"""Operators' own rules: conditions on image properties and extra specs, and the traits that hosts must have for them.

A rule set never changes; :mod:`os_prefilter.rules.reader` reads it from YAML files, and the request filter ``rules``
applies it. Traits are literals of the file: a tenant's text is only compared.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from zlib import crc32

from os_prefilter.common.quoting import pluralize, shorten
from os_prefilter.common.trait_names import Trait
from os_prefilter.request.requirements import ROOT
from os_prefilter.request.view import Request
from os_prefilter.rules.conditions import PLACES, Condition, Value, all_of, is_set, readings, value_of

_MOST_NAMES_SHOWN = 5


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
            for name in by_name.keys() & all_of(request, place).keys():
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
