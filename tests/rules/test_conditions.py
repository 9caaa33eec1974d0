# SPDX-License-Identifier: Apache-2.0

"""Conditions of rules: unless, any, all, lists; hints, projects, zones,
flavors, requirements, groups of ports.
"""

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

_PORT, _OTHER_PORT = (
    "0a6f2a2e-0000-4000-8000-000000000001",
    "0a6f2a2e-0000-4000-8000-000000000002",
)


def _set(*rules: str, hint_traits: str = "") -> RuleSet:
    text = (f"hint_traits: [{hint_traits}]\n" if hint_traits else "") + (
        rules_text(*rules) if rules else ""
    )
    found, problems = rules_in(text.encode(), "FILE")
    assert not [
        *problems,
        *(each for each in check_rules(found) if not each.warning),
    ]
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


_BUT_R = "when: {extra_spec: q, is: x}, unless: {extra_spec: r, present: true}"
_TWO_OF = (
    "when: [{any: [{flavor: a}, {flavor: b}]}, {any: [{project: c},"
    " {extra_spec: q, is: x}]}]"
)
_MATCHES: list[tuple[str, RequestSpec, bool]] = [
    # Everybody but some.
    ("unless: {image_property: os_distro, is: windows}", _spec(), True),
    (
        "unless: {image_property: os_distro, is: windows}",
        _spec({"os_distro": "windows"}),
        False,
    ),
    (_BUT_R, _spec({}, {"q": "x"}), True),
    (_BUT_R, _spec({}, {"q": "x", "r": "1"}), False),
    (
        "unless: {all: [{extra_spec: q, is: x}, {extra_spec: r, is: y}]}",
        _spec({}, {"q": "x"}),
        True,
    ),
    (
        "unless: {all: [{extra_spec: q, is: x}, {extra_spec: r, is: y}]}",
        _spec({}, {"q": "x", "r": "y"}),
        False,
    ),
    # Alternatives.
    (
        "when: {any: [{extra_spec: q, is: x}, {image_property: p, is: y}]}",
        _spec({"p": "y"}),
        True,
    ),
    (
        "when: {any: [{extra_spec: q, is: x}, {image_property: p, is: y}]}",
        _spec({}, {"q": "y"}),
        False,
    ),
    (_TWO_OF, _spec(project_id="c", flavor="b"), True),
    (_TWO_OF, _spec(project_id="d", flavor="b"), False),
    # Lists.
    (
        "when: {extra_spec: q, contains: db}",
        _spec({}, {"q": "web, db ,mail"}),
        True,
    ),
    (
        "when: {extra_spec: q, contains: db}",
        _spec({}, {"q": "dbs,xdb"}),
        False,
    ),
    ("when: {extra_spec: q, contains: db}", _spec({}, {"q": ","}), False),
    (
        "when: {image_property: p, contains: true}",
        _spec({"p": "no,yes"}),
        True,
    ),
    (
        "when: {hint: h, contains: db}",
        _spec(scheduler_hints={"h": ["web", "a,db"]}),
        True,
    ),
    # Whose request, and where to.
    ("when: {project: [a, b]}", _spec(project_id="b"), True),
    (
        "when: {availability_zone: north}",
        _spec(availability_zone="North"),
        False,
    ),
    # Hints have several values.
    (
        "when: {hint: rack, is: a}",
        _spec(scheduler_hints={"rack": ["b", "a"]}),
        True,
    ),
    ("when: {hint: rack, is: a}", _spec({"rack": "a"}, {"rack": "a"}), False),
    (
        "when: {hint: rack, present: true}",
        _spec(scheduler_hints={"rack": [""]}),
        False,
    ),
    (
        "when: {hint: rack, present: true}",
        _spec(scheduler_hints={"rack": ["", "a"]}),
        True,
    ),
    (
        "when: {hint: fast, is: true}",
        _spec(scheduler_hints={"fast": ["Yes"]}),
        True,
    ),
    # What is required already.
    (
        "when: {requires: HW_CPU_X86_AVX2}",
        _spec({}, {"trait:HW_CPU_X86_AVX2": "required"}),
        True,
    ),
    (
        "when: {requires: HW_CPU_X86_AVX2}",
        _spec({}, {"trait:HW_CPU_X86_AVX2": "forbidden"}),
        False,
    ),
    (
        "when: {forbids: HW_CPU_X86_AVX2}",
        _spec({}, {"trait:HW_CPU_X86_AVX2": "forbidden"}),
        True,
    ),
    (
        "when: {requires: [CUSTOM_X, COMPUTE_NET_VIF_MODEL_E1000E]}",
        _spec({"hw_vif_model": "e1000e"}),
        True,
    ),
    # Of a device, not of the host.
    (
        "when: {requires: CUSTOM_GPU}",
        _spec({}, {"resources1:VGPU": "1", "trait1:CUSTOM_GPU": "required"}),
        False,
    ),
]


