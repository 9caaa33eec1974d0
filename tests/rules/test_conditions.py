# SPDX-License-Identifier: Apache-2.0

"""Conditions of rules: unless, any, all, lists; hints, projects, zones,
flavors, requirements, groups of ports.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from os_prefilter import Flavor, Options, RequestGroup, RequestSpec
from os_prefilter.common.errors import ContradictingRequirements, UnknownValue
from os_prefilter.rules import conditions
from os_prefilter.rules.checks import check_rules
from os_prefilter.rules.conditions import readings
from os_prefilter.rules.model import RuleSet
from os_prefilter.rules.reader import rules_in
from os_prefilter.service import Service
from os_prefilter.vocabulary.model import UnknownValues
from tests.conftest import spec_of
from tests.support.nova_objects import nova_spec
from tests.support.rule_texts import rules_text
from tests.support.tables import cases

_PORT, _OTHER_PORT = (
    "0a6f2a2e-0000-4000-8000-000000000001",
    "0a6f2a2e-0000-4000-8000-000000000002",
)


def _set(*rules: str, hint_traits: str = "") -> RuleSet:
    text = rules_text(*rules) if rules else ""
    if hint_traits:
        text = f"hint_traits: [{hint_traits}]\n{text}"
    found, problems = rules_in(text.encode(), "FILE")
    assert not problems
    for problem in check_rules(found):
        assert problem.warning
    return RuleSet(found)


def _pipeline(rules: RuleSet, *before: str, **options: Any) -> Service:
    return Service.from_names(
        *before,
        "rules",
        options=Options(**options),
        facts={"rules": lambda _context: rules},
    )


def _spec(
    properties: dict[str, Any] | None = None,
    extra_specs: dict[str, str] | None = None,
    *,
    flavor: str = "small",
    **fields: Any,
) -> RequestSpec:
    spec = spec_of(properties or {}, extra_specs or {}, **fields)
    spec.flavor.name = flavor
    return spec


_MATCHES = cases("""
# What the rule says | the request, from empty properties on | yes if it applies
# All but some.
unless: {image_property: os_distro, is: windows} | {} | yes
unless: {image_property: os_distro, is: windows} | {"properties": {"os_distro": "windows"}} |
when: {extra_spec: q, is: x}, unless: {extra_spec: r, present: true} | {"extra_specs": {"q": "x"}} | yes
when: {extra_spec: q, is: x}, unless: {extra_spec: r, present: true} | {"extra_specs": {"q": "x", "r": "1"}} |
unless: {all: [{extra_spec: q, is: x}, {extra_spec: r, is: y}]} | {"extra_specs": {"q": "x"}} | yes
unless: {all: [{extra_spec: q, is: x}, {extra_spec: r, is: y}]} | {"extra_specs": {"q": "x", "r": "y"}} |
# Alternatives.
when: {any: [{extra_spec: q, is: x}, {image_property: p, is: y}]} | {"properties": {"p": "y"}} | yes
when: {any: [{extra_spec: q, is: x}, {image_property: p, is: y}]} | {"extra_specs": {"q": "y"}} |
when: [{any: [{flavor: a}, {flavor: b}]}, {any: [{project: c}, {extra_spec: q, is: x}]}]
 {"project_id": "c", "flavor": "b"} | yes
when: [{any: [{flavor: a}, {flavor: b}]}, {any: [{project: c}, {extra_spec: q, is: x}]}]
 {"project_id": "d", "flavor": "b"} |
