# SPDX-License-Identifier: Apache-2.0

"""Fleet files: what is accepted, and where and why others are refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import os_traits
import pytest

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.trait_names import standard_traits
from os_prefilter.documents.strict_yaml import parse_yaml
from os_prefilter_tools.fleet.model import (
    Aggregate,
    Fleet,
    Inventory,
    aggregate_uuid,
    provider_uuid,
)
from os_prefilter_tools.fleet.reader import example_fleet, load_fleet

HOST = "hosts:\n  kvm-1:\n    "


def load(tmp_path: Path, text: str | bytes) -> Fleet:
    path = tmp_path / "fleet.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_fleet(path)


def test_fleet_file_fields_are_all_parsed(tmp_path: Path) -> None:
    fleet = load(
        tmp_path,
        """
x-common: &common [COMPUTE_NODE, CUSTOM_COMMON]
hosts:
  kvm-1:
    description: "QEMU 8.2, libvirt 10.4"
    resources: {VCPU: 32, MEMORY_MB: {total: 131072, reserved: 512, allocation_ratio: 1.5}, CUSTOM_FPGA: 1}
    traits: [*common, HW_CPU_HYPERTHREADING]
    aggregates: [rack-1, 9D6B2A0E-7A0F-4C11-8A0C-0F6B5B1F3C55, rack-1]
    providers:
      gpu:
        resources: {VGPU: 4}
        traits: [OWNER_NOVA, CUSTOM_GPU]
        providers: {deep: {}}
  kvm-2: {}
""",
    )
    host, empty = fleet.hosts
    assert host.name == "kvm-1"
    assert host.uuid == provider_uuid("kvm-1")
    assert host.description == "QEMU 8.2, libvirt 10.4"
    assert host.resources == {
        "VCPU": Inventory(32),
        "MEMORY_MB": Inventory(131072, reserved=512, allocation_ratio=1.5),
        "CUSTOM_FPGA": Inventory(1),
    }
    assert host.traits == {
        "COMPUTE_NODE",
        "CUSTOM_COMMON",
        "HW_CPU_HYPERTHREADING",
    }
    assert host.aggregates == (
        aggregate_uuid("rack-1"),
        "9d6b2a0e-7a0f-4c11-8a0c-0f6b5b1f3c55",
    )
    assert [provider.name for provider in fleet.walk()] == [
        "kvm-1",
        "gpu",
        "deep",
        "kvm-2",
    ]
    assert fleet.custom_traits == {"CUSTOM_COMMON", "CUSTOM_GPU"}
    assert fleet.traits == fleet.custom_traits | {
        "COMPUTE_NODE",
        "HW_CPU_HYPERTHREADING",
        "OWNER_NOVA",
    }
    assert fleet.resource_classes == {
        "VCPU",
        "MEMORY_MB",
        "CUSTOM_FPGA",
        "VGPU",
    }
    assert not empty.resources


def test_a_host_may_merge_another_mapping(tmp_path: Path) -> None:
    """``<<: *anchor`` works, and a key of the host's own overrides a merged
    one without being a duplicate.
    """
    text = """
x-a: &a {resources: {VCPU: 1}, traits: [COMPUTE_NODE]}
hosts:
  a: {<<: *a}
  b: {<<: *a, traits: []}
"""
    a, b = load(tmp_path, text).hosts
    assert a.resources == {"VCPU": Inventory(1)}
    assert b.resources == {"VCPU": Inventory(1)}
    assert a.traits == {"COMPUTE_NODE"}
    assert b.traits == frozenset()


def test_fleet_file_usage_aggregates_and_snapshot_fields_are_parsed(
    tmp_path: Path,
) -> None:
    """Also a provider's own UUID, when the fleet was read, and an aggregate
    that is only named where it is used.
    """
    fleet = load(
        tmp_path,
        """
taken_at: "2026-11-21T18:00:00+00:00"
changed_while_read: 2
aggregates:
  rack-1: {availability_zone: north, uuid: 9D6B2A0E-7A0F-4C11-8A0C-0F6B5B1F3C55}
  9d6b2a0e-7a0f-4c11-8a0c-0f6b5b1f3c56: {}
  empty: {metadata: {filter_tenant_id: p1, "trait:CUSTOM_A": required}}