def test_rule_applies_to_exactly_the_requests_that_it_is_about() -> None:
    for text, spec, applies in _MATCHES:
        pipeline = _pipeline(
            _set(f"name: r, {text}, require: [CUSTOM_A]"), "image_metadata"
        )
        # Twice: once from the cache.
        for _ in range(2):
            asked = {item.trait for item in pipeline.decide(spec).requirements}
            assert ("CUSTOM_A" in asked) == applies, (text, spec)


@pytest.mark.parametrize(
    ("comparison", "spec"),
    [
        (
            "hint: h, contains: v{}",
            _spec(
                scheduler_hints={
                    "h": [",".join(map(str, range(20_000))) + ",v7"]
                }
            ),
        ),
        (
            "hint: h, is: v{}",
            _spec(scheduler_hints={"h": [*map(str, range(20_000)), "v7"]}),
        ),
        (
            "extra_spec: h, contains: v{}",
            _spec({}, {"h": "a," * 32_000 + " v7"}),
        ),
    ],
)
def test_long_text_of_a_tenant_is_read_whole_and_once_for_all_rules(
    comparison: str, spec: RequestSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands before it, an item that a rule names counts: a tenant
    cannot hide it.
    """
    texts = (
        f"name: r{n}, when: {{{comparison.format(n)}}}, require: [CUSTOM_A]"
        for n in range(100)
    )
    rules, read = (
        _set(
            *texts,
            f"name: u, unless: {{{comparison.format(7)}}}, require:"
            " [CUSTOM_B]",
        ),
        [],
    )

    def counting(*of: Any) -> Any:
        read.append(of)
        return readings(*of)

    monkeypatch.setattr(conditions, "readings", counting)
    decision = _pipeline(rules).apply(spec)
    assert [
        (item.trait, "rule r7: " in item.source)
        for item in decision.requirements
    ] == [("CUSTOM_A", True)]
    # The whole, and each item that differs.
    assert len(read) <= 1 + 20_001
    assert decision.notes == ()


def test_nova_and_our_request_specs_match_the_same_conditions() -> None:
    texts = (
        "project: p",
        "availability_zone: z",
        "flavor: f",
        "hint: h, is: x",
    )
    rules = _set(
        *(
            f"name: r{number}, when: {{{text}}}, require: [CUSTOM_A]"
            for number, text in enumerate(texts)
        )
    )
    fields: dict[str, Any] = {
        "project_id": "p",
        "availability_zone": "z",
        "scheduler_hints": {"h": ["x"]},
    }
    ours, novas = _spec(flavor="f", **fields), nova_spec(**fields)
    novas.flavor.name = "f"
    sources = [
        [item.source for item in _pipeline(rules).apply(spec).requirements]
        for spec in (ours, novas)
    ]
    shown = ("project p", "availability zone z", "flavor f", "hint h=x")
    assert (
        sources
        == [[f"rule r{number}: {text}" for number, text in enumerate(shown)]]
        * 2
    )


def test_source_and_properties_are_words_of_the_file() -> None:
    """What the request requires of every host has no property that its author
    could change.
    """
    rules = _set(
        "name: a, unless: {image_property: os_distro, is: windows}, forbid:"
        " [CUSTOM_LICENSED], because: they cost",
        "name: b, when: [{project: p}, {extra_spec: q, contains: db}, {hint:"
        " h, is: true}], require: [CUSTOM_A]",
    )
    spec = _spec(
        {},
        {"q": "\x1b[31m,db"},
        project_id="p",
        scheduler_hints={"h": ["YES"]},
    )
    first, second = _pipeline(rules).apply(spec).requirements
    assert (
        first.source
        == "rule a: every request unless image property os_distro=windows"
        " (they cost)"
    )
    assert (
        second.source
        == "rule b: project p and flavor extra spec q with db and hint h=true"
    )
    assert (first.properties, second.properties) == (
        (),
        ("q with db", "hint h=true"),
    )


def test_rejected_tenant_reads_nothing_of_others() -> None:
    """The operator finds all of it by the name of the rule."""
    for unless in (
        "project: acme",
        "flavor: acme.large",
        "availability_zone: acme",
        "extra_spec: owner, is: acme",
    ):
        rules = _set(
            f"name: a, unless: {{{unless}}}, forbid: [CUSTOM_A], because: acme"
            " paid, scope: unsuffixed",
            f"name: b, when: {{flavor: small}}, unless: {{{unless}}}, prefer:"
            " [CUSTOM_B], because: acme paid",
        )
        with pytest.raises(ContradictingRequirements) as caught:
            _pipeline(rules).apply(_spec({}, {"trait:CUSTOM_A": "required"}))
        assert (
            "forbidden (rules: rule a: every request that it does not except)"
            " on unsuffixed" in str(caught.value)
        )
        assert "acme" not in str(caught.value)


# -- hints
# -----------------------------------------------------------------------------


def _hinted(**hints: Any) -> RequestSpec:
    return _spec(
        scheduler_hints={
            f"trait:{name}": value for name, value in hints.items()
        }
    )


def test_traits_for_hints_are_not_counted_as_rules() -> None:
    rules = _set(
        "name: r, when: {flavor: a}, require: [CUSTOM_A]",
        hint_traits="CUSTOM_A, CUSTOM_C",
    )
    assert repr(rules) == f"<1 rule and 2 hint traits, {rules.checksum}: r>"


def test_users_may_name_only_the_traits_that_the_operator_allows() -> None:
    pipeline = _pipeline(_set(hint_traits="CUSTOM_A, COMPUTE_NODE, CUSTOM_C"))
    decision = pipeline.apply(
        _hinted(
            CUSTOM_A=["required"],
            COMPUTE_NODE="forbidden",
            CUSTOM_C="preferred",
        )
    )
    assert {(item.trait, item.required) for item in decision.requirements} == {
        ("CUSTOM_A", True),
        ("COMPUTE_NODE", False),
    }
    assert [item.trait for item in decision.preferences] == ["CUSTOM_C"]
    assert not decision.notes
    spec = _hinted(
        CUSTOM_B="required", CUSTOM_A="maybe", **{"X\n&required=Y": "required"}
    )
    decision = pipeline.apply(spec)
    assert not decision.requirements
    assert sorted(map(str, decision.notes)) == [
        "hint 'trait:CUSTOM_A'='maybe': unknown value: not required",
        (
            "hint 'trait:CUSTOM_B'='required': no trait that hints may name:"
            " not required"
        ),
        (
            r"hint 'trait:X\n&required=Y'='required': no trait that hints may"
            r" name: not required"
        ),
    ]
    assert spec.root_required == set()
    # Without a list of traits, and of hints about something else, nothing is
    # said.
    without = _pipeline(
        _set("name: r, when: {extra_spec: q, is: x}, require: [CUSTOM_A]")
    )
    decision = without.apply(_hinted(CUSTOM_A="required"))
    assert (decision.requirements, decision.notes) == ((), ())
    assert pipeline.apply(_spec(scheduler_hints={"group": ["x"]})).notes == ()


def test_unknown_hint_is_rejected_where_unknown_values_are_and_contradicting_ones_always() -> (
    None
):
    rules = _set(hint_traits="CUSTOM_A, COMPUTE_NODE")
    strict = _pipeline(rules, unknown_values=UnknownValues.REJECT)
    name = (
        "hint has the unknown value 'trait:CUSTOM_B'. Values that exist:"
        " trait:COMPUTE_NODE"
    )
    value = (
        r"hint 'trait:CUSTOM_A' has the unknown value '\x1b[1m'. Values that"
    )
    for hints, message in (
        ({"CUSTOM_B": ["required"]}, name),
        ({"CUSTOM_A": ["required", "\x1b[1m"]}, value),
    ):
        with pytest.raises(UnknownValue) as caught:
            strict.apply(_hinted(**hints))
        assert str(caught.value).startswith(message)
    spec = _hinted(CUSTOM_A=["required", "forbidden"])
    with pytest.raises(
        ContradictingRequirements, match="hint trait:CUSTOM_A=required"
    ):
        _pipeline(rules).apply(spec)
    assert (spec.root_required, spec.root_forbidden) == (set(), set())


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


def test_rule_about_ports_is_about_the_groups_of_ports_alone() -> None:
    rules = _set(
        "name: r, unless: {project: trusted}, require: [CUSTOM_A], forbid:"
        " [CUSTOM_B], scope: ports"
    )
    ids = frozenset(("11111111-0000-4000-8000-000000000001",))
    spec = RequestSpec(
        Flavor(1, 512), requested_resources=_PORTS, pci_request_ids=ids
    )
    decision = _pipeline(rules).apply(spec)
    assert [(item.trait, item.scope) for item in decision.requirements] == [
        ("CUSTOM_A", _PORT),
        ("CUSTOM_B", _PORT),
        ("CUSTOM_A", _OTHER_PORT),
        ("CUSTOM_B", _OTHER_PORT),
    ]
    traits = [
        (group.required_traits, group.forbidden_traits)
        for group in spec.requested_resources
    ]
    assert traits == [({"CUSTOM_A"}, {"CUSTOM_B"})] * 2 + [(set(), set())] * 4
    assert not decision.notes
    # Without a port, the note says so.
    (note,) = _pipeline(rules).apply(_spec()).notes
    assert str(note).endswith(
        "the request has no port that requests resources: not required"
    )
