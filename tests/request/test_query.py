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
from tests.conftest import ExtraSpecs, Properties, spec_of, times
from tests.support.demands import (
    query_of,
    random_demand,
    random_fleet,
    request_of,
)

_AGGREGATE = "7d2590ae-fb85-4080-9306-058b4c915e3f"
_OTHER = "e6a6ad4d-4ae9-4d3c-9bb5-b4c4f5d9c3a1"


def _query(spec: RequestSpec) -> str:
    return unquote(allocation_candidates_query(spec, limit=None))


def _with_groups(*groups: RequestGroup) -> RequestSpec:
    return spec_of(requested_resources=list(groups))


# All characters that one may have.
_LONGEST_SUFFIX = (
    "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
)
_NO_CPU = "resources=DISK_GB:1,MEMORY_MB:512"
_SMALL = f"{_NO_CPU},VCPU:1"
_UEFI: Properties = {
    "hw_firmware_type": "uefi",
    "hw_pci_numa_affinity_policy": "socket",
}
_SOCKET = "required=COMPUTE_SOCKET_PCI_NUMA_AFFINITY"
_STATELESS = "COMPUTE_SECURITY_STATELESS_FIRMWARE"
_TWO_GROUPS = {"resources1:VGPU": "1", "resources2:VGPU": "1"}
_QUERIES: dict[str, tuple[Properties, ExtraSpecs, str]] = {
    "nothing": ({}, {}, _SMALL),
    "traits of a group": (
        {},
        {
            "resources_a:VGPU": "1",
            "trait_a:OWNER_NOVA": "forbidden",
            "trait_a:HW_GPU_API_VULKAN": "required",
        },
        f"required_a=HW_GPU_API_VULKAN,!OWNER_NOVA&{_SMALL}&resources_a=VGPU:1",
    ),
    "isolated groups": (
        {},
        {**_TWO_GROUPS, "group_policy": "isolate"},
        f"group_policy=isolate&{_SMALL}&resources1=VGPU:1&resources2=VGPU:1",
    ),
    "groups without isolation": (
        {},
        {**_TWO_GROUPS, "group_policy": "none"},
        f"group_policy=none&{_SMALL}&resources1=VGPU:1&resources2=VGPU:1",
    ),
    "a trait that is not required": (
        {"trait:HW_CPU_X86_AVX2": "required", "trait:X": "other"},
        {},
        f"required=HW_CPU_X86_AVX2&{_SMALL}",
    ),
    "a trait named in the group of the CPUs": (
        _UEFI,
        {"resources1:VCPU": "1", f"trait1:{_STATELESS}": "required"},
        f"{_SOCKET}&required1={_STATELESS}&{_NO_CPU}&resources1=VCPU:1",
    ),
    "a trait named in the group of a device": (
        _UEFI,
        {"resources1:VGPU": "1", f"trait1:{_STATELESS}": "required"},
        f"{_SOCKET}&required1={_STATELESS}&{_SMALL}&resources1=VGPU:1",
    ),
    "amounts that int() reads": (
        {},
        {
            "resources:VGPU": "+4",
            "resources:FPGA": "1_0",
            "resources:CUSTOM_A": "2147483647",
        },
        "resources=CUSTOM_A:2147483647,DISK_GB:1,FPGA:10,MEMORY_MB:512,VCPU:1,VGPU:4",
    ),
    # Nova's query says nothing of the firmware.
    "Secure Boot with a BIOS": (
        {"os_secure_boot": "required", "hw_firmware_type": "bios"},
        {},
        f"required=COMPUTE_SECURITY_UEFI_SECURE_BOOT&{_SMALL}",
    ),
    "resources in Nova's order": (
        {},
        {"resources1:CUSTOM_A": "1", "resources1:CUSTOM_A2": "1"},
        f"{_SMALL}&resources1=CUSTOM_A2:1,CUSTOM_A:1",
    ),
}


@pytest.mark.parametrize(
    ("properties", "extra_specs", "expected"), _QUERIES.values(), ids=_QUERIES
)
def test_image_and_flavor_become_novas_query_whatever_the_order(
    properties: Properties, extra_specs: ExtraSpecs, expected: str
) -> None:
    backwards = dict(reversed(extra_specs.items()))
    assert _query(spec_of(properties, extra_specs)) == expected
    assert _query(spec_of(properties, backwards)) == expected


