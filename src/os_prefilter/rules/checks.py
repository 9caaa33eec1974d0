"""Semantic checks on parsed rules: conflicts with one another, with the vocabulary, and with Nova."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, product
from math import prod
from typing import NamedTuple

from os_prefilter.common.quoting import quote
from os_prefilter.request.remarks import nearest_property
from os_prefilter.request.requirements import ROOT, UNSUFFIXED
from os_prefilter.rules.conditions import (
    EXTRA_SPEC,
    FORBIDS,
    IMAGE_PROPERTY,
    REQUIRES,
    SEVERAL_VALUES,
    Clause,
    RuleCondition,
    Value,
    as_nova_spells,
    describe_clauses,
    format_value,
    items_of,
    readings,
)
from os_prefilter.rules.model import PORTS, Rule
from os_prefilter.vocabulary import table
from os_prefilter.vocabulary.image_properties import BOOLEANS, KEPT_BY_NOVA, LEGACY_NAMES
from os_prefilter.vocabulary.model import Row, canonical_boolean

_VMWARE_ADAPTER = "vmware_adaptertype"
_MOST_CASES = 10_000
_MOST_STEPS = 500_000


class Problem(NamedTuple):
    """An error or a warning about a file of rules."""

    file: str
    line: int
    """0 for the file as a whole."""
    text: str
    warning: bool = False
    """Whether the rules may still be used."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {'warning: ' if self.warning else ''}{self.text}"


Progress = Callable[[str, int, int], object]
"""Called with what is done, how many of it are, and how many there are in all."""


def no_progress(_what: str, _done: int, _all: int) -> None:
    """Show nothing."""


def check_rules(rules: list[Rule], progress: Progress = no_progress) -> Iterator[Problem]:
    """Yield the problems of well-formed rules, taken together."""
    yield from _same_names(rules)
    rows = _rows_by_key()
    for number, rule in enumerate(rules, 1):
        progress("rules by themselves", number, len(rules))
        for text, warning in (*_within(rule), *_against_vocabulary(rule, rows)):
            yield Problem(rule.file, rule.line, f"the rule {rule.name} {text}", warning)
    yield from _contradictions(rules, progress)


def _same_names(rules: Iterable[Rule]) -> Iterator[Problem]:
    first: dict[str, Rule] = {}
    for rule in rules:
        other = first.setdefault(rule.name, rule)
        if other is not rule:
            text = f"the rule name {rule.name} is taken by {other.file}:{other.line}. Rename or remove one of them."
            yield Problem(rule.file, rule.line, text)


def _within(rule: Rule) -> Iterator[tuple[str, bool]]:
    for trait in rule.require:
        if trait in rule.forbid:
            yield f"both requires and forbids {trait}. Remove one of the two.", False
    yield from _preferred(rule)
    for clause in (*rule.when, *rule.unless):
        single = (each.key for each in clause if each.place not in SEVERAL_VALUES and not each.in_list)
        for (place, name), times in Counter(single).items():
            if times > 1:
                what = f"{place} {name}".rstrip()
                yield f"has {times} conditions about the {what}. Give one condition.", False
    for clause in rule.when:
        if _is_excluded(clause, rule.unless):
            met = describe_clauses([clause])
            yield f"does not apply to requests with {met}, because of its 'unless'. Change one of the two.", False
        yield from _own_requirements(rule, clause)
    for condition in dict.fromkeys(chain.from_iterable((*rule.when, *rule.unless))):
        is_needed = all(condition in clause for clause in rule.when)
        yield from _by_itself(condition, "never applies" if is_needed else "has a condition that never holds")


def _own_requirements(rule: Rule, clause: Clause) -> Iterator[tuple[str, bool]]:
    """Yield the traits that a rule forbids if they are required, or requires if they are forbidden."""
    if rule.scope not in (ROOT, UNSUFFIXED):
        return
    for condition in clause:
        traits, verb = {REQUIRES: (rule.forbid, "forbids"), FORBIDS: (rule.require, "requires")}.get(
            condition.place, ((), "")
        )
        for trait in condition.values.intersection(traits):
            yield f"{verb} {trait}, and applies to requests with the {condition.place} {trait}: it rejects them.", False


def _preferred(rule: Rule) -> Iterator[tuple[str, bool]]:
    for trait in rule.prefer:
        for traits, verb in ((rule.require, "requires"), (rule.forbid, "forbids")):
            if trait in traits:
                yield f"both prefers and {verb} {trait}. Remove one of the two.", False
    if rule.prefer and rule.scope != ROOT:
        scope = "ports" if rule.scope == PORTS else rule.scope
        yield (
            f"prefers traits, and has the scope {scope}: only traits of the host itself can be preferred. Move prefer "
            "to a rule without scope.",
            False,
        )


