# SPDX-License-Identifier: Apache-2.0

"""Check parsed rules for conflicts.

They may contradict one another, the vocabulary, or Nova.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations, islice, product
from typing import NamedTuple

from os_prefilter.common.progress import Progress, no_progress
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
    ConditionValue,
    RuleCondition,
    as_nova_spells,
    describe_clauses,
    format_value,
    items_of,
)
from os_prefilter.rules.model import Rule
from os_prefilter.vocabulary import table
from os_prefilter.vocabulary.image_properties import (
    BOOLEANS,
    KEPT_BY_NOVA,
    LEGACY_NAMES,
)
from os_prefilter.vocabulary.model import Row, canonical_boolean

_CURRENT_NAMES = {**LEGACY_NAMES, "vmware_adaptertype": "hw_disk_bus"}
_MOST_CASES = 10_000
_MOST_STEPS = 500_000
_UNNAMED = "\0"
"""A value that no file names, because it is not printable."""


class Problem(NamedTuple):
    """An error or a warning about a file of rules."""

    file: str
    line: int
    """0 for the file as a whole."""
    text: str
    warning: bool = False
    """True if the rules may still be used."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        kind = "warning: " if self.warning else ""
        return f"{place}: {kind}{self.text}"


def check_rules(
    rules: Iterable[Rule], progress: Progress = no_progress
) -> Iterator[Problem]:
    """Yield the problems of well-formed rules.

    Only rules without an error of their own are compared with others.
    """
    rules = list(rules)
    sound = []
    first: dict[str, Rule] = {}
    for number, rule in enumerate(rules, 1):
        progress("rules by themselves", number, len(rules))
        other = first.setdefault(rule.name, rule)
        if other is not rule:
            text = (
                f"the rule name {rule.name} is taken by"
                f" {other.file}:{other.line}. Rename or remove one of them."
            )
            yield Problem(rule.file, rule.line, text)
        texts = (
            *_within(rule),
            *_without_effect(rule),
            *_against_vocabulary(rule),
        )
        problems = [
            Problem(
                rule.file, rule.line, f"the rule {rule.name} {text}", warning
            )
            for text, warning in texts
        ]
        yield from problems
        if all(each.warning for each in problems):
            sound.append(rule)
    yield from _contradictions(sound, progress)


def _within(rule: Rule) -> Iterator[tuple[str, bool]]:
    effects = (
        ("prefers", rule.prefer),
        ("requires", rule.require),
        ("forbids", rule.forbid),
    )
    for (one, traits), (other, others) in combinations(effects, 2):
        for trait in traits:
            if trait in others:
                problem = f"both {one} and {other} {trait}."
                yield f"{problem} Remove one of the two.", False
    if rule.prefer and rule.scope != ROOT:
        problem = (
            f"prefers traits, and has the scope {rule.scope}: only traits of"
            " the host itself can be preferred."
        )
        yield f"{problem} Move prefer to a rule without scope.", False
    for clause in (*rule.when, *rule.unless):
        single = (
            each.key
            for each in clause
            if each.place not in SEVERAL_VALUES and not each.in_list
        )
        for (place, name), times in Counter(single).items():
            if times > 1:
                what = f"{place} {name}".rstrip()
                problem = f"has {times} conditions about the {what}."
                yield f"{problem} Give one condition.", False
    for condition in dict.fromkeys(
        chain.from_iterable((*rule.when, *rule.unless))
    ):
        never = "has a condition that never holds"
        if all(condition in clause for clause in rule.when):
            never = "never applies"
        yield from _by_itself(condition, never)


def _without_effect(rule: Rule) -> Iterator[tuple[str, bool]]:
    for clause in rule.when:
        if rule.unless and _example(clause, (), rule.unless) is None:
            met = describe_clauses([clause])
            problem = (
                f"does not apply to requests with {met}, because of its"
                " 'unless'."
            )
            yield f"{problem} Change one of the two.", False
        if rule.scope not in (ROOT, UNSUFFIXED):
            continue
        for place, traits, verb in (
            (REQUIRES, rule.forbid, "forbids"),
            (FORBIDS, rule.require, "requires"),
        ):
            asked: set[ConditionValue] = set()
            for each in clause:
                if each.place == place:
                    asked |= each.values
            for trait in asked.intersection(traits):
                problem = (
                    f"{verb} {trait}, and applies to requests with the"
                    f" {place} {trait}: it rejects them."
                )
                yield problem, False