def test_extra_specs_that_nova_cannot_read_are_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    extra_specs: Any = {"resources:VGPU": "1.0", "trait:HW_X": "on", 5: "1"}
    assert _query(spec_of({}, extra_specs)) == _SMALL
    assert caplog.messages == [
        (
            "The extra spec 'resources:VGPU'='1.0' is left out, as Nova does:"
            " it must name a resource class, and be a whole number of at least"
            " 0."
        ),
        (
            "The extra spec 'trait:HW_X'='on' is left out, as Nova does: it"
            " must name a trait, and be required or forbidden."
        ),
    ]


def test_server_on_a_volume_requests_no_disk_of_the_host() -> None:
    assert _query(spec_of(is_bfv=True)) == "resources=MEMORY_MB:512,VCPU:1"


@pytest.mark.parametrize(
    "flavor",
    [Flavor(1, 512, 10, 5, 1025), Flavor(1, 512, 17, None, None)],  # type: ignore[arg-type]
    ids=["swap rounded up", "unset sizes"],
)
def test_disks_of_a_flavor_are_added_up_in_whole_gigabytes(
    flavor: Flavor,
) -> None:
    query = _query(RequestSpec(flavor))
    assert query == "resources=DISK_GB:17,MEMORY_MB:512,VCPU:1"


def test_requested_groups_are_written_with_their_suffixes() -> None:
    port = RequestGroup(
        "p1",
        {"VGPU": 2**31 - 1, "FPGA": 0},
        {"OWNER_NOVA"},
        in_tree=_OTHER,
    )
    amounts: Any = {"VGPU": "+1"}
    longest = RequestGroup(_LONGEST_SUFFIX, amounts, set(), {"OWNER_NOVA"})
    assert _query(_with_groups(port, longest)).split("&") == [
        "group_policy=none",
        f"in_treep1={_OTHER}",
        f"required{_LONGEST_SUFFIX}=!OWNER_NOVA",
        "requiredp1=OWNER_NOVA",
        _SMALL,
        f"resources{_LONGEST_SUFFIX}=VGPU:1",
        "resourcesp1=VGPU:2147483647",
    ]


def test_requested_destination_is_written_with_sorted_aggregates() -> None:
    destination = Destination(
        [f"{_OTHER},{_AGGREGATE}"], {_OTHER, _AGGREGATE}, _AGGREGATE
    )
    spec = spec_of(requested_destination=destination)
    assert _query(spec).split("&") == [
        f"in_tree={_AGGREGATE}",
        f"member_of=!in:{_AGGREGATE},{_OTHER}",
        f"member_of=in:{_AGGREGATE},{_OTHER}",
        _SMALL,
    ]


def test_requirements_without_filters_have_their_scope_and_source() -> None:
    spec = spec_of(
        {"trait:A": "required"},
        {"resources1:VGPU": "1", "trait1:B": "forbidden"},
    )
    spec.requested_resources.append(RequestGroup("p", {"VGPU": 1}, {"C"}))
    requirements = query.requirements_without_filters(Request(spec))
    assert [each[:6] for each in requirements] == [
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


def test_root_traits_are_sorted() -> None:
    spec = spec_of()
    spec.root_required.update(("OWNER_NOVA", "COMPUTE_NODE"))
    spec.root_forbidden.add("COMPUTE_STATUS_DISABLED")
    expected = "root_required=COMPUTE_NODE,OWNER_NOVA,!COMPUTE_STATUS_DISABLED"
    assert expected in _query(spec).split("&")


def test_aggregates_of_a_group_need_no_resources() -> None:
    query = _query(
        _with_groups(
            RequestGroup("c", aggregates=[[_OTHER]]),
            RequestGroup("d", forbidden_aggregates=frozenset({_OTHER})),
        )
    )
    assert f"&member_ofc=in:{_OTHER}&member_ofd=!in:{_OTHER}&" in query


def test_group_without_resources_writes_no_empty_resources() -> None:
    """Placement refuses an empty ``resourcesb=``."""
    group = RequestGroup("b", {}, {"OWNER_NOVA"})
    assert "resourcesb" not in _query(_with_groups(group))


def test_same_subtree_is_sorted_and_never_empty() -> None:
    """Placement refuses an empty one."""
    spec = _with_groups(
        RequestGroup("a", {"VGPU": 1}), RequestGroup("b", {}, {"OWNER_NOVA"})
    )
    spec.same_subtree.extend((["b", "a"], []))
    assert _query(spec).endswith("&same_subtree=a,b")
    assert _query(spec).count("same_subtree") == 1


@pytest.mark.parametrize(
    ("limit", "start"),
    [(1, "limit=1&"), (1000, "limit=1000&"), (None, "resources=")],
)
def test_query_begins_with_the_limit_unless_it_is_none(
    limit: int | None, start: str
) -> None:
    assert allocation_candidates_query(spec_of(), limit).startswith(start)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "10"])