hosts:
  kvm-1:
    uuid: 0C6E1D4E-3B1A-4B0F-9B57-0D3C0B8F6E10
    resources: {VCPU: {total: 32, used: 8}}
    aggregates: [rack-1, rack-2, 9d6b2a0e-7a0f-4c11-8a0c-0f6b5b1f3c56, 9d6b2a0e-7a0f-4c11-8a0c-0f6b5b1f3c57]
""",
    )
    (host,) = fleet.hosts
    assert host.uuid == "0c6e1d4e-3b1a-4b0f-9b57-0d3c0b8f6e10"
    assert host.resources == {"VCPU": Inventory(32, used=8)}
    start = "9d6b2a0e-7a0f-4c11-8a0c-0f6b5b1f3c5"
    assert host.aggregates == (
        f"{start}5",
        aggregate_uuid("rack-2"),
        f"{start}6",
        f"{start}7",
    )
    assert fleet.taken_at == "2026-11-21T18:00:00+00:00"
    assert fleet.changed_while_read == 2
    aggregates = [
        Aggregate(f"{start}5", "rack-1", "north"),
        Aggregate(f"{start}6", f"{start}6"),
        Aggregate(
            aggregate_uuid("empty"),
            "empty",
            "",
            {"filter_tenant_id": "p1", "trait:CUSTOM_A": "required"},
        ),
        Aggregate(aggregate_uuid("rack-2"), "rack-2"),
    ]
    assert fleet.aggregates == {each.uuid: each for each in aggregates}


def test_json_fleet_file_equals_the_same_file_in_yaml(tmp_path: Path) -> None:
    """A file that begins with a brace is JSON, with or without a byte order
    mark.
    """
    text = """{"hosts": {"a": {"resources": {"VCPU": {"total": 2, "used": 1}}, "traits": ["COMPUTE_NODE"]}}}"""
    fleet = load(tmp_path, text)
    assert fleet == load(tmp_path, b"\xef\xbb\xbf" + text.encode())
    assert fleet == load(tmp_path, "# YAML\n" + text)
    assert fleet.hosts[0].resources == {"VCPU": Inventory(2, used=1)}


@pytest.mark.parametrize(
    "amounts",
    [
        "reserved: 3",
        "min_unit: 3, max_unit: 2",
        "allocation_ratio: 0.0",
        "allocation_ratio: 0",
    ],
)
def test_snapshot_accepts_inventory_amounts_that_a_handwritten_fleet_may_not_have(
    tmp_path: Path, amounts: str
) -> None:
    """Written by hand, they are a mistake."""
    text = f"hosts: {{a: {{resources: {{VCPU: {{total: 2, {amounts}}}}}}}}}"
    snapshot = f"taken_at: '2026-11-21T18:00:00Z'\n{text}"
    (host,) = load(tmp_path, snapshot).hosts
    assert host.resources["VCPU"].total == 2
    with pytest.raises(DocumentError, match="found"):
        load(tmp_path, text)


def test_instance_hosts_exclude_providers_that_only_share_resources(
    tmp_path: Path,
) -> None:
    """A host that shares its disk as well is one; so is one of which only
    traits are known.
    """
    shares = "traits: [MISC_SHARES_VIA_AGGREGATE"
    fleet = load(
        tmp_path,
        f"""
hosts:
  plain: {{}}
  nfs: {{{shares}], resources: {{DISK_GB: 100}}}}
  both: {{{shares}], resources: {{DISK_GB: 100, MEMORY_MB: 100}}}}
  numa: {{{shares}], resources: {{DISK_GB: 100}}, providers: {{numa_0: {{resources: {{PCPU: 8}}}}}}}}
  node: {{{shares}, COMPUTE_NODE]}}
