"""What libvirt hosts can do: KVM and QEMU by their domain capabilities and versions, LXC and Parallels by fixed lists.

The lists and versions are those of Nova 34 (``nova/virt/libvirt/vif.py``, ``blockinfo.py``, ``driver.py``). Where this
reporter differs from Nova's driver, the page "What a libvirt host reports" says so, and why.
"""

from collections.abc import Callable, Mapping

from os_prefilter.hosts.drivers import nova_guests
from os_prefilter.hosts.drivers.libvirt_facts import GuestFacts, LibvirtFacts, Version, version_text
from os_prefilter.hosts.guest_starts import evidence
from os_prefilter.hosts.reporter import Reporter, standard_traits
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.machine_types import MACHINES, NONE, families_of, family_of, guest_architecture

_ANY: Version = (0, 0, 0)
_QEMU_VIFS = "virtio ne2k_pci pcnet rtl8139 e1000 e1000e spapr-vlan vmxnet3 igb"
_VIFS: Mapping[str, frozenset[str]] = {
    "kvm": frozenset(_QEMU_VIFS.split()),
    "qemu": frozenset((*_QEMU_VIFS.split(), "lan9118")),
    "parallels": frozenset(("virtio", "rtl8139", "e1000")),
}
_BUSES = {"lxc": frozenset(("lxc",)), "parallels": frozenset(("ide", "scsi"))}
_VIDEO = {"parallels": frozenset(("vga",))}
# src/vz/vz_utils.c in libvirt.
_SCSI_MODELS = {"parallels": frozenset(("virtio-scsi",))}
# A KVM host runs images for QEMU as well (LP#1837756).
_HYPERVISOR_TYPES = {"kvm": frozenset(("kvm", "qemu"))}
_VM_MODES = {"lxc": frozenset(("exe",)), "parallels": frozenset(("hvm", "exe"))}
_HVM = frozenset(("hvm",))
_IMAGE_TYPES = frozenset(("aki", "ami", "ari", "iso", "raw"))
_VIOMMU_ARCHITECTURES = {
    "auto": ("x86_64", "aarch64", "armv7l"),
    "virtio": ("x86_64", "aarch64"),
    "intel": ("x86_64",),
    "smmuv3": ("aarch64", "armv7l"),
}
# Seen with libvirt 9.0 and QEMU 7.2. QEMU 7.1 dropped the option (docs/about/removed-features.rst). libvirt 11.3 does
# not pass it; since when is not known.
_NO_SOUNDHW: Version = (9, 1, 0)
_SOUNDHW_IS_GONE: Version = (7, 1, 0)
# What QEMU for s390x has in 10.0, and had not in 7.2; when it came is not known.
_LATE_ON_S390X = frozenset(
    (("vif_model", "e1000e"), ("vif_model", "igb"), ("usb_model", "qemu-xhci"), ("sound_model", "usb"))
)
# (row, value) -> the libvirt and the QEMU that it needs.
VERSIONS: Mapping[tuple[str, str], tuple[Version, Version]] = {
    ("vif_model", "igb"): ((9, 3, 0), (8, 0, 0)),
    ("sound_model", "virtio"): ((10, 4, 0), (8, 2, 0)),
    ("viommu_model", "virtio"): ((8, 3, 0), _ANY),
    ("firmware_stateless", "true"): ((8, 6, 0), _ANY),
    ("maxphysaddr_mode", "emulate"): ((8, 7, 0), _ANY),
    ("maxphysaddr_mode", "passthrough"): ((8, 7, 0), _ANY),
    ("mem_encryption_model", "amd-sev-es"): (_ANY, (8, 0, 0)),
}
# What every libvirt and QEMU that Nova 34 runs on can do, on any architecture.
_ALWAYS = frozenset(("packed_virtqueue", "usb_model", "firmware_stateless", "maxphysaddr_mode"))
_ON_QEMU_ALONE = frozenset(
    (*_ALWAYS, "sound_model", "viommu_model", "firmware_type", "machine_type", "default_machine", "time_hpet")
)