def test_limit_that_is_no_positive_whole_number_is_an_error(
    limit: Any,
) -> None:
    with pytest.raises(ValueError, match="limit is"):
        allocation_candidates_query(spec_of(), limit)


_AMOUNT = "is not a whole number from 0 to 2147483647"
_ID = "requested_resources: the requester_id:"
_MALFORMED: dict[str, RequestSpec] = {
    "image property: 'trait:X,!COMPUTE_STATUS_DISABLED'": spec_of(
        {"trait:X,!COMPUTE_STATUS_DISABLED": "required"}
    ),
    "flavor extra spec: 'resources:CUSTOM_lower'": spec_of(
        {}, {"resources:CUSTOM_lower": "1"}
    ),
    "flavor extra spec: 'resources:CUSTOM_X": spec_of(
        {}, {"resources:CUSTOM_" + "X" * 250: "1"}
    ),
    r"flavor extra spec: 'trait1:A\nB'": spec_of(
        {}, {"trait1:A\nB": "required"}
    ),
    "flavor extra specs: the group suffix: 'root'": spec_of(
        {}, {"resourcesroot:VGPU": "1"}
    ),
    f"{_ID} '' is not a unique suffix": _with_groups(
        RequestGroup("", {"VGPU": 1})
    ),
    "requested_resources: 'empty' is not a group": _with_groups(
        RequestGroup("empty")
    ),
    f"{_ID} '{'a' * 65}' is not a unique suffix": _with_groups(
        RequestGroup("a" * 65, {"VGPU": 1})
    ),
    f"{_ID} 'a' is not a unique suffix": spec_of(
        {},
        {"resourcesa:VGPU": "1"},
        requested_resources=[RequestGroup("a", {"VGPU": 1})],
    ),
    "requested_resources: 'VGPU:1,X:1'": _with_groups(
        RequestGroup("a", {"VGPU:1,X": 1})
    ),
    "requested_resources: 'VGPU:-1'": _with_groups(
        RequestGroup("a", {"VGPU": -1})
    ),
    "requested_resources: 'VGPU:True'": _with_groups(
        RequestGroup("a", {"VGPU": True})
    ),
    "request group 'a': 'X,!Y'": _with_groups(
        RequestGroup("a", {"VGPU": 1}, {"X,!Y"})
    ),
    "request spec: 'a&b'": spec_of(
        requested_destination=Destination(None, {"a&b"})
    ),
    "request spec: 'a&c'": spec_of(
        requested_destination=Destination([f"{_OTHER},a&c"])
    ),
    "request spec: 'x y' is not the UUID": spec_of(
        requested_destination=Destination(in_tree="x y")
    ),
    f"flavor field vcpus: 2147483648 {_AMOUNT}": RequestSpec(
        Flavor(vcpus=2**31)
    ),
    f"the flavor's disks together: 2147483648 {_AMOUNT}": RequestSpec(
        Flavor(root_gb=2**31 - 1, ephemeral_gb=1)
    ),
    "flavor extra spec 'resources:VGPU': '99999999999'": spec_of(
        {}, {"resources:VGPU": "99999999999"}
    ),
    "requested_resources: 'VGPU:2147483648'": _with_groups(
        RequestGroup("a", {"VGPU": 2**31})
    ),
    f"{_ID} 'root' is not free": _with_groups(
        RequestGroup("root", {"VGPU": 1})
    ),
    f"{_ID} 'unsuffixed'": _with_groups(
        RequestGroup("unsuffixed", {"VGPU": 1})
    ),
    f"{_ID} 'a' is not unique": _with_groups(
        RequestGroup("a", {"VGPU": 1}), RequestGroup("a", {"VGPU": 1})
    ),
}


@pytest.mark.parametrize("problem", _MALFORMED)
def test_malformed_name_amount_or_uuid_never_reaches_the_query(
    problem: str,
) -> None:
    with pytest.raises(MalformedRequest, match="^" + re.escape(problem)):
        allocation_candidates_query(_MALFORMED[problem])


def _group_of_resources_and_group_of_a_trait() -> RequestSpec:
    spec = _with_groups(
        RequestGroup("gpu", {"VGPU": 1}),
        RequestGroup("owner", {}, {"OWNER_NOVA"}),
    )
    spec.same_subtree.append(["gpu", "owner"])
    return spec