# Lists.
when: {extra_spec: q, contains: db} | {"extra_specs": {"q": "web, db ,mail"}} | yes
when: {extra_spec: q, contains: db} | {"extra_specs": {"q": "dbs,xdb"}} |
when: {extra_spec: q, contains: db} | {"extra_specs": {"q": ","}} |
when: {image_property: p, contains: true} | {"properties": {"p": "no,yes"}} | yes
when: {hint: h, contains: db} | {"scheduler_hints": {"h": ["web", "a,db"]}} | yes
# Whose request, and where to.
when: {project: [a, b]} | {"project_id": "b"} | yes
when: {availability_zone: north} | {"availability_zone": "North"} |
# Hints have several values.
when: {hint: rack, is: a} | {"scheduler_hints": {"rack": ["b", "a"]}} | yes
when: {hint: rack, is: a} | {"properties": {"rack": "a"}, "extra_specs": {"rack": "a"}} |
when: {hint: rack, present: true} | {"scheduler_hints": {"rack": [""]}} |
when: {hint: rack, present: true} | {"scheduler_hints": {"rack": ["", "a"]}} | yes
when: {hint: fast, is: true} | {"scheduler_hints": {"fast": ["Yes"]}} | yes
# What is required already.
when: {requires: HW_CPU_X86_AVX2} | {"extra_specs": {"trait:HW_CPU_X86_AVX2": "required"}} | yes
when: {requires: HW_CPU_X86_AVX2} | {"extra_specs": {"trait:HW_CPU_X86_AVX2": "forbidden"}} |
when: {forbids: HW_CPU_X86_AVX2} | {"extra_specs": {"trait:HW_CPU_X86_AVX2": "forbidden"}} | yes
when: {requires: [CUSTOM_X, COMPUTE_NET_VIF_MODEL_E1000E]} | {"properties": {"hw_vif_model": "e1000e"}} | yes
# Of a device, not of the host.
when: {requires: CUSTOM_GPU} | {"extra_specs": {"resources1:VGPU": "1", "trait1:CUSTOM_GPU": "required"}} |
""")


@pytest.mark.parametrize(("body", "request_spec", "applies"), _MATCHES)
def test_rule_applies_to_exactly_the_requests_that_it_is_about(
    body: str, request_spec: str, applies: str
) -> None:
    rules = _set(f"name: r, {body}, require: [CUSTOM_A]")
    pipeline = _pipeline(rules, "image_metadata")
    spec = _spec(**json.loads(request_spec))
    # Twice: once from the cache.
    for _ in range(2):
        asked = {item.trait for item in pipeline.decide(spec).requirements}
        assert ("CUSTOM_A" in asked) == bool(applies)


_LONG = [*map(str, range(20_000))]
_LONG_TEXTS = {
    "items of a hint": (
        "hint: h, contains: v{}",
        _spec(scheduler_hints={"h": [",".join([*_LONG, "v7"])]}),
    ),
    "hints": (
        "hint: h, is: v{}",
        _spec(scheduler_hints={"h": [*_LONG, "v7"]}),
    ),
    "items of an extra spec": (
        "extra_spec: h, contains: v{}",
        _spec({}, {"h": "a," * 32_000 + " v7"}),
    ),
}


@pytest.mark.parametrize(
    ("comparison", "spec"), _LONG_TEXTS.values(), ids=_LONG_TEXTS
)
def test_long_text_of_a_tenant_is_read_whole_and_once_for_all_rules(
    comparison: str, spec: RequestSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands before it, an item that a rule names counts: a tenant
    cannot hide it.
    """
    texts = [
        f"name: r{n}, when: {{{comparison.format(n)}}}, require: [CUSTOM_A]"
        for n in range(100)
    ]
    but_seven = f"unless: {{{comparison.format(7)}}}, require: [CUSTOM_B]"
    rules = _set(*texts, f"name: u, {but_seven}")
    read = []

    def counting(*of: Any) -> Any:
        read.append(of)
        return readings(*of)

    monkeypatch.setattr(conditions, "readings", counting)
    decision = _pipeline(rules).apply(spec)
    (item,) = decision.requirements
    assert item.trait == "CUSTOM_A"
    assert "rule r7: " in item.source
    # The whole, and each item that differs.
    assert len(read) <= 1 + 20_001
    assert decision.notes == ()


_EVERY_PLACE = (
    "name: r0, when: {project: p}, require: [CUSTOM_A]",
    "name: r1, when: {availability_zone: z}, require: [CUSTOM_A]",
    "name: r2, when: {flavor: f}, require: [CUSTOM_A]",
    "name: r3, when: {hint: h, is: x}, require: [CUSTOM_A]",
)


