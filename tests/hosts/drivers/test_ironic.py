# SPDX-License-Identifier: Apache-2.0

"""ironic: a node can do what its traits, properties and BIOS settings say, and
it emulates nothing.
"""

from dataclasses import replace
from typing import Any

import pytest
from nova.virt.ironic import driver as ironic_driver

from os_prefilter.hosts.drivers.ironic import REPORTER, refusal
from os_prefilter.hosts.drivers.ironic_facts import BiosSetting, IronicFacts
from os_prefilter.hosts.drivers.ironic_steps import fit
from os_prefilter.vocabulary import BY_NAME, HYPERTHREADING, QUALIFIED, ROWS
from os_prefilter.vocabulary.config_templates import BUNDLED
from tests.support.hosts import declared_by_nova

_OWNED = [
    (row, value)
    for row in ROWS
    if row.name in REPORTER.owns
    for value in row.values
]
_ARCHITECTURES = ("", "i686", "x86_64", "aarch64", "sparc", "no such")
_X86 = IronicFacts(architecture="x86_64")
_SWITCH = {"LogicalProc": BiosSetting("Enabled")}
_UEFI = IronicFacts(boot_mode="uefi")


def _threads(**fields: Any) -> IronicFacts:
    return IronicFacts(**{"bios": _SWITCH, **fields})


def _can(row: str, facts: IronicFacts = _X86) -> set[str]:
    return {
        value
        for value in BY_NAME[row].values
        if not refusal(facts, row, value, "")
    }


@pytest.mark.parametrize(
    ("facts", "row", "value", "reason"),
    [
        (_X86, "architecture", "x86_64", ""),
        (_X86, "architecture", "aarch64", "the node is x86_64"),
        (
            IronicFacts(architecture="i686"),
            "architecture",
            "x86_64",
            "the node is i686",
        ),
        (
            IronicFacts(),
            "architecture",
            "x86_64",
            "set cpu_arch in its properties",
        ),
        (_X86, "vif_model", "virtio", "a bare-metal node emulates no device"),
        (_X86, "machine_type", "pc-q35-9.1\n", "none of QEMU's machine types"),
        (_X86, "machine_type", "no\nsuch", r"unknown value 'no\nsuch'"),
        (
            _X86,
            "time_hpet",
            "true",
            "neither Nova nor Ironic switches the HPET",
        ),
        (_X86, "emulation_architecture", "x86_64", "emulates no architecture"),
        (_X86, "tpm_version", "2.0", "emulates no TPM"),
        (
            _X86,
            "hypervisor_type",
            "kvm",
            "it runs images for baremetal, ironic, not kvm",
        ),
        (
            _X86,
            "image_type",
            "iso",
            (
                "Nova's Ironic driver runs images of type ami, qcow2, raw,"
                " not iso"
            ),
        ),
        (_UEFI, "firmware_type", "uefi", ""),
        (_UEFI, "firmware_type", "bios", "the node boots in mode 'uefi'"),
        (
            IronicFacts(boot_mode="x\ny"),
            "firmware_type",
            "bios",
            r"the node boots in mode 'x\ny'",
        ),
        (_X86, "firmware_type", "uefi", "set boot_mode in the capabilities"),
        (
            IronicFacts(secure_boot=True, boot_mode="uefi"),
            "secure_boot",
            "required",
            "",
        ),
        (IronicFacts(secure_boot=True), "secure_boot", "required", ""),
        (
            IronicFacts(secure_boot=True, boot_mode="bios"),
            "secure_boot",
            "required",
            "it needs UEFI",
        ),
        (_UEFI, "secure_boot", "required", "set secure_boot:true"),
    ],
)
def test_each_value_is_accepted_or_refused_with_the_expected_reason(
    facts: IronicFacts, row: str, value: str, reason: str
) -> None:
    found = refusal(facts, row, value, "")
    assert reason in found if reason else not found


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (_threads(), ""),
        (_threads(bios_interface="redfish"), ""),
        (IronicFacts(), "Ironic has no BIOS settings of it"),
        (
            _threads(bios={"NumLock": BiosSetting()}),
            "none of its BIOS settings is one of the template",
        ),
        (_threads(bios_interface="no-bios"), "its bios_interface is no-bios"),
        (
            _threads(
                bios={"LogicalProc": BiosSetting("On", allowed=("On", "Off"))}
            ),
            "takes 'Off', 'On', not Enabled",
        ),
        (
            _threads(bios={"LogicalProc": BiosSetting(changeable=False)}),
            "'LogicalProc' cannot be changed",
        ),
        (
            _threads(
                bios={"HyperThreading_\n": BiosSetting(changeable=False)}
            ),
            r"'HyperThreading_\n' cannot be changed",
        ),
    ],
)
@pytest.mark.parametrize(
    "trait_on_node", [frozenset(), frozenset((HYPERTHREADING,))]
)
def test_hyperthreading_is_configured_by_a_bios_setting_and_not_by_a_trait(
    facts: IronicFacts, reason: str, trait_on_node: frozenset[str]
) -> None:
    facts = replace(facts, other_traits=trait_on_node)
    for template in BUNDLED:
        found = fit(facts, template).reason
        assert (
            reason.replace("Enabled", template.value.title()) in found
            if reason
            else not found
        )


