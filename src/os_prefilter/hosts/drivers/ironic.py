"""What bare-metal nodes of Ironic can do: by their traits, their properties and their BIOS settings.

A trait on the node is the truth about it: an operator put it there, and Nova replaces the traits of the provider by
those of the node. So it counts as "can" for every row, and no answer here contradicts it. The exception are the traits
of configuration templates: where none of a template's variants fits the node, a trait does not make it configurable.

Source: Nova 34 (``nova/virt/ironic/driver.py``, ``patcher.py``).
"""

from collections.abc import Callable, Mapping
from functools import partial

from os_prefilter.common.quoting import quote
from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts.drivers.ironic_facts import BiosSetting, IronicFacts, facts_from_node
from os_prefilter.hosts.drivers.ironic_steps import fit
from os_prefilter.hosts.reporter import Reporter
from os_prefilter.vocabulary import BY_NAME, HYPERTHREADING, QUALIFIED
from os_prefilter.vocabulary.config_templates import PREFIX, Template
from os_prefilter.vocabulary.machine_types import guest_architecture

__all__ = ["REPORTER", "BiosSetting", "IronicFacts", "facts_from_node"]


def refusal(facts: IronicFacts, row: str, value: str, architecture: str) -> str:
    """Return why the node cannot do ``value`` of ``row``, for guests of ``architecture``; empty if it can."""
    if row.startswith(PREFIX):
        return fit(facts, facts.templates.of(row, value)).reason
    known = BY_NAME[row].canonical(value)
    if known is None:
        return f"unknown value {quote(value)}"
    term = BY_NAME[row].values[known]
    if term.trait is None:
        return ""
    guest = guest_architecture(architecture)
    templates = facts.templates
    if term.trait in templates.found_traits:
        reason = templates.lack(term.trait, partial(configure, facts))
    else:
        reason = "" if _is_on_node(facts, term.trait, guest) else _lack(facts, row, known, guest)
    if term.required:
        return reason
    return "" if reason else f"the node has {term.trait}: its cores can run several threads"


def _is_on_node(facts: IronicFacts, trait: Trait, guest: str) -> bool:
    if guest in ("", facts.architecture) and trait in facts.other_traits:
        return True
    return QUALIFIED.get((trait, guest)) in facts.other_traits


def _lack(facts: IronicFacts, row: str, value: str, guest: str) -> str:
    return _ROWS[row](facts, value) if guest in ("", facts.architecture) else _NO_EMULATION


def _threads(_facts: IronicFacts, _value: str) -> str:
    return f"no configuration template is about {HYPERTHREADING}, and it is not set on the node"


def configured(facts: IronicFacts) -> dict[Trait, str]:
    """Return why the node lacks each trait of configuration templates that it decides itself."""
    templates = facts.templates
    return {trait: templates.lack(trait, partial(configure, facts)) for trait in sorted(templates.found_traits)}


def configure(facts: IronicFacts, template: Template) -> str:
    """Return why Ironic cannot configure the node as a template says; empty if it can."""
    return fit(facts, template).reason


def reported_by_nova(_facts: IronicFacts) -> frozenset[str]:
    """Return what Nova's driver says of images; all else Nova takes from the traits on the node."""
    return frozenset(BY_NAME["image_type"].traits)


def unknown(facts: IronicFacts) -> frozenset[str]:
    """Return the traits of templates until Ironic has read the node's BIOS settings: what was found before stays."""
    if facts.bios or facts.bios_interface == "no-bios":
        return frozenset()
    return frozenset(facts.templates.found_traits)


def _architecture(facts: IronicFacts, value: str) -> str:
    if not facts.architecture:
        return "the node does not say its processor: set cpu_arch in its properties"
    # i686 requires the trait of x86_64, which a 32-bit machine must not have.
    return "" if guest_architecture(value) == facts.architecture else f"the node is {facts.architecture}"