def _current_name(name: str) -> str:
    """Return the name that took the place of an image property's old one; empty for any other name."""
    return LEGACY_NAMES.get(name) or ("hw_disk_bus" if name == _VMWARE_ADAPTER else "")


def _by_itself(condition: RuleCondition, never: str) -> Iterator[tuple[str, bool]]:
    for value in condition.values if condition.in_list else ():
        if items_of(value) not in (value, (value,)):
            yield (
                f"{never}: no item of a list is {quote(value)}, because lists are divided at commas, and the spaces "
                "around items removed. Write one item.",
                False,
            )
            return
    if condition.place == IMAGE_PROPERTY:
        yield from _image_property(condition, never)


def _image_property(condition: RuleCondition, never: str) -> Iterator[tuple[str, bool]]:
    name = condition.name
    current = _current_name(name)
    if current:
        yield (
            f"{never}: {name} is an old name of {current}. Write {current}; images with either name match.",
            False,
        )
        return
    if name not in KEPT_BY_NOVA:
        question = nearest_property(name) or "."
        yield (
            f"{never} within Nova, which drops the image property {quote(name)} before a filter sees "
            f"it{question} Use an extra spec, or an image property that the documentation of rules lists.",
            True,
        )
        return
    for value in sorted(condition.values, key=format_value):
        if name in BOOLEANS:
            if not isinstance(value, bool):
                advice = f"Write {canonical_boolean(value) or 'true or false'} without quotes."
                yield f"{never}: {name} is a boolean, and {quote(value)} is a text. {advice}", False
        elif isinstance(value, str) and as_nova_spells(name, value) != value:
            yield (
                f"{never}: Nova spells {quote(value)} as {quote(as_nova_spells(name, value))}. Write that.",
                False,
            )


def _against_vocabulary(rule: Rule, rows: Mapping[tuple[str, str], list[Row]]) -> Iterator[tuple[str, bool]]:
    for condition in dict.fromkeys(chain.from_iterable(rule.when)):
        for row in rows.get(condition.key, ()) if not condition.in_list else ():
            yield from _against_row(rule, condition, row)


def _rows_by_key() -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in table():
        for key in ((IMAGE_PROPERTY, row.image_property), (EXTRA_SPEC, row.extra_spec)):
            found.setdefault((key[0], key[1] or ""), []).append(row)
    return found


def _against_row(rule: Rule, condition: RuleCondition, row: Row) -> Iterator[tuple[str, bool]]:
    for value in sorted(condition.values or row.values, key=format_value):
        if _is_excluded((replace(condition, values=frozenset((value,))),), rule.unless):
            continue
        canonical = row.canonical(value)
        if canonical is None:
            what = f"has the condition {condition.name}={format_value(value)}, a value that is not in the vocabulary"
            if row.refuses_unknown:
                yield f"{what}: requests with it are refused. Valid values are: {', '.join(row.values)}.", False
            else:
                yield f"{what}. Valid values are: {', '.join(row.values)}.", True
            continue
        yield from _against_value(rule, row, value, canonical)


def _against_value(rule: Rule, row: Row, value: Value, canonical: str) -> Iterator[tuple[str, bool]]:
    term = row.values[canonical]
    traits = rule.require if term.required else rule.forbid
    against = rule.forbid if term.required else rule.require
    said = f"{row.image_property or row.extra_spec}={format_value(value)}"
    verb = "requires" if term.required else "forbids"
    if term.trait in against and rule.scope in (ROOT, UNSUFFIXED):
        yield f"contradicts the vocabulary, which {verb} {term.trait} for {said}. Remove the trait.", False
    elif term.trait in traits and rule.scope == ROOT and not term.opt_in and "query" not in row.required_by:
        by = " or ".join(row.required_by) or "no filter"
        yield f"repeats the vocabulary, which {verb} {term.trait} for {said} (by {by}).", True


