"""Laws of documents, by hypothesis: what has the right keys and any values loads or is refused, and reads back."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.request import Request
from os_prefilter.rule_document import rules_in
from os_prefilter.rules import EXTRA_SPEC, IMAGE_PROPERTY, Condition, Rule, RuleSet
from os_prefilter.terms import Trait
from os_prefilter.vocabulary import ROWS
from tests.exhaustive.fuzz.mutations import VALUES
from tests.exhaustive.fuzz.targets import TARGETS, log_is_watched

_GENERATED = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
_NAMES = sorted(
    {name for row in ROWS for name in (row.image_property, row.extra_spec, *row.legacy_names) if name}
    | {
        "trait:COMPUTE_NODE",
        "resources:VGPU",
        "resources1:CUSTOM_A",
        "trait1:CUSTOM_B",
        "group_policy",
        "traits_required",
    }
)
_SPEC_KEYS = (
    *("flavor", "image", "is_bfv", "requested_resources", "pci_requests", "request_level_params", "spec"),
    *("requested_destination", "nova_object.data", "properties", "extra_specs", "disk_format", "id", "name"),
    *("vcpus", "memory_mb", "ram", "disk", "root_gb", "swap", "requests", "request_id", "alias_name", "requester_id"),
    *("resources", "required_traits", "forbidden_traits", "aggregates", "in_tree", "root_required", "same_subtree"),
)
_KEYS: dict[str, tuple[str, ...]] = {
    "request_spec": (*_SPEC_KEYS, *_NAMES),
    "image": (*_SPEC_KEYS, *_NAMES),
    "image_list": ("images", "next", *_SPEC_KEYS[:16], *_NAMES),
    "flavor": (*_SPEC_KEYS, *_NAMES),
    "ironic_node": (
        *(
            "node",
            "bios",
            "uuid",
            "driver",
            "traits",
            "properties",
            "capabilities",
            "cpu_arch",
            "vendor",
            "secure_boot",
        ),
        *("boot_mode", "name", "value", "allowable_values", "read_only", "Name", "Value", "Allowable Values"),
    ),
    "templates": (
        *("templates", "config-type", "config-value", "traits", "variants", "bios", "steps", "node", "in-use"),
        *("interface", "step", "args", "priority", "driver", "vendor", "LogicalProc"),
    ),
    "rules": (
        *("rules", "name", "when", "require", "forbid", "scope", "because"),
        *("image_property", "extra_spec", "is", "in", "present"),
    ),
    "fleet": (
        *(
            "hosts",
            "aggregates",
            "taken_at",
            "has_inventories",
            "changed_while_read",
            "x-a",
            "uuid",
            "availability_zone",
        ),
        *("description", "resources", "traits", "providers", "total", "used", "reserved", "allocation_ratio", "VCPU"),
    ),
}


def _documents(keys: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """Return trees of these keys, with values that parsers trip over."""
    leaves = (
        st.sampled_from(VALUES) | st.sampled_from(keys) | st.text(max_size=5) | st.integers() | st.just("COMPUTE_NODE")
    )
    names = st.sampled_from(keys) | st.text(max_size=4)
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=6), max_leaves=25
    )


@pytest.mark.parametrize("name", _KEYS)
@settings(_GENERATED)
@given(st.data())
def test_any_tree_of_known_keys_keeps_the_laws_of_its_document(name: str, data: st.DataObject) -> None:
    """As the fuzzer's targets state them: one line that begins with the file's name, or the same read again."""
    keys = _KEYS[name]
    # Each of the first keys at the top, so that what is below them is reached.
    document = data.draw(st.dictionaries(st.sampled_from(keys[:6]), _documents(keys), min_size=1) | _documents(keys))
    with log_is_watched():
        TARGETS[name](json.dumps(document, ensure_ascii=data.draw(st.booleans())).encode("utf-8", "surrogatepass"))


_TEXT = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=9) | st.sampled_from(_NAMES)
_VALUE = (
    _TEXT | st.booleans() | st.sampled_from(["yes", "010", "1.10", "2026-01-01", "~", "on", "null", "*a", "&a", "- x"])
)
_TRAITS = st.lists(
    st.sampled_from(["COMPUTE_NODE", "CUSTOM_A", "CUSTOM_B", "HW_CPU_X86_AVX2"]), unique=True, max_size=3
)
_CONDITIONS = st.builds(
    Condition, st.sampled_from([IMAGE_PROPERTY, EXTRA_SPEC]), _TEXT, st.frozensets(_VALUE, max_size=3)
)


@st.composite
def rule_lists(draw: st.DrawFn) -> list[Rule]:
    """Return well-formed rules of different names."""
    found = []
    for number in range(draw(st.integers(0, 4))):
        require = draw(_TRAITS)
        forbid = [each for each in draw(_TRAITS) if each not in require] or ([] if require else ["CUSTOM_C"])
        when = draw(st.lists(_CONDITIONS, min_size=1, max_size=3, unique_by=lambda each: (each.place, each.name)))
        scope = draw(st.sampled_from(["root", "unsuffixed", "_gpu"]))
        traits = tuple(map(Trait, require)), tuple(map(Trait, forbid))
        found.append(Rule(f"rule-{number}", tuple(when), *traits, scope, draw(st.just("") | _TEXT)))
    return found


def _written(rules: list[Rule]) -> bytes:
    """Return rules as a file has them: each value as text in quotes, or as a boolean."""
    keys = {IMAGE_PROPERTY: "image_property", EXTRA_SPEC: "extra_spec"}
    documents = []
    for rule in rules:
        when = [
            {keys[each.place]: each.name, **({"in": list(each.values)} if each.values else {"present": True})}
            for each in rule.when
        ]
        document = {"name": rule.name, "when": when, "scope": rule.scope}
        lists = {"require": list(rule.require), "forbid": list(rule.forbid)}
        documents.append(document | {key: value for key, value in (*lists.items(), ("because", rule.because)) if value})
    # YAML has no escaped halves of characters.
    return json.dumps({"rules": documents}, ensure_ascii=False).encode()


@settings(_GENERATED)
@given(rule_lists())
def test_rules_that_are_written_read_back_as_they_were(rules: list[Rule]) -> None:
    """Also values that YAML would take for numbers, dates, null or its own signs."""
    read, problems = rules_in(_written(rules), "f")
    assert not problems
    assert read == rules
    assert RuleSet(read).checksum == RuleSet(rules).checksum


@settings(_GENERATED)
@given(rule_lists(), st.dictionaries(_TEXT, _VALUE, max_size=4), st.dictionaries(_TEXT, _TEXT, max_size=4))
def test_the_rules_that_match_are_those_whose_conditions_all_hold(
    rules: list[Rule], properties: dict[str, Any], extra_specs: dict[str, str]
) -> None:
    """Found by an index: the same as by looking at each rule, and no trait that is not in the file."""
    spec = RequestSpec(Flavor(1, 512, extra_specs=extra_specs), Image(properties))
    found = RuleSet(rules)
    met = found.matching(Request(spec))
    assert {trait for rule in met for trait in (*rule.require, *rule.forbid)} <= found.traits
    assert met == [rule for rule in rules if all(each.holds(_said(spec, each)) for each in rule.when)]


def _said(spec: RequestSpec, condition: Condition) -> object:
    request = Request(spec)
    read = request.image_property if condition.place == IMAGE_PROPERTY else request.extra_spec
    return read(condition.name)