@pytest.mark.parametrize("make", [spec_of, nova_spec], ids=["ours", "Nova's"])
def test_nova_and_our_request_specs_match_the_same_conditions(
    make: Callable[..., Any],
) -> None:
    hints = {"h": ["x"]}
    spec = make(project_id="p", availability_zone="z", scheduler_hints=hints)
    spec.flavor.name = "f"
    found = _pipeline(_set(*_EVERY_PLACE)).apply(spec).requirements
    assert [item.source for item in found] == [
        "rule r0: project p",
        "rule r1: availability zone z",
        "rule r2: flavor f",
        "rule r3: hint h=x",
    ]


def test_what_every_request_is_asked_has_no_property_that_its_author_could_change() -> (
    None
):
    rules = _set(
        "name: a, unless: {image_property: os_distro, is: windows}, forbid:"
        " [CUSTOM_LICENSED], because: they cost"
    )
    (item,) = _pipeline(rules).apply(_spec()).requirements
    assert item.source == (
        "rule a: every request unless image property os_distro=windows (they"
        " cost)"
    )
    assert item.properties == ()


def test_source_and_properties_are_words_of_the_file() -> None:
    rules = _set(
        "name: b, when: [{project: p}, {extra_spec: q, contains: db}, {hint:"
        " h, is: true}], require: [CUSTOM_A]"
    )
    hints = {"h": ["YES"]}
    extra_specs = {"q": "\x1b[31m,db"}
    spec = _spec({}, extra_specs, project_id="p", scheduler_hints=hints)
    (item,) = _pipeline(rules).apply(spec).requirements
    assert item.source == (
        "rule b: project p and flavor extra spec q with db and hint h=true"
    )
    assert item.properties == ("q with db", "hint h=true")


@pytest.mark.parametrize(
    "unless",
    [
        "project: acme",
        "flavor: acme.large",
        "availability_zone: acme",
        "extra_spec: owner, is: acme",
    ],
)
def test_rejected_tenant_reads_nothing_of_others(unless: str) -> None:
    """The operator finds all of it by the name of the rule."""
    rules = _set(
        f"name: a, unless: {{{unless}}}, forbid: [CUSTOM_A], because: acme"
        " paid, scope: unsuffixed",
        f"name: b, when: {{flavor: small}}, unless: {{{unless}}}, prefer:"
        " [CUSTOM_B], because: acme paid",
    )
    with pytest.raises(ContradictingRequirements) as caught:
        _pipeline(rules).apply(_spec({}, {"trait:CUSTOM_A": "required"}))
    message = str(caught.value)
    assert "acme" not in message
    assert (
        "forbidden (rules: rule a: every request that it does not except) on"
        " unsuffixed" in message
    )


# -- hints
# -----------------------------------------------------------------------------


def _hinted(**hints: Any) -> RequestSpec:
    names = {f"trait:{name}": value for name, value in hints.items()}
    return _spec(scheduler_hints=names)


def test_traits_for_hints_are_not_counted_as_rules() -> None:
    rules = _set(
        "name: r, when: {flavor: a}, require: [CUSTOM_A]",
        hint_traits="CUSTOM_A, CUSTOM_C",
    )
    assert repr(rules) == f"<1 rule and 2 hint traits, {rules.checksum}: r>"


_HINTS = _set(hint_traits="CUSTOM_A, COMPUTE_NODE, CUSTOM_C")


def test_users_may_name_the_traits_that_the_operator_allows() -> None:
    spec = _hinted(
        CUSTOM_A=["required"], COMPUTE_NODE="forbidden", CUSTOM_C="preferred"
    )
    decision = _pipeline(_HINTS).apply(spec)
    required = {item.trait: item.required for item in decision.requirements}
    assert required == {"CUSTOM_A": True, "COMPUTE_NODE": False}
    assert [item.trait for item in decision.preferences] == ["CUSTOM_C"]
    assert not decision.notes


def test_hint_about_another_trait_requires_nothing_and_is_noted() -> None:
    hostile = {"X\n&required=Y": "required"}
    spec = _hinted(CUSTOM_B="required", CUSTOM_A="maybe", **hostile)
    decision = _pipeline(_HINTS).apply(spec)
    assert not decision.requirements
    assert spec.root_required == set()
    unknown = "no trait that hints may name: not required"
    assert sorted(map(str, decision.notes)) == [
        "hint 'trait:CUSTOM_A'='maybe': unknown value: not required",
        f"hint 'trait:CUSTOM_B'='required': {unknown}",
        rf"hint 'trait:X\n&required=Y'='required': {unknown}",
    ]


