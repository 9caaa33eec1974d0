# SPDX-License-Identifier: Apache-2.0

"""owner: Nova's requests stay on Nova's providers, and other people's groups
stay alone.
"""

import re
from math import inf

import pytest

from os_prefilter import (
    Request,
    RequestGroup,
    Requirements,
    allocation_candidates_query,
)
from os_prefilter.request.requirements import UNSUFFIXED, forbid, require
from os_prefilter.service import Service
from os_prefilter.service.deployment_facts import Fact
from os_prefilter.service.loading import as_filter, load_filters
from os_prefilter.vocabulary.options import Options, TraitScope
from tests.conftest import pipeline_of, required_by, spec_of

_ROOT = ("OWNER_NOVA", True, "root")
_KEPT_OUT = ("OWNER_CYBORG", False, "unsuffixed")
_APART = ("OWNER_NOVA", True, "_owned_VGPU")


_GROUPS: list[tuple[dict[str, str], list[object]]] = [
    ({"resources:VGPU": "1", "resources:FPGA": "1"}, [_KEPT_OUT, _APART]),
    ({"resources:MEM_ENCRYPTION_CONTEXT": "1"}, [_KEPT_OUT]),
    ({"resources:VGPU": "1", "trait:OWNER_CYBORG": "required"}, []),
    ({"resources_gpu:VGPU": "1", "trait_gpu:OWNER_CYBORG": "required"}, []),
    ({"resources1:VGPU": "1", "trait1:OWNER_NOVA": "forbidden"}, []),
    ({"resources1:FPGA": "1"}, []),
    ({"resources1:MEM_ENCRYPTION_CONTEXT": "1"}, [("OWNER_NOVA", True, "1")]),
    (
        {"resources1:CUSTOM_PCI_X": "1"},
        [("COMPUTE_MANAGED_PCI_DEVICE", True, "1")],
    ),
    (
        {"resources:CUSTOM_PCI_X": "1"},
        [("COMPUTE_MANAGED_PCI_DEVICE", True, "_owned_CUSTOM_PCI_X")],
    ),
    (
        {
            "resources:CUSTOM_PCI_X": "1",
            "resources:VCPU": "0",
            "resources:MEMORY_MB": "0",
        },
        [("COMPUTE_MANAGED_PCI_DEVICE", True, "unsuffixed"), _KEPT_OUT],
    ),
]


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
    assert required_by("owner", spec) == [
        _ROOT,
        ("COMPUTE_MANAGED_PCI_DEVICE", True, "pci-0"),
    ]


def test_group_that_names_an_owner_or_requests_nothing_of_one_is_left_alone() -> (
    None
):
    """What test_ownership, with a real Placement, has not."""
    for extra_specs, expected in _GROUPS:
        assert required_by("owner", spec_of(extra_specs=extra_specs)) == [
            _ROOT,
            *expected,
        ], extra_specs
    for amount, trait in ((1, "OWNER_NOVA"), (0, "CUSTOM_X")):
        group = RequestGroup(
            "device_profile_0", {"VGPU": amount}, required_traits={trait}
        )
        assert required_by("owner", spec_of(requested_resources=[group])) == [
            _ROOT
        ]


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
_OBSTACLES: list[tuple[dict[str, str], str]] = [
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


def test_resource_stays_unsuffixed_where_moving_it_could_change_the_request() -> (
    None
):
    """And the source of the requirement, which explain and the log show, says
    why.
    """
    for extra_specs, obstacle in _OBSTACLES:
        spec = spec_of(extra_specs={**_VGPU, **extra_specs})
        decision = pipeline_of("owner").apply(spec)
        (kept_out,) = [
            item
            for item in decision.requirements
            if item.scope == "unsuffixed"
        ]
        assert kept_out[:3] == _KEPT_OUT
        assert re.match(
            r"flavor extra spec resources:\w+, in no group of its own: ",
            kept_out.source,
        )
        assert obstacle in kept_out.source
        assert (
            spec.flavor.extra_specs.items() >= {**_VGPU, **extra_specs}.items()
        )


_LONGEST = "CUSTOM_PCI_" + "X" * 46
_APART_BY = "flavor extra spec resources:{}, requested in a group of its own"
_SOURCES: list[tuple[dict[str, str], list[str]]] = [
    # Once, for the first class that is owned.
    (
        {"resources1:VGPU": "1", "resources1:CUSTOM_PCI_X": "1"},
        ["flavor extra spec resources1:CUSTOM_PCI_X"],
    ),
    (
        {**_VGPU, "resources:FPGA": "1"},
        ["flavor extra spec resources:FPGA", _APART_BY.format("VGPU")],
    ),
    ({f"resources:{_LONGEST}": "1"}, [_APART_BY.format(_LONGEST)]),
    (
        {"resources:MEM_ENCRYPTION_CONTEXT": "1", "group_policy": "isolate"},
        ["flavor extra spec resources:MEM_ENCRYPTION_CONTEXT"],
    ),
    (
        {**_VGPU, "resources1:VCPU": "1", "resources1:MEMORY_MB": "1"},
        [
            "flavor extra spec resources:VGPU",
            "flavor extra spec resources:VGPU",
            "flavor extra spec resources1:MEMORY_MB",
        ],
    ),
]


def test_the_owner_is_required_for_what_a_flavor_requests() -> None:
    for extra_specs, sources in _SOURCES:
        decision = pipeline_of("owner").apply(spec_of(extra_specs=extra_specs))
        assert [item.source for item in decision.requirements][1:] == sources
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


def test_trait_of_the_host_does_not_keep_the_resource_unsuffixed() -> None:
    for trait in (
        "COMPUTE_NODE",
        "HW_CPU_X86_AVX2",
        "HW_ARCH_X86_64",
        "OWNER_NOVA",
    ):
        spec = spec_of(
            {f"trait:{trait}": "required"},
            {**_VGPU, f"trait:{trait}": "required"},
        )
        assert required_by("owner", spec) == [_ROOT, _APART], trait
    spec = spec_of(extra_specs={**_VGPU, "trait:CUSTOM_RACK": "required"})
    spec.root_required.add("CUSTOM_RACK")
    assert required_by("owner", spec) == [_ROOT, _APART]
    # The device may have it.
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
    ("answer", "expected"),
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
        "requires of the root, and it is asked for twice",
    ],
)
def test_requirements_of_earlier_filters_count_like_those_of_the_flavor(
    answer: Requirements, expected: dict[str, str]
) -> None:
    def first(_request: Request) -> Requirements:
        return answer

    options = Options(trait_scope=TraitScope.ROOT_AND_UNSUFFIXED)
    facts = {
        "owner_is_reported": Fact(
            "owner_is_reported", lambda _context: True, inf
        )
    }
    filters = [
        as_filter("first", first),
        *load_filters(["owner"], {"options", "required_before", *facts}),
    ]
    spec = spec_of(extra_specs=_VGPU)
    Service(tuple(filters), options, facts).apply(spec)
    assert spec.flavor.extra_specs.items() >= expected.items()
