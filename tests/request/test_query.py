# SPDX-License-Identifier: Apache-2.0

"""The query string is what Nova would send, and what a real Placement
takes.
"""

import re
from random import Random
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest

from os_prefilter import (
    Destination,
    Flavor,
    RequestGroup,
    RequestSpec,
    allocation_candidates_query,
)
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.common.errors import (
    ImpossibleCombination,
    MalformedRequest,
    UnknownValue,
)
from os_prefilter.request import query
from os_prefilter.request.view import Request
from os_prefilter_tools.fleet.demand import demand_of
from tests.conftest import spec_of, times
from tests.support.demands import (
    query_of,
    random_demand,
    random_fleet,
    request_of,
)

_AGGREGATE = "7d2590ae-fb85-4080-9306-058b4c915e3f"
_OTHER = "e6a6ad4d-4ae9-4d3c-9bb5-b4c4f5d9c3a1"


def _query(spec: RequestSpec, limit: int | None = None) -> str:
    return unquote(allocation_candidates_query(spec, limit))


# All characters that one may have.
_LONGEST_SUFFIX = (
    "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
)
_SMALL = "resources=DISK_GB:1,MEMORY_MB:512,VCPU:1"
_UEFI: dict[str, object] = {
    "hw_firmware_type": "uefi",
    "hw_pci_numa_affinity_policy": "socket",
}
_STATELESS = "COMPUTE_SECURITY_STATELESS_FIRMWARE"
_ASKED: list[tuple[dict[str, object], dict[str, str], str]] = [
    ({}, {}, _SMALL),
    (
        {},
        {
            "resources_a:VGPU": "1",
            "trait_a:OWNER_NOVA": "forbidden",
            "trait_a:HW_GPU_API_VULKAN": "required",
        },
        f"required_a=HW_GPU_API_VULKAN,!OWNER_NOVA&{_SMALL}&resources_a=VGPU:1",
    ),
    *(
        (
            {},
            {
                "resources1:VGPU": "1",
                "resources2:VGPU": "1",
                "group_policy": policy,
            },
            f"group_policy={policy}&{_SMALL}&resources1=VGPU:1&resources2=VGPU:1",
        )
        for policy in ("isolate", "none")
    ),
    (
        {"trait:HW_CPU_X86_AVX2": "required", "trait:X": "other"},
        {},
        f"required=HW_CPU_X86_AVX2&{_SMALL}",
    ),
    # A trait that the request names stays where it names it.
    *(
        (
            _UEFI,
            {f"resources1:{name}": "1", f"trait1:{_STATELESS}": "required"},
            f"required=COMPUTE_SOCKET_PCI_NUMA_AFFINITY&required1={_STATELESS}&{unsuffixed}&resources1={name}:1",
        )
        for name, unsuffixed in (
            ("VCPU", _SMALL.removesuffix(",VCPU:1")),
            ("VGPU", _SMALL),
        )
    ),
    (
        {},
        {
            "resources:VGPU": "+4",
            "resources:FPGA": "1_0",
            "resources:CUSTOM_A": "2147483647",
        },
        "resources=CUSTOM_A:2147483647,DISK_GB:1,FPGA:10,MEMORY_MB:512,VCPU:1,VGPU:4",
    ),
    # Nova's query says nothing of the firmware beside it.
    (
        {"os_secure_boot": "required", "hw_firmware_type": "bios"},
        {},
        f"required=COMPUTE_SECURITY_UEFI_SECURE_BOOT&{_SMALL}",
    ),
    # Resources are in Nova's order.
    (
        {},
        {"resources1:CUSTOM_A": "1", "resources1:CUSTOM_A2": "1"},
        f"{_SMALL}&resources1=CUSTOM_A2:1,CUSTOM_A:1",
    ),
]