def _firmware_type(facts: IronicFacts, value: str) -> str:
    # Unknown is not "uefi": that is a default which each Ironic may set otherwise ([deploy] default_boot_mode), and a
    # wrong guess is an image that does not boot.
    if not facts.boot_mode:
        return "the node does not say how it boots: set boot_mode in the capabilities of its properties"
    return "" if value == facts.boot_mode else f"the node boots in mode {quote(facts.boot_mode)}"


def _secure_boot(facts: IronicFacts, _value: str) -> str:
    if not facts.secure_boot:
        return "the node does not say that it has it: set secure_boot:true in the capabilities of its properties"
    if facts.boot_mode not in ("", "uefi"):
        return f"it needs UEFI, and the node boots in mode {quote(facts.boot_mode)}"
    return ""


def _one_of(what: str, *values: str) -> Callable[[IronicFacts, str], str]:
    return lambda _facts, value: "" if value in values else f"{what} {', '.join(values)}, not {value}"


def _never(reason: str) -> Callable[[IronicFacts, str], str]:
    return lambda _facts, _value: reason


_NO_EMULATION = "a bare-metal node emulates no architecture"
_NO_DEVICE = _never("a bare-metal node emulates no device")
_NO_TPM = _never("a bare-metal node emulates no TPM, and Ironic manages none of a machine's own")
_NO_MACHINE = _never("a bare-metal node has none of QEMU's machine types")
_NO_ENCRYPTION = _never("Ironic encrypts no disks")
_ROWS: Mapping[str, Callable[[IronicFacts, str], str]] = {
    "vif_model": _NO_DEVICE,
    "video_model": _NO_DEVICE,
    "disk_bus": _NO_DEVICE,
    "cdrom_bus": _NO_DEVICE,
    "scsi_model": _NO_DEVICE,
    "viommu_model": _NO_DEVICE,
    "sound_model": _NO_DEVICE,
    "usb_model": _NO_DEVICE,
    "usb_redirection": _NO_DEVICE,
    "input_bus": _NO_DEVICE,
    "pointer_model": _NO_DEVICE,
    "watchdog": _NO_DEVICE,
    "packed_virtqueue": _NO_DEVICE,
    "tpm_version": _NO_TPM,
    "tpm_model": _NO_TPM,
    "tpm_secret_security": _NO_TPM,
    "machine_type": _NO_MACHINE,
    "default_machine": _NO_MACHINE,
    "ephemeral_encryption": _NO_ENCRYPTION,
    "ephemeral_encryption_format": _NO_ENCRYPTION,
    "emulation_architecture": _never(_NO_EMULATION),
    # An x86 machine has one, but nothing sees to it that it is on.
    "time_hpet": _never("neither Nova nor Ironic switches the HPET of a physical machine"),
    "firmware_stateless": _never("the firmware of a physical machine keeps its state"),
    "maxphysaddr_mode": _never("Nova's Ironic driver sets no address space"),
    "device_profile": _never("Nova's Ironic driver attaches no accelerators"),
    "cpu_thread_policy": _threads,
    "architecture": _architecture,
    "firmware_type": _firmware_type,
    "secure_boot": _secure_boot,
    # Nova calls the host ironic and what runs on it baremetal, so images are made for either. Nova's own
    # ImagePropertiesFilter, where it is enabled, knows the second alone and still refuses the first.
    "hypervisor_type": _one_of("it runs images for", "baremetal", "ironic"),
    "vm_mode": _one_of("it runs images of mode", "hvm"),
    # What Nova's driver says. Ironic alone could boot an iso as well.
    "image_type": _one_of("Nova's Ironic driver runs images of type", "ami", "qcow2", "raw"),
}

# What else a machine has (encryption of memory, PCI devices near a socket) its operator says, by traits on the node.
REPORTER = Reporter(
    IronicFacts,
    refusal,
    frozenset(_ROWS),
    configured=configured,
    reported_by_nova=reported_by_nova,
    unknown=unknown,
)
"""The reporter ``ironic``."""
