# SPDX-License-Identifier: Apache-2.0

"""Hosts with several CPU models: Placement does not offer them for a CPU
feature that the flavor does not require, and a note says what is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from os_prefilter import (
    Options,
    RequestSpec,
    allocation_candidates_query,
    unsupported,
)
from os_prefilter.adapters.placement.facts import PlacementFacts
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.desired_traits import Mode, goal_of
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.pipeline.decision import Decision
from os_prefilter.request.named_traits import MAY_LACK_FEATURE
from os_prefilter.request.spec import Destination
from os_prefilter.service import Service
from os_prefilter.service.deferral import Reports, Unreported
from os_prefilter.service.loading import load_filters
from os_prefilter.service.traits_to_report import (
    traits_to_create,
    wanted_groups,
)
from os_prefilter.vocabulary.filter_rows import SEVERAL_CPU_MODELS
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from tests.conftest import spec_of
from tests.support.hosts import KVM, with_cpu_models
from tests.support.placements import traits_of
from tests.support.reporting_fleets import fleet_of
from tests.support.rule_texts import rule, rules_of

_AVX2 = "HW_CPU_X86_AVX2"
_REQUIRED = {f"trait:{_AVX2}": "required"}
_PREFERRED = {f"trait:{_AVX2}": "preferred"}
_OPTIONS = Options(nova_builds_guests=True)
_NAMES = ("image_metadata", "preferences", "rules")
_RULES = rules_of(
    rule("avx", '{extra_spec: "acme:fast", is: "yes"}', [_AVX2]),
    rule(
        "liked",
        '{extra_spec: "acme:liked", is: "yes"}',
        more=f"prefer: [{_AVX2}]",
    ),
    rule(
        "level",
        '{extra_spec: "acme:level", is: "2"}',
        ["HW_CPU_X86_SSE41", "HW_CPU_X86_SSE42"],
    ),
)
_NONE: Mapping[str, Unreported] = {SEVERAL_CPU_MODELS: Unreported(0)}
_ONE: Mapping[str, Unreported] = {SEVERAL_CPU_MODELS: Unreported.of(["a"])}


def _decided(
    spec: Any, reports: Reports | None, options: Options = _OPTIONS
) -> Decision:
    facts: dict[str, Any] = {"rules": lambda _context: _RULES}
    if reports:
        facts["reports"] = lambda _context: reports
    service = Service.from_names(*_NAMES, options=options, facts=facts)
    return service.decide(spec)


def _forbids(decision: Decision) -> bool:
    return SEVERAL_CPU_MODELS in {
        item.trait for item in decision.requirements if not item.required
    }


def _notes(decision: Decision) -> list[str]:
    return [
        note.source
        for note in decision.notes
        if note.reason == MAY_LACK_FEATURE and note.warn
    ]


_ASKED: dict[str, tuple[RequestSpec, str]] = {
    "image": (
        spec_of(_REQUIRED),
        f"image property trait:{_AVX2}=required without trait:{_AVX2}=required"
        " in the flavor",
    ),
    "rule": (
        spec_of({}, {"acme:fast": "yes"}),
        f"rule avx: flavor extra spec acme:fast=yes without trait:{_AVX2}"
        "=required in the flavor",
    ),
    "rule with several features": (
        spec_of({}, {"acme:level": "2"}),
        "rule level: flavor extra spec acme:level=2 without"
        " trait:HW_CPU_X86_SSE41=required, trait:HW_CPU_X86_SSE42=required in"
        " the flavor",
    ),
    "rule with several features, one in the flavor": (
        spec_of({}, {"acme:level": "2", "trait:HW_CPU_X86_SSE41": "required"}),
        "rule level: flavor extra spec acme:level=2 without"
        " trait:HW_CPU_X86_SSE42=required in the flavor",
    ),
}
_PREFERS: dict[str, tuple[RequestSpec, str]] = {
    "flavor": (
        spec_of({}, _PREFERRED),
        f"flavor extra spec trait:{_AVX2}=preferred without trait:{_AVX2}"
        "=required in the flavor",
    ),
    "rule": (
        spec_of({}, {"acme:liked": "yes"}),
        f"rule liked: flavor extra spec acme:liked=yes without trait:{_AVX2}"
        "=required in the flavor",
    ),
}
_IN_USE = Reports(_NONE, True, frozenset((SEVERAL_CPU_MODELS,)))
_ALL_REPORTED = Reports(_NONE)
_UNKNOWN = {
    "no agent on one": Reports(_ONE),
    "not wanted": Reports({}),
    "no compute node": Reports(_NONE, compute_nodes=False),
}


@pytest.mark.parametrize(("spec", "source"), _ASKED.values(), ids=_ASKED)
def test_hosts_with_several_models_are_forbidden_once_one_reports_it(
    spec: RequestSpec, source: str
) -> None:
    decision = _decided(spec, _IN_USE)
    (found,) = [
        item
        for item in decision.requirements
        if item.trait == SEVERAL_CPU_MODELS
    ]
    assert not found.required
    assert found.source == source
    assert _notes(decision) == []


@pytest.mark.parametrize(
    ("spec", "_source"),
    [*_ASKED.values(), *_PREFERS.values()],
    ids=[*_ASKED, "preferred by flavor", "preferred by rule"],
)
def test_nothing_is_said_where_every_host_has_one_model(
    spec: RequestSpec, _source: str
) -> None:
    decision = _decided(spec, _ALL_REPORTED)
    assert not _forbids(decision)
    assert decision.notes == ()


@pytest.mark.parametrize("reports", _UNKNOWN.values(), ids=_UNKNOWN)
@pytest.mark.parametrize(
    ("spec", "source"),
    [*_ASKED.values(), *_PREFERS.values()],
    ids=[*_ASKED, "preferred by flavor", "preferred by rule"],
)
def test_note_says_so_where_it_is_not_known(
    spec: RequestSpec, source: str, reports: Reports
) -> None:
    decision = _decided(spec, reports)
    assert not _forbids(decision)
    assert _notes(decision) == [source]


@pytest.mark.parametrize(("spec", "source"), _PREFERS.values(), ids=_PREFERS)
def test_preference_excludes_no_host_and_is_noted(
    spec: RequestSpec, source: str
) -> None:
    decision = _decided(spec, _IN_USE)
    assert not _forbids(decision)
    assert _notes(decision) == [source]


@pytest.mark.parametrize(("spec", "source"), _ASKED.values(), ids=_ASKED)
def test_note_says_so_where_nothing_is_read_of_hosts(
    spec: RequestSpec, source: str
) -> None:
    options = Options(nova_builds_guests=True, wait_for_reports=False)
    decision = _decided(spec, None, options)
    assert not _forbids(decision)
    assert _notes(decision) == [source]
    named = (SEVERAL_CPU_MODELS,)
    options = Options(
        nova_builds_guests=True, wait_for_reports=False, reported_traits=named
    )
    assert _forbids(_decided(spec, None, options))


_SILENT: dict[str, tuple[Any, Options]] = {
    "flavor requires it": (spec_of(_REQUIRED, _REQUIRED), _OPTIONS),
    "flavor alone": (spec_of({}, _REQUIRED), _OPTIONS),
    "a group of the flavor requires it": (
        spec_of(
            _REQUIRED, {"resources1:VCPU": "1", f"trait1:{_AVX2}": "required"}
        ),
        _OPTIONS,
    ),
    "another driver builds guests": (spec_of(_REQUIRED), Options()),
    "encrypted memory": (
        spec_of({"trait:HW_CPU_X86_AMD_SEV": "required"}),
        _OPTIONS,
    ),
    "hyperthreading": (
        spec_of({"trait:HW_CPU_HYPERTHREADING": "required"}),
        _OPTIONS,
    ),
    "a trait of a site": (
        spec_of({"trait:CUSTOM_HW_CPU_X86_AVX2": "required"}),
        _OPTIONS,
    ),
    "nothing": (spec_of({}), _OPTIONS),
}


@pytest.mark.parametrize(("spec", "options"), _SILENT.values(), ids=_SILENT)
def test_feature_that_the_guest_has_or_is_none_forbids_and_notes_nothing(
    spec: Any, options: Options
) -> None:
    decision = _decided(spec, _IN_USE, options)
    assert not _forbids(decision)
    assert _notes(decision) == []


def test_server_that_moves_has_lived_with_its_model() -> None:
    spec = spec_of(_REQUIRED)
    assert unsupported(spec, with_cpu_models("Nehalem", "Haswell"))
    spec.requested_destination = Destination(cell="a cell")
    decision = _decided(spec, _IN_USE)
    assert not _forbids(decision)
    assert _notes(decision) == []
    assert not unsupported(spec, with_cpu_models("Nehalem", "Haswell"))


@pytest.mark.parametrize(
    ("properties", "extra_specs", "problem"),
    [
        (_REQUIRED, {}, f"image property trait:{_AVX2}"),
        (_REQUIRED, _REQUIRED, ""),
        ({}, _REQUIRED, ""),
        ({}, _PREFERRED, ""),
    ],
    ids=["image", "image and flavor", "flavor", "preferred"],
)
def test_late_check_refuses_what_the_filter_forbids(
    properties: dict[str, str], extra_specs: dict[str, str], problem: str
) -> None:
    spec = spec_of(properties, extra_specs)
    found = unsupported(spec, with_cpu_models("Nehalem", "Haswell"))
    assert "".join(item.property for item in found) == problem
    assert not unsupported(spec, with_cpu_models("Haswell"))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (with_cpu_models("Nehalem", "Haswell"), True),
        (with_cpu_models("Haswell"), False),
        (with_cpu_models("Haswell", "Haswell"), False),
        (with_cpu_models(), False),
        (KVM, False),
    ],
    ids=["several", "one", "one twice", "none", "host model"],
)
def test_host_reports_several_models(
    facts: LibvirtFacts, expected: bool
) -> None:
    assert capability_traits(facts)[SEVERAL_CPU_MODELS] is expected


_ONE_MODEL, _SEVERAL = "host-0", "host-1"


@pytest.mark.parametrize(
    ("properties", "extra_specs", "expected"),
    [
        (_REQUIRED, {}, [_ONE_MODEL]),
        ({}, {"acme:fast": "yes"}, [_ONE_MODEL]),
        (_REQUIRED, _REQUIRED, [_ONE_MODEL, _SEVERAL]),
        ({}, _REQUIRED, [_ONE_MODEL, _SEVERAL]),
        ({}, _PREFERRED, [_ONE_MODEL, _SEVERAL]),
    ],
    ids=["image", "rule", "image and flavor", "flavor", "preferred"],
)
def test_placement_offers_a_host_with_several_models_for_the_flavors_alone(
    properties: dict[str, str],
    extra_specs: dict[str, str],
    expected: list[str],
) -> None:
    """Nova reports the feature of both hosts."""
    filters = load_filters(_NAMES, provided=None)
    groups = wanted_groups(filters, _OPTIONS)
    wanted = frozenset().union(*(group.keys for group in groups))
    request = spec_of(properties, extra_specs)
    with EmbeddedPlacement(fleet_of([{_AVX2}, {_AVX2}])) as placement:
        placement.know(traits_to_create(filters, _OPTIONS))
        for name, facts in (
            (_ONE_MODEL, with_cpu_models("Haswell")),
            (_SEVERAL, with_cpu_models("Nehalem", "Haswell")),
        ):
            goal = goal_of(facts, wanted, Mode.BESIDE)
            ProviderTraits(placement.client, name).sync(goal)
        assert SEVERAL_CPU_MODELS in traits_of(placement, _SEVERAL)
        assert SEVERAL_CPU_MODELS not in traits_of(placement, _ONE_MODEL)
        reports = PlacementFacts(placement.client, groups=groups).reports
        facts_read: dict[str, Any] = {
            "reports": reports,
            "rules": lambda _context: _RULES,
        }
        service = Service.from_names(
            *_NAMES, options=_OPTIONS, facts=facts_read
        )
        service.apply(request)
        query = allocation_candidates_query(request)
        found = placement.client.allocation_candidates(query)
    assert sorted(found.hosts) == expected
