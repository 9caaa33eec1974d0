# SPDX-License-Identifier: Apache-2.0

"""owner: Nova's requests stay on Nova's providers, and groups of other owners
are left alone.
"""

from __future__ import annotations

import re
from math import inf

import pytest

from os_prefilter import (
    RequestGroup,
    Requirements,
    allocation_candidates_query,
)
from os_prefilter.request.requirements import UNSUFFIXED, forbid, require
from os_prefilter.service import Service
from os_prefilter.service.deployment_facts import Fact
from os_prefilter.service.loading import as_filter, load_filters
from os_prefilter.vocabulary.options import Options, TraitScope
from tests.conftest import (
    ExtraSpecs,
    Required,
    pipeline_of,
    required_by,
    spec_of,
)

_ROOT = ("OWNER_NOVA", True, "root")
_KEPT_OUT = ("OWNER_CYBORG", False, "unsuffixed")
_APART = ("OWNER_NOVA", True, "_owned_VGPU")


_PCI = "COMPUTE_MANAGED_PCI_DEVICE"
_VGPU = {"resources:VGPU": "1"}
_FPGA = {"resources1:FPGA": "1"}
_ENCRYPTION = "MEM_ENCRYPTION_CONTEXT"


def _required(extra_specs: ExtraSpecs) -> Required:
    return required_by("owner", spec_of(extra_specs=extra_specs))


@pytest.mark.parametrize(
    "resource_class", ["CUSTOM_PCI_8086_1563", "CUSTOM_A100", "PGPU", "VGPU"]
)
def test_group_of_a_pci_device_requires_the_trait_of_novas_pci_devices(
    resource_class: str,
) -> None:
    """Whatever class ``[pci] device_spec`` gives it; Nova before 34 leaves no
    owner trait on them.
    """
    group = RequestGroup("pci-0", {resource_class: 1})
    spec = spec_of(
        requested_resources=[group], pci_request_ids=frozenset(("pci",))
    )
    assert required_by("owner", spec) == [_ROOT, (_PCI, True, "pci-0")]


@pytest.mark.parametrize(
    "extra_specs",
    [
        {**_VGPU, "trait:OWNER_CYBORG": "required"},
        {"resources_gpu:VGPU": "1", "trait_gpu:OWNER_CYBORG": "required"},
        {"resources1:VGPU": "1", "trait1:OWNER_NOVA": "forbidden"},
        _FPGA,
    ],
    ids=["unsuffixed", "group", "forbids an owner", "class of another owner"],
)
def test_group_that_names_an_owner_or_requests_nothing_of_nova_is_left_alone(
    extra_specs: ExtraSpecs,
) -> None:
    """Cases that test_ownership, with a real Placement, does not have."""
    assert _required(extra_specs) == [_ROOT]


def test_one_of_two_unsuffixed_classes_moves_to_a_group_of_its_own() -> None:
    found = _required({**_VGPU, "resources:FPGA": "1"})
    assert found == [_ROOT, _KEPT_OUT, _APART]


@pytest.mark.parametrize(
    ("suffix", "expected"),
    [("", _KEPT_OUT), ("1", ("OWNER_NOVA", True, "1"))],
    ids=["unsuffixed", "group"],
)
def test_class_of_the_host_stays_where_it_is(
    suffix: str, expected: tuple[str, bool, str]
) -> None:
    found = _required({f"resources{suffix}:{_ENCRYPTION}": "1"})
    assert found == [_ROOT, expected]


@pytest.mark.parametrize(
    ("suffix", "scope"), [("1", "1"), ("", "_owned_CUSTOM_PCI_X")]
)
def test_pci_device_requires_the_trait_of_novas_pci_devices(
    suffix: str, scope: str
) -> None:
    found = _required({f"resources{suffix}:CUSTOM_PCI_X": "1"})
    assert found == [_ROOT, (_PCI, True, scope)]


def test_pci_device_alone_stays_unsuffixed() -> None:
    nothing = {"resources:VCPU": "0", "resources:MEMORY_MB": "0"}
    found = _required({"resources:CUSTOM_PCI_X": "1", **nothing})
    assert found == [_ROOT, (_PCI, True, "unsuffixed"), _KEPT_OUT]


