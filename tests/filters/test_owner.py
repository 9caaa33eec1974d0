# SPDX-License-Identifier: Apache-2.0

"""owner: Nova's requests stay on Nova's providers, and groups of other owners
are left alone.
"""

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
_GROUPS: dict[str, tuple[ExtraSpecs, Required]] = {
    "two classes": (
        {"resources:VGPU": "1", "resources:FPGA": "1"},
        [_KEPT_OUT, _APART],
    ),
    "class of the host": (
        {"resources:MEM_ENCRYPTION_CONTEXT": "1"},
        [_KEPT_OUT],
    ),
    "unsuffixed with an owner": (
        {"resources:VGPU": "1", "trait:OWNER_CYBORG": "required"},
        [],
    ),
    "group with an owner": (
        {"resources_gpu:VGPU": "1", "trait_gpu:OWNER_CYBORG": "required"},
        [],
    ),
    "group that forbids an owner": (
        {"resources1:VGPU": "1", "trait1:OWNER_NOVA": "forbidden"},
        [],
    ),
    "group of a class that Nova does not own": ({"resources1:FPGA": "1"}, []),
    "group of a class of the host": (
        {"resources1:MEM_ENCRYPTION_CONTEXT": "1"},
        [("OWNER_NOVA", True, "1")],
    ),
    "group of a PCI device": (
        {"resources1:CUSTOM_PCI_X": "1"},
        [(_PCI, True, "1")],
    ),
    "unsuffixed PCI device": (
        {"resources:CUSTOM_PCI_X": "1"},
        [(_PCI, True, "_owned_CUSTOM_PCI_X")],
    ),
    "PCI device alone": (
        {
            "resources:CUSTOM_PCI_X": "1",
            "resources:VCPU": "0",
            "resources:MEMORY_MB": "0",
        },
        [(_PCI, True, "unsuffixed"), _KEPT_OUT],
    ),
}


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
    ("extra_specs", "expected"), _GROUPS.values(), ids=_GROUPS
)
def test_group_that_names_an_owner_or_requests_nothing_of_one_is_left_alone(
    extra_specs: ExtraSpecs, expected: Required
) -> None:
    """Cases that test_ownership, with a real Placement, does not have."""
    spec = spec_of(extra_specs=extra_specs)
    assert required_by("owner", spec) == [_ROOT, *expected]


@pytest.mark.parametrize(
    ("amount", "trait"),
    [(1, "OWNER_NOVA"), (0, "CUSTOM_X")],
    ids=["names an owner", "requests nothing"],
)
def test_requested_group_is_left_alone(amount: int, trait: str) -> None:
    group = RequestGroup(
        "device_profile_0", {"VGPU": amount}, required_traits={trait}
    )
    spec = spec_of(requested_resources=[group])
    assert required_by("owner", spec) == [_ROOT]


def test_resource_with_a_line_break_after_its_key_moves_to_an_owned_group() -> (
    None
):
    """Nova reads the class without it."""
    spec = spec_of(
        extra_specs={"resources:VGPU": "1", "resources:VGPU\n": "2"}
    )
    assert ("OWNER_NOVA", True, "_owned_VGPU") in required_by("owner", spec)
    query = allocation_candidates_query(spec)
    assert "resources_owned_VGPU=VGPU%3A2" in query
    assert "VGPU" not in query.partition("resources=")[2].partition("&")[0]


_VGPU = {"resources:VGPU": "1"}
_SEVERAL = "several groups in a flavor without group_policy=none"
_OBSTACLES: list[tuple[ExtraSpecs, str]] = [
    (
        {"trait:CUSTOM_NVIDIA_11": "required"},
        "trait:CUSTOM_NVIDIA_11=required may be met by its provider",
    ),
    (
        {"trait:HW_GPU_API_VULKAN": "required"},
        "trait:HW_GPU_API_VULKAN=required may be met by its provider",
    ),
    (
        {"trait:COMPUTE_MANAGED_PCI_DEVICE": "required"},
        "COMPUTE_MANAGED_PCI_DEVICE=required may be met",
    ),
    ({"group_policy": "isolate"}, ": group_policy=isolate"),
    ({"resources1:FPGA": "1"}, _SEVERAL),
    ({"resources1:FPGA": "1", "group_policy": "nonsense"}, _SEVERAL),
    ({"resources:CUSTOM_PCI_X": "1"}, _SEVERAL),
    (
        {"resources_owned_VGPU:FPGA": "1", "group_policy": "none"},
        "'_owned_VGPU' is taken, or too long",
    ),
]