def _by_itself(
    condition: RuleCondition, never: str
) -> Iterator[tuple[str, bool]]:
    if condition.in_list:
        for value in condition.values:
            if items_of(value) not in (value, (value,)):
                reason = (
                    f"no item of a list is {quote(value)}, because lists are"
                    " divided at commas, and the spaces around items removed."
                )
                yield f"{never}: {reason} Write one item.", False
                return
    if condition.place != IMAGE_PROPERTY:
        return
    name = condition.name
    if current := _CURRENT_NAMES.get(name):
        problem = f"{name} is an old name of {current}."
        advice = f"Write {current}; images with either name match."
        yield f"{never}: {problem} {advice}", False
    elif name not in KEPT_BY_NOVA:
        problem = (
            f"which drops the image property {quote(name)} before a filter"
            f" sees it{nearest_property(name) or '.'}"
        )
        advice = (
            "Use an extra spec, or an image property that the documentation of"
            " rules lists."
        )
        yield f"{never} within Nova, {problem} {advice}", True
    else:
        texts = [each for each in condition.values if isinstance(each, str)]
        for text in sorted(texts):
            problem = _never_in_nova(name, text)
            if problem:
                yield f"{never}: {problem}", False


def _never_in_nova(name: str, text: str) -> str:
    """Return why Nova never has a text in a property; empty if it may."""
    if name in BOOLEANS:
        value = canonical_boolean(text) or "true or false"
        return (
            f"{name} is a boolean, and {quote(text)} is a text. Write"
            f" {value} without quotes."
        )
    spelt = as_nova_spells(name, text)
    if spelt == text:
        return ""
    return f"Nova spells {quote(text)} as {quote(spelt)}. Write that."


def _against_vocabulary(rule: Rule) -> Iterator[tuple[str, bool]]:
    for condition in dict.fromkeys(chain.from_iterable(rule.when)):
        if condition.in_list:
            continue
        for row in table():
            if condition.key in (
                (IMAGE_PROPERTY, row.image_property),
                (EXTRA_SPEC, row.extra_spec),
            ):
                yield from _against_row(rule, row, condition)


def _against_row(
    rule: Rule, row: Row, condition: RuleCondition
) -> Iterator[tuple[str, bool]]:
    values = condition.values or row.values
    for value in sorted(values, key=format_value):
        one = replace(condition, values=frozenset((value,)))
        if _example((one,), (), rule.unless) is not None:
            what = f"{condition.name}={format_value(value)}"
            yield from _against_value(rule, row, what, value)


def _against_value(
    rule: Rule, row: Row, condition: str, value: ConditionValue
) -> Iterator[tuple[str, bool]]:
    canonical = row.canonical(value)
    if canonical is None:
        refused = ""
        if row.refuses_unknown:
            refused = ": requests with it are refused"
        problem = (
            f"has the condition {condition}, a value that is not in the"
            f" vocabulary{refused}."
        )
        valid = f"Valid values are: {', '.join(row.values)}."
        yield f"{problem} {valid}", not row.refuses_unknown
        return
    term = row.values[canonical]
    opposed = rule.forbid if term.required else rule.require
    if term.trait in opposed and rule.scope in (ROOT, UNSUFFIXED):
        verb = "requires" if term.required else "forbids"
        problem = (
            f"contradicts the vocabulary, which {verb} {term.trait} for"
            f" {condition}."
        )
        yield f"{problem} Remove the trait.", False


class _Alternative(NamedTuple):
    rule: Rule
    clause: Clause
    keys: frozenset[tuple[str, str]]
    """Places and names that its conditions are about."""


def _contradictions(
    rules: Sequence[Rule], progress: Progress
) -> Iterator[Problem]:
    """Yield pairs of rules that require and forbid the same trait.

    Always, or for one value.

    Rules about different names are allowed: a request that matches both is
    rejected with the reason.
    """
    by_trait = _alternatives_by_trait(rules)
    steps = 0
    for number, ((scope, trait), (requiring, forbidding)) in enumerate(
        by_trait.items(), 1
    ):
        progress("rules against the others", number, len(by_trait))
        reported = set()
        for ours, theirs in product(requiring, forbidding):
            one, other = ours.rule, theirs.rule
            steps += 1
            if steps > _MOST_STEPS:
                text = (
                    f"the rule {one.name}, and others, were not compared with"
                    " all others: there are too many combinations. A request"
                    " that meets two rules which contradict each other is"
                    " rejected."
                )
                yield Problem(one.file, one.line, text, warning=True)
                return
            # One contradiction of a rule is enough: hundreds of rules would
            # have ten thousands.
            if one.name in reported:
                continue
            # One value may meet both only if one of the two is about all that
            # the other is about.
            if not (ours.keys <= theirs.keys or theirs.keys <= ours.keys):
                continue
            unless = (*one.unless, *other.unless)
            example = _example(ours.clause, theirs.clause, unless)
            if example is not None:
                reported.add(one.name)
                met = describe_clauses([example]) or "every request"
                if unless:
                    met = f"{met} unless {describe_clauses(unless)}"
                text = (
                    f"the rule {one.name} requires {trait} on {scope}, which"
                    f" the rule {other.name} ({other.file}:{other.line})"
                    f" forbids for {met}."
                    " Change one of the two."
                )
                yield Problem(one.file, one.line, text)