@pytest.mark.parametrize(
    "facts",
    [
        _threads(),
        IronicFacts(),
        IronicFacts(other_traits=frozenset((HYPERTHREADING,))),
    ],
)
def test_thread_policies_require_and_isolate_follow_the_hyperthreading_setting(
    facts: IronicFacts,
) -> None:
    switchable = not any(fit(facts, template).reason for template in BUNDLED)
    assert (
        not refusal(facts, "cpu_thread_policy", "require", "")
    ) == switchable
    assert (not refusal(facts, "cpu_thread_policy", "isolate", "")) == (
        not switchable
    )
    assert refusal(facts, "cpu_thread_policy", "prefer", "") == ""


def test_trait_set_by_an_operator_on_the_node_makes_its_value_supported() -> (
    None
):
    for row, value in _OWNED:
        trait = row.values[value].trait
        if not row.values[value].required or row.name == "cpu_thread_policy":
            continue
        facts = IronicFacts(
            architecture="x86_64", other_traits=frozenset((str(trait),))
        )
        assert refusal(facts, row.name, value, "") == ""
        assert refusal(facts, row.name, value, "x86_64") == ""
        # It says nothing of guests of another architecture.
        if row.per_architecture and trait:
            assert (
                refusal(facts, row.name, value, "s390x")
                == "a bare-metal node emulates no architecture"
            )
            qualified = QUALIFIED.get((trait, "s390x"))
            if qualified:
                facts = IronicFacts(
                    architecture="x86_64", other_traits=frozenset((qualified,))
                )
                assert refusal(facts, row.name, value, "s390x") == ""


def test_image_types_and_other_capabilities_are_those_that_nova_declares() -> (
    None
):
    declared = declared_by_nova(ironic_driver.IronicDriver)
    compared = {
        (row.name, value): declared[term.trait]
        for row, value in _OWNED
        # Nova's driver knows nothing of a node's firmware; its operator does.
        if (term := row.values[value]).trait in declared
        and row.name != "secure_boot"
    }
    assert {key: not refusal(_X86, *key, "") for key in compared} == compared
    assert _can("image_type") == {"ami", "qcow2", "raw"}


def test_architecture_hypervisor_type_and_vm_mode_match_the_ironic_driver_of_nova() -> (
    None
):
    ((architecture, hypervisor_type, vm_mode),) = (
        ironic_driver._get_nodes_supported_instances("x86_64")
    )
    assert architecture in _can("architecture")
    assert _can("hypervisor_type") == {
        hypervisor_type,
        ironic_driver.IronicDriver._get_hypervisor_type(None),
    }
    assert _can("vm_mode") == {vm_mode}


def test_reporter_owns_all_rows_but_those_of_hardware_and_resources() -> None:
    """A new row must be put on one side or the other."""
    hardware = {
        "mem_encryption",
        "mem_encryption_model",
        "pci_numa_affinity_policy",
    }
    resources = {"cpu_policy", "emulator_threads_policy"}
    left = {row.name for row in ROWS} - REPORTER.owns
    assert left == hardware | resources, (
        "answer for the row, or add it above: docs/contribute.rst, 'Add a row'"
    )