def test_flavor_image_and_groups_become_the_expected_query_whatever_their_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for properties, extra_specs, expected in _ASKED:
        assert _query(spec_of(properties, extra_specs)) == expected
        assert (
            _query(spec_of(properties, dict(reversed(extra_specs.items()))))
            == expected
        )
    unread: Any = {"resources:VGPU": "1.0", "trait:HW_X": "on", 5: "1"}
    assert _query(spec_of({}, unread)) == _SMALL
    left_out = "The extra spec {} is left out, as Nova does: it must {}."
    assert caplog.messages == [
        left_out.format(
            "'resources:VGPU'='1.0'",
            "name a resource class, and be a whole number of at least 0",
        ),
        left_out.format(
            "'trait:HW_X'='on'", "name a trait, and be required or forbidden"
        ),
    ]
    assert _query(spec_of(is_bfv=True)) == "resources=MEMORY_MB:512,VCPU:1"
    flavors: list[Any] = [(1, 512, 10, 5, 1025), (1, 512, 17, None, None)]
    for flavor in flavors:
        assert (
            _query(RequestSpec(Flavor(*flavor)))
            == "resources=DISK_GB:17,MEMORY_MB:512,VCPU:1"
        )
    amounts: Any = {"VGPU": "+1"}
    ports = [
        RequestGroup(
            "p1",
            {"VGPU": 2**31 - 1, "FPGA": 0},
            {"OWNER_NOVA"},
            in_tree=_OTHER,
        ),
        RequestGroup(_LONGEST_SUFFIX, amounts, set(), {"OWNER_NOVA"}),
    ]
    of_ports = f"{_SMALL}&resources{_LONGEST_SUFFIX}=VGPU:1&resourcesp1=VGPU:2147483647"
    required = f"required{_LONGEST_SUFFIX}=!OWNER_NOVA&requiredp1=OWNER_NOVA"
    expected = f"group_policy=none&in_treep1={_OTHER}&{required}&{of_ports}"
    assert _query(spec_of(requested_resources=ports)) == expected
    destination = Destination(
        [f"{_OTHER},{_AGGREGATE}"], {_OTHER, _AGGREGATE}, _AGGREGATE
    )
    expected = f"in_tree={_AGGREGATE}&member_of=!in:{_AGGREGATE},{_OTHER}&member_of=in:{_AGGREGATE},{_OTHER}&{_SMALL}"
    assert _query(spec_of(requested_destination=destination)) == expected


def test_a_named_trait_says_where_it_was_written() -> None:
    spec = spec_of(
        {"trait:A": "required"},
        {"resources1:VGPU": "1", "trait1:B": "forbidden"},
    )
    spec.requested_resources.append(RequestGroup("p", {"VGPU": 1}, {"C"}))
    assert [
        each[:6] for each in query.requirements_without_filters(Request(spec))
    ] == [
        (
            "B",
            False,
            "1",
            "flavor extra spec trait1:B=forbidden",
            "request",
            ("trait1:B=forbidden",),
        ),
        (
            "A",
            True,
            "unsuffixed",
            "image property trait:A=required",
            "request",
            ("trait:A=required",),
        ),
        ("C", True, "p", "request group p", "request", ()),
    ]


def test_root_required_and_same_subtree_are_sorted_and_empty_resources_are_left_out() -> (
    None
):
    groups = [
        RequestGroup("a", {"VGPU": 1}),
        RequestGroup("b", {}, {"OWNER_NOVA"}),
    ]
    groups += [
        RequestGroup("c", aggregates=[[_OTHER]]),
        RequestGroup("d", forbidden_aggregates=frozenset({_OTHER})),
    ]
    spec = spec_of(requested_resources=groups)
    spec.root_required.update(("OWNER_NOVA", "COMPUTE_NODE"))
    spec.root_forbidden.add("COMPUTE_STATUS_DISABLED")
    # Placement refuses an empty one.
    spec.same_subtree.extend((["b", "a"], []))
    found = _query(spec)
    assert (
        "&root_required=COMPUTE_NODE,OWNER_NOVA,!COMPUTE_STATUS_DISABLED"
        in found
    )
    assert found.endswith("&same_subtree=a,b")
    assert f"&member_ofc=in:{_OTHER}&member_ofd=!in:{_OTHER}&" in found
    # Placement refuses an empty "resourcesb=".
    assert "resourcesb" not in found


def test_query_begins_with_the_limit_unless_it_is_none() -> None:
    for limit, expected in (
        (1, "limit=1&"),
        (1000, "limit=1000&"),
        (None, "resources="),
    ):
        assert allocation_candidates_query(spec_of(), limit).startswith(
            expected
        )
    wrong: list[Any] = [0, -1, True, 1.5, "10"]
    for limit in wrong:
        with pytest.raises(ValueError, match="limit is"):
            allocation_candidates_query(spec_of(), limit)