def _contradictions(rules: Sequence[Rule], progress: Progress) -> Iterator[Problem]:
    """Yield pairs of rules of which one requires, always or for one value, a trait that the other one forbids.

    Rules about different names are allowed: a request that matches both is rejected with the reason. So are rules that
    never apply, which are problems of their own.
    """
    alternatives = [[clause for clause in rule.when if _can_hold(clause)] for rule in rules]
    forbidding: dict[tuple[str, str], list[_Alternative]] = {}
    for number, rule in enumerate(rules):
        for trait in rule.forbid:
            forbidding.setdefault((rule.scope, trait), []).extend((number, each) for each in alternatives[number])
    indexes = {key: _Alternatives(some) for key, some in forbidding.items()}
    steps = 0
    for count, (one, clauses) in enumerate(zip(rules, alternatives, strict=True), 1):
        progress("rules against the others", count, len(rules))
        for trait in one.require if clauses else ():
            index = indexes.get((one.scope, trait), _NO_ALTERNATIVES)
            for ours, number, theirs in index.pairs(clauses):
                other = rules[number]
                unless = (*one.unless, *other.unless)
                both = None if other is one else _join(ours, theirs)
                cases = _cases(both, unless) if both is not None else ()
                steps += 1 + len(cases)
                if steps > _MOST_STEPS:
                    text = (
                        f"the rule {one.name}, and those after it, were not compared with all others: there are too "
                        "many combinations. A request that meets two rules which contradict each other is rejected."
                    )
                    yield Problem(one.file, one.line, text, warning=True)
                    return
                if both is not None and not _are_excluded(cases, unless):
                    text = (
                        f"the rule {one.name} requires {trait} on {one.scope}, which the rule {other.name} "
                        f"({other.file}:{other.line}) forbids for {_describe_meeting(ours, theirs, both, unless)}. "
                        "Change one of the two."
                    )
                    yield Problem(one.file, one.line, text)
                    # One is enough.
                    break


_Alternative = tuple[int, Clause]
"""The number of a rule, and one of its alternatives."""
_Mark = tuple[tuple[str, str], object]
"""What a condition is about, and a value of it; None for any, and ``_ANY_VALUE`` where any other is looked for."""
_ANY_VALUE = "any"


class _Alternatives:
    """Alternatives of rules, found by the conditions that another alternative has in common with them.

    Two can be met together without a condition about something else only if one of them is about all that the other is
    about. Each is so looked up by its rarest condition alone: comparing all pairs would take minutes.
    """

    def __init__(self, alternatives: Iterable[_Alternative]) -> None:
        self._all = tuple(alternatives)
        self._by_mark: dict[_Mark, list[_Alternative]] = {}
        # Each once, under its rarest condition.
        self._by_rarest: dict[_Mark, list[_Alternative]] = {}
        self._always = [each for each in self._all if not each[1]]
        conditions = [(each, list(map(_where_found, each[1]))) for each in self._all if each[1]]
        for each, places in conditions:
            for mark in chain.from_iterable(places):
                self._by_mark.setdefault(mark, []).append(each)
        for each, places in conditions:
            for mark in min(places, key=self._times):
                self._by_rarest.setdefault(mark, []).append(each)

    def _times(self, marks: Sequence[_Mark]) -> int:
        # The first is there for any value.
        return sum(len(self._by_mark.get(mark, ())) for mark in marks[1:])

    def pairs(self, clauses: Iterable[Clause]) -> Iterator[tuple[Clause, int, Clause]]:
        """Yield each of the clauses with each alternative that one value may meet together with it."""
        return ((clause, *each) for clause in clauses for each in self._near(clause))

    def _near(self, clause: Clause) -> Iterator[_Alternative]:
        if not clause:
            yield from self._all
            return
        yield from self._always
        keys = {each.key for each in clause}
        places = list(map(_where_to_look, clause))
        for mark in chain.from_iterable(places):
            for each in self._by_rarest.get(mark, ()):
                if keys.issuperset(other.key for other in each[1]):
                    yield each
        for mark in min(places, key=lambda marks: sum(len(self._by_mark.get(mark, ())) for mark in marks)):
            for each in self._by_mark.get(mark, ()):
                # Those about exactly the same were among the others.
                if keys < {other.key for other in each[1]}:
                    yield each


_NO_ALTERNATIVES = _Alternatives(())


def _where_found(condition: RuleCondition) -> list[_Mark]:
    return [(condition.key, _ANY_VALUE), *(_marks(condition) if condition.values else [(condition.key, None)])]


def _where_to_look(condition: RuleCondition) -> list[_Mark]:
    return [(condition.key, None), *_marks(condition)] if condition.values else [(condition.key, _ANY_VALUE)]