@pytest.mark.parametrize(
    ("amount", "trait"),
    [(1, "OWNER_NOVA"), (0, "CUSTOM_X")],
    ids=["names an owner", "requests nothing"],
)
def test_requested_group_is_left_alone(amount: int, trait: str) -> None:
    resources = {"VGPU": amount}
    group = RequestGroup("device_profile_0", resources, {trait})
    spec = spec_of(requested_resources=[group])
    assert required_by("owner", spec) == [_ROOT]


def test_resource_with_a_line_break_after_its_key_moves_to_an_owned_group() -> (
    None
):
    """Nova reads the class without it."""
    spec = spec_of(extra_specs={**_VGPU, "resources:VGPU\n": "2"})
    assert ("OWNER_NOVA", True, "_owned_VGPU") in required_by("owner", spec)
    query = allocation_candidates_query(spec)
    assert "resources_owned_VGPU=VGPU%3A2" in query
    _, _, unsuffixed = query.partition("resources=")
    assert "VGPU" not in unsuffixed.partition("&")[0]


def _why_unsuffixed(extra_specs: ExtraSpecs) -> str:
    """Return the requirement's source, which ``explain`` and the log show."""
    written = {**_VGPU, **extra_specs}
    spec = spec_of(extra_specs=written)
    requirements = pipeline_of("owner").apply(spec).requirements
    (kept_out,) = [item for item in requirements if item.scope == "unsuffixed"]
    assert kept_out[:3] == _KEPT_OUT
    start = r"flavor extra spec resources:\w+, in no group of its own: "
    assert re.match(start, kept_out.source)
    assert spec.flavor.extra_specs.items() >= written.items()
    return kept_out.source


@pytest.mark.parametrize(
    "trait",
    ["CUSTOM_NVIDIA_11", "HW_GPU_API_VULKAN", "COMPUTE_MANAGED_PCI_DEVICE"],
)
def test_resource_stays_unsuffixed_with_a_trait_of_its_provider(
    trait: str,
) -> None:
    """Moving it could change the request."""
    named = f"trait:{trait}"
    reason = f"{named}=required may be met by its provider"
    assert reason in _why_unsuffixed({named: "required"})


@pytest.mark.parametrize(
    "extra_specs",
    [
        _FPGA,
        {**_FPGA, "group_policy": "nonsense"},
        {"resources:CUSTOM_PCI_X": "1"},
    ],
    ids=["no policy", "unknown policy", "two classes"],
)
def test_resource_stays_unsuffixed_where_its_group_would_need_a_policy(
    extra_specs: ExtraSpecs,
) -> None:
    reason = "several groups in a flavor without group_policy=none"
    assert reason in _why_unsuffixed(extra_specs)


def test_resource_stays_unsuffixed_where_groups_are_isolated() -> None:
    source = _why_unsuffixed({"group_policy": "isolate"})
    assert ": group_policy=isolate" in source


def test_resource_stays_unsuffixed_where_its_suffix_is_taken() -> None:
    taken = {"resources_owned_VGPU:FPGA": "1", "group_policy": "none"}
    reason = "'_owned_VGPU' is taken, or too long"
    assert reason in _why_unsuffixed(taken)


def _sources(extra_specs: ExtraSpecs) -> list[str]:
    """Return the sources of all requirements but that of the root."""
    spec = spec_of(extra_specs=extra_specs)
    _, *others = pipeline_of("owner").apply(spec).requirements
    start = "flavor extra spec "
    assert all(item.source.startswith(start) for item in others)
    return [item.source.removeprefix(start) for item in others]


def test_source_is_the_first_owned_class_of_a_group() -> None:
    pci = "resources1:CUSTOM_PCI_X"
    assert _sources({"resources1:VGPU": "1", pci: "1"}) == [pci]


_LONGEST = "CUSTOM_PCI_" + "X" * 46
_APART_BY = "requested in a group of its own"


def test_source_says_which_class_moves() -> None:
    others = {"resources:FPGA": "1"}
    moves = f"resources:VGPU, {_APART_BY}"
    assert _sources({**_VGPU, **others}) == ["resources:FPGA", moves]


def test_class_with_the_longest_suffix_moves() -> None:
    name = f"resources:{_LONGEST}"
    assert _sources({name: "1"}) == [f"{name}, {_APART_BY}"]


def test_source_is_the_class_of_the_host() -> None:
    name = f"resources:{_ENCRYPTION}"
    assert _sources({name: "1", "group_policy": "isolate"}) == [name]