def _ports(*groups: RequestGroup) -> RequestSpec:
    return spec_of(requested_resources=list(groups))


def test_malformed_names_amounts_and_uuids_never_reach_the_query() -> None:
    number, unique = (
        "is not a whole number from 0 to 2147483647",
        "is not a unique suffix",
    )
    for spec, problem in (
        (
            spec_of({"trait:X,!COMPUTE_STATUS_DISABLED": "required"}),
            "image property: 'trait:X,!COMPUTE_STATUS_DISABLED'",
        ),
        (
            spec_of({}, {"resources:CUSTOM_lower": "1"}),
            "flavor extra spec: 'resources:CUSTOM_lower'",
        ),
        (
            spec_of({}, {"resources:CUSTOM_" + "X" * 250: "1"}),
            "flavor extra spec: 'resources:CUSTOM_X",
        ),
        (
            spec_of({}, {"trait1:A\nB": "required"}),
            r"flavor extra spec: 'trait1:A\nB'",
        ),
        (
            spec_of({}, {"resourcesroot:VGPU": "1"}),
            "flavor extra specs: the group suffix: 'root'",
        ),
        (
            _ports(RequestGroup("", {"VGPU": 1})),
            f"requested_resources: the requester_id: '' {unique}",
        ),
        (
            _ports(RequestGroup("empty")),
            "requested_resources: 'empty' is not a group",
        ),
        (
            _ports(RequestGroup("a" * 65, {"VGPU": 1})),
            f"requested_resources: the requester_id: '{'a' * 65}' {unique}",
        ),
        (
            spec_of(
                {},
                {"resourcesa:VGPU": "1"},
                requested_resources=[RequestGroup("a", {"VGPU": 1})],
            ),
            f"requested_resources: the requester_id: 'a' {unique}",
        ),
        (
            _ports(RequestGroup("a", {"VGPU:1,X": 1})),
            "requested_resources: 'VGPU:1,X:1'",
        ),
        (
            _ports(RequestGroup("a", {"VGPU": -1})),
            "requested_resources: 'VGPU:-1'",
        ),
        (
            _ports(RequestGroup("a", {"VGPU": True})),
            "requested_resources: 'VGPU:True'",
        ),
        (
            _ports(RequestGroup("a", {"VGPU": 1}, {"X,!Y"})),
            "request group 'a': 'X,!Y'",
        ),
        (
            spec_of(requested_destination=Destination(None, {"a&b"})),
            "request spec: 'a&b'",
        ),
        (
            spec_of(requested_destination=Destination([f"{_OTHER},a&c"])),
            "request spec: 'a&c'",
        ),
        (
            spec_of(requested_destination=Destination(in_tree="x y")),
            "request spec: 'x y' is not the UUID",
        ),
        (
            RequestSpec(Flavor(vcpus=2**31)),
            f"flavor field vcpus: 2147483648 {number}",
        ),
        (
            RequestSpec(Flavor(root_gb=2**31 - 1, ephemeral_gb=1)),
            f"the flavor's disks together: 2147483648 {number}",
        ),
        (
            spec_of({}, {"resources:VGPU": "99999999999"}),
            "flavor extra spec 'resources:VGPU': '99999999999'",
        ),
        (
            _ports(RequestGroup("a", {"VGPU": 2**31})),
            "requested_resources: 'VGPU:2147483648'",
        ),
        (
            _ports(RequestGroup("root", {"VGPU": 1})),
            "requested_resources: the requester_id: 'root' is not free",
        ),
        (
            _ports(RequestGroup("unsuffixed", {"VGPU": 1})),
            "requested_resources: the requester_id: 'unsuffixed'",
        ),
        (
            _ports(*[RequestGroup("a", {"VGPU": 1})] * 2),
            "requested_resources: the requester_id: 'a' is not unique",
        ),
    ):
        with pytest.raises(MalformedRequest, match="^" + re.escape(problem)):
            allocation_candidates_query(spec)


