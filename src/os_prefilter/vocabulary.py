"""The table: what a request may ask for, and the trait by which a host says that it can.

This is the only place that produces trait names. Request filters, capability reporters, the late check, the command
``os-prefilter vocabulary list`` and the page of the documentation all read it. What a tenant wrote is only ever looked
up here; it never becomes part of a name.

Values are those that Nova 34 accepts (``nova/objects/fields.py``, ``nova/network/model.py``); names without the prefix
``CUSTOM_`` are those of os-traits 3.9. A test compares the table with both.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from os_prefilter.terms import Row, Term, Trait


def _terms(prefix: str, values: str, **exceptions: str) -> dict[str, Term]:
    """Map each value to ``prefix`` plus the value in capitals, or to the suffix given for it."""
    suffixes = {value: exceptions.get(value, value.upper().replace("-", "_")) for value in values.split()}
    return {value: Term(Trait(f"{prefix}_{suffix}")) for value, suffix in suffixes.items()}


def _unknown_to_nova(terms: dict[str, Term]) -> dict[str, Term]:
    return {value: replace(term, unknown_to_nova=True) for value, term in terms.items()}


def _nothing(reason: str) -> Term:
    return Term(None, reason=reason)


def _switch(trait: str, reason: str = "not having a device is possible everywhere") -> dict[str, Term]:
    return {"true": Term(Trait(trait)), "false": _nothing(reason)}


# -- values that several rows share ------------------------------------------------------------------------------------

_BUSES = _terms("COMPUTE_STORAGE_BUS", "fdc ide lxc sata scsi uml usb virtio xen")
_ARCHITECTURES = (
    "aarch64 alpha armv6 armv7b armv7l cris i686 ia64 lm32 m68k microblaze microblazeel mips mips64 mips64el mipsel "
    "openrisc parisc parisc64 ppc ppc64 ppc64le ppcemb ppcle s390 s390x sh4 sh4eb sparc sparc64 unicore32 x86_64 "
    "xtensa xtensaeb"
)
_ARCHITECTURE_ALIASES = {
    "amd64": "x86_64",
    "i386": "i686",
    "i486": "i686",
    "i586": "i686",
    "x86_32": "i686",
    "x86_32p": "i686",
}
# The architectures that os-traits 3.9 has a COMPUTE_ARCH_* for and Nova accepts.
_EMULATED_STANDARD = "aarch64 mipsel ppc64le s390x x86_64"
_EMULATED_CUSTOM = " ".join(sorted(set(_ARCHITECTURES.split()) - set(_EMULATED_STANDARD.split())))

HPET = Trait("CUSTOM_COMPUTE_TIME_HPET")
"""The host's virt driver can give a guest a High Precision Event Timer (x86 only)."""

HYPERTHREADING = Trait("HW_CPU_HYPERTHREADING")
"""libvirt host: it has SMT. Bare metal: it can be switched; nothing about on or off."""


# -- the table ---------------------------------------------------------------------------------------------------------

