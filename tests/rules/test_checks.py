# SPDX-License-Identifier: Apache-2.0

"""Contradictions: an error where one value is enough for them, and nowhere
else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from os_prefilter.common.errors import ContradictingRequirements
from os_prefilter.common.trait_names import Trait
from os_prefilter.request.view import Request
from os_prefilter.rules import checks
from os_prefilter.rules.checks import Problem, check_rules
from os_prefilter.rules.conditions import (
    EXTRA_SPEC,
    HINT,
    IMAGE_PROPERTY,
    Clause,
    RuleCondition,
    RuleSubject,
    describe_clauses,
)
from os_prefilter.rules.model import Rule, RuleSet
from os_prefilter.rules.reader import rules_in
from os_prefilter.service import Service
from tests.conftest import spec_of
from tests.support.rule_texts import rules_of, rules_text
from tests.support.tables import cases
from tests.support.zipping import zip_equal

_VALUES = ["a", "b", "true", "yes", "no", True, False]
_TRAITS = st.lists(
    st.sampled_from([Trait("CUSTOM_A"), Trait("CUSTOM_B")]),
    max_size=2,
    unique=True,
).map(tuple)


def _conditions_about(key: str) -> st.SearchStrategy[RuleCondition]:
    values = st.frozensets(st.sampled_from(_VALUES), max_size=3)
    return st.builds(RuleCondition, st.just(EXTRA_SPEC), st.just(key), values)


def _clauses_about(
    keys: list[str],
) -> st.SearchStrategy[tuple[RuleCondition, ...]]:
    return st.tuples(*map(_conditions_about, keys))


def _contains(value: str) -> RuleCondition:
    return RuleCondition(EXTRA_SPEC, "p", frozenset((value,)), in_list=True)


def _checked(*texts: str) -> list[str]:
    rules, problems = rules_in(rules_text(*texts).encode(), "FILE")
    return [each.text for each in (*problems, *check_rules(rules))]


def _contradictions(rules: list[Rule]) -> list[Problem]:
    return [
        each for each in check_rules(rules) if " forbids for " in each.text
    ]


_SCOPES = st.sampled_from(["root", "root", "unsuffixed"])


@st.composite
def _about(draw: st.DrawFn, *names: str) -> list[Rule]:
    found = []
    for number in range(draw(st.integers(0, 4))):
        keys = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        clauses = _clauses_about(keys)
        when, other = draw(clauses), draw(clauses)
        alternatives = [(when,), (when,), ((),), (when, other)]
        rule = Rule(
            f"r{number}",
            draw(st.sampled_from(alternatives)),
            draw(_TRAITS),
            draw(_TRAITS),
            draw(_SCOPES),
            file="f",
            line=number + 1,
            unless=tuple(draw(st.lists(clauses, max_size=2))),
        )
        found.append(rule)
    return found


def _is_refused(rules: list[Rule], extra_specs: dict[str, Any]) -> bool:
    pipeline = Service.from_names(
        "rules", facts={"rules": lambda _context: RuleSet(rules)}
    )
    try:
        pipeline.apply(spec_of(extra_specs=extra_specs))
    except ContradictingRequirements:
        return True
    return False


def _sound(rules: list[Rule]) -> list[Rule]:
    """Return rules without an error of their own, as well as they can be."""
    found = []
    for each in rules:
        forbid = tuple(set(each.forbid) - set(each.require))
        rule = replace(each, forbid=forbid)
        if not list(check_rules([rule])):
            found.append(rule)
    return found


@settings(deadline=None)
@given(_about("p"))
def test_alternatives_and_unless_are_refused_exactly_if_some_value_contradicts(
    rules: list[Rule],
) -> None:
    rules = _sound(rules)
    shown = _is_refused(rules, {}) or any(
        _is_refused(rules, {"p": value}) for value in (*_VALUES, "other")
    )
    assert bool(_contradictions(rules)) == shown


@settings(deadline=None)
@given(_about("p", "q", "r"))
def test_each_rule_that_contradicts_another_is_found(
    rules: list[Rule],
) -> None:
    rules = _sound(rules)
    expected = set()
    for one, other in permutations(rules, 2):
        if one.scope == other.scope and _overlap(one, other):
            traits = set(one.require).intersection(other.forbid)
            expected |= {(one.line, trait) for trait in traits}
    found = {
        (each.line, each.text.split(" requires ")[1].split()[0])
        for each in _contradictions(rules)
    }
    assert found == expected


def _overlap(one: Rule, other: Rule) -> bool:
    """Whether a request meets an alternative of each, of which one is about
    all that the other is about.
    """
    unless = (*one.unless, *other.unless)
    for clauses in product(one.when, other.when):
        asked = max(map(_keys_of, clauses), key=len)
        for values in product([*_VALUES, "other"], repeat=len(asked)):
            request = dict(zip_equal(asked, values))

            def holds(clause: Clause, request: Any = request) -> bool:
                return all(
                    each.holds(request.get(each.key)) for each in clause
                )

            if all(map(holds, clauses)) and not any(map(holds, unless)):
                return True
    return False


def _keys_of(clause: Clause) -> list[tuple[str, str]]:
    return list(dict.fromkeys(each.key for each in clause))


def test_rules_with_too_many_combinations_are_used_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "_MOST_STEPS", 100)
    effects = (
        "unless: {extra_spec: p, is: a}, require: [CUSTOM_A]",
        "unless: {extra_spec: p, is: b}, forbid: [CUSTOM_A]",
    )
    texts = [
        f"name: r{n}, when: {{extra_spec: p, in: [a, b]}}, {effects[n % 2]}"
        for n in range(60)
    ]
    rules, problems = rules_in(rules_text(*texts).encode(), "FILE")
    assert not problems
    last = list(check_rules(rules))[-1]
    assert last.warning
    assert (
        "were not compared with all others: there are too many combinations"
        in last.text
    )


@pytest.mark.parametrize(
    "when",
    [
        "[{extra_spec: x, is: a}, {extra_spec: x, is: b}]",
        "{image_property: architecture, present: true}",
        "[{image_property: hw_boot_menu, is: 'yes'}, {extra_spec: x, is: a}]",
        "{extra_spec: x, contains: 'a,b'}",
    ],
)
@pytest.mark.parametrize(
    ("one", "other"), [("require", "forbid"), ("forbid", "require")]
)
def test_rule_that_never_applies_is_not_reported_as_a_contradiction(
    when: str, one: str, other: str
) -> None:
    never = f"name: never, when: {when}, {one}: [CUSTOM_A]"
    always = f"name: r, unless: {{flavor: f}}, {other}: [CUSTOM_A]"
    (text,) = _checked(never, always)
    assert "the rule never " in text
    assert " forbids for " not in text


def _lists_of(items: Sequence[str]) -> list[str]:
    """Return each list of up to three of these items."""
    return [
        ",".join(chosen)
        for size in (1, 2, 3)
        for chosen in permutations(items, size)
    ]


_LISTS = _lists_of("abc")


def _about_p(values: frozenset[str], *, in_list: bool) -> RuleCondition:
    return RuleCondition(EXTRA_SPEC, "p", frozenset[Any](values), in_list)


_AN_ITEM = st.builds(
    _about_p,
    st.frozensets(st.sampled_from("abc"), min_size=1),
    in_list=st.just(value=True),
)
_A_LIST = st.builds(
    _about_p,
    st.frozensets(st.sampled_from(_LISTS), max_size=2),
    in_list=st.just(value=False),
)
_ONE_OF_EACH = st.lists(
    _AN_ITEM | _A_LIST,
    min_size=1,
    max_size=2,
    unique_by=lambda each: each.in_list,
)
_ITEMS = _ONE_OF_EACH.map(tuple) | st.just((_contains("a"), _contains("b")))


@settings(deadline=None)
@given(_ITEMS, _ITEMS, st.lists(_ITEMS, max_size=2).map(tuple))
def test_contradiction_about_the_items_of_a_list_is_met_by_some_list(
    ours: Any, theirs: Any, unless: Any
) -> None:
    trait = (Trait("CUSTOM_A"),)
    one = Rule("one", (ours,), trait, file="f", line=1)
    other = Rule("two", (theirs,), (), trait, file="f", line=2, unless=unless)
    rules = [one, other]
    shown = _is_refused(rules, {}) or any(
        _is_refused(rules, {"p": value}) for value in (*_LISTS, "other")
    )
    assert shown or not _contradictions(rules)


_TOGETHER = cases("""
# One rule | another rule | yes if they contradict each other
when: [{extra_spec: x, contains: a}, {extra_spec: x, contains: b}] | unless: {extra_spec: x, contains: a} |
when: [{extra_spec: x, contains: a}, {extra_spec: x, contains: b}] | when: {extra_spec: x, contains: a} | yes
when: [{hint: x, is: a}, {hint: x, is: b}] | unless: {hint: x, is: a} |
when: [{requires: CUSTOM_B}, {requires: CUSTOM_C}] | when: {requires: CUSTOM_B} | yes
when: {extra_spec: x, is: 'a,b'} | when: {extra_spec: x, contains: a} | yes
when: {extra_spec: x, contains: a} | when: {extra_spec: x, is: 'a,b'} | yes
when: {extra_spec: x, is: b} | when: {extra_spec: x, contains: a} |
when: {extra_spec: x, in: [a, b]} | unless: {any: [{extra_spec: x, is: a}, {extra_spec: x, is: b}]} |
when: {extra_spec: x, in: [a, b]} | unless: {any: [{extra_spec: x, is: a}, {extra_spec: x, is: c}]} | yes
when: {project: [p, q]} | unless: {any: [{project: p}, {project: q}]} |
when: {image_property: os_distro, is: sles} | unless: {image_property: os_distro, in: [a, sles]} |
""")


@pytest.mark.parametrize(("one", "other", "is_error"), _TOGETHER)
def test_lists_and_several_alternatives_contradict_where_one_request_meets_both(
    one: str, other: str, is_error: str
) -> None:
    found = _checked(
        f"name: one, {one}, require: [CUSTOM_A]",
        f"name: other, {other}, forbid: [CUSTOM_A]",
    )
    assert bool(found) == bool(is_error)
    for text in found:
        assert " forbids for " in text


def test_rule_may_forbid_the_traits_of_the_values_that_it_excepts() -> None:
    text = (
        "name: r, when: {image_property: hw_vif_model, present: true}, unless:"
        " {image_property: hw_vif_model, is: e1000e}, forbid:"
        " [COMPUTE_NET_VIF_MODEL_E1000E]"
    )
    assert _checked(text) == []


_IN_LISTS = cases("""
# What the rule is about | its exception | extra specs | hints
{extra_spec: x, contains: a} | {extra_spec: x, is: a} | {"x": "b, a"} | {}
{hint: x, contains: a} | {hint: x, is: a} | {} | {"x": ["b,a"]}
# Two items.
[{extra_spec: x, contains: a}, {extra_spec: x, contains: b}] | {extra_spec: x, in: ['a,b', 'b,a']}
 {"x": "a,b,c"} | {}