def test_real_placement_returns_the_expected_hosts_for_the_query(
    placement: PlacementClient,
) -> None:
    both, nova, cyborg = (
        ("gpu-cyborg-1", "gpu-nova-1"),
        ("gpu-nova-1",),
        ("gpu-cyborg-1",),
    )
    groups = [
        RequestGroup("gpu", {"VGPU": 1}),
        RequestGroup("owner", {}, {"OWNER_NOVA"}),
    ]
    subtree = spec_of(requested_resources=groups)
    subtree.same_subtree.append(["gpu", "owner"])
    for spec, hosts in (
        (spec_of({}, {"resources:VGPU": "1"}), both),
        (
            spec_of(
                {}, {"resources1:VGPU": "1", "trait1:OWNER_NOVA": "required"}
            ),
            nova,
        ),
        (
            spec_of(
                requested_resources=[
                    RequestGroup(
                        "b", {"VGPU": 1}, forbidden_traits={"OWNER_NOVA"}
                    )
                ]
            ),
            cyborg,
        ),
        (
            spec_of(
                {}, {"resources:VGPU": "1", "trait:OWNER_CYBORG": "forbidden"}
            ),
            nova,
        ),
        # A group without resources that others refer to.
        (subtree, both),
    ):
        assert (
            placement.allocation_candidates(
                allocation_candidates_query(spec)
            ).hosts
            == hosts
        ), spec
    assert "same_subtree=gpu,owner" in _query(subtree)


def test_value_that_nova_would_reject_is_rejected() -> None:
    encrypted = {"hw_mem_encryption": "true", "hw_firmware_type": "uefi"}
    wrong: list[tuple[dict[str, object], dict[str, str]]] = [
        ({"os_secure_boot": "requird"}, {}),
        ({}, {"hw:tpm_version": "3"}),
        ({"hw_tpm_version": "2.0", "hw_tpm_model": "odd"}, {}),
        ({**encrypted}, {"hw:mem_encryption_model": "odd"}),
    ]
    for properties, extra_specs in wrong:
        with pytest.raises(UnknownValue):
            allocation_candidates_query(spec_of(properties, extra_specs))
    assert "MEM_ENCRYPTION_CONTEXT" in _query(
        spec_of({**encrypted, "hw_machine_type": "pc-q35-9.1"})
    )
    for machine in ("raspi3b", "pc-1.0", "pc-i440fx", "Q35", "", "virt"):
        with pytest.raises(
            ImpossibleCombination,
            match="hw_mem_encryption=true.* hw_machine_type",
        ):
            allocation_candidates_query(
                spec_of({**encrypted, "hw_machine_type": machine})
            )


def test_ignored_flavor_group_still_counts_for_the_default_group_policy() -> (
    None
):
    port = RequestGroup("port", {"NET_BW_EGR_KILOBIT_PER_SEC": 1})
    # For Nova, the one with a line break in the name is no group.
    one = spec_of(
        extra_specs={"resources1:VGPU": "1", "resources2:NO\nSUCH": "1"},
        requested_resources=[port],
    )
    two = spec_of(
        extra_specs={"resources1:VGPU": "1", "resources2:NO_SUCH": "1"},
        requested_resources=[port],
    )
    assert "group_policy=none" in allocation_candidates_query(one)
    assert "group_policy" not in allocation_candidates_query(two)


def test_demand_of_a_request_is_the_one_that_its_query_writes() -> None:
    for seed in range(times(40)):
        random = Random(seed)  # noqa: S311
        flat = seed % 4 == 0
        spec = request_of(
            random_demand(
                random, random_fleet(random, 3, flat=flat), flat=flat
            )
        )
        demand = demand_of(query.query_of(spec))
        assert _parts(query_of(demand)) == _parts(
            allocation_candidates_query(spec, limit=None)
        ), seed


def _parts(query: str) -> set[tuple[str, str, frozenset[str]]]:
    """Return the parameters without the order of what a value lists; no policy
    is that of none.
    """
    split = (
        (name, *value.rpartition("in:"))
        for name, value in parse_qsl(query)
        if value != "none"
    )
    return {
        (name, before + sign, frozenset(names.split(",")))
        for name, before, sign, names in split
    }