""",
    )
    assert [host.name for host in fleet.instance_hosts] == [
        "plain",
        "both",
        "numa",
        "node",
    ]


def test_the_uuid_of_a_name_never_changes() -> None:
    """A fleet loaded by another version addresses the same providers."""
    assert provider_uuid("kvm-1") == "a7cb8c74-f8c7-5598-8169-2460845c17af"
    assert provider_uuid("rack-1") != aggregate_uuid("rack-1")


BAD: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "empty": ("", ("the file is empty", "expected hosts", "snapshot")),
    "empty hosts": ("hosts: {}", ("hosts", "at least one host")),
    "unknown top key": ("hosts: {a: {}}\nextra: 1", ("'extra'", "x-")),
    "not UTF-8": (b"hosts: \xff", ("byte 7", "UTF-8")),
    "two documents": (
        "hosts: {a: {}}\n---\nhosts: {b: {}}",
        ("broken YAML", ":2: "),
    ),
    "duplicate key": ("hosts:\n  a: {}\n  a: {}\n", (":3: ", "'a'", "twice")),
    "tag": ("hosts: !!python/object:os.system {}", (":1: ", "tags")),
    "deep line by line": (
        "hosts:" + "\n [" * 5_000,
        (":41: ", "nested deeper"),
    ),
    "endless number": (
        HOST + "resources: {VCPU: " + "9" * 5000 + "}",
        ("thousands of digits",),
    ),
    "host name a number": (
        "hosts: {1: {}}",
        (":1: ", "a key must be text", "quotes"),
    ),
    "host name long": (f"hosts: {{{'n' * 201}: {{}}}}", ("hosts", "1 to 200")),
    "traits many": (
        f"x-a: &a [{'COMPUTE_NODE, ' * 900}]\n{HOST}traits: [*a, *a]",
        ("1800 entries", "1000"),
    ),
    "provider twice": (
        "x-p: &p {gpu: {}}\nhosts: {a: {providers: *p}, b: {providers: *p}}",
        ("hosts.b", "hosts.a"),
    ),
    "recursive": (
        "hosts: &h\n  a: {providers: *h}",
        (":2: ", "an anchored value must not contain aliases"),
    ),
    "metadata": (
        "aggregates: {a: {metadata: {x: 1}}}\nhosts: {a: {}}",
        ("aggregates.a.metadata.x", "1", "text"),
    ),
    "aggregate zone": (
        "aggregates: {a: {availability_zone: 3}}\nhosts: {a: {}}",
        ("availability_zone", "255"),
    ),
    "aggregates of one UUID": (
        f"aggregates: {{a: {{uuid: {provider_uuid('x')}}}, b: {{uuid:"
        f" {provider_uuid('x')}}}}}\nhosts: {{a: {{}}}}",
        ("aggregates.b", "a UUID that aggregates.a has too"),
    ),
    "UUID of another": (
        f"hosts: {{a: {{}}, b: {{uuid: {provider_uuid('a')}}}}}",
        ("hosts.b", "a UUID that hosts.a has too"),
    ),
    "description surrogate": (
        'hosts: {"a": {description: "\\ud800"}}',
        ("broken YAML",),
    ),
    "JSON surrogate": (
        '{"hosts": {"a": {"description": "\\ud800"}}}',
        ("hosts.a.description", "text"),
    ),
    "nested deep": (
        "hosts: "
        + "{p%d: {providers: " * 12 % tuple(range(12))
        + "{}"
        + "}}" * 12,
        ("10 levels",),
    ),
}


@pytest.mark.parametrize(("text", "parts"), BAD.values(), ids=BAD)
def test_invalid_fleet_file_is_refused_with_location_and_reason(
    tmp_path: Path, text: str | bytes, parts: tuple[str, ...]
) -> None:
    check_refusal(tmp_path, text, parts)


BAD_FIELDS = {
    "unknown field": (
        "trait: []",
        ("hosts.kvm-1", "'trait'", "traits"),
    ),
    "resources list": (
        "resources: [VCPU]",
        ("hosts.kvm-1.resources", "a list", "a mapping"),
    ),
    "total zero": (
        "resources: {VCPU: 0}",
        ("resources.VCPU", "0", "integer from 1"),
    ),
    "no total": (
        "resources: {VCPU: {reserved: 1}}",
        ("resources.VCPU", "'total'"),
    ),
    "reserved above": (
        "resources: {VCPU: {total: 1, reserved: 2}}",
        ("VCPU", "reserved 2", "total"),
    ),
    "min above max": (
        "resources: {VCPU: {total: 9, min_unit: 3, max_unit: 2}}",
        ("min_unit 3", "max_unit"),
    ),
    "ratio .nan": (
        "resources: {VCPU: {total: 1, allocation_ratio: .nan}}",
        (".nan", "decimal number"),
    ),
    "ratio .inf": (
        "resources: {VCPU: {total: 1, allocation_ratio: .inf}}",
        (".inf", "decimal number"),
    ),
    "class unknown": (
        "resources: {VCPUS: 1}",
        ("'VCPUS'", "resource class", "CUSTOM_"),
    ),
    "trait malformed": (
        "traits: [COMPUTE_NODE, hw-x]",
        ("hosts.kvm-1.traits[1]", "'hw-x'", "A-Z"),
    ),
    "trait unknown": (
        "traits: [HW_NO_TRAIT]",
        ("hosts.kvm-1.traits[0]", "'HW_NO_TRAIT'", "os-traits"),
    ),
    "name of own host": (
        "providers: {kvm-1: {}}",
        ("hosts.kvm-1.providers.kvm-1", "unique"),
    ),
}


@pytest.mark.parametrize(
    ("field", "parts"), BAD_FIELDS.values(), ids=BAD_FIELDS
)
def test_invalid_field_of_a_host_is_refused_with_location_and_reason(
    tmp_path: Path, field: str, parts: tuple[str, ...]
) -> None:
    check_refusal(tmp_path, HOST + field, parts)


@pytest.mark.parametrize(
    "value", ["010", "0x10", "1_000", "1:30", "no", "Yes"]
)
def test_value_that_versions_of_yaml_read_differently_is_refused(
    tmp_path: Path, value: str
) -> None:
    parts = (":3: ", f"disagree on '{value}'", "decimal number")
    check_refusal(tmp_path, f"{HOST}resources: {{VCPU: {value}}}", parts)


def check_refusal(
    tmp_path: Path, text: str | bytes, parts: tuple[str, ...]
) -> None:
    """Check that the message names the file, has each part and is short."""
    with pytest.raises(DocumentError) as raised:
        load(tmp_path, text)
    message = str(raised.value)
    assert message.startswith(f"{tmp_path / 'fleet.yaml'}:")
    for part in parts:
        assert part in message
    assert message.isprintable()
    assert len(message) < 600


def parse_below(frames: int, text: str) -> object:
    """Parse YAML with this many frames on the stack."""
    if frames:
        return parse_below(frames - 1, text)
    return parse_yaml(text.encode(), "deep.yaml")


FRAMES = pytest.mark.parametrize(
    "frames",
    [0, 500, sys.getrecursionlimit() - 200],
    ids=["none", "some", "nearly all"],
)


@FRAMES
def test_nesting_up_to_the_limit_is_read_however_deep_the_stack_is(
    frames: int,
) -> None:
    assert parse_below(frames, "[" * 40 + "]" * 40)


@FRAMES
@pytest.mark.parametrize("sign", ["[", "{a: ", "- ", "? "])
def test_nesting_above_the_limit_is_refused_however_deep_the_stack_is(
    sign: str, frames: int
) -> None:
    """Our limit comes before PyYAML's own, and that of Python's stack."""
    problem = "^deep.yaml:1: broken YAML: nested deeper than 40"
    with pytest.raises(DocumentError, match=problem):
        parse_below(frames, sign * 2_000)


def test_example_fleet_has_the_documented_hosts_and_traits() -> None:
    fleet = example_fleet()
    assert len(fleet.hosts) == 11
    assert fleet.traits - fleet.custom_traits <= standard_traits()

    def having(trait: str) -> set[str]:
        return {host.name for host in fleet.hosts if trait in host.traits}

    assert having("COMPUTE_STATUS_DISABLED") == {"kvm-old-3"}
    assert having("COMPUTE_NET_VIF_MODEL_IGB") == {
        "kvm-new-1",
        "kvm-new-2",
        "arm-1",
        "gpu-nova-1",
        "gpu-cyborg-1",
    }
    assert having("CUSTOM_HYPERVISOR_TYPE_IRONIC") == {"metal-ht-1", "metal-1"}
    assert len(having("OWNER_NOVA")) == 11
    assert having("CUSTOM_COMPUTE_TIME_HPET").isdisjoint(
        {"arm-1", "vmware-1", "metal-1", "metal-ht-1"}
    )


def test_yaml_above_4_mib_is_refused_and_json_is_read(tmp_path: Path) -> None:
    host = {"traits": list(os_traits.get_traits())}
    hosts = {f"kvm-{number}": host for number in range(500)}
    text = json.dumps({"hosts": hosts})
    problem = "the YAML is larger than 4 MiB, .* a fleet can be given as JSON"
    with pytest.raises(DocumentError, match=problem):
        load(tmp_path, f"# a comment\n{text}")
    assert len(load(tmp_path, text).hosts) == 500