def refusal(facts: LibvirtFacts, row: str, value: str, architecture: str) -> str:
    """Return why the host cannot do ``value`` of ``row``, for guests of ``architecture``; empty if it can."""
    if row in _ON_QEMU_ALONE and not _is_qemu(facts):
        return f"a {facts.virt_type} guest has no such thing"
    if architecture and not _is_qemu(facts) and guest_architecture(architecture) != facts.architecture:
        return f"{facts.virt_type} guests have the architecture of the host, {facts.architecture}"
    of = architecture or facts.architecture
    guest = guest_architecture(of)
    # Nova has a default machine type of its own for i686; else such a guest is one of x86_64.
    reason = _ROWS[row](facts, value, of if row == "default_machine" else guest) or _too_old(facts, row, value)
    if not reason and guest == "s390x" and (row, value) in _LATE_ON_S390X and facts.hypervisor_version < (7, 3, 0):
        reason = f"QEMU {version_text(facts.hypervisor_version)} has it for no guest of s390x"
    return reason or nova_guests.refusal(facts, row, value, guest)


def _is_qemu(facts: LibvirtFacts) -> bool:
    return facts.virt_type in ("kvm", "qemu")


def _too_old(facts: LibvirtFacts, row: str, value: str) -> str:
    if not _is_qemu(facts):
        return ""
    libvirt, qemu = VERSIONS.get((row, value), (_ANY, _ANY))
    reasons = [
        f"needs {what} {version_text(needed)}, found {version_text(found)}"
        for what, needed, found in (
            ("libvirt", libvirt, facts.libvirt_version),
            ("QEMU", qemu, facts.hypervisor_version),
        )
        if found < needed
    ]
    return "; ".join(reasons)


def _one_of(values: frozenset[str], value: str, what: str) -> str:
    return "" if value in values else f"{what}: {', '.join(sorted(values)) or 'none'}"


def _vif_model(facts: LibvirtFacts, value: str, _architecture: str) -> str:
    return _one_of(_VIFS.get(facts.virt_type, frozenset()), value, f"the VIF models of {facts.virt_type}")


def _guests(facts: LibvirtFacts, architecture: str) -> GuestFacts | None:
    return facts.guests.get(architecture)


def _no_guests(architecture: str) -> str:
    return f"the host has no QEMU for {architecture} guests"


def _bus(facts: LibvirtFacts, value: str, architecture: str) -> str:
    if not _is_qemu(facts):
        return _one_of(_BUSES.get(facts.virt_type, frozenset()), value, f"the buses of {facts.virt_type}")
    guests = _guests(facts, architecture)
    return _one_of(guests.buses, value, f"libvirt's buses for {architecture}") if guests else _no_guests(architecture)


def _video_model(facts: LibvirtFacts, value: str, architecture: str) -> str:
    if not _is_qemu(facts):
        return _one_of(_VIDEO.get(facts.virt_type, frozenset()), value, f"the video models of {facts.virt_type}")
    guests = _guests(facts, architecture)
    what = f"libvirt's video models for {architecture}"
    return _one_of(guests.video_models, value, what) if guests else _no_guests(architecture)


def _architecture(facts: LibvirtFacts, value: str, _architecture: str) -> str:
    return "" if guest_architecture(value) == facts.architecture else f"the host is {facts.architecture}"


def _emulation_architecture(facts: LibvirtFacts, value: str, _architecture: str) -> str:
    return "" if guest_architecture(value) in facts.guests else _no_guests(value)


def _scsi_model(facts: LibvirtFacts, value: str, _architecture: str) -> str:
    if not _is_qemu(facts):
        return _one_of(_SCSI_MODELS.get(facts.virt_type, frozenset()), value, f"the SCSI models of {facts.virt_type}")
    if value == "buslogic":
        return "QEMU has no such controller"
    if value == "ibmvscsi" and facts.guests.keys().isdisjoint(MACHINES["pseries"]):
        return f"it is for guests of {' and '.join(MACHINES['pseries'])}"
    return ""


