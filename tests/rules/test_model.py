# SPDX-License-Identifier: Apache-2.0

"""A rule set: which rules a request meets, found without a look at the
others.
"""

from collections.abc import Iterator, Mapping
from typing import Any

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

_WINDOWS = "{image_property: os_distro, is: windows}"


def _matching(
    rules: RuleSet,
    properties: Mapping[str, Any],
    extra_specs: Mapping[str, Any] | None = None,
) -> list[str]:
    return [
        each.rule.name
        for each in rules.match(Request(spec_of(properties, extra_specs)))
    ]


_MATCHES: list[tuple[str, Mapping[str, Any], Mapping[str, Any], bool]] = [
    (_WINDOWS, {"os_distro": "windows"}, {}, True),
    (_WINDOWS, {}, {}, False),
    (_WINDOWS, {"os_distro": None}, {}, False),
    # A text exactly: not in other letters, not as a part.
    (_WINDOWS, {"os_distro": "Windows"}, {}, False),
    (_WINDOWS, {"os_distro": ["windows"]}, {}, False),
    (_WINDOWS, {}, {"os_distro": "windows"}, False),
    # Old names of Nova's.
    (_WINDOWS, {"vmware_ostype": "windows"}, {}, True),
    (_WINDOWS, {"vmware_ostype": "windows", "os_distro": "sles"}, {}, False),
    ("{extra_spec: 'a:b', is: windows}", {}, {"a:b": "windows"}, True),
    ("{image_property: p, in: [a, b]}", {"p": "b"}, {}, True),
    ("{image_property: p, in: [a, b]}", {"p": "c"}, {}, False),
    # A boolean in all its spellings, and in no other.
    *(
        ("{image_property: p, is: true}", {"p": each}, {}, True)
        for each in (True, "True", "yes", "1", 1, " on ")
    ),
    *(
        ("{image_property: p, is: true}", {"p": each}, {}, False)
        for each in (False, "no", 0, 2, "maybe", None)
    ),
    ("{image_property: p, in: [true, maybe]}", {"p": "maybe"}, {}, True),
    # In quotes it is a text.
    ("{image_property: p, is: 'true'}", {"p": "yes"}, {}, False),
    ("{image_property: p, is: 'yes'}", {"p": "yes"}, {}, True),
    # A number is the text that is written, as Glance and Nova's flavors have
    # it; Nova makes some of them numbers.
    ("{image_property: p, is: 4}", {"p": "4"}, {}, True),
    ("{image_property: p, is: 010}", {"p": "010"}, {}, True),
    ("{image_property: p, is: 2026-13-45}", {"p": "2026-13-45"}, {}, True),
    ("{image_property: p, is: 1}", {"p": True}, {}, False),
    ("{image_property: p, is: 1}", {"p": 10**5000}, {}, False),
    # Anything but nothing.
    *(
        ("{image_property: p, present: true}", {"p": each}, {}, True)
        for each in ("x", False, 0, [1])
    ),
    *(
        ("{image_property: p, present: true}", {"p": each}, {}, False)
        for each in ("", None)
    ),
    # All of several.
    (
        "[{image_property: p, is: a}, {extra_spec: q, is: b}]",
        {"p": "a"},
        {"q": "b"},
        True,
    ),
    (
        "[{image_property: p, is: a}, {extra_spec: q, is: b}]",
        {"p": "a"},
        {},
        False,
    ),
    # What Nova spells otherwise.
    (
        "{image_property: hw_vif_model, is: e1000}",
        {"hw_vif_model": "VirtualE1000"},
        {},
        True,
    ),
    (
        "{image_property: os_type, is: windows}",
        {"os_type": "WINDOWS"},
        {},
        True,
    ),
    (
        "{image_property: hw_machine_type, is: q35}",
        {"hw_machine_type": "pc-q35-9.1"},
        {},
        False,
    ),
]


def test_rule_matches_only_requests_that_meet_all_its_conditions() -> None:
    for when, properties, extra_specs, matches in _MATCHES:
        rules = rules_of(rule("r", when, ["CUSTOM_A"]))
        assert _matching(rules, properties, extra_specs) == ["r"] * matches, (
            when,
            properties,
            extra_specs,
        )