def test_hint_is_not_noted_without_a_list_of_traits() -> None:
    rule = "name: r, when: {extra_spec: q, is: x}, require: [CUSTOM_A]"
    decision = _pipeline(_set(rule)).apply(_hinted(CUSTOM_A="required"))
    assert decision.requirements == ()
    assert decision.notes == ()


def test_hint_about_something_else_is_not_noted() -> None:
    spec = _spec(scheduler_hints={"group": ["x"]})
    assert _pipeline(_HINTS).apply(spec).notes == ()


@pytest.mark.parametrize(
    ("hints", "message"),
    [
        (
            {"CUSTOM_B": ["required"]},
            "hint has the unknown value 'trait:CUSTOM_B'. Values that exist:"
            " trait:COMPUTE_NODE",
        ),
        (
            {"CUSTOM_A": ["required", "\x1b[1m"]},
            r"hint 'trait:CUSTOM_A' has the unknown value '\x1b[1m'. Values"
            " that",
        ),
    ],
    ids=["trait", "value"],
)
def test_unknown_hint_is_rejected_where_unknown_values_are(
    hints: dict[str, Any], message: str
) -> None:
    rules = _set(hint_traits="CUSTOM_A, COMPUTE_NODE")
    strict = _pipeline(rules, unknown_values=UnknownValues.REJECT)
    with pytest.raises(UnknownValue) as caught:
        strict.apply(_hinted(**hints))
    assert str(caught.value).startswith(message)


def test_hints_that_contradict_each_other_are_always_rejected() -> None:
    spec = _hinted(CUSTOM_A=["required", "forbidden"])
    source = "hint trait:CUSTOM_A=required"
    with pytest.raises(ContradictingRequirements, match=source):
        _pipeline(_HINTS).apply(spec)
    assert spec.root_required == set()
    assert spec.root_forbidden == set()


# -- ports
# -----------------------------------------------------------------------------


_PORTS = [
    RequestGroup(_PORT, {"NET_BW_EGR_KILOBIT_PER_SEC": 1000}),
    RequestGroup(_OTHER_PORT, {"NET_BW_IGR_KILOBIT_PER_SEC": 1000}),
    RequestGroup("a-port-without-resources", {}),
    RequestGroup("device_profile_0", {"FPGA": 1}),
    RequestGroup(f"device_profile_0{_PORT}", {"FPGA": 1}),
    RequestGroup(
        "11111111-0000-4000-8000-000000000001-0", {"CUSTOM_PCI_8086_1521": 1}
    ),
]


_ABOUT_PORTS = (
    "name: r, unless: {project: trusted}, require: [CUSTOM_A], forbid:"
    " [CUSTOM_B], scope: ports"
)


def test_rule_about_ports_is_about_the_groups_of_ports_alone() -> None:
    ids = frozenset(("11111111-0000-4000-8000-000000000001",))
    spec = RequestSpec(
        Flavor(1, 512), requested_resources=_PORTS, pci_request_ids=ids
    )
    decision = _pipeline(_set(_ABOUT_PORTS)).apply(spec)
    assert [(item.trait, item.scope) for item in decision.requirements] == [
        ("CUSTOM_A", _PORT),
        ("CUSTOM_B", _PORT),
        ("CUSTOM_A", _OTHER_PORT),
        ("CUSTOM_B", _OTHER_PORT),
    ]
    for group in spec.requested_resources[:2]:
        assert group.required_traits == {"CUSTOM_A"}
        assert group.forbidden_traits == {"CUSTOM_B"}
    for group in spec.requested_resources[2:]:
        assert group.required_traits == set()
        assert group.forbidden_traits == set()
    assert not decision.notes


def test_rule_about_ports_notes_that_a_request_has_none() -> None:
    (note,) = _pipeline(_set(_ABOUT_PORTS)).apply(_spec()).notes
    assert str(note).endswith(
        "the request has no port that requests resources: not required"
    )
