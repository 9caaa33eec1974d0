# SPDX-License-Identifier: Apache-2.0

"""The query string is what Nova would send, and what a real Placement
takes.
"""

from __future__ import annotations

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

_ID = "requested_resources: the requester_id:"
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


def _check_query(
    expected: str,
    extra_specs: ExtraSpecs | None = None,
    properties: Properties | None = None,
) -> None:
    """Check Nova's query, whatever the order of the extra specs."""
    written = extra_specs or {}
    backwards = dict(reversed(written.items()))
    assert _query(spec_of(properties, written)) == expected
    assert _query(spec_of(properties, backwards)) == expected


def test_flavor_requests_cpus_memory_and_disk() -> None:
    _check_query(_SMALL)


def test_traits_of_a_group_are_required_before_forbidden() -> None:
    group = {
        "resources_a:VGPU": "1",
        "trait_a:OWNER_NOVA": "forbidden",
        "trait_a:HW_GPU_API_VULKAN": "required",
    }
    traits = "required_a=HW_GPU_API_VULKAN,!OWNER_NOVA"
    _check_query(f"{traits}&{_SMALL}&resources_a=VGPU:1", group)


@pytest.mark.parametrize("policy", ["isolate", "none"])
def test_two_groups_have_the_policy_of_the_flavor(policy: str) -> None:
    resources = f"{_SMALL}&resources1=VGPU:1&resources2=VGPU:1"
    groups = {**_TWO_GROUPS, "group_policy": policy}
    _check_query(f"group_policy={policy}&{resources}", groups)


def test_trait_of_an_image_that_is_not_required_is_left_out() -> None:
    properties = {"trait:HW_CPU_X86_AVX2": "required", "trait:X": "other"}
    query = f"required=HW_CPU_X86_AVX2&{_SMALL}"
    _check_query(query, properties=dict(properties))


@pytest.mark.parametrize(
    ("resource", "others"),
    [("VCPU", _NO_CPU), ("VGPU", _SMALL)],
    ids=["CPUs", "device"],
)
def test_trait_named_in_a_group_is_required_there_alone(
    resource: str, others: str
) -> None:
    group = {f"resources1:{resource}": "1", f"trait1:{_STATELESS}": "required"}
    required = f"{_SOCKET}&required1={_STATELESS}"
    query = f"{required}&{others}&resources1={resource}:1"
    _check_query(query, group, _UEFI)


def test_amounts_are_those_that_int_reads() -> None:
    amounts = {
        "resources:VGPU": "+4",
        "resources:FPGA": "1_0",
        "resources:CUSTOM_A": "2147483647",
    }
    resources = "CUSTOM_A:2147483647,DISK_GB:1,FPGA:10,MEMORY_MB:512"
    _check_query(f"resources={resources},VCPU:1,VGPU:4", amounts)


def test_query_says_nothing_of_the_firmware() -> None:
    """As Nova's, for Secure Boot with a BIOS."""
    properties = {"os_secure_boot": "required", "hw_firmware_type": "bios"}
    required = "required=COMPUTE_SECURITY_UEFI_SECURE_BOOT"
    _check_query(f"{required}&{_SMALL}", properties=dict(properties))


def test_groups_are_in_novas_order() -> None:
    group = {"resources1:CUSTOM_A": "1", "resources1:CUSTOM_A2": "1"}
    _check_query(f"{_SMALL}&resources1=CUSTOM_A2:1,CUSTOM_A:1", group)


def test_extra_specs_that_nova_cannot_read_are_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    extra_specs: Any = {"resources:VGPU": "1.0", "trait:HW_X": "on", 5: "1"}
    assert _query(spec_of({}, extra_specs)) == _SMALL
    amount, trait = caplog.messages
    assert amount == (
        "The extra spec 'resources:VGPU'='1.0' is left out, as Nova does: it"
        " must name a resource class, and be a whole number of at least 0."
    )
    assert trait == (
        "The extra spec 'trait:HW_X'='on' is left out, as Nova does: it must"
        " name a trait, and be required or forbidden."
    )


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
    found = query.requirements_without_filters(Request(spec))
    assert [each.filter for each in found] == ["request"] * 3
    in_flavor, in_image, in_group = found
    flavor = "flavor extra spec trait1:B=forbidden"
    image = "image property trait:A=required"
    assert in_flavor[:4] == ("B", False, "1", flavor)
    assert in_flavor.properties == ("trait1:B=forbidden",)
    assert in_image[:4] == ("A", True, "unsuffixed", image)
    assert in_image.properties == ("trait:A=required",)
    assert in_group[:4] == ("C", True, "p", "request group p")
    assert in_group.properties == ()


def test_root_traits_are_sorted() -> None:
    spec = spec_of()
    spec.root_required.update(("OWNER_NOVA", "COMPUTE_NODE"))
    spec.root_forbidden.add("COMPUTE_STATUS_DISABLED")
    expected = "root_required=COMPUTE_NODE,OWNER_NOVA,!COMPUTE_STATUS_DISABLED"
    assert expected in _query(spec).split("&")


def test_aggregates_of_a_group_need_no_resources() -> None:
    required = RequestGroup("c", aggregates=[[_OTHER]])
    forbidden = RequestGroup("d", forbidden_aggregates=frozenset({_OTHER}))
    query = _query(_with_groups(required, forbidden))
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


def _check_malformed(spec: RequestSpec, problem: str) -> None:
    """Check that no malformed name, amount or UUID reaches the query."""
    with pytest.raises(MalformedRequest, match="^" + re.escape(problem)):
        allocation_candidates_query(spec)


