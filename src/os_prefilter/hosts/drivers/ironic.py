# SPDX-License-Identifier: Apache-2.0

"""Capabilities of Ironic's bare-metal nodes.

Their traits, properties and BIOS settings decide.

A trait on the node is the truth about it: an operator put it there, and Nova
replaces the traits of the provider by those of the node. So it counts as "can"
for every row, and no reason here contradicts it. The exception are the traits
of configuration templates: where none of a template's variants fits the node,
a trait does not make it configurable.

Source: Nova 34 (``nova/virt/ironic/driver.py``, ``patcher.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from os_prefilter.common.quoting import quote
from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts.drivers.ironic_facts import IronicFacts
from os_prefilter.hosts.drivers.ironic_steps import fit
from os_prefilter.hosts.reporter import Reporter
from os_prefilter.vocabulary import BY_NAME, HYPERTHREADING, I686
from os_prefilter.vocabulary.config_templates import PREFIX
from os_prefilter.vocabulary.machine_types import guest_architecture


def refusal(
    facts: IronicFacts, row: str, value: str, architecture: str
) -> str:
    """Return why the node cannot do ``value`` of ``row``; empty if it can.

    ``architecture`` is i686, or empty for the node's own.
    """
    if row.startswith(PREFIX):
        return fit(facts, facts.templates.of(row, value)).reason
    known = BY_NAME[row].canonical(value)
    if known is None:
        return f"unknown value {quote(value)}"
    term = BY_NAME[row].values[known]
    if term.trait is None:
        return ""
    is_own = guest_architecture(architecture) in ("", facts.architecture)
    apart = I686.get(term.trait) if architecture else None
    if term.trait in facts.templates.found_traits:
        reason = _lack(facts, term.trait)
    elif (is_own and term.trait in facts.other_traits) or (
        apart in facts.other_traits
    ):
        reason = ""
    elif is_own:
        reason = _NEVER.get(row) or _ROWS[row](facts, known)
    else:
        reason = _NO_EMULATION
    if term.required:
        return reason
    if reason:
        return ""
    return f"the node has {term.trait}: its cores can run several threads"


def _lack(facts: IronicFacts, trait: Trait) -> str:
    """Return why a node lacks a trait of templates; empty if it has it.

    Each template that needs it must fit: a request with the trait may be
    configured either way.
    """
    for template in facts.templates:
        if trait not in template.traits:
            continue
        reason = fit(facts, template).reason
        if reason:
            return f"{template}: {reason}"
    return ""


def configured(facts: IronicFacts) -> dict[Trait, str]:
    """Return why the node lacks each trait of configuration templates."""
    return {
        trait: _lack(facts, trait)
        for trait in sorted(facts.templates.found_traits)
    }


def reported_by_nova(_facts: IronicFacts) -> frozenset[str]:
    """Return the traits of images, which Nova's driver reports.

    Nova takes all others from the node.
    """
    return frozenset(BY_NAME["image_type"].traits)


def unknown(facts: IronicFacts) -> dict[Trait, str]:
    """Return the traits of templates while Ironic has no BIOS settings.

    What was found before stays.
    """
    if facts.bios or facts.bios_interface == "no-bios":
        return {}
    return configured(facts)


def _architecture(facts: IronicFacts, value: str) -> str:
    if not facts.architecture:
        return (
            "the node names no processor that Nova knows: set cpu_arch in its"
            " properties"
        )
    # i686 requires the trait of x86_64, which a 32-bit machine must not have.
    if guest_architecture(value) == facts.architecture:
        return ""
    return f"the node is {facts.architecture}"


def _firmware_type(facts: IronicFacts, value: str) -> str:
    # Unknown is not "uefi": that is a default which each Ironic may set
    # otherwise ([deploy] default_boot_mode), and a wrong guess is an image
    # that does not boot.
    if not facts.boot_mode:
        return (
            "the node does not say how it boots: set boot_mode in the"
            " capabilities of its properties"
        )
    if value == facts.boot_mode:
        return ""
    return f"the node boots in mode {quote(facts.boot_mode)}"


def _secure_boot(facts: IronicFacts, _value: str) -> str:
    if not facts.secure_boot:
        return (
            "the node does not say that it has it: set secure_boot:true in the"
            " capabilities of its properties"
        )
    if facts.boot_mode not in ("", "uefi"):
        return (
            "it needs UEFI, and the node boots in mode"
            f" {quote(facts.boot_mode)}"
        )
    return ""


def _one_of(
    what: str, values: tuple[str, ...], _facts: IronicFacts, value: str
) -> str:
    if value in values:
        return ""
    return f"{what} {', '.join(values)}, not {value}"


_NO_EMULATION = "a bare-metal node emulates no architecture"
_DEVICES = """
vif_model video_model disk_bus cdrom_bus scsi_model viommu_model sound_model
usb_model usb_redirection input_bus pointer_model watchdog packed_virtqueue
"""
_TPM = ("tpm_version", "tpm_model", "tpm_secret_security")
_NEVER: Mapping[str, str] = {
    **dict.fromkeys(_DEVICES.split(), "a bare-metal node emulates no device"),
    **dict.fromkeys(
        _TPM,
        "a bare-metal node emulates no TPM, and Ironic manages none of a"
        " machine's own",
    ),
    **dict.fromkeys(
        ("machine_type", "default_machine"),
        "a bare-metal node has none of QEMU's machine types",
    ),
    **dict.fromkeys(
        ("ephemeral_encryption", "ephemeral_encryption_format"),
        "Ironic encrypts no disks",
    ),
    **dict.fromkeys(
        ("lacking_vif_model", "lacking_sound_model"),
        "Nova's Ironic driver reports no devices",
    ),
    "cpu_models": "a bare-metal node emulates no CPU",
    "emulation_architecture": _NO_EMULATION,
    # An x86 machine has one, but nothing sees to it that it is on.
    "time_hpet": (
        "neither Nova nor Ironic switches the HPET of a physical machine"
    ),
    "firmware_stateless": "the firmware of a physical machine keeps its state",
    "maxphysaddr_mode": "Nova's Ironic driver sets no address space",
    "device_profile": "Nova's Ironic driver attaches no accelerators",
    "cpu_thread_policy": (
        f"no configuration template is about {HYPERTHREADING}, and it is not"
        " set on the node"
    ),
}
_ROWS: Mapping[str, Callable[[IronicFacts, str], str]] = {
    "architecture": _architecture,
    "firmware_type": _firmware_type,
    "secure_boot": _secure_boot,
    # Nova calls the host ironic and what runs on it baremetal, so images are
    # made for either. Nova's own ImagePropertiesFilter, where it is enabled,
    # knows the second alone and still refuses the first.
    "hypervisor_type": partial(
        _one_of, "it runs images for", ("baremetal", "ironic")
    ),
    "vm_mode": partial(_one_of, "it runs images of mode", ("hvm",)),
    # What Nova's driver says. Ironic alone could boot an iso as well.
    "image_type": partial(
        _one_of,
        "Nova's Ironic driver runs images of type",
        ("ami", "qcow2", "raw"),
    ),
}

# What else a machine has (encryption of memory, PCI devices near a socket) its
# operator says, by traits on the node.
REPORTER = Reporter(
    IronicFacts,
    refusal,
    frozenset((*_NEVER, *_ROWS)),
    configured=configured,
    reported_by_nova=reported_by_nova,
    unknown=unknown,
)
"""The reporter ``ironic``."""
