# SPDX-License-Identifier: Apache-2.0

"""Contradictions: an error where one value is enough for them, and nowhere
else.
"""

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
from os_prefilter.rules.checks import check_rules
from os_prefilter.rules.conditions import (
    EXTRA_SPEC,
    HINT,
    IMAGE_PROPERTY,
    RuleCondition,
    RuleSubject,
    describe_clauses,
)
from os_prefilter.rules.model import Rule, RuleSet
from os_prefilter.rules.reader import rules_in
from os_prefilter.service import Service
from tests.conftest import spec_of
from tests.support.rule_texts import rules_text

_VALUES = ["a", "b", "true", "yes", "no", True, False]
_TRAITS = st.lists(
    st.sampled_from([Trait("CUSTOM_A"), Trait("CUSTOM_B")]),
    max_size=2,
    unique=True,
).map(tuple)


def _clauses_about(
    keys: list[str],
) -> st.SearchStrategy[tuple[RuleCondition, ...]]:
    values = st.frozensets(st.sampled_from(_VALUES), max_size=3)
    return st.tuples(
        *(
            st.builds(RuleCondition, st.just(EXTRA_SPEC), st.just(key), values)
            for key in keys
        )
    )


def _contains(value: str) -> RuleCondition:
    return RuleCondition(EXTRA_SPEC, "p", frozenset((value,)), in_list=True)


def _checked(*texts: str) -> list[str]:
    rules, problems = rules_in(rules_text(*texts).encode(), "FILE")
    return [each.text for each in (*problems, *check_rules(rules))]


@st.composite
def _about(draw: st.DrawFn, *names: str) -> list[Rule]:
    found = []
    for number in range(draw(st.integers(0, 4))):
        keys = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        when = draw(_clauses_about(keys))
        require, forbid, scope = (
            draw(_TRAITS),
            draw(_TRAITS),
            draw(st.sampled_from(["root", "root", "unsuffixed"])),
        )
        unless = tuple(draw(st.lists(_clauses_about(keys), max_size=2)))
        clauses = draw(
            st.sampled_from(
                [(when,), (when,), ((),), (when, draw(_clauses_about(keys)))]
            )
        )
        found.append(
            Rule(
                f"r{number}",
                clauses,
                require,
                forbid,
                scope,
                "",
                "f",
                number + 1,
                unless=unless,
            )
        )
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
    rules = [
        replace(each, forbid=tuple(set(each.forbid) - set(each.require)))
        for each in rules
    ]
    return [each for each in rules if not list(check_rules([each]))]


@settings(deadline=None)
@given(_about("p"))
def test_alternatives_and_unless_are_refused_exactly_if_some_value_contradicts(
    rules: list[Rule],
) -> None:
    rules = _sound(rules)
    errors = [
        each for each in check_rules(rules) if " forbids for " in each.text
    ]
    shown = any(
        _is_refused(rules, {"p": value} if value != "" else {})
        for value in (*_VALUES, "other", "")
    )
    assert bool(errors) == shown


@settings(deadline=None)
@given(_about("p", "q", "r"))
def test_each_rule_that_contradicts_another_is_found(
    rules: list[Rule],
) -> None:
    rules = _sound(rules)
    expected = {
        (one.line, trait)
        for one, other in product(rules, rules)
        for trait in one.require
        if one is not other
        and one.scope == other.scope
        and trait in other.forbid
        and _overlap(one, other)
    }
    texts = [
        each for each in check_rules(rules) if " forbids for " in each.text
    ]
    assert {
        (each.line, each.text.split(" requires ")[1].split()[0])
        for each in texts
    } == expected


def _overlap(one: Rule, other: Rule) -> bool:
    """Whether a request meets an alternative of each, of which one is about
    all that the other is about.
    """
    unless = (*one.unless, *other.unless)
    for clauses in product(one.when, other.when):
        asked = max(
            (
                list(dict.fromkeys(each.key for each in clause))
                for clause in clauses
            ),
            key=len,
        )
        for values in product([*_VALUES, "other"], repeat=len(asked)):
            said = dict(zip(asked, values, strict=True))
            met = [
                all(each.holds(said.get(each.key)) for each in some)
                for some in (*clauses, *unless)
            ]
            if met[0] and met[1] and not any(met[2:]):
                return True
    return False


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