def test_malformed_trait_of_an_image_is_refused() -> None:
    name = "trait:X,!COMPUTE_STATUS_DISABLED"
    spec = spec_of({name: "required"})
    _check_malformed(spec, f"image property: '{name}'")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("resources:CUSTOM_lower", "resources:CUSTOM_lower'"),
        ("resources:CUSTOM_" + "X" * 250, "resources:CUSTOM_X"),
        ("trait1:A\nB", r"trait1:A\nB'"),
    ],
    ids=["lower case", "long", "line break"],
)
def test_malformed_extra_spec_is_refused(name: str, shown: str) -> None:
    spec = spec_of({}, {name: "1" if "resources" in name else "required"})
    _check_malformed(spec, f"flavor extra spec: '{shown}")


def test_suffix_that_is_a_scope_is_refused() -> None:
    spec = spec_of({}, {"resourcesroot:VGPU": "1"})
    _check_malformed(spec, "flavor extra specs: the group suffix: 'root'")


@pytest.mark.parametrize(
    ("suffix", "problem"),
    [
        ("", "is not a unique suffix"),
        ("a" * 65, "is not a unique suffix"),
        ("root", "is not free"),
        ("unsuffixed", ""),
    ],
    ids=["empty", "long", "root", "unsuffixed"],
)
def test_requester_id_that_is_no_suffix_is_refused(
    suffix: str, problem: str
) -> None:
    spec = _with_groups(RequestGroup(suffix, {"VGPU": 1}))
    _check_malformed(spec, f"{_ID} '{suffix}' {problem}".rstrip())


def test_group_of_nothing_is_refused() -> None:
    spec = _with_groups(RequestGroup("empty"))
    _check_malformed(spec, "requested_resources: 'empty' is not a group")


def test_requester_id_of_a_group_of_the_flavor_is_refused() -> None:
    group = RequestGroup("a", {"VGPU": 1})
    spec = spec_of({}, {"resourcesa:VGPU": "1"}, requested_resources=[group])
    _check_malformed(spec, f"{_ID} 'a' is not a unique suffix")


def test_requester_id_of_two_groups_is_refused() -> None:
    group = RequestGroup("a", {"VGPU": 1})
    _check_malformed(_with_groups(group, group), f"{_ID} 'a' is not unique")


@pytest.mark.parametrize(
    ("name", "amount"),
    [("VGPU:1,X", 1), ("VGPU", -1), ("VGPU", True), ("VGPU", 2**31)],
)
def test_malformed_resource_of_a_group_is_refused(
    name: str, amount: int
) -> None:
    spec = _with_groups(RequestGroup("a", {name: amount}))
    _check_malformed(spec, f"requested_resources: '{name}:{amount}'")


def test_malformed_trait_of_a_group_is_refused() -> None:
    spec = _with_groups(RequestGroup("a", {"VGPU": 1}, {"X,!Y"}))
    _check_malformed(spec, "request group 'a': 'X,!Y'")


@pytest.mark.parametrize(
    ("destination", "problem"),
    [
        (Destination(None, {"a&b"}), "'a&b'"),
        (Destination([f"{_OTHER},a&c"]), "'a&c'"),
        (Destination(in_tree="x y"), "'x y' is not the UUID"),
    ],
    ids=["forbidden aggregate", "aggregate", "provider"],
)
def test_destination_without_a_uuid_is_refused(
    destination: Destination, problem: str
) -> None:
    spec = spec_of(requested_destination=destination)
    _check_malformed(spec, f"request spec: {problem}")


_AMOUNT = "2147483648 is not a whole number from 0 to 2147483647"


def test_flavor_with_too_many_cpus_is_refused() -> None:
    spec = RequestSpec(Flavor(vcpus=2**31))
    _check_malformed(spec, f"flavor field vcpus: {_AMOUNT}")


def test_flavor_with_too_large_disks_is_refused() -> None:
    spec = RequestSpec(Flavor(root_gb=2**31 - 1, ephemeral_gb=1))
    _check_malformed(spec, f"the flavor's disks together: {_AMOUNT}")


def test_extra_spec_with_too_large_an_amount_is_refused() -> None:
    spec = spec_of({}, {"resources:VGPU": "99999999999"})
    problem = "flavor extra spec 'resources:VGPU': '99999999999'"
    _check_malformed(spec, problem)


def _group_of_resources_and_group_of_a_trait() -> RequestSpec:
    spec = _with_groups(
        RequestGroup("gpu", {"VGPU": 1}),
        RequestGroup("owner", {}, {"OWNER_NOVA"}),
    )
    spec.same_subtree.append(["gpu", "owner"])
    return spec


_ALL_GPUS = ("gpu-cyborg-1", "gpu-nova-1")
_VGPU = {"resources:VGPU": "1"}
_OWNED = {"resources1:VGPU": "1", "trait1:OWNER_NOVA": "required"}
_OF_ANOTHER = RequestGroup("b", {"VGPU": 1}, forbidden_traits={"OWNER_NOVA"})


@pytest.mark.parametrize(
    ("spec", "hosts"),
    [
        (spec_of({}, _VGPU), _ALL_GPUS),
        (spec_of({}, _OWNED), ("gpu-nova-1",)),
        (_with_groups(_OF_ANOTHER), ("gpu-cyborg-1",)),
        (
            spec_of({}, {**_VGPU, "trait:OWNER_CYBORG": "forbidden"}),
            ("gpu-nova-1",),
        ),
        (_group_of_resources_and_group_of_a_trait(), _ALL_GPUS),
    ],
    ids=[
        "any GPU",
        "owner required in the group",
        "owner forbidden in the group",
        "owner forbidden unsuffixed",
        "group without resources in a subtree",
    ],
)
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