_OFFERED: dict[str, tuple[RequestSpec, tuple[str, ...]]] = {
    "any GPU": (
        spec_of({}, {"resources:VGPU": "1"}),
        ("gpu-cyborg-1", "gpu-nova-1"),
    ),
    "owner required in the group": (
        spec_of({}, {"resources1:VGPU": "1", "trait1:OWNER_NOVA": "required"}),
        ("gpu-nova-1",),
    ),
    "owner forbidden in the group": (
        _with_groups(
            RequestGroup("b", {"VGPU": 1}, forbidden_traits={"OWNER_NOVA"})
        ),
        ("gpu-cyborg-1",),
    ),
    "owner forbidden unsuffixed": (
        spec_of(
            {}, {"resources:VGPU": "1", "trait:OWNER_CYBORG": "forbidden"}
        ),
        ("gpu-nova-1",),
    ),
    "group without resources in a subtree": (
        _group_of_resources_and_group_of_a_trait(),
        ("gpu-cyborg-1", "gpu-nova-1"),
    ),
}


@pytest.mark.parametrize(("spec", "hosts"), _OFFERED.values(), ids=_OFFERED)
def test_real_placement_returns_the_expected_hosts_for_the_query(
    spec: RequestSpec, hosts: tuple[str, ...], placement: PlacementClient
) -> None:
    query = allocation_candidates_query(spec)
    assert placement.allocation_candidates(query).hosts == hosts


_ENCRYPTED: Properties = {
    "hw_mem_encryption": "true",
    "hw_firmware_type": "uefi",
}


@pytest.mark.parametrize(
    "spec",
    [
        spec_of({"os_secure_boot": "requird"}),
        spec_of({}, {"hw:tpm_version": "3"}),
        spec_of({"hw_tpm_version": "2.0", "hw_tpm_model": "odd"}),
        spec_of(_ENCRYPTED, {"hw:mem_encryption_model": "odd"}),
    ],
    ids=["Secure Boot", "TPM version", "TPM model", "encryption model"],
)
def test_value_that_nova_would_reject_is_rejected(spec: RequestSpec) -> None:
    with pytest.raises(UnknownValue):
        allocation_candidates_query(spec)


def test_encrypted_memory_is_requested_on_a_q35_machine() -> None:
    spec = spec_of({**_ENCRYPTED, "hw_machine_type": "pc-q35-9.1"})
    assert "MEM_ENCRYPTION_CONTEXT" in _query(spec)


@pytest.mark.parametrize(
    "machine", ["raspi3b", "pc-1.0", "pc-i440fx", "Q35", "", "virt"]
)
def test_encrypted_memory_is_impossible_without_q35_in_the_machine_type(
    machine: str,
) -> None:
    spec = spec_of({**_ENCRYPTED, "hw_machine_type": machine})
    named = "hw_mem_encryption=true.* hw_machine_type"
    with pytest.raises(ImpossibleCombination, match=named):
        allocation_candidates_query(spec)


def _with_a_port(group: str) -> RequestSpec:
    port = RequestGroup("port", {"NET_BW_EGR_KILOBIT_PER_SEC": 1})
    return spec_of(
        extra_specs={"resources1:VGPU": "1", group: "1"},
        requested_resources=[port],
    )


def test_ignored_flavor_group_still_counts_for_the_default_group_policy() -> (
    None
):
    spec = _with_a_port("resources2:NO_SUCH")
    assert query.query_of(spec).policy is None
    assert "group_policy" not in allocation_candidates_query(spec)


def test_flavor_group_with_a_line_break_in_its_class_is_none_for_nova() -> (
    None
):
    spec = _with_a_port("resources2:NO\nSUCH")
    assert query.query_of(spec).policy == "none"
    assert "group_policy=none" in allocation_candidates_query(spec)


def test_demand_of_a_request_is_the_one_that_its_query_writes() -> None:
    for seed in range(times(40)):
        random = Random(seed)  # noqa: S311
        flat = seed % 4 == 0
        fleet = random_fleet(random, 3, flat=flat)
        spec = request_of(random_demand(random, fleet, flat=flat))
        demand = demand_of(query.query_of(spec))
        written = allocation_candidates_query(spec, limit=None)
        assert _parts(query_of(demand)) == _parts(written), seed


def _parts(query: str) -> set[tuple[str, str, frozenset[str]]]:
    """Return the parameters with unordered lists, without the default policy."""
    parts = set()
    for name, value in parse_qsl(query):
        if value == "none":
            continue
        before, sign, names = value.rpartition("in:")
        parts.add((name, before + sign, frozenset(names.split(","))))
    return parts