def _viommu_model(facts: LibvirtFacts, value: str, architecture: str) -> str:
    possible = _VIOMMU_ARCHITECTURES[value]
    if architecture not in possible:
        return f"it is for guests of {' and '.join(possible)}, not of {architecture}"
    return "" if _guests(facts, architecture) else _no_guests(architecture)


def _firmware_type(facts: LibvirtFacts, value: str, architecture: str) -> str:
    guests = _guests(facts, architecture)
    if not guests:
        return _no_guests(architecture)
    # "bios" is the firmware that QEMU has for a machine type, none on ARM's, as in Nova.
    return "" if value == "bios" or guests.uefi else f"libvirt found no UEFI firmware for {architecture} guests"


def _machine_type(facts: LibvirtFacts, value: str, architecture: str) -> str:
    guests = _guests(facts, architecture)
    if not guests:
        return _no_guests(architecture)
    exact = value not in MACHINES
    names = guests.machines if exact and guests.machines_are_complete else {family_of(name) for name in guests.machines}
    wanted = value if exact and guests.machines_are_complete else family_of(value)
    return "" if wanted in names else f"QEMU has no machine type {wanted} for {architecture} guests"


def _default_machine(facts: LibvirtFacts, value: str, architecture: str) -> str:
    guest = guest_architecture(architecture)
    guests = _guests(facts, guest)
    if not guests:
        return _no_guests(architecture)
    if architecture != guest:
        default = facts.i686_default_machine
    else:
        default = guests.default_machine if not facts.built_by_nova else facts.own_guests.default_machine
    if not default:
        return _no_guests(architecture)
    # Nova gives an emulated guest the default of the host's own architecture (nova/virt/libvirt/utils.py).
    family = family_of(default) if family_of(default) in families_of(guest) else NONE
    return "" if family == value else f"the default is {default}"


def _time_hpet(facts: LibvirtFacts, _value: str, architecture: str) -> str:
    guests = _guests(facts, architecture)
    if not guests:
        return _no_guests(architecture)
    if architecture != "x86_64":
        return f"a guest of {architecture} has no HPET; x86 alone has"
    has = any(family_of(name) in ("pc", "q35") for name in guests.machines)
    return "" if has else "it needs machine type pc or q35, and QEMU has neither"


def _threads(facts: LibvirtFacts, value: str, _architecture: str) -> str:
    if value == "isolate":
        return "the cores run several threads" if facts.smt else ""
    return "" if facts.smt else "each core runs one thread (no SMT, or libvirt's capabilities list no topology)"


def _image_type(facts: LibvirtFacts, value: str, _architecture: str) -> str:
    if value == "qcow2" and facts.images_type in ("rbd", "lvm") and not facts.force_raw_images:
        return f"images_type is {facts.images_type} and force_raw_images is off"
    if value in _IMAGE_TYPES or value == "qcow2" or (value == "ploop" and facts.virt_type == "parallels"):
        return ""
    return f"Nova's libvirt driver runs no {value} images"


def _tpm(facts: LibvirtFacts) -> str:
    if not _is_qemu(facts):
        return f"a {facts.virt_type} guest has no TPM"
    return "" if facts.swtpm_enabled else "[libvirt] swtpm_enabled is off"


def _tpm_version(facts: LibvirtFacts, value: str, _architecture: str) -> str:
    if reason := _tpm(facts):
        return reason
    guests = facts.own_guests
    has = guests.tpm_models and (guests.tpm_versions is None or value in guests.tpm_versions)
    return "" if has else f"libvirt offers no emulated TPM of version {value}"


def _tpm_model(facts: LibvirtFacts, value: str, _architecture: str) -> str:
    return _tpm(facts) or _one_of(facts.own_guests.tpm_models, value, "libvirt's TPM models")


def _tpm_secret_security(facts: LibvirtFacts, value: str, _architecture: str) -> str:
    return _tpm(facts) or _one_of(facts.tpm_secret_security, value, "[libvirt] supported_tpm_secret_security")


