"""Semantic checks on parsed rules: conflicts with one another, with the vocabulary, and with Nova."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, islice, product
from math import prod
from typing import NamedTuple

from os_prefilter.common.quoting import quote
from os_prefilter.request.requirements import ROOT, UNSUFFIXED
from os_prefilter.rules.conditions import (
    EXTRA_SPEC,
    FORBIDS,
    IMAGE_PROPERTY,
    REQUIRES,
    SEVERAL_VALUES,
    Clause,
    Condition,
    Value,
    as_nova_spells,
    describe_clauses,
    format_value,
)
from os_prefilter.rules.model import PORTS, Rule
from os_prefilter.vocabulary import table
from os_prefilter.vocabulary.image_properties import BOOLEANS, KEPT_BY_NOVA, LEGACY_NAMES
from os_prefilter.vocabulary.model import Row, canonical_boolean

_VMWARE_ADAPTER = "vmware_adaptertype"
_MOST_CASES = 10_000


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


def check_rules(rules: list[Rule]) -> Iterator[Problem]:
    """Yield the problems of well-formed rules, taken together."""
    yield from _same_names(rules)
    for rule in rules:
        for text, warning in (*_within(rule), *_against_vocabulary(rule)):
            yield Problem(rule.file, rule.line, f"the rule {rule.name} {text}", warning)
    yield from _contradictions(rules)


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
        if condition.place == IMAGE_PROPERTY:
            is_needed = all(condition in clause for clause in rule.when)
            never = "never applies" if is_needed else "has a condition that never holds"
            yield from _image_property(condition, never)


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


def _image_property(condition: Condition, never: str) -> Iterator[tuple[str, bool]]:
    name = condition.name
    current = LEGACY_NAMES.get(name) or ("hw_disk_bus" if name == _VMWARE_ADAPTER else "")
    if current:
        yield (
            f"{never}: {name} is an old name of {current}. Write {current}; images with either name match.",
            False,
        )
        return
    if name not in KEPT_BY_NOVA:
        yield (
            f"{never} within Nova, which drops the image property {quote(name)} before a filter sees it. Use an "
            "extra spec, or an image property that the documentation of rules lists.",
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


def _against_vocabulary(rule: Rule) -> Iterator[tuple[str, bool]]:
    for condition in dict.fromkeys(chain.from_iterable(rule.when)):
        for row in table() if condition.place in (IMAGE_PROPERTY, EXTRA_SPEC) and not condition.in_list else ():
            name = row.image_property if condition.place == IMAGE_PROPERTY else row.extra_spec
            if name == condition.name:
                yield from _against_row(rule, condition, row)


def _against_row(rule: Rule, condition: Condition, row: Row) -> Iterator[tuple[str, bool]]:
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


def _contradictions(rules: Iterable[Rule]) -> Iterator[Problem]:
    """Yield pairs of rules of which one requires, always or for one value, a trait that the other one forbids.

    Rules about different names are allowed: a request that matches both is rejected with the reason.
    """
    rules = list(rules)
    forbidding: dict[tuple[object, ...], dict[int, None]] = {}
    for number, rule in enumerate(rules):
        for trait in rule.forbid:
            for key in _keys(rule, _where_found):
                forbidding.setdefault((rule.scope, trait, *key), {})[number] = None
    for one in rules:
        for trait in one.require:
            # By common names and values: comparing all pairs would take minutes for thousands of rules.
            keys = _keys(one, _where_to_look)
            near = dict.fromkeys(chain.from_iterable(forbidding.get((one.scope, trait, *key), ()) for key in keys))
            met = ((rules[number], _find_overlap(one, rules[number])) for number in near)
            # One is enough.
            for other, meeting in islice((each for each in met if each[0] is not one and each[1]), 1):
                text = (
                    f"the rule {one.name} requires {trait} on {one.scope}, which the rule {other.name} "
                    f"({other.file}:{other.line}) forbids for {meeting}. Change one of the two."
                )
                yield Problem(one.file, one.line, text)


_ANY_VALUE = "any"
_ANYWHERE = ("anywhere",)
_ALWAYS = ("always",)


def _keys(rule: Rule, marks: Callable[[Condition], Iterable[object]]) -> Iterator[tuple[object, ...]]:
    """Yield the keys of a rule: where a rule that forbids is found, or where one that requires looks.

    One that applies to each request meets every other.
    """
    is_found = marks is _where_found
    for clause in rule.when:
        if is_found or not clause:
            yield _ANYWHERE
        if not is_found or not clause:
            yield _ALWAYS
        for condition in clause:
            for mark in marks(condition):
                yield *condition.key, mark


def _where_found(condition: Condition) -> Iterable[object]:
    return (_ANY_VALUE, *_marks(condition)) if condition.values else (_ANY_VALUE, None)


def _where_to_look(condition: Condition) -> Iterable[object]:
    return (None, *_marks(condition)) if condition.values else (_ANY_VALUE,)


def _marks(condition: Condition) -> set[object]:
    """Return the texts and booleans that one value can match in common with another condition, also as an item."""
    both = (condition, replace(condition, in_list=True))
    return {("value", each) for value in condition.values for one in both for each in one.readings(value)}


def _find_overlap(one: Rule, other: Rule) -> str:
    """Return conditions of a request that both rules apply to; empty if there is none, or about different names."""
    unless = (*one.unless, *other.unless)
    for ours, theirs in product(one.when, other.when):
        both = _join(ours, theirs)
        if both is not None and not _is_excluded(both, unless):
            shared = {each.key for each in ours} & {each.key for each in theirs}
            if shared:
                examples = (replace(each, values=_first(each.values)) for each in both if each.key in shared)
                return " and ".join(sorted(map(str, examples)))
            met = describe_clauses([both]) or "every request"
            return f"{met} unless {describe_clauses(unless)}" if unless else met
    return ""


def _first(values: Iterable[Value]) -> frozenset[Value]:
    return frozenset(sorted(values, key=format_value)[:1])


def _join(one: Clause, other: Clause) -> Clause | None:
    """Return the conditions of both; None if no request meets them, or they are about different names."""
    ours, theirs = _by_key(one), _by_key(other)
    if not (ours.keys() <= theirs.keys() or theirs.keys() <= ours.keys()):
        return None
    found = [_join_conditions(ours.get(key, []), theirs.get(key, [])) for key in ours | theirs]
    return None if [] in found else tuple(chain.from_iterable(found))


def _by_key(clause: Clause) -> dict[tuple[str, str], list[Condition]]:
    """Return the conditions by what they are about: several may be about the items of one list."""
    found: dict[tuple[str, str], list[Condition]] = {}
    for each in clause:
        found.setdefault(each.key, []).append(each)
    return found


def _join_conditions(ours: list[Condition], theirs: list[Condition]) -> list[Condition]:
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
    return all(any(_clause_implies(each, other) for other in unless) for each in _cases(clause, unless))


def _cases(clause: Clause, unless: tuple[Clause, ...]) -> Iterable[Clause]:
    """Return the clause once for each value that decides which of the others are met, if there are not too many."""
    keys = {each.key for other in unless for each in other} if len(unless) > 1 else set()
    single = [
        [replace(each, values=frozenset((value,))) for value in each.values]
        if each.key in keys and each.values
        else [each]
        for each in clause
    ]
    return product(*single) if prod(map(len, single)) <= _MOST_CASES else (clause,)


def _clause_implies(clause: Clause, other: Clause) -> bool:
    return all(any(map(partial(_implies, each), clause)) for each in other)


def _implies(then: Condition, condition: Condition) -> bool:
    """Whether each value that meets a condition meets another one, too."""
    if condition.key != then.key:
        return False
    if not then.values:
        return True
    if condition.in_list:
        return then.in_list and condition.values <= then.values
    return bool(condition.values) and all(map(then.holds, condition.values))
