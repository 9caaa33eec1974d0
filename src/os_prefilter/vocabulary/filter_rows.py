# SPDX-License-Identifier: Apache-2.0

"""Rows of the request filters: device models, guest types, disk format."""

from __future__ import annotations

from os_prefilter.common.trait_names import Trait
from os_prefilter.vocabulary import machine_types
from os_prefilter.vocabulary.model import (
    Constraints,
    DependsOn,
    Incompatible,
    Precedence,
    Row,
    Spelling,
    Term,
    nothing,
    switch,
    terms,
    unknown_to_nova,
)

_VIFS = (
    "e1000 e1000e igb lan9118 ne2k_pci netfront pcnet rtl8139 spapr-vlan sriov"
    " virtio vmxnet vmxnet3"
)
_SOUND_MODELS = "ac97 es1370 ich6 ich9 pcspk sb16 usb virtio"
_BUSES = terms(
    "COMPUTE_STORAGE_BUS", "fdc ide lxc sata scsi uml usb virtio xen"
)
_INPUT_BUSES = terms("CUSTOM_COMPUTE_INPUT_BUS", "usb virtio")
_WATCHDOG = Term(Trait("CUSTOM_COMPUTE_WATCHDOG"))
_USB_REDIRECTION = Term(Trait("CUSTOM_COMPUTE_USB_REDIRECTION"))
_MOST_USB_PORTS = 15

HPET = Trait("CUSTOM_COMPUTE_TIME_HPET")
"""The virt driver can give a guest a High Precision Event Timer.

On x86 only.
"""

HYPERTHREADING = Trait("HW_CPU_HYPERTHREADING")
"""Hyperthreading: libvirt hosts have it, bare-metal nodes can switch it.

On bare metal it may be on or off.
"""

SEVERAL_CPU_MODELS = Trait("CUSTOM_COMPUTE_SEVERAL_CPU_MODELS")
"""The host's CPU features are those of several models; a guest has one.

Nova chooses it by the traits that the flavor requires.
"""


# Nova gives a guest of these a USB controller in any case, or leaves it to
# libvirt, which has one.
_POWER = ("ppc", "ppc64", "ppc64le")
# Others have none where neither an input device nor a disk is on USB, unless a
# model is named. The disks are not all in the request: its user may attach a
# volume on USB, or have a config drive on a USB CD-ROM.
_WITH_USB = (
    ("usb_model", ("qemu-xhci", "nec-xhci")),
    ("disk_bus", ("usb",)),
    ("cdrom_bus", ("usb",)),
    ("architecture", _POWER),
)
_NO_USB = Constraints(
    incompatible_in_nova=(
        Incompatible(
            "input_bus",
            "virtio",
            unless=_WITH_USB,
            is_certain=False,
        ),
    )
)

# The architectures that os-traits 3.9 has a COMPUTE_ARCH_* for and Nova
# accepts.
_STANDARD = "aarch64 mipsel ppc64le s390x x86_64"
_WITHOUT_STANDARD = " ".join(
    sorted(
        set(machine_types.ARCHITECTURES.split()) - {*_STANDARD.split(), "i686"}
    )
)