def _secure_boot(facts: LibvirtFacts, _value: str, _architecture: str) -> str:
    if facts.architecture == "aarch64" and not facts.built_by_nova:
        # libvirt speaks of <loader secure>, which is x86's; what the firmware itself has, it does not say.
        return "" if facts.own_guests.uefi else "libvirt found no UEFI firmware"
    if not facts.own_guests.secure_boot:
        return "libvirt found no UEFI firmware with secure boot"
    if facts.virt_type == "kvm" and facts.smm is False:
        return "KVM here has no System Management Mode, which UEFI firmware with secure boot needs"
    return ""


def _mem_encryption_model(facts: LibvirtFacts, value: str, _architecture: str) -> str:
    found = facts.own_guests.mem_encryption
    if facts.virt_type != "kvm":
        return "it needs virt_type kvm"
    if value not in found:
        return f"libvirt's models of memory encryption: {', '.join(sorted(found)) or 'none'}"
    if value == "amd-sev-es" and "amd-sev-snp" in found:
        return "the host has SEV-SNP, beside which Nova offers no SEV-ES"
    if value == "intel-tdx" and facts.cpu_mode != "host-passthrough":
        return "it needs [libvirt] cpu_mode host-passthrough"
    return ""


def _sound_model(facts: LibvirtFacts, value: str, _architecture: str) -> str:
    if value == "pcspk" and facts.libvirt_version < _NO_SOUNDHW and facts.hypervisor_version >= _SOUNDHW_IS_GONE:
        return f"libvirt passes -soundhw for it, which QEMU {version_text(facts.hypervisor_version)} no longer has"
    return ""


def _can(_facts: LibvirtFacts, _value: str, _architecture: str) -> str:
    return ""


_ROWS: Mapping[str, Callable[[LibvirtFacts, str, str], str]] = {
    **dict.fromkeys(_ALWAYS, _can),
    **dict.fromkeys(("disk_bus", "cdrom_bus"), _bus),
    "cpu_thread_policy": _threads,
    **dict.fromkeys(
        ("ephemeral_encryption", "ephemeral_encryption_format"),
        lambda _facts, _value, _architecture: "no image backend of Nova 34 encrypts ephemeral disks",
    ),
    # Nova's driver declares both for every virt_type.
    "device_profile": _can,
    "pci_numa_affinity_policy": _can,
    # No value of these asks for a trait.
    "cpu_policy": _can,
    "emulator_threads_policy": _can,
    "mem_encryption": _can,
    "vif_model": _vif_model,
    "sound_model": _sound_model,
    "video_model": _video_model,
    "architecture": _architecture,
    "emulation_architecture": _emulation_architecture,
    "scsi_model": _scsi_model,
    "viommu_model": _viommu_model,
    "firmware_type": _firmware_type,
    "hypervisor_type": lambda facts, value, _architecture: _one_of(
        _HYPERVISOR_TYPES.get(facts.virt_type, frozenset((facts.virt_type,))), value, "it runs images for"
    ),
    "vm_mode": lambda facts, value, _architecture: _one_of(
        _VM_MODES.get(facts.virt_type, _HVM), value, f"the modes of {facts.virt_type}"
    ),
    "machine_type": _machine_type,
    "default_machine": _default_machine,
    "time_hpet": _time_hpet,
    "tpm_secret_security": _tpm_secret_security,
    "image_type": _image_type,
    "tpm_version": _tpm_version,
    "tpm_model": _tpm_model,
    "secure_boot": _secure_boot,
    "mem_encryption_model": _mem_encryption_model,
}


def reported_by_nova(facts: LibvirtFacts) -> frozenset[str]:
    """Return the traits that Nova's libvirt driver writes itself.

    It asks libvirt for KVM guests of each architecture, and so finds the host's own as the only emulated one.
    """
    if facts.virt_type != "kvm":
        return standard_traits()
    emulated = BY_NAME["emulation_architecture"]
    own = emulated.values.get(facts.architecture)
    return standard_traits() - (emulated.traits - {own.trait if own else None})


# Not the rows of other packages, of which it knows nothing.
REPORTER = Reporter(LibvirtFacts, refusal, owns=frozenset(_ROWS), reported_by_nova=reported_by_nova, evidence=evidence)
"""The reporter ``libvirt``."""