ROWS: tuple[Row, ...] = (
    Row(
        "vif_model",
        _terms(
            "COMPUTE_NET_VIF_MODEL",
            "e1000 e1000e igb lan9118 ne2k_pci netfront pcnet rtl8139 spapr-vlan sriov virtio vmxnet vmxnet3",
        ),
        image_property="hw_vif_model",
        legacy_values={
            "virtuale1000": "e1000",
            "virtuale1000e": "e1000e",
            "virtualpcnet32": "pcnet",
            "virtualsriovethernetcard": "sriov",
            "virtualvmxnet": "vmxnet",
            "virtualvmxnet3": "vmxnet3",
        },
        any_case=True,
    ),
    Row(
        "video_model",
        _terms("COMPUTE_GRAPHICS_MODEL", "bochs cirrus gop none qxl vga virtio vmvga xen"),
        image_property="hw_video_model",
    ),
    # vmware_adaptertype is a legacy name with a rule of its own: request.py.
    Row("disk_bus", _BUSES, image_property="hw_disk_bus"),
    Row("cdrom_bus", _BUSES, image_property="hw_cdrom_bus"),
    Row("rescue_bus", _BUSES, image_property="hw_rescue_bus"),
    Row("floppy_bus", _BUSES, image_property="hw_floppy_bus"),
    Row(
        # i686 asks for an x86_64 host, see the ADR "What i686 and qemu ask for". os-traits calls armv7l
        "architecture",
        # ARMV7, which a driver that reports HW_ARCH_ARMV7L and finds no such trait never reports.
        _terms("HW_ARCH", _ARCHITECTURES, i686="X86_64")
        | _unknown_to_nova(_terms("HW_ARCH", "armv7l", armv7l="ARMV7")),
        image_property="hw_architecture",
        legacy_names=("architecture",),
        legacy_values=_ARCHITECTURE_ALIASES,
        any_case=True,
    ),
    Row(
        "emulation_architecture",
        _terms("COMPUTE_ARCH", _EMULATED_STANDARD) | _terms("CUSTOM_COMPUTE_ARCH", _EMULATED_CUSTOM),
        image_property="hw_emulation_architecture",
        legacy_values=_ARCHITECTURE_ALIASES,
        any_case=True,
    ),
    Row(
        "viommu_model",
        _terms("COMPUTE_VIOMMU_MODEL", "auto intel smmuv3 virtio"),
        image_property="hw_viommu_model",
        extra_spec="hw:viommu_model",
    ),
    Row(
        "sound_model",
        _terms("COMPUTE_SOUND_MODEL", "ac97 es1370 ich6 ich9 pcspk sb16 usb virtio"),
        image_property="hw_sound_model",
        extra_spec="hw:sound_model",
        asked_by=("image_metadata", "sound_model"),
    ),
    Row(
        "usb_model",
        _unknown_to_nova(_terms("COMPUTE_USB_MODEL", "nec-xhci qemu-xhci"))
        | {"none": _nothing("every host can leave the USB controller out")},
        image_property="hw_usb_model",
        extra_spec="hw:usb_model",
    ),
    Row(
        "firmware_type",
        _unknown_to_nova(_terms("COMPUTE_FIRMWARE", "bios uefi")),
        image_property="hw_firmware_type",
    ),
    Row(
        # A host reports every type whose images it runs: KVM hosts report KVM and QEMU (same ADR).
        "hypervisor_type",
        _terms(
            "CUSTOM_HYPERVISOR_TYPE",
            "baremetal bhyve docker fake hyperv ironic kqemu kvm lxc lxd openvz parallels phyp prsm qemu test uml vbox "
            "vmware vz xen zvm",
        ),
        image_property="img_hv_type",
        legacy_names=("hypervisor_type",),
        legacy_values={"xapi": "xen"},
        any_case=True,
    ),
    Row(
        "vm_mode",
        _terms("CUSTOM_VM_MODE", "exe hvm uml xen"),
        image_property="hw_vm_mode",
        legacy_names=("vm_mode",),
        legacy_values={"pv": "xen", "hv": "hvm", "baremetal": "hvm"},
        any_case=True,
    ),
    Row("time_hpet", _switch(HPET), image_property="hw_time_hpet", boolean=True, asked_by=("hpet",)),
    Row(
        "hyperthreading",
        {
            "enabled": Term(HYPERTHREADING),
            "disabled": _nothing("only switching it on needs a node that can switch"),
        },
        image_property="deploy-config:hyperthreading",
        extra_spec="deploy-config:hyperthreading",
        asked_by=("deploy_config",),
    ),
    Row(
        "packed_virtqueue",
        _switch("COMPUTE_NET_VIRTIO_PACKED", "the split ring is always there"),
        image_property="hw_virtio_packed_ring",
        extra_spec="hw:virtio_packed_ring",
        boolean=True,
        asked_by=("packed_virtqueue",),
    ),
    Row(
        "ephemeral_encryption",
        _switch("COMPUTE_EPHEMERAL_ENCRYPTION", "not encrypting is possible everywhere"),
        image_property="hw_ephemeral_encryption",
        extra_spec="hw:ephemeral_encryption",
        boolean=True,
        asked_by=("ephemeral_encryption",),
    ),
    Row(
        "ephemeral_encryption_format",
        _terms("COMPUTE_EPHEMERAL_ENCRYPTION", "luks luksv2 plain"),
        image_property="hw_ephemeral_encryption_format",
        extra_spec="hw:ephemeral_encryption_format",
        asked_by=("ephemeral_encryption",),
    ),
    Row(
        "tpm_secret_security",
        _terms("COMPUTE_SECURITY_TPM_SECRET_SECURITY", "deployment host user"),
        extra_spec="hw:tpm_secret_security",
        asked_by=("tpm_secret_security",),
    ),
    Row(
        "image_type",
        _terms("COMPUTE_IMAGE_TYPE", "aki ami ari iso ploop qcow2 raw vdi vhd vhdx vmdk"),
        image_attribute="disk_format",
        asked_by=("image_type",),
    ),
    # What follows Nova itself translates while it builds the query; so does ours (query.py).
    Row(
        "tpm_version",
        _terms("COMPUTE_SECURITY_TPM", "1.2 2.0", **{"1.2": "1_2", "2.0": "2_0"}),
        image_property="hw_tpm_version",
        extra_spec="hw:tpm_version",
        asked_by=("query",),
    ),
    Row(
        "tpm_model",
        _terms("COMPUTE_SECURITY_TPM", "tpm-crb tpm-tis", **{"tpm-crb": "CRB", "tpm-tis": "TIS"}),
        image_property="hw_tpm_model",
        extra_spec="hw:tpm_model",
        asked_by=("query",),
    ),
    Row(
        "secure_boot",
        {
            "required": Term(Trait("COMPUTE_SECURITY_UEFI_SECURE_BOOT")),
            "optional": _nothing("it is used where the host has it"),
            "disabled": _nothing("every host can leave it off"),
        },
        image_property="os_secure_boot",
        extra_spec="os:secure_boot",
        asked_by=("query",),
    ),
    Row(
        "firmware_stateless",
        _switch("COMPUTE_SECURITY_STATELESS_FIRMWARE", "stateful firmware is the usual one"),
        image_property="hw_firmware_stateless",
        boolean=True,
        asked_by=("query",),
    ),
    Row(
        "maxphysaddr_mode",
        _terms("COMPUTE_ADDRESS_SPACE", "emulate passthrough", emulate="EMULATED"),
        image_property="hw_maxphysaddr_mode",
        extra_spec="hw:maxphysaddr_mode",
        asked_by=("query",),
    ),
    Row(
        "pci_numa_affinity_policy",
        {
            "socket": Term(Trait("COMPUTE_SOCKET_PCI_NUMA_AFFINITY")),
            "required": _nothing("Nova's NUMA topology filter decides it"),
            "preferred": _nothing("a preference excludes no host"),
            "legacy": _nothing("Nova's NUMA topology filter decides it"),
        },
        image_property="hw_pci_numa_affinity_policy",
        extra_spec="hw:pci_numa_affinity_policy",
        asked_by=("query",),
    ),
    Row(
        "mem_encryption",
        {
            "true": _nothing("it asks for the resource MEM_ENCRYPTION_CONTEXT, and its model for a trait"),
            "false": _nothing("not encrypting is possible everywhere"),
        },
        image_property="hw_mem_encryption",
        extra_spec="hw:mem_encryption",
        boolean=True,
        asked_by=("query",),
    ),
    Row(
        "mem_encryption_model",
        _terms("HW_CPU_X86", "amd-sev amd-sev-es amd-sev-snp intel-tdx"),
        image_property="hw_mem_encryption_model",
        extra_spec="hw:mem_encryption_model",
        asked_by=("query",),
    ),
    Row(
        "cpu_thread_policy",
        {
            "require": Term(HYPERTHREADING),
            "isolate": Term(HYPERTHREADING, required=False),
            "prefer": _nothing("a preference excludes no host"),
        },
        image_property="hw_cpu_thread_policy",
        extra_spec="hw:cpu_thread_policy",
        asked_by=("query",),
    ),
)

BY_NAME: Mapping[str, Row] = MappingProxyType({row.name: row for row in ROWS})
"""The rows by name."""


def rows_asked_by(name: str) -> tuple[Row, ...]:
    """Return the rows that the request filter ``name`` asks for, in the order of the table."""
    return tuple(row for row in ROWS if name in row.asked_by)


def opt_in_traits(rows: Iterable[Row] = ROWS) -> frozenset[Trait]:
    """Return the traits of ``rows`` that no driver of Nova reports by itself: all ``CUSTOM_``, and a few others."""
    return frozenset(term.trait for row in rows for term in row.values.values() if term.trait and term.opt_in)
