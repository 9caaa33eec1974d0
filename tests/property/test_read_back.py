"""Well-formed fleets, templates and request specs are read as they were written: each example loads.

Rules have the same law in :mod:`tests.property.test_document_laws`.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.documents import read_json, request_spec_from
from os_prefilter.operators.fleet import Aggregate, Fleet, Inventory, Provider, aggregate_uuid, provider_uuid
from os_prefilter.operators.fleet_document import parse_fleet
from os_prefilter.operators.snapshot import snapshot
from os_prefilter.request_spec import Destination, RequestGroup, RequestLevelParams
from os_prefilter.template_document import bundled_templates, load_templates
from os_prefilter.templates import BiosChange, Step, Template, Templates, Variant
from os_prefilter.terms import Trait
from tests.conftest import times
from tests.exhaustive.fuzz.targets import document_of

_GENERATED = settings(deadline=None, max_examples=times(40), suppress_health_check=[HealthCheck.too_slow])
_INT = st.integers(1, 2**31 - 1)
_UUIDS = st.uuids().map(str)
_LINES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8) | st.sampled_from(
    ["null", "010", "1.10", "yes", "2026-01-01", "~", "*a", "&a", "- x", "{}", "=1+1", "a: b", "#"]
)
_STANDARD = st.sampled_from(["COMPUTE_NODE", "HW_CPU_X86_AVX2", "COMPUTE_NET_VIF_MODEL_IGB", "CUSTOM_A", "CUSTOM_B_2"])
_AMOUNTS = st.dictionaries(st.sampled_from(["VCPU", "MEMORY_MB", "VGPU", "CUSTOM_FPGA"]), _INT, max_size=3)

T = TypeVar("T")


def check_each(examples: st.SearchStrategy[T], read_back: Callable[[T], T], is_rich: Callable[[T], object]) -> None:
    """Check that what is read back is what was written; fail if hardly an example has anything in it."""
    read: list[T] = []

    @settings(_GENERATED)
    @given(examples)
    def law(example: T) -> None:
        assert read_back(example) == example
        read.append(example)

    law()
    assert len(read) >= _GENERATED.max_examples
    assert sum(bool(is_rich(example)) for example in read) > len(read) / 10


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    """Return an amount as somebody would write it: nothing is above what it is a part of."""
    total, units = draw(_INT), sorted((draw(_INT), draw(_INT)))
    ratio = draw(st.floats(0.001, 1000))
    reserved, used = draw(st.integers(0, total)), draw(st.integers(0, 2**31 - 1))
    return draw(
        st.just(Inventory(total)) | st.just(Inventory(total, reserved, units[0], units[1], draw(_INT), ratio, used))
    )


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Return a fleet of hosts with providers below them, whose names and UUIDs are all different."""
    names = iter(draw(st.lists(_LINES, min_size=12, max_size=12, unique=True)))
    uuids = iter(draw(st.lists(_UUIDS, min_size=24, max_size=24, unique=True)))
    labels = draw(st.lists(_LINES, max_size=3, unique=True))
    own = [Aggregate(draw(st.sampled_from([aggregate_uuid(each), next(uuids)])), each) for each in labels]
    zoned = [Aggregate(each.uuid, each.name, draw(st.just("") | _LINES)) for each in own]
    unnamed = [next(uuids)]

    def provider(levels: int) -> Provider:
        name = next(names)
        return Provider(
            name,
            draw(st.sampled_from([provider_uuid(name), next(uuids)])),
            draw(st.dictionaries(st.sampled_from(["VCPU", "MEMORY_MB", "CUSTOM_FPGA"]), inventories(), max_size=3)),
            draw(st.frozensets(_STANDARD, max_size=4)),
            tuple(draw(st.lists(st.sampled_from([*(each.uuid for each in zoned), *unnamed]), max_size=3, unique=True))),
            tuple(provider(levels - 1) for _ in range(draw(st.integers(0, 2)) if levels else 0)),
            draw(st.just("") | st.text(st.characters(exclude_categories=["Cs"]), max_size=9)),
        )

    return Fleet(
        tuple(provider(1) for _ in range(draw(st.integers(1, 4)))),
        draw(st.sampled_from(["", "2026-11-21T18:00:00Z", "2026-11-21T18:00:00+00:00"])),
        {each.uuid: each for each in zoned},
        draw(st.booleans()),
        draw(st.integers(0, 5)),
    )


def test_a_fleet_is_read_as_it_was_written() -> None:
    """Names that YAML would take for something else, aggregates with and without names, nested providers, amounts."""
    check_each(
        fleets(),
        lambda fleet: parse_fleet(snapshot(fleet).encode(), "a fleet"),
        lambda fleet: any(host.providers for host in fleet.hosts) and fleet.aggregates,
    )


_NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | _LINES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_LINES, inner, max_size=2),
    max_leaves=4,
)
_STEPS = st.builds(
    Step, st.sampled_from(["raid", "deploy", "management"]), _NAMES, st.dictionaries(_LINES, _JSON, max_size=2), _INT
)
_SETTINGS = st.builds(
    BiosChange, _LINES.filter(lambda name: name.strip("*")), st.lists(_LINES, min_size=1, max_size=2).map(tuple)
)
_VARIANTS = st.builds(
    Variant,
    st.lists(_SETTINGS, max_size=2, unique_by=lambda each: each.name).map(tuple),
    st.lists(_STEPS, max_size=2, unique_by=lambda each: each.key).map(tuple),
    st.dictionaries(st.sampled_from(["driver", "vendor"]), _LINES, max_size=2),
    in_use=st.booleans(),
).filter(lambda each: each.bios or each.steps)


@st.composite
def templates_of(draw: st.DrawFn) -> Templates:
    """Return templates that each need a trait which no other needs, so that a node can say if it can."""
    keys = draw(st.lists(st.tuples(_NAMES, _NAMES), max_size=3, unique=True))
    return Templates(
        Template(
            *key,
            (*draw(st.lists(_STANDARD.map(Trait), max_size=2)), Trait(f"CUSTOM_OF_{number}")),
            tuple(draw(st.lists(_VARIANTS, max_size=2))),
        )
        for number, key in enumerate(keys)
    )


def _written(template: Template) -> dict[str, Any]:
    variants = [
        {
            "bios": {name: values[0] if len(values) == 1 else list(values) for name, values in each.bios},
            "steps": [step.for_ironic() for step in each.steps],
            "node": dict(each.node),
            "in-use": each.in_use,
        }
        for each in template.variants
    ]
    return {
        "config-type": template.config_type,
        "config-value": template.value,
        "traits": list(template.traits),
        "variants": [{key: value for key, value in each.items() if value} for each in variants],
    }


def test_templates_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Settings with one spelling and with several, arguments of any JSON, variants for some nodes."""
    path, bundled = tmp_path / "templates.yaml", list(bundled_templates())

    def read_back(templates: Templates) -> Templates:
        document = {"templates": [_written(each) for each in templates]}
        # YAML has no escaped halves of characters.
        path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
        return Templates(each for each in load_templates(path) if each not in bundled)

    check_each(templates_of(), read_back, lambda templates: any(each.variants for each in templates))


_TEXTS = st.text(max_size=8)
_NO_NAME = st.none() | _TEXTS
_LISTS = st.lists(st.lists(_UUIDS, max_size=2), max_size=2)
_TRAITS = st.sets(_STANDARD, max_size=3)
_GROUPS = st.builds(RequestGroup, _TEXTS, _AMOUNTS, _TRAITS, _TRAITS, _LISTS, st.sets(_UUIDS, max_size=2), _NO_NAME)
_SPECS = st.builds(
    RequestSpec,
    st.builds(Flavor, _INT, _INT, _INT, _INT, _INT, st.dictionaries(_TEXTS, _TEXTS, max_size=3), _NO_NAME),
    st.none()
    | st.builds(Image, st.dictionaries(_TEXTS, _TEXTS | st.booleans() | _INT, max_size=3), _NO_NAME, _NO_NAME),
    st.booleans(),
    st.just([]) | st.lists(_GROUPS, min_size=1, max_size=2),
    st.frozensets(_UUIDS, max_size=2),
    st.none()
    | st.builds(
        Destination,
        st.none() | st.lists(_UUIDS, min_size=1, max_size=2),
        st.none() | st.sets(_UUIDS, min_size=1, max_size=2),
        _NO_NAME,
    ),
    st.builds(RequestLevelParams, _TRAITS, _TRAITS, st.lists(st.lists(_TEXTS, max_size=2), max_size=2)),
)


def test_a_request_spec_is_read_as_it_was_written(tmp_path: Path) -> None:
    """In the plain form, and as Nova stores one: each object in its envelope, the whole as text in a row."""
    path = tmp_path / "spec.json"

    def read_back(spec: RequestSpec) -> RequestSpec:
        document = document_of(spec)
        path.write_text(json.dumps(document), encoding="utf-8")
        plain = request_spec_from(read_json(path), path)
        enveloped = {"nova_object.name": "RequestSpec", "nova_object.data": document}
        path.write_text(json.dumps({"id": 1, "spec": json.dumps(enveloped)}), encoding="utf-8")
        assert asdict(request_spec_from(read_json(path), path)) == asdict(plain)
        return plain

    check_each(_SPECS, read_back, lambda spec: spec.requested_resources)
