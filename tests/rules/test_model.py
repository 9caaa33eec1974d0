# SPDX-License-Identifier: Apache-2.0

"""A rule set: which rules a request meets, found without a look at the
others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from os_prefilter.common.trait_names import Trait
from os_prefilter.request.view import Request
from os_prefilter.rules.conditions import (
    EXTRA_SPEC,
    IMAGE_PROPERTY,
    Clause,
    RuleCondition,
    RuleSubject,
)
from os_prefilter.rules.model import Rule, RuleSet
from tests.conftest import spec_of
from tests.support.rule_texts import rule, rules_of
from tests.support.tables import cases


def _matching(
    rules: RuleSet, properties: dict[str, Any], extra_specs: dict[str, Any]
) -> list[str]:
    request = Request(spec_of(properties, extra_specs))
    return [each.rule.name for each in rules.match(request)]


_MATCHES = cases("""
# The condition | image properties | extra specs | yes if it is met
{image_property: os_distro, is: windows} | {"os_distro": "windows"} | {} | yes
{image_property: os_distro, is: windows} | {} | {} |
{image_property: os_distro, is: windows} | {"os_distro": null} | {} |
# A text exactly: not in other letters, not as a part.
{image_property: os_distro, is: windows} | {"os_distro": "Windows"} | {} |
{image_property: os_distro, is: windows} | {"os_distro": ["windows"]} | {} |
{image_property: os_distro, is: windows} | {} | {"os_distro": "windows"} |
# Old names of Nova's.
{image_property: os_distro, is: windows} | {"vmware_ostype": "windows"} | {} | yes
{image_property: os_distro, is: windows} | {"vmware_ostype": "windows", "os_distro": "sles"} | {} |
{extra_spec: 'a:b', is: windows} | {} | {"a:b": "windows"} | yes
{image_property: p, in: [a, b]} | {"p": "b"} | {} | yes
{image_property: p, in: [a, b]} | {"p": "c"} | {} |
# A boolean in all its spellings, and in no other.
{image_property: p, is: true} | {"p": true} | {} | yes
{image_property: p, is: true} | {"p": "True"} | {} | yes
{image_property: p, is: true} | {"p": "yes"} | {} | yes
{image_property: p, is: true} | {"p": "1"} | {} | yes
{image_property: p, is: true} | {"p": 1} | {} | yes
{image_property: p, is: true} | {"p": " on "} | {} | yes
{image_property: p, is: true} | {"p": false} | {} |
{image_property: p, is: true} | {"p": "no"} | {} |
{image_property: p, is: true} | {"p": 0} | {} |
{image_property: p, is: true} | {"p": 2} | {} |
{image_property: p, is: true} | {"p": "maybe"} | {} |
{image_property: p, is: true} | {"p": null} | {} |
{image_property: p, in: [true, maybe]} | {"p": "maybe"} | {} | yes
# In quotes it is a text.
{image_property: p, is: 'true'} | {"p": "yes"} | {} |
{image_property: p, is: 'yes'} | {"p": "yes"} | {} | yes
# A number is the text that is written, as Glance and Nova's flavors have it;
# Nova makes some of them numbers.
{image_property: p, is: 4} | {"p": "4"} | {} | yes
{image_property: p, is: 010} | {"p": "010"} | {} | yes
{image_property: p, is: 2026-13-45} | {"p": "2026-13-45"} | {} | yes
{image_property: p, is: 1} | {"p": true} | {} |
# Anything but nothing.
{image_property: p, present: true} | {"p": "x"} | {} | yes
{image_property: p, present: true} | {"p": false} | {} | yes
{image_property: p, present: true} | {"p": 0} | {} | yes
{image_property: p, present: true} | {"p": [1]} | {} | yes
{image_property: p, present: true} | {"p": ""} | {} |
{image_property: p, present: true} | {"p": null} | {} |
# All of several.
[{image_property: p, is: a}, {extra_spec: q, is: b}] | {"p": "a"} | {"q": "b"} | yes
[{image_property: p, is: a}, {extra_spec: q, is: b}] | {"p": "a"} | {} |
# What Nova spells otherwise.
{image_property: hw_vif_model, is: e1000} | {"hw_vif_model": "VirtualE1000"} | {} | yes
{image_property: os_type, is: windows} | {"os_type": "WINDOWS"} | {} | yes
{image_property: hw_machine_type, is: q35} | {"hw_machine_type": "pc-q35-9.1"} | {} |
""")


@pytest.mark.parametrize(
    ("when", "properties", "extra_specs", "matches"), _MATCHES
)
def test_rule_matches_only_requests_that_meet_all_its_conditions(
    when: str, properties: str, extra_specs: str, matches: str
) -> None:
    rules = rules_of(rule("r", when, ["CUSTOM_A"]))
    found = _matching(rules, json.loads(properties), json.loads(extra_specs))
    assert found == (["r"] if matches else [])


def test_number_that_is_too_long_is_no_text() -> None:
    one = rule("r", "{image_property: p, is: 1}", ["CUSTOM_A"])
    assert _matching(rules_of(one), {"p": 10**5000}, {}) == []


def test_repr_of_a_rule_set_has_a_checksum_and_its_first_names() -> None:
    """The checksum is the same on two machines: that of the values does not
    hang on how Python hashes.
    """
    when = "{image_property: p, in: [a, b, c]}"
    rules = rules_of(*(rule(f"r{n}", when, ["CUSTOM_A"]) for n in range(7)))
    shown = "<7 rules, ac52a701: r0, r1, r2, r3, r4, and 2 more>"
    assert repr(rules) == shown
    assert repr(RuleSet()) == "<0 rules, 0d4cbb29: none>"


_DIFFERENT = cases("""
when: {image_property: p, is: true}, require: [CUSTOM_A]
when: {image_property: p, is: 'true'}, require: [CUSTOM_A]
when: {image_property: p, is: x}, require: [CUSTOM_A]
when: {image_property: os_distro, is: windows}, prefer: [CUSTOM_A]
when: {image_property: os_distro, is: windows}, prefer: [CUSTOM_B]
""")


def test_checksum_differs_for_different_rules() -> None:
    sets = [rules_of(f"name: r, {case.values[0]}") for case in _DIFFERENT]
    assert len({rules.checksum for rules in sets}) == len(_DIFFERENT)


class _Observed(Request):
    def __init__(self, request_spec: Any) -> None:
        super().__init__(request_spec)
        self.read: list[tuple[str, str]] = []

    def image_property(self, name: str) -> object:
        self.read.append((IMAGE_PROPERTY, name))
        return super().image_property(name)

    def extra_spec(self, name: str) -> object:
        self.read.append((EXTRA_SPEC, name))
        return super().extra_spec(name)


def _one(name: str, *keys: tuple[str, str, str]) -> Rule:
    conditions = tuple(
        RuleCondition(place, key, frozenset((value,)))
        for place, key, value in keys
    )
    return Rule(name, (conditions,), (Trait("CUSTOM_A"),))


def test_matching_cost_does_not_grow_with_unrelated_rules() -> None:
    """Of 10,000 rules about other names or values, none costs a look at the
    request.
    """
    rules = []
    for number in range(5000):
        rules.append(_one(f"n{number}", (IMAGE_PROPERTY, f"p{number}", "x")))
        rules.append(_one(f"v{number}", (IMAGE_PROPERTY, "p", f"x{number}")))
    rules.append(_one("r", (IMAGE_PROPERTY, "p", "x"), (EXTRA_SPEC, "q", "x")))
    request = _Observed(spec_of({"p": "x", "o": "x"}, {"q": "x", "z": "x"}))
    matches = RuleSet(rules).match(request)
    assert [each.rule.name for each in matches] == ["r"]
    assert len(request.read) <= 4


# -- laws
# -----------------------------------------------------------------------------

_NAMES = st.sampled_from(
    ["os_distro", "p", "q", "hw_vif_model", "os_require_quiesce"]
)
_TEXTS = st.sampled_from(
    ["a", "b", "e1000", "E1000", "true", "yes", "1", "windows"]
)
_VALUES = _TEXTS | st.booleans()
_IN_LIST = st.sampled_from([False, False, False, True])
_RAW = (
    _VALUES
    | st.none()
    | st.integers(-1, 2)
    | st.just("")
    | st.lists(_TEXTS, max_size=1)
)


_KEYS = st.tuples(st.sampled_from([IMAGE_PROPERTY, EXTRA_SPEC]), _NAMES)


@st.composite
def _clauses(draw: st.DrawFn) -> Clause:
    clause = []
    for place, name in draw(
        st.lists(_KEYS, min_size=1, max_size=3, unique=True)
    ):
        values = draw(st.frozensets(_VALUES, max_size=3))
        clause.append(RuleCondition(place, name, values, draw(_IN_LIST)))
    return tuple(clause)


@st.composite
def _rules(draw: st.DrawFn) -> tuple[Rule, ...]:
    found = []
    for number in range(draw(st.integers(0, 8))):
        clause = draw(_clauses())
        alternatives = tuple((each,) for each in clause)
        when = draw(st.sampled_from([(clause,), alternatives, ((),)]))
        exceptions = [(), (), (clause[:1],), (clause[1:], clause[:1])]
        unless = tuple(filter(None, draw(st.sampled_from(exceptions))))
        trait = Trait(f"CUSTOM_{number}")
        found.append(Rule(f"r{number}", when, (trait,), unless=unless))
    return tuple(found)


def _naive(rules: tuple[Rule, ...], request: Request) -> Iterator[Rule]:
    subject = RuleSubject(request)

    def holds(clause: Clause) -> bool:
        return all(
            each.holds(subject.value_of(each.place, each.name))
            for each in clause
        )

    for each in rules:
        if any(map(holds, each.when)) and not any(map(holds, each.unless)):
            yield each


_SPECS = st.builds(
    spec_of, st.dictionaries(_NAMES, _RAW), st.dictionaries(_NAMES, _RAW)
)


@settings(deadline=None)
@given(_rules(), _SPECS)
def test_indexed_matching_equals_a_loop_over_all_rules(
    rules: tuple[Rule, ...], spec: Any
) -> None:
    request = Request(spec)
    found = [each.rule for each in RuleSet(rules).match(request)]
    assert found == list(_naive(rules, request))