def test_rule_that_never_applies_is_not_told_as_a_contradiction() -> None:
    for when in (
        "[{extra_spec: x, is: a}, {extra_spec: x, is: b}]",
        "{image_property: architecture, present: true}",
        "[{image_property: hw_boot_menu, is: 'yes'}, {extra_spec: x, is: a}]",
        "{extra_spec: x, contains: 'a,b'}",
    ):
        for one, other in (("require", "forbid"), ("forbid", "require")):
            always = f"name: r, unless: {{flavor: f}}, {other}: [CUSTOM_A]"
            (text,) = _checked(
                f"name: never, when: {when}, {one}: [CUSTOM_A]", always
            )
            assert "the rule never " in text
            assert " forbids for " not in text


_LISTS = [
    "",
    *(
        ",".join(items)
        for size in (1, 2, 3)
        for items in permutations("abc", size)
    ),
]
_ITEMS = st.lists(
    st.frozensets(st.sampled_from("abc"), min_size=1).map(
        lambda each: RuleCondition(EXTRA_SPEC, "p", each, True)
    )
    | st.frozensets(st.sampled_from(_LISTS[1:]), max_size=2).map(
        lambda each: RuleCondition(EXTRA_SPEC, "p", each)
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda each: each.in_list or each.key,
).map(tuple) | st.just((_contains("a"), _contains("b")))


@settings(deadline=None)
@given(_ITEMS, _ITEMS, st.lists(_ITEMS, max_size=2).map(tuple))
def test_contradiction_about_the_items_of_a_list_is_met_by_some_list(
    ours: Any, theirs: Any, unless: Any
) -> None:
    rules = [
        Rule("one", (ours,), (Trait("CUSTOM_A"),), file="f", line=1),
        Rule(
            "two",
            (theirs,),
            (),
            (Trait("CUSTOM_A"),),
            file="f",
            line=2,
            unless=unless,
        ),
    ]
    shown = any(
        _is_refused(rules, {"p": value} if value else {})
        for value in (*_LISTS, "other")
    )
    assert shown or not any(
        " forbids for " in each.text for each in check_rules(rules)
    )


_BOTH = "when: [{extra_spec: x, contains: a}, {extra_spec: x, contains: b}]"
_ONE_HOLDS = "when: {extra_spec: x, in: [a, b]}"
_TOGETHER = [
    (_BOTH, "unless: {extra_spec: x, contains: a}", False),
    (_BOTH, "when: {extra_spec: x, contains: a}", True),
    (
        "when: [{hint: x, is: a}, {hint: x, is: b}]",
        "unless: {hint: x, is: a}",
        False,
    ),
    (
        "when: [{requires: CUSTOM_B}, {requires: CUSTOM_C}]",
        "when: {requires: CUSTOM_B}",
        True,
    ),
    (
        "when: {extra_spec: x, is: 'a,b'}",
        "when: {extra_spec: x, contains: a}",
        True,
    ),
    (
        "when: {extra_spec: x, contains: a}",
        "when: {extra_spec: x, is: 'a,b'}",
        True,
    ),
    (
        "when: {extra_spec: x, is: b}",
        "when: {extra_spec: x, contains: a}",
        False,
    ),
    (
        _ONE_HOLDS,
        "unless: {any: [{extra_spec: x, is: a}, {extra_spec: x, is: b}]}",
        False,
    ),
    (
        _ONE_HOLDS,
        "unless: {any: [{extra_spec: x, is: a}, {extra_spec: x, is: c}]}",
        True,
    ),
    (
        "when: {project: [p, q]}",
        "unless: {any: [{project: p}, {project: q}]}",
        False,
    ),
    (
        "when: {image_property: os_distro, is: sles}",
        "unless: {image_property: os_distro, in: [a, sles]}",
        False,
    ),
]


def test_lists_and_several_alternatives_contradict_where_one_request_meets_both() -> (
    None
):
    for one, other, is_error in _TOGETHER:
        found = _checked(
            f"name: one, {one}, require: [CUSTOM_A]",
            f"name: other, {other}, forbid: [CUSTOM_A]",
        )
        assert [" forbids for " in each for each in found] == [True] * len(
            found
        )
        assert bool(found) == is_error, (one, other)


def test_rule_may_forbid_the_traits_of_the_values_that_it_excepts() -> None:
    conditions = (
        "when: {image_property: hw_vif_model, present: true}, unless:"
        " {image_property: hw_vif_model, is: e1000e}"
    )
    assert (
        _checked(
            f"name: r, {conditions}, forbid: [COMPUTE_NET_VIF_MODEL_E1000E]"
        )
        == []
    )


_IN_LISTS = [
    pytest.param(
        "{extra_spec: x, contains: a}",
        "{extra_spec: x, is: a}",
        {"x": "b, a"},
        {},
        id="exact exception",
    ),
    pytest.param(
        "{hint: x, contains: a}",
        "{hint: x, is: a}",
        {},
        {"x": ["b,a"]},
        id="exact exception of a hint",
    ),
    pytest.param(
        "[{extra_spec: x, contains: a}, {extra_spec: x, contains: b}]",
        "{extra_spec: x, in: ['a,b', 'b,a']}",
        {"x": "a,b,c"},
        {},
        id="two items",
    ),
    pytest.param(
        "[{extra_spec: x, contains: a}, {extra_spec: x, contains: true}]",
        "{extra_spec: x, contains: 'true'}",
        {"x": "a,yes"},
        {},
        id="boolean in another spelling",
    ),
    pytest.param(
        "[{hint: x, is: true}, {hint: x, contains: a}]",
        "{hint: x, is: a}",
        {},
        {"x": ["yes", "b,a"]},
        id="boolean hint",
    ),
]


@pytest.mark.parametrize(("when", "unless", "extra_specs", "hints"), _IN_LISTS)
def test_rule_about_items_of_a_list_may_except_the_list_of_them_alone(
    when: str,
    unless: str,
    extra_specs: dict[str, str],
    hints: dict[str, list[str]],
) -> None:
    """A longer list meets the rule, and is not excepted."""
    text = f"name: r, when: {when}, unless: {unless}, require: [CUSTOM_A]"
    assert _checked(text) == []
    rules, _ = rules_in(rules_text(text).encode(), "FILE")
    request = Request(spec_of(extra_specs=extra_specs, scheduler_hints=hints))
    assert [match.rule.name for match in RuleSet(rules).match(request)] == [
        "r"
    ]


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


_PLACES = st.sampled_from(
    [(EXTRA_SPEC, "p"), (HINT, "p"), (IMAGE_PROPERTY, "os_distro")]
)
_LISTED = st.frozensets(
    st.sampled_from(["a", "b", True]), min_size=1, max_size=2
)
_WHOLE = st.frozensets(
    st.sampled_from(["a", "b", "a,b", "b, a", "true", True]), max_size=2
)


@st.composite
def _excepting(draw: st.DrawFn) -> Rule:
    place, name = draw(_PLACES)
    in_list = st.builds(
        RuleCondition,
        st.just(place),
        st.just(name),
        _LISTED,
        st.just(value=True),
    )
    whole = st.builds(RuleCondition, st.just(place), st.just(name), _WHOLE)
    clauses = st.lists(
        in_list | whole, min_size=1, max_size=2, unique=True
    ).map(tuple)
    when = tuple(draw(st.lists(clauses, min_size=1, max_size=2)))
    unless = tuple(draw(st.lists(clauses, min_size=1, max_size=2)))
    return Rule(
        "r", when, (Trait("CUSTOM_A"),), file="f", line=1, unless=unless
    )


_PARTS = ("a", "b", "z", "true", "yes")
_TEXTS = [
    ",".join(items)
    for size in (1, 2, 3)
    for items in permutations(_PARTS, size)
] + ["b, a"]


@settings(deadline=None)
@given(_excepting())
def test_rule_is_said_not_to_apply_only_if_no_list_meets_it(
    rule: Rule,
) -> None:
    """Tried with each list of up to three items, and as a hint with each two
    of short ones.
    """
    told = [
        each.text
        for each in check_rules([rule])
        if "because of its 'unless'" in each.text
    ]
    place, name = rule.when[0][0].key
    for clause in rule.when:
        if not any(
            f" with {describe_clauses([clause])}, because" in text
            for text in told
        ):
            continue
        values: list[Any] = (
            [*_TEXTS, *product(_TEXTS[:25], repeat=2)]
            if place == HINT
            else list(_TEXTS)
        )
        for value in values:
            said: dict[str, Any] = dict.fromkeys(
                [name], list(value) if isinstance(value, tuple) else value
            )
            properties = said if place == IMAGE_PROPERTY else {}
            extra_specs = said if place == EXTRA_SPEC else {}
            hints = {
                key: [each] if isinstance(each, str) else each
                for key, each in said.items()
                if place == HINT
            }
            subject = RuleSubject(
                Request(
                    spec_of(properties, extra_specs, scheduler_hints=hints)
                )
            )
            assert not subject.meets(clause) or any(
                map(subject.meets, rule.unless)
            ), value