def test_rule_set_repr_has_a_checksum_that_differs_for_different_rules() -> (
    None
):
    """With the checksum, as of the files on two machines: that of the values
    does not hang on how Python hashes.
    """
    one = rules_of(
        *(
            rule(f"r{n}", "{image_property: p, in: [a, b, c]}", ["CUSTOM_A"])
            for n in range(7)
        )
    )
    assert repr(one) == "<7 rules, 59c93b8f: r0, r1, r2, r3, r4, and 2 more>"
    assert repr(RuleSet()) == "<0 rules, 0d4cbb29: none>"
    texts = [
        rule("r", f"{{image_property: p, is: {value}}}", ["CUSTOM_A"])
        for value in ("true", "'true'", "x")
    ]
    texts += [
        rule("r", _WINDOWS, more=f"prefer: [{trait}]")
        for trait in ("CUSTOM_A", "CUSTOM_B")
    ]
    assert len({repr(rules_of(text)) for text in texts}) == 5


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


def test_matching_cost_does_not_grow_with_unrelated_rules() -> None:
    """Of 10,000 rules about other names or values, none costs a look at the
    request.
    """

    def one(name: str, *keys: tuple[str, str, str]) -> Rule:
        conditions = tuple(
            RuleCondition(place, key, frozenset((value,)))
            for place, key, value in keys
        )
        return Rule(name, (conditions,), (Trait("CUSTOM_A"),))

    others = [
        one(f"n{number}", (IMAGE_PROPERTY, f"p{number}", "x"))
        for number in range(5000)
    ]
    others += [
        one(f"v{number}", (IMAGE_PROPERTY, "p", f"x{number}"))
        for number in range(5000)
    ]
    rules = RuleSet(
        (*others, one("r", (IMAGE_PROPERTY, "p", "x"), (EXTRA_SPEC, "q", "x")))
    )
    request = _Observed(spec_of({"p": "x", "o": "x"}, {"q": "x", "z": "x"}))
    assert [each.rule.name for each in rules.match(request)] == ["r"]
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


@st.composite
def _rules(draw: st.DrawFn) -> tuple[Rule, ...]:
    places, found = st.sampled_from([IMAGE_PROPERTY, EXTRA_SPEC]), []
    for number in range(draw(st.integers(0, 8))):
        keys = draw(
            st.lists(
                st.tuples(places, _NAMES), min_size=1, max_size=3, unique=True
            )
        )
        clause = tuple(
            RuleCondition(
                *key, draw(st.frozensets(_VALUES, max_size=3)), draw(_IN_LIST)
            )
            for key in keys
        )
        when = draw(
            st.sampled_from(
                [(clause,), tuple((each,) for each in clause), ((),)]
            )
        )
        unless = draw(
            st.sampled_from([(), (), (clause[:1],), (clause[1:], clause[:1])])
        )
        found.append(
            Rule(
                f"r{number}",
                when,
                (Trait(f"CUSTOM_{number}"),),
                unless=tuple(filter(None, unless)),
            )
        )
    return tuple(found)


def _naive(rules: tuple[Rule, ...], request: Request) -> Iterator[Rule]:
    subject = RuleSubject(request)

    def holds(clause: Clause) -> bool:
        return all(
            condition.holds(subject.value_of(condition.place, condition.name))
            for condition in clause
        )

    for each in rules:
        if any(map(holds, each.when)) and not any(map(holds, each.unless)):
            yield each


@settings(deadline=None)
@given(
    _rules(),
    st.builds(
        spec_of, st.dictionaries(_NAMES, _RAW), st.dictionaries(_NAMES, _RAW)
    ),
)
def test_indexed_matching_equals_a_loop_over_all_rules(
    rules: tuple[Rule, ...], spec: Any
) -> None:
    request = Request(spec)
    assert [each.rule for each in RuleSet(rules).match(request)] == list(
        _naive(rules, request)
    )
