# SPDX-License-Identifier: Apache-2.0

"""ironic: a node can do what its traits, properties and BIOS settings say, and
it emulates nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from nova.virt.ironic import driver as ironic_driver

from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts.drivers.ironic import REPORTER, configured, refusal
from os_prefilter.hosts.drivers.ironic_facts import BiosSetting, IronicFacts
from os_prefilter.hosts.drivers.ironic_steps import fit
from os_prefilter.vocabulary import BY_NAME, HYPERTHREADING, I686, ROWS
from os_prefilter.vocabulary.config_templates import (
    BUNDLED,
    Template,
    Templates,
    Variant,
)
from tests.support.hosts import declared_by_nova
from tests.support.tables import cases

_OWNED = [
    (row, value)
    for row in ROWS
    if row.name in REPORTER.owns
    for value in row.values
]
_X86 = IronicFacts(architecture="x86_64")
_NODES = {
    "x86_64": _X86,
    "i686": IronicFacts(architecture="i686"),
    "silent": IronicFacts(),
    "uefi": IronicFacts(boot_mode="uefi"),
    "line break": IronicFacts(boot_mode="x\ny"),
    "secure": IronicFacts(secure_boot=True),
    "secure uefi": IronicFacts(secure_boot=True, boot_mode="uefi"),
    "secure bios": IronicFacts(secure_boot=True, boot_mode="bios"),
}


def _can(row: str) -> set[str]:
    return {
        value
        for value in BY_NAME[row].values
        if not refusal(_X86, row, value, "")
    }


_REASONS = cases(r"""
x86_64      | architecture    | x86_64      |
x86_64      | architecture    | aarch64     | the node is x86_64
i686        | architecture    | x86_64      | the node is i686
silent      | architecture    | x86_64      | set cpu_arch in its properties
x86_64      | vif_model       | virtio      | a bare-metal node emulates no device
x86_64      | time_hpet       | true        | neither Nova nor Ironic switches the HPET
x86_64      | emulation_architecture | x86_64 | emulates no architecture
x86_64      | tpm_version     | 2.0         | emulates no TPM
x86_64      | hypervisor_type | kvm         | it runs images for baremetal, ironic, not kvm
x86_64      | image_type      | iso         | Nova's Ironic driver runs images of type ami, qcow2, raw, not iso
uefi        | firmware_type   | uefi        |
uefi        | firmware_type   | bios        | the node boots in mode 'uefi'
line break  | firmware_type   | bios        | the node boots in mode 'x\ny'
x86_64      | firmware_type   | uefi        | set boot_mode in the capabilities
secure uefi | secure_boot     | required    |
secure      | secure_boot     | required    |
secure bios | secure_boot     | required    | it needs UEFI
uefi        | secure_boot     | required    | set secure_boot:true
""")


@pytest.mark.parametrize(("node", "row", "value", "reason"), _REASONS)
def test_each_value_is_accepted_or_refused_with_the_expected_reason(
    node: str, row: str, value: str, reason: str
) -> None:
    found = refusal(_NODES[node], row, value, "")
    assert reason in found
    assert bool(found) == bool(reason)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("pc-q35-9.1\n", "none of QEMU's machine types"),
        ("no\nsuch", r"unknown value 'no\nsuch'"),
    ],
)
def test_machine_type_with_a_line_break_is_refused(
    value: str, reason: str
) -> None:
    assert reason in refusal(_X86, "machine_type", value, "")


def _with_setting(name: str, setting: BiosSetting) -> IronicFacts:
    return IronicFacts(bios={name: setting})


_FIXED = BiosSetting(changeable=False)
_OTHER_VALUES = BiosSetting("On", allowed=("On", "Off"))
_THREADS = _with_setting("LogicalProc", BiosSetting("Enabled"))
_THREADED_NODES = {
    "switch": _THREADS,
    "switch and interface": replace(_THREADS, bios_interface="redfish"),
    "no settings": IronicFacts(),
    "other setting": _with_setting("NumLock", BiosSetting()),
    "no interface": replace(_THREADS, bios_interface="no-bios"),
    "other values": _with_setting("LogicalProc", _OTHER_VALUES),
    "fixed": _with_setting("LogicalProc", _FIXED),
    "fixed, with a line break": _with_setting("HyperThreading_\n", _FIXED),
}
_THREADS_REASONS = cases(r"""
switch                   |
switch and interface     |
no settings              | Ironic has no BIOS settings of it
other setting            | none of its BIOS settings is one of the template
no interface             | its bios_interface is no-bios
other values             | takes 'Off', 'On', not VALUE
fixed                    | 'LogicalProc' cannot be changed
fixed, with a line break | 'HyperThreading_\n' cannot be changed
""")


@pytest.mark.parametrize("template", BUNDLED, ids=str)
@pytest.mark.parametrize(("node", "reason"), _THREADS_REASONS)
@pytest.mark.parametrize("traits", [set(), {HYPERTHREADING}])
def test_hyperthreading_is_configured_by_a_bios_setting_and_not_by_a_trait(
    node: str, reason: str, traits: set[str], template: Any
) -> None:
    facts = replace(_THREADED_NODES[node], other_traits=frozenset(traits))
    found = fit(facts, template).reason
    assert reason.replace("VALUE", template.value.title()) in found
    assert bool(found) == bool(reason)


@pytest.mark.parametrize(
    ("facts", "refused"),
    [
        (_THREADS, "isolate"),
        (IronicFacts(), "require"),
        (IronicFacts(other_traits=frozenset((HYPERTHREADING,))), "require"),
    ],
    ids=["switch", "no settings", "trait alone"],
)
@pytest.mark.parametrize("policy", ["require", "isolate", "prefer"])
def test_thread_policies_follow_the_hyperthreading_setting(
    facts: IronicFacts, refused: str, policy: str
) -> None:
    found = refusal(facts, "cpu_thread_policy", policy, "")
    assert bool(found) == (policy == refused)


_BY_TRAIT = [
    (row, value)
    for row, value in _OWNED
    if row.values[value].required and row.name != "cpu_thread_policy"
]


def _node_with(trait: str) -> IronicFacts:
    return replace(_X86, other_traits=frozenset((trait,)))


@pytest.mark.parametrize("architecture", ["", "i686"])
def test_trait_set_by_an_operator_on_the_node_makes_its_value_supported(
    architecture: str,
) -> None:
    for row, value in _BY_TRAIT:
        facts = _node_with(str(row.values[value].trait))
        assert refusal(facts, row.name, value, architecture) == ""


def test_trait_for_i686_on_the_node_makes_its_value_supported_there() -> None:
    for row, value in _BY_TRAIT:
        trait = I686.get(row.values[value].trait or HYPERTHREADING)
        if trait:
            assert refusal(_node_with(trait), row.name, value, "i686") == ""
            assert refusal(_node_with(trait), row.name, value, "")


def test_node_of_another_architecture_has_no_guests_of_i686() -> None:
    reason = "a bare-metal node emulates no architecture"
    facts = replace(_X86, architecture="aarch64")
    assert refusal(facts, "firmware_type", "uefi", "i686") == reason


def test_capabilities_are_those_that_nova_declares() -> None:
    declared = declared_by_nova(ironic_driver.IronicDriver)
    ours, novas = {}, {}
    for row, value in _OWNED:
        trait = row.values[value].trait
        # Nova's driver knows nothing of a node's firmware; its operator does.
        if trait in declared and row.name != "secure_boot":
            ours[row.name, value] = not refusal(_X86, row.name, value, "")
            novas[row.name, value] = declared[trait]
    assert ours == novas


def test_image_types_are_those_that_nova_declares() -> None:
    assert _can("image_type") == {"ami", "qcow2", "raw"}


def test_architecture_hypervisor_type_and_vm_mode_match_the_ironic_driver_of_nova() -> (
    None
):
    instances = ironic_driver._get_nodes_supported_instances("x86_64")
    ((architecture, hypervisor_type, vm_mode),) = instances
    theirs = ironic_driver.IronicDriver._get_hypervisor_type(None)
    assert architecture in _can("architecture")
    assert _can("hypervisor_type") == {hypervisor_type, theirs}
    assert _can("vm_mode") == {vm_mode}


_HARDWARE = {
    "mem_encryption",
    "mem_encryption_model",
    "pci_numa_affinity_policy",
}
_RESOURCES = {"cpu_policy", "emulator_threads_policy"}


def test_reporter_owns_all_rows_but_those_of_hardware_and_resources() -> None:
    """A new row must be put on one side or the other."""
    left = {row.name for row in ROWS} - REPORTER.owns
    assert left == _HARDWARE | _RESOURCES, (
        "answer for the row, or add it above: docs/CONTRIBUTING.rst, 'Add a row'"
    )


def test_template_of_another_trait_does_not_decide() -> None:
    templates = Templates(
        Template(
            vendor,
            "on",
            (Trait(f"CUSTOM_{vendor}"),),
            (Variant(node={"vendor": vendor}),),
        )
        for vendor in ("DELL", "HPE")
    )
    found = configured(IronicFacts(vendor="HPE", templates=templates))
    assert found[Trait("CUSTOM_HPE")] == ""
    assert found[Trait("CUSTOM_DELL")].startswith("deploy-config:DELL=on: ")