def _alternatives_by_trait(
    rules: Sequence[Rule],
) -> dict[tuple[str, str], tuple[list[_Alternative], list[_Alternative]]]:
    """Return scope and trait -> what requires it, and what forbids it."""
    found: dict[
        tuple[str, str], tuple[list[_Alternative], list[_Alternative]]
    ] = {}
    for rule in rules:
        alternatives = [
            _Alternative(rule, clause, frozenset(each.key for each in clause))
            for clause in rule.when
        ]
        for trait in rule.require:
            requiring, _ = found.setdefault((rule.scope, trait), ([], []))
            requiring += alternatives
        for trait in rule.forbid:
            _, forbidding = found.setdefault((rule.scope, trait), ([], []))
            forbidding += alternatives
    return found


def _example(
    ours: Clause, theirs: Clause, unless: Sequence[Clause]
) -> Clause | None:
    """Return an example of a request that meets two clauses, or None.

    It meets none of the exceptions.

    Of a list, two clauses have to find one item that both name: two items are
    as two names.
    """
    exceptions = list(chain.from_iterable(unless))
    choices = []
    for key in dict.fromkeys(each.key for each in (*ours, *theirs)):
        first = [each for each in ours if each.key == key]
        second = [each for each in theirs if each.key == key]
        about = [each for each in exceptions if each.key == key]
        # Values between which the exceptions do not distinguish are one case.
        cases: dict[frozenset[RuleCondition], Clause] = {}
        values = chain(_values(first), _values(second))
        for value, described in islice(values, _MOST_CASES):
            if all(each.holds(value) for each in (*first, *second)):
                met = frozenset(each for each in about if each.holds(value))
                cases.setdefault(met, described)
        choices.append(cases.items())
    for chosen in islice(product(*choices), _MOST_CASES):
        all_met = frozenset[RuleCondition]().union(*(met for met, _ in chosen))
        if not any(all_met.issuperset(clause) for clause in unless):
            return tuple(chain.from_iterable(each for _, each in chosen))
    return None


def _values(
    conditions: Sequence[RuleCondition],
) -> Iterator[tuple[object, Clause]]:
    """Yield values that may meet conditions about one thing.

    Each value comes with the conditions that describe it: one value of each
    condition; all of these together, where the thing has several values; and
    all of these in a list with another item, which an exception for the whole
    list does not name.
    """
    if not conditions:
        return
    first = conditions[0]

    def condition(value: ConditionValue) -> RuleCondition:
        values = frozenset({value} - {_UNNAMED})
        return replace(first, values=values, in_list=False)

    if first.place == IMAGE_PROPERTY and first.name in BOOLEANS:
        # Nova's image has nothing else there.
        for boolean in (True, False):
            yield boolean, (condition(boolean),)
        return
    choices = [
        sorted(each.values, key=format_value) or [_UNNAMED]
        for each in conditions
    ]
    for chosen in product(*choices):
        for value in chosen:
            yield value, (condition(value),)
        texts = list(map(_unusual_text, chosen))
        lists = [
            f"{text},{_UNNAMED}" if each.in_list else text
            for each, text in zip(conditions, texts)
        ]
        described = tuple(
            replace(each, in_list=lists != texts)
            for each in map(condition, chosen)
            if each.values
        )
        if first.place in SEVERAL_VALUES:
            yield tuple(lists), described
        elif lists != texts:
            yield ",".join(lists), described


def _unusual_text(value: ConditionValue) -> str:
    """Return a boolean as no file spells it.

    A text that a condition names as well does not match.
    """
    if isinstance(value, str):
        return value
    return "tRuE" if value else "fAlSe"