FILTERED: tuple[Row, ...] = (
    Row(
        "vif_model",
        terms("COMPUTE_NET_VIF_MODEL", _VIFS),
        image_property="hw_vif_model",
        spelling=Spelling(
            older={
                "virtuale1000": "e1000",
                "virtuale1000e": "e1000e",
                "virtualpcnet32": "pcnet",
                "virtualsriovethernetcard": "sriov",
                "virtualvmxnet": "vmxnet",
                "virtualvmxnet3": "vmxnet3",
            }
        ),
    ),
    Row(
        "video_model",
        terms(
            "COMPUTE_GRAPHICS_MODEL",
            "bochs cirrus gop none qxl vga virtio vmvga xen",
        ),
        image_property="hw_video_model",
    ),
    # vmware_adaptertype is a legacy name with a rule of its own:
    # _with_current_names in request/view.py.
    Row("disk_bus", _BUSES, image_property="hw_disk_bus"),
    Row(
        "cdrom_bus",
        _BUSES,
        image_property="hw_cdrom_bus",
    ),
    # Nova's libvirt driver adds the controller whatever disks the guest has,
    # so the model counts without a disk on it.
    Row(
        "scsi_model",
        terms(
            "CUSTOM_COMPUTE_SCSI_MODEL",
            "buslogic ibmvscsi lsilogic lsisas1068 lsisas1078 virtio-scsi"
            " vmpvscsi",
        ),
        image_property="hw_scsi_model",
        spelling=Spelling(
            older={"lsilogicsas": "lsisas1068", "paravirtual": "vmpvscsi"}
        ),
    ),
    # Not hw_rescue_bus, which Nova reads of the image that a server is rescued
    # with and of no other, on the host where the server is; and not
    # hw_floppy_bus, as a guest has no floppy disk unless its user adds one.
    Row(
        "architecture",
        # i686 requires an x86_64 host (ADR 0004). os-traits calls armv7l
        # ARMV7, which a driver that reports HW_ARCH_ARMV7L and finds no such
        # trait never reports.
        terms("HW_ARCH", machine_types.ARCHITECTURES, i686="X86_64")
        | unknown_to_nova(terms("HW_ARCH", "armv7l", armv7l="ARMV7")),
        image_property="hw_architecture",
        spelling=Spelling(older=machine_types.ARCHITECTURE_ALIASES),
    ),
    Row(
        "emulation_architecture",
        # As each x86_64 host, a QEMU for guests of x86_64 runs those of i686.
        terms("COMPUTE_ARCH", f"{_STANDARD} i686", i686="X86_64")
        | terms("CUSTOM_COMPUTE_ARCH", _WITHOUT_STANDARD),
        image_property="hw_emulation_architecture",
        spelling=Spelling(older=machine_types.ARCHITECTURE_ALIASES),
    ),
    Row(
        "viommu_model",
        terms("COMPUTE_VIOMMU_MODEL", "auto intel smmuv3 virtio"),
        image_property="hw_viommu_model",
        extra_spec="hw:viommu_model",
        precedence=Precedence("flavor"),
    ),
    Row(
        "sound_model",
        terms("COMPUTE_SOUND_MODEL", _SOUND_MODELS),
        image_property="hw_sound_model",
        extra_spec="hw:sound_model",
        refuses_unknown=True,
        required_by=("image_metadata", "sound_model"),
        constraints={"usb": _NO_USB},
    ),
    Row(
        "usb_model",
        unknown_to_nova(terms("COMPUTE_USB_MODEL", "nec-xhci qemu-xhci"))
        | {"none": nothing("every host can leave the USB controller out")},
        image_property="hw_usb_model",
        extra_spec="hw:usb_model",
    ),
    Row(
        "usb_redirection",
        {"0": nothing("the guest has no redirected port")}
        | {
            str(number): _USB_REDIRECTION
            for number in range(1, _MOST_USB_PORTS + 1)
        },
        image_property="hw_redirected_usb_ports",
        extra_spec="hw:redirected_usb_ports",
        # Nova takes the image's 0 for no value (nova/virt/hardware.py,
        # _get_unique_flavor_image_meta).
        precedence=Precedence(
            flavor_over={
                str(number): frozenset(("0",))
                for number in range(1, _MOST_USB_PORTS + 1)
            }
        ),
        constraints={
            str(number): _NO_USB for number in range(1, _MOST_USB_PORTS + 1)
        },
    ),
    Row("input_bus", _INPUT_BUSES, image_property="hw_input_bus"),
    # Nova reads it only without hw_input_bus.
    Row(
        "pointer_model",
        {"usbtablet": _INPUT_BUSES["usb"]},
        image_property="hw_pointer_model",
        constraints={
            "usbtablet": Constraints(implied_by=("input_bus", "virtio"))
        },
    ),
    Row(
        "watchdog",
        {"disabled": nothing("the guest has no watchdog")}
        | dict.fromkeys(("none", "pause", "poweroff", "reset"), _WATCHDOG),
        image_property="hw_watchdog_action",
        extra_spec="hw:watchdog_action",
        precedence=Precedence("image"),
    ),
    Row(
        "firmware_type",
        unknown_to_nova(terms("COMPUTE_FIRMWARE", "bios uefi")),
        image_property="hw_firmware_type",
        # On libvirt 9.0 guests of Nova 33 and 34 start with Secure Boot, and
        # not without.
        constraints={
            "uefi": Constraints(implied_by=("secure_boot", "required"))
        },
    ),
    Row(
        "machine_type",
        terms("CUSTOM_COMPUTE_MACHINE", " ".join(machine_types.MACHINES)),
        image_property="hw_machine_type",
        spelling=Spelling(prefixes=machine_types.MACHINE_PREFIXES),
    ),
    # No request requires it; filters forbid it where the default machine type
    # can never have a device.
    Row(
        "default_machine",
        terms(
            "CUSTOM_COMPUTE_DEFAULT_MACHINE",
            " ".join(
                (
                    *machine_types.MACHINES,
                    machine_types.OTHER,
                )
            ),
        ),
        required_by=(),
    ),
    # No request requires these either. Nova's libvirt driver reports network
    # cards and sound models by lists of its own, whatever QEMU has: filters
    # forbid the hosts where they are wrong. Of spapr-vlan and lan9118 the
    # machine types decide.
    Row(
        "lacking_vif_model",
        terms(
            "CUSTOM_COMPUTE_LACKS_NET_VIF_MODEL",
            "e1000 e1000e igb ne2k_pci pcnet rtl8139 virtio vmxnet3",
        ),
        required_by=(),
    ),
    Row(
        "lacking_sound_model",
        terms("CUSTOM_COMPUTE_LACKS_SOUND_MODEL", _SOUND_MODELS),
        required_by=(),
    ),
    Row(
        "cpu_models",
        {"several": Term(SEVERAL_CPU_MODELS)},
        required_by=(),
    ),
    Row(
        # A host reports every type whose images it runs: KVM hosts report KVM
        # and QEMU (ADR 0004).
        "hypervisor_type",
        terms(
            "CUSTOM_HYPERVISOR_TYPE",
            "baremetal bhyve docker fake hyperv ironic kqemu kvm lxc lxd"
            " openvz parallels phyp prsm qemu test uml vbox vmware vz xen zvm",
        ),
        image_property="img_hv_type",
        spelling=Spelling(older={"xapi": "xen"}),
    ),
    Row(
        "vm_mode",
        terms("CUSTOM_VM_MODE", "exe hvm uml xen"),
        image_property="hw_vm_mode",
        spelling=Spelling(
            older={"pv": "xen", "hv": "hvm", "baremetal": "hvm"}
        ),
    ),
    Row(
        "time_hpet",
        switch(HPET),
        image_property="hw_time_hpet",
        required_by=("hpet",),
    ),
    Row(
        "packed_virtqueue",
        switch("COMPUTE_NET_VIRTIO_PACKED", "the split ring is always there"),
        image_property="hw_virtio_packed_ring",
        extra_spec="hw:virtio_packed_ring",
        # libvirt refuses it for other interfaces.
        constraints={
            "true": Constraints(
                incompatible=(
                    (
                        "vif_model",
                        tuple(
                            model
                            for model in _VIFS.split()
                            if model != "virtio"
                        ),
                    ),
                )
            )
        },
        required_by=("packed_virtqueue",),
    ),
    Row(
        "ephemeral_encryption",
        switch(
            "COMPUTE_EPHEMERAL_ENCRYPTION",
            "not encrypting is possible everywhere",
        ),
        image_property="hw_ephemeral_encryption",
        extra_spec="hw:ephemeral_encryption",
        required_by=("ephemeral_encryption",),
    ),
    Row(
        "ephemeral_encryption_format",
        terms("COMPUTE_EPHEMERAL_ENCRYPTION", "luks luksv2 plain"),
        image_property="hw_ephemeral_encryption_format",
        extra_spec="hw:ephemeral_encryption_format",
        depends_on=DependsOn("ephemeral_encryption"),
        refuses_unknown=True,
        required_by=("ephemeral_encryption",),
    ),
    Row(
        "tpm_secret_security",
        terms("COMPUTE_SECURITY_TPM_SECRET_SECURITY", "deployment host user"),
        extra_spec="hw:tpm_secret_security",
        depends_on=DependsOn("tpm_version", default="user"),
        refuses_unknown=True,
        required_by=("tpm_secret_security",),
    ),
    Row(
        "device_profile",
        {
            "any": Term(Trait("COMPUTE_ACCELERATORS")),
            "": nothing("no profile is named"),
        },
        extra_spec="accel:device_profile",
        # The name is free text; any name requires a compute service that can
        # attach its devices.
        spelling=Spelling(prefixes={"": "any"}),
        required_by=("accelerators",),
    ),
    Row(
        "image_type",
        terms(
            "COMPUTE_IMAGE_TYPE",
            "aki ami ari iso ploop qcow2 raw vdi vhd vhdx vmdk",
        ),
        image_attribute="disk_format",
        spelling=Spelling(any_case=True),
        required_by=("image_type",),
    ),
)
"""The rows that request filters require."""

DEVICES = frozenset(
    (
        *("vif_model", "video_model", "disk_bus", "cdrom_bus", "scsi_model"),
        *("viommu_model", "sound_model", "usb_model", "usb_redirection"),
        *("input_bus", "pointer_model", "watchdog", "packed_virtqueue"),
        *("firmware_type", "machine_type", "time_hpet"),
    )
)
"""Rows of what a guest has, as hosts report it of their own architecture."""