def test_source_is_a_class_of_the_group_of_the_host() -> None:
    host = {"resources1:VCPU": "1", "resources1:MEMORY_MB": "1"}
    vgpu, other, memory = _sources({**_VGPU, **host})
    assert vgpu == "resources:VGPU"
    assert other == "resources:VGPU"
    assert memory == "resources1:MEMORY_MB"


def test_group_of_a_device_profile_is_kept_off_novas_providers() -> None:
    groups = [
        RequestGroup("_owned_VGPU", {"FPGA": 1}),
        RequestGroup("device_profile_0", {"VGPU": 1}),
    ]
    spec = spec_of(extra_specs=_VGPU, requested_resources=groups)
    off_nova = ("OWNER_NOVA", False, "device_profile_0")
    assert required_by("owner", spec) == [_ROOT, off_nova, _KEPT_OUT]


@pytest.mark.parametrize(
    "trait",
    ["COMPUTE_NODE", "HW_CPU_X86_AVX2", "HW_ARCH_X86_64", "OWNER_NOVA"],
)
def test_trait_of_the_host_does_not_keep_the_resource_unsuffixed(
    trait: str,
) -> None:
    named = {f"trait:{trait}": "required"}
    spec = spec_of({**named}, {**_VGPU, **named})
    assert required_by("owner", spec) == [_ROOT, _APART]


def test_trait_required_of_the_root_does_not_keep_the_resource_unsuffixed() -> (
    None
):
    spec = spec_of(extra_specs={**_VGPU, "trait:CUSTOM_RACK": "required"})
    spec.root_required.add("CUSTOM_RACK")
    assert required_by("owner", spec) == [_ROOT, _APART]


def test_trait_of_the_image_that_a_device_may_have_keeps_it_unsuffixed() -> (
    None
):
    spec = spec_of({"trait:CUSTOM_NVIDIA_11": "required"}, _VGPU)
    assert required_by("owner", spec) == [_ROOT, _KEPT_OUT]


def test_trait_forbidden_unsuffixed_is_also_forbidden_in_the_own_group_of_a_cloned_flavor() -> (
    None
):
    """A scheduler may store the flavor: it must stay what the user chose."""
    written = {**_VGPU, "trait:CUSTOM_SLOW": "forbidden"}
    spec = spec_of(extra_specs=dict(written))
    chosen = spec.flavor
    pipeline_of("owner").apply(spec)
    assert chosen.extra_specs == written
    assert spec.flavor.extra_specs == {
        "resources_owned_VGPU:VGPU": "1",
        "trait_owned_VGPU:OWNER_NOVA": "required",
        "trait_owned_VGPU:CUSTOM_SLOW": "forbidden",
        "trait:CUSTOM_SLOW": "forbidden",
    }


def _check_after(requirements: Requirements, expected: ExtraSpecs) -> None:
    """Check the flavor where a filter before has these requirements."""
    name = "owner_is_reported"
    facts = {name: Fact(name, lambda _context: True, inf)}
    owner = load_filters(["owner"], {"options", "required_before", name})
    first = as_filter("first", lambda _request: requirements)
    options = Options(trait_scope=TraitScope.ROOT_AND_UNSUFFIXED)
    spec = spec_of(extra_specs=_VGPU)
    Service((first, *owner), options, facts).apply(spec)
    assert spec.flavor.extra_specs.items() >= expected.items()


def test_what_an_earlier_filter_forbids_is_forbidden_in_the_own_group() -> (
    None
):
    slow = forbid("CUSTOM_SLOW", "x", UNSUFFIXED)
    _check_after(slow, {"trait_owned_VGPU:CUSTOM_SLOW": "forbidden"})


def test_what_an_earlier_filter_requires_of_any_provider_keeps_it_unsuffixed() -> (
    None
):
    nvidia = require("CUSTOM_NVIDIA_11", "x", UNSUFFIXED)
    _check_after(nvidia, {"trait:OWNER_CYBORG": "forbidden"})


def test_what_an_earlier_filter_requires_of_the_root_lets_it_move() -> None:
    timer = require("CUSTOM_TIMER", "x")
    owned = {"trait_owned_VGPU:OWNER_NOVA": "required"}
    _check_after(timer, {"trait:CUSTOM_TIMER": "required", **owned})