@pytest.mark.parametrize(("extra_specs", "obstacle"), _OBSTACLES)
def test_resource_stays_unsuffixed_where_moving_it_could_change_the_request(
    extra_specs: ExtraSpecs, obstacle: str
) -> None:
    """The requirement's source, which ``explain`` and the log show, says
    why.
    """
    written = {**_VGPU, **extra_specs}
    spec = spec_of(extra_specs=written)
    requirements = pipeline_of("owner").apply(spec).requirements
    (kept_out,) = [item for item in requirements if item.scope == "unsuffixed"]
    assert kept_out[:3] == _KEPT_OUT
    start = r"flavor extra spec resources:\w+, in no group of its own: "
    assert re.match(start, kept_out.source)
    assert obstacle in kept_out.source
    assert spec.flavor.extra_specs.items() >= written.items()


_LONGEST = "CUSTOM_PCI_" + "X" * 46
_APART_BY = "flavor extra spec resources:{}, requested in a group of its own"
_SOURCES: dict[str, tuple[ExtraSpecs, list[str]]] = {
    "first owned class of a group": (
        {"resources1:VGPU": "1", "resources1:CUSTOM_PCI_X": "1"},
        ["flavor extra spec resources1:CUSTOM_PCI_X"],
    ),
    "one class moves": (
        {**_VGPU, "resources:FPGA": "1"},
        ["flavor extra spec resources:FPGA", _APART_BY.format("VGPU")],
    ),
    "longest suffix": (
        {f"resources:{_LONGEST}": "1"},
        [_APART_BY.format(_LONGEST)],
    ),
    "class of the host": (
        {"resources:MEM_ENCRYPTION_CONTEXT": "1", "group_policy": "isolate"},
        ["flavor extra spec resources:MEM_ENCRYPTION_CONTEXT"],
    ),
    "host in a group": (
        {**_VGPU, "resources1:VCPU": "1", "resources1:MEMORY_MB": "1"},
        [
            "flavor extra spec resources:VGPU",
            "flavor extra spec resources:VGPU",
            "flavor extra spec resources1:MEMORY_MB",
        ],
    ),
}


@pytest.mark.parametrize(
    ("extra_specs", "expected"), _SOURCES.values(), ids=_SOURCES
)
def test_source_of_the_owner_names_what_the_flavor_requests(
    extra_specs: ExtraSpecs, expected: list[str]
) -> None:
    spec = spec_of(extra_specs=extra_specs)
    _, *others = pipeline_of("owner").apply(spec).requirements
    assert [item.source for item in others] == expected


def test_group_of_a_device_profile_is_kept_off_novas_providers() -> None:
    groups = [
        RequestGroup("_owned_VGPU", {"FPGA": 1}),
        RequestGroup("device_profile_0", {"VGPU": 1}),
    ]
    spec = spec_of(extra_specs=_VGPU, requested_resources=groups)
    assert required_by("owner", spec) == [
        _ROOT,
        ("OWNER_NOVA", False, "device_profile_0"),
        _KEPT_OUT,
    ]


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
    spec = spec_of(extra_specs={**_VGPU, "trait:CUSTOM_SLOW": "forbidden"})
    chosen = spec.flavor
    pipeline_of("owner").apply(spec)
    assert chosen.extra_specs == {**_VGPU, "trait:CUSTOM_SLOW": "forbidden"}
    assert spec.flavor.extra_specs == {
        "resources_owned_VGPU:VGPU": "1",
        "trait_owned_VGPU:OWNER_NOVA": "required",
        "trait_owned_VGPU:CUSTOM_SLOW": "forbidden",
        "trait:CUSTOM_SLOW": "forbidden",
    }


@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        (
            forbid("CUSTOM_SLOW", "x", UNSUFFIXED),
            {"trait_owned_VGPU:CUSTOM_SLOW": "forbidden"},
        ),
        (
            require("CUSTOM_NVIDIA_11", "x", UNSUFFIXED),
            {"trait:OWNER_CYBORG": "forbidden"},
        ),
        (
            require("CUSTOM_TIMER", "x"),
            {
                "trait:CUSTOM_TIMER": "required",
                "trait_owned_VGPU:OWNER_NOVA": "required",
            },
        ),
    ],
    ids=[
        "forbids",
        "requires of any provider",
        "requires of the root and of a group",
    ],
)
def test_requirements_of_earlier_filters_count_like_those_of_the_flavor(
    requirements: Requirements, expected: ExtraSpecs
) -> None:
    name = "owner_is_reported"
    facts = {name: Fact(name, lambda _context: True, inf)}
    owner = load_filters(["owner"], {"options", "required_before", name})
    first = as_filter("first", lambda _request: requirements)
    options = Options(trait_scope=TraitScope.ROOT_AND_UNSUFFIXED)
    spec = spec_of(extra_specs=_VGPU)
    Service((first, *owner), options, facts).apply(spec)
    assert spec.flavor.extra_specs.items() >= expected.items()