def _marks(condition: RuleCondition) -> set[_Mark]:
    """Return the texts and booleans that one value can match in common with another condition, also as an item."""
    place, name = key = condition.key
    texts = chain.from_iterable((value, items_of(value)) for value in condition.values)
    return {(key, ("value", each)) for text in texts for each in readings(place, name, text)}


def _can_hold(clause: Clause) -> bool:
    """Whether any request can meet a clause."""
    return all(_join_conditions(some, some) and not any(map(_never_holds, some)) for some in _by_key(clause).values())


def _never_holds(condition: RuleCondition) -> bool:
    mistakes = [text for text, is_warning in _by_itself(condition, "") if not is_warning]
    return bool(mistakes) and (bool(_current_name(condition.name)) or len(mistakes) == len(condition.values))


def _describe_meeting(ours: Clause, theirs: Clause, both: Clause, unless: tuple[Clause, ...]) -> str:
    """Return conditions of a request that both rules apply to."""
    shared = {each.key for each in ours} & {each.key for each in theirs}
    if shared:
        examples = (replace(each, values=_first(each.values)) for each in both if each.key in shared)
        return " and ".join(sorted(map(str, examples)))
    met = describe_clauses([both]) or "every request"
    return f"{met} unless {describe_clauses(unless)}" if unless else met


def _first(values: Iterable[Value]) -> frozenset[Value]:
    return frozenset(sorted(values, key=format_value)[:1])


def _join(one: Clause, other: Clause) -> Clause | None:
    """Return the conditions of both; None if no request meets them, or they are about different names."""
    ours, theirs = _by_key(one), _by_key(other)
    if not (ours.keys() <= theirs.keys() or theirs.keys() <= ours.keys()):
        return None
    found = [_join_conditions(ours.get(key, []), theirs.get(key, [])) for key in ours | theirs]
    return None if [] in found else tuple(chain.from_iterable(found))


def _by_key(clause: Clause) -> dict[tuple[str, str], list[RuleCondition]]:
    """Return the conditions by what they are about: several may be about the items of one list."""
    found: dict[tuple[str, str], list[RuleCondition]] = {}
    for each in clause:
        found.setdefault(each.key, []).append(each)
    return found


def _join_conditions(ours: list[RuleCondition], theirs: list[RuleCondition]) -> list[RuleCondition]:
    """Return the conditions of both about one thing; none if no value meets a condition of each."""
    both = [*ours, *theirs]
    if not (ours and theirs):
        return both
    exact = [each for each in both if each.values and not each.in_list and each.place not in SEVERAL_VALUES]
    if exact:
        # A text may spell a boolean, so one value can match both although they have none in common.
        values = frozenset(value for each in exact for value in each.values)
        common = frozenset(value for value in values if all(each.holds(value) for each in both))
        return [replace(exact[0], values=common)] if common else []
    for pair in product(ours, theirs):
        # One value that both match is enough; the others may be there beside it.
        values = pair[0].values | pair[1].values
        common = frozenset(value for value in values if all(each.holds(value) for each in pair))
        if common or not values:
            narrowest = min(pair, key=lambda each: (not each.values, each.in_list))
            return [replace(narrowest, values=common), *(each for each in both if each not in pair)]
    return []


def _is_excluded(clause: Clause, unless: Iterable[Clause]) -> bool:
    """Whether each request that meets the clause meets one of the others."""
    unless = tuple(unless)
    return _are_excluded(_cases(clause, unless), unless)


def _are_excluded(cases: Iterable[Clause], unless: tuple[Clause, ...]) -> bool:
    return all(any(_clause_implies(each, other) for other in unless) for each in cases)


def _cases(clause: Clause, unless: tuple[Clause, ...]) -> Sequence[Clause]:
    """Return the clause once for each value that decides which of the others are met, if there are not too many."""
    keys = {each.key for other in unless for each in other} if len(unless) > 1 else set()
    single = [
        [replace(each, values=frozenset((value,))) for value in each.values]
        if each.key in keys and each.values
        else [each]
        for each in clause
    ]
    return tuple(product(*single)) if prod(map(len, single)) <= _MOST_CASES else (clause,)


def _clause_implies(clause: Clause, other: Clause) -> bool:
    return all(any(map(partial(_implies, each), clause)) for each in other)


def _implies(then: RuleCondition, condition: RuleCondition) -> bool:
    """Whether each value that meets a condition meets another one, too."""
    if condition.key != then.key:
        return False
    if not then.values:
        return True
    if condition.in_list:
        return then.in_list and condition.values <= then.values
    return bool(condition.values) and all(map(then.holds, condition.values))
