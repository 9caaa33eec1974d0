# SPDX-License-Identifier: Apache-2.0

"""Operators' own rules: conditions, and the traits that they require.

A rule set never changes; :mod:`os_prefilter.rules.reader` reads it from YAML
files, and the request filter ``rules`` applies it. Traits are literals of the
file: a tenant's text is only compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, field, replace
from typing import Any, Final, NamedTuple
from zlib import crc32

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.quoting import pluralize, shorten
from os_prefilter.common.trait_names import Trait
from os_prefilter.request.requirements import ROOT, Requirement
from os_prefilter.request.view import Request
from os_prefilter.rules import conditions

PORTS: Final = "ports"
"""The scope of a rule about each group of a port that requests resources."""
ALWAYS: tuple[conditions.Clause, ...] = ((),)
"""Holds for every request."""

HINT_PREFIX = "trait:"
"""The beginning of the hints by which users name a trait.

``--hint trait:NAME=required``
"""
HINT_VALUES: Mapping[str, str] = {
    "required": "require",
    "forbidden": "forbid",
    "preferred": "prefer",
}
"""The values of such hints, and the field of a rule that each stands for."""

_MOST_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Rule:
    """Traits that hosts must have, must not have, or preferably have.

    The requests that the rule applies to require them.
    """

    name: str
    when: tuple[conditions.Clause, ...]
    """Alternatives: it applies if all conditions of one of them hold."""
    require: tuple[Trait, ...] = ()
    forbid: tuple[Trait, ...] = ()
    scope: str = ROOT
    """``root``, ``unsuffixed``, :data:`PORTS`, or a request group's suffix.

    The rule does not apply to flavors without that group.
    """
    because: str = ""
    """The operator's reason, for people."""
    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)
    prefer: tuple[Trait, ...] = ()
    """Traits of the root that hosts preferably have."""
    unless: tuple[conditions.Clause, ...] = ()
    """Alternatives: it does not apply if all conditions of one of them hold.
    """
    needs: str = ""
    """What such a guest needs, for the author of a request without a host."""
    hint_trait: str = ""
    """The trait that the rule lets requests name in a hint.

    Empty for a rule that an operator wrote as such.
    """

    @property
    def conditions(self) -> str:
        """To which requests it applies, in words."""
        text = "every request"
        if self.when != ALWAYS:
            text = conditions.describe_clauses(self.when)
        if self.unless:
            text += f" unless {conditions.describe_clauses(self.unless)}"
        return text


class Match(NamedTuple):
    """A rule that applies to a request."""

    rule: Rule
    source: str
    """The source of the requirements, in the words of the file, for operators.
    """
    public: str
    """The source for the author of the request.

    Nothing of other projects, flavors and zones, and no reason.
    """
    properties: tuple[str, ...]
    """Words of the conditions that the author of the request has written."""


class RuleSet:
    """All rules of a deployment, indexed by name and value.

    Rules about others cost nothing.
    """

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self.hint_traits = frozenset(
            rule.hint_trait for rule in self.rules if rule.hint_trait
        )
        """Traits that requests may name in hints (``trait:NAME=required``)."""
        self.traits = frozenset(
            trait
            for rule in self.rules
            for trait in (*rule.require, *rule.forbid)
        )
        """All required and forbidden traits; preferred ones need not exist."""
        # Place, and whether it is about items -> name -> value, or None for
        # any -> rules by number. An alternative is under one of its
        # conditions.
        self._index: dict[
            tuple[str, bool],
            dict[str, dict[conditions.ConditionValue | None, list[int]]],
        ] = {}
        # Rules without "when" are tested for each request: there are few, and
        # decisions are cached.
        self._always: list[int] = []
        for number, rule in enumerate(self.rules):
            for clause in rule.when:
                if not clause:
                    self._always.append(number)
                    continue
                # A condition with values matches fewer requests than one
                # without.
                first = min(clause, key=_frequency)
                key = first.place, first.in_list
                by_name = self._index.setdefault(key, {})
                by_value = by_name.setdefault(first.name, {})
                for value in first.values or (None,):
                    by_value.setdefault(value, []).append(number)

    def __repr__(self) -> str:
        names = [rule.name for rule in self.rules if not rule.hint_trait]
        shown = ", ".join(shorten(names, _MOST_NAMES_SHOWN)) or "none"
        number = pluralize(len(names), "rule")
        if self.hint_traits:
            number += f" and {pluralize(len(self.hint_traits), 'hint trait')}"
        return f"<{number}, {self.checksum}: {shown}>"

    @property
    def checksum(self) -> str:
        """Eight characters, the same for the same rules on every machine."""
        contents = [
            asdict(replace(rule, file="", line=0)) for rule in self.rules
        ]
        text = json.dumps(
            contents, default=lambda values: sorted(map(repr, values))
        )
        return f"{crc32(text.encode()):08x}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RuleSet) and self.rules == other.rules

    def __hash__(self) -> int:
        return hash(self.rules)

    def match(
        self, request: Request, required_before: Iterable[Requirement] = ()
    ) -> list[Match]:
        """Return the rules that apply, in the order of the files.

        :param required_before: what other filters require, for conditions on
            requirements
        """
        subject = conditions.RuleSubject(request, required_before)
        found = set(self._always)
        for (place, in_list), by_name in self._index.items():
            # A view's intersection goes through the smaller of the two.
            for name in by_name.keys() & subject.all_of(place):
                readings = subject.readings_of(place, name, in_list)
                if readings is None:
                    continue
                by_value = by_name[name]
                found.update(by_value.get(None, ()))
                for value in by_value.keys() & readings:
                    found.update(by_value[value])
        matches = []
        for number in sorted(found):
            rule = self.rules[number]
            met = next(filter(subject.meets, rule.when), None)
            if met is None or any(map(subject.meets, rule.unless)):
                continue
            source = public = subject.describe(met)
            if not rule.hint_trait:
                because = f" ({rule.because})" if rule.because else ""
                source = (
                    f"rule {rule.name}: {source or rule.conditions}{because}"
                )
                public = (
                    f"rule {rule.name}:"
                    f" {public or 'every request that it does not except'}"
                )
            properties = subject.properties(met)
            if rule.needs and properties:
                needs = f"{properties[0]} (needs {rule.needs})"
                properties = (needs, *properties[1:])
            matches.append(Match(rule, source, public, properties))
        return matches


def _frequency(condition: conditions.RuleCondition) -> tuple[bool, bool, int]:
    """Return a key that sorts conditions by how many requests meet them."""
    place = conditions.PLACES.index(condition.place)
    return not condition.values, condition.in_list, place


def rules_of_hint(trait: str, file: str, line: int) -> Iterator[Rule]:
    """Yield the rules for the hints about a trait that users may name."""
    for value, key in HINT_VALUES.items():
        name = f"{HINT_PREFIX}{trait}"
        when = (
            conditions.RuleCondition(
                conditions.HINT, name, frozenset((value,))
            ),
        )
        asked: Any = {key: (Trait(trait),)}
        yield Rule(
            f"hint {name}={value}",
            (when,),
            file=file,
            line=line,
            hint_trait=trait,
            **asked,
        )


NO_RULES = RuleSet()
"""The rules of a deployment without ``rules_dirs``."""