# A boolean in another spelling.
[{extra_spec: x, contains: a}, {extra_spec: x, contains: true}] | {extra_spec: x, contains: 'true'}
 {"x": "a,yes"} | {}
[{hint: x, is: true}, {hint: x, contains: a}] | {hint: x, is: a} | {} | {"x": ["yes", "b,a"]}
""")


@pytest.mark.parametrize(("when", "unless", "extra_specs", "hints"), _IN_LISTS)
def test_rule_about_items_of_a_list_may_except_the_list_of_them_alone(
    when: str, unless: str, extra_specs: str, hints: str
) -> None:
    """A longer list meets the rule, and is not excepted."""
    text = f"name: r, when: {when}, unless: {unless}, require: [CUSTOM_A]"
    assert _checked(text) == []
    spec = spec_of(
        extra_specs=json.loads(extra_specs), scheduler_hints=json.loads(hints)
    )
    matches = rules_of(text).match(Request(spec))
    assert [match.rule.name for match in matches] == ["r"]


def test_contradiction_about_items_names_the_items_of_a_list_that_meets_both() -> (
    None
):
    one = (
        "name: one, when: {extra_spec: x, contains: a}, unless: {extra_spec:"
        " x, is: a}, require: [CUSTOM_A]"
    )
    other = (
        "name: other, when: {extra_spec: x, contains: a}, forbid: [CUSTOM_A]"
    )
    (text,) = _checked(one, other)
    assert (
        "forbids for flavor extra spec x with a unless flavor extra spec x=a."
        " Change one" in text
    )


def test_rule_about_a_boolean_property_does_not_apply_if_both_values_are_excepted() -> (
    None
):
    """Nova keeps True or False of it, and no other text."""
    text = (
        "name: r, when: {image_property: hw_pmu, present: true}, unless:"
        " {image_property: hw_pmu, in: [true, false]}"
    )
    (problem,) = _checked(f"{text}, require: [CUSTOM_A]")
    assert problem.startswith(
        "the rule r does not apply to requests with image property hw_pmu is"
        " present, because"
    )


_PLACES = [(EXTRA_SPEC, "p"), (HINT, "p"), (IMAGE_PROPERTY, "os_distro")]
_LISTED = st.frozensets(
    st.sampled_from(["a", "b", True]), min_size=1, max_size=2
)
_WHOLE = st.frozensets(
    st.sampled_from(["a", "b", "a,b", "b, a", "true", True]), max_size=2
)


@st.composite
def _excepting(draw: st.DrawFn) -> Rule:
    place, name = draw(st.sampled_from(_PLACES))
    about = (RuleCondition, st.just(place), st.just(name))
    item = st.builds(*about, _LISTED, st.just(value=True))
    whole = st.builds(*about, _WHOLE)
    clauses = st.lists(item | whole, min_size=1, max_size=2, unique=True)
    alternatives = st.lists(clauses.map(tuple), min_size=1, max_size=2)
    return Rule(
        "r",
        tuple(draw(alternatives)),
        (Trait("CUSTOM_A"),),
        file="f",
        line=1,
        unless=tuple(draw(alternatives)),
    )


_TEXTS = [*_lists_of(("a", "b", "z", "true", "yes")), "b, a"]
_HINTS = [*_TEXTS, *product(_TEXTS[:25], repeat=2)]


def _request(place: str, name: str, value: Any) -> Request:
    """Return a request with a value in a place; a hint may have several."""
    if place == HINT:
        values = [value] if isinstance(value, str) else list(value)
        return Request(spec_of(scheduler_hints={name: values}))
    if place == EXTRA_SPEC:
        return Request(spec_of(extra_specs={name: value}))
    return Request(spec_of({name: value}))


@settings(deadline=None)
@given(_excepting())
def test_rule_is_said_not_to_apply_only_if_no_list_meets_it(
    rule: Rule,
) -> None:
    """Tried with each list of up to three items, and as a hint with each two
    of short ones.
    """
    texts = [each.text for each in check_rules([rule])]
    place, name = rule.when[0][0].key
    for clause in rule.when:
        met = f" with {describe_clauses([clause])}, because of its 'unless'"
        if not any(met in text for text in texts):
            continue
        for value in _HINTS if place == HINT else _TEXTS:
            subject = RuleSubject(_request(place, name, value))
            is_excepted = any(map(subject.meets, rule.unless))
            assert is_excepted or not subject.meets(clause), value
