# SPDX-License-Identifier: Apache-2.0

"""Where we differ from Nova on purpose: THE list, which the tests use and the
documentation is made from.

Each entry says what Nova does, what we do, and why; and computes our answer
from Nova's, exactly. Applied one after the other to Nova's answer for any
request, the entries must give ours. This module imports nothing of Nova.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.against_nova import becomes
from tests.against_nova.becomes import Answer, Nova

QUERY = "query"
_IMAGE_READERS = (
    "ephemeral_encryption",
    "image_metadata",
    "image_type",
    "packed_virtqueue",
    "sound_model",
    "tpm_secret_security",
)


@dataclass(frozen=True)
class Difference:
    title: str
    of: tuple[str, ...]
    """The filters, or :data:`QUERY`."""
    nova: str
    ours: str
    reason: str
    becomes: Callable[[Answer, Any, Nova], Answer]
    """``(what Nova answers, request spec, Nova) -> what we answer``; the same
    where the difference does not apply.
    """
    before: int = 0
    """The version of Nova that does as we do; 0 if none does."""
    since: int = 0
    """The version of Nova that brought it; an older one does not know its
    properties. 0 if it is older than all.
    """
    properties: Mapping[str, str] = field(default_factory=dict)
    """Image properties of a request that shows it."""
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    """Extra specs of the flavor of a request that shows it."""
    upstream: tuple[str, ...] = ()
    """Names of bugs (:mod:`tests.against_nova.upstream`) that it avoids."""
    change: Callable[[Any], object] = lambda _spec: None
    """What else the request needs to show it. It has a PCI device of the
    flavor's, and an empty destination.
    """


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "A request without an image",
        of=_IMAGE_READERS,
        nova="fails with an internal error",
        ours="asks for nothing that only an image could ask for",
        reason=(
            "the field may be null, and is for some servers that boot from a"
            " volume"
        ),
        upstream=("request-without-image",),
        becomes=becomes.completed,
        change=lambda spec: setattr(spec, "image", None),
    ),
    Difference(
        "A flavor whose extra specs are not set",
        of=("accelerators",),
        nova="fails with an internal error",
        ours="asks for nothing",
        reason="the field may be left unset",
        becomes=becomes.completed,
        change=lambda spec: delattr(spec.flavor, "_obj_extra_specs"),
    ),
    Difference(
        "An extra spec that is empty",
        of=(QUERY, "ephemeral_encryption", "packed_virtqueue"),
        nova=(
            "takes it for false in some places, for a contradiction of the"
            " image in others, and ignores it in most"
        ),
        ours="ignores it everywhere",
        reason="it says nothing",
        becomes=becomes.empty_says_nothing,
        properties={
            "hw_virtio_packed_ring": "true",
            "hw_ephemeral_encryption": "true",
            "hw_cpu_thread_policy": "require",
        },
        extra_specs={
            "hw:virtio_packed_ring": "",
            "hw:ephemeral_encryption": "",
            "hw:cpu_thread_policy": "",
        },
    ),
    Difference(
        "A boolean extra spec that is no boolean",
        of=("ephemeral_encryption", "packed_virtqueue"),
        nova="takes it for false, which contradicts an image that says true",
        ours=(
            "warns and ignores it, or refuses the request (unknown_values ="
            " reject)"
        ),
        reason='a misspelt "true" is not a wish for the opposite',
        becomes=becomes.no_boolean_says_nothing,
        properties={
            "hw_virtio_packed_ring": "true",
            "hw_ephemeral_encryption": "true",
        },
        extra_specs={
            "hw:virtio_packed_ring": "maybe",
            "hw:ephemeral_encryption": "maybe",
        },
    ),
    Difference(
        "Stateless firmware without UEFI",
        of=(QUERY,),
        nova="before Nova 34, refuses the request",
        ours="ignores it, as Nova 34 does",
        reason="only UEFI has state",
        upstream=("stateless-without-uefi",),
        becomes=becomes.stateless_is_ignored,
        before=34,
        since=30,
        properties={"hw_firmware_stateless": "true"},
    ),
    Difference(
        "The model of a TPM",
        of=(QUERY,),
        nova=(
            "before Nova 30, requires the trait of its version alone, and its"
            " hosts report no model"
        ),
        ours="requires the trait of the model as well, as Nova 30 does",
        reason="a host must have both",
        upstream=("tpm-model",),
        becomes=becomes.tpm_model,
        before=30,
        properties={"hw_tpm_version": "2.0", "hw_tpm_model": "tpm-crb"},
    ),
    Difference(
        "The model of memory encryption",
        of=(QUERY,),
        nova=(
            "before Nova 32, requires the resource alone, and does not know"
            " hw:mem_encryption_model"
        ),
        ours="requires the trait of the model as well, as Nova 32 does",
        reason="hosts have the resource for several models",
        becomes=becomes.mem_encryption_model,
        before=32,
        properties={
            "hw_mem_encryption": "true",
            "hw_firmware_type": "uefi",
            "hw_machine_type": "q35",
        },
    ),
    Difference(
        "The width of physical addresses",
        of=(QUERY,),
        nova="Nova 27 does not know hw:maxphysaddr_mode",
        ours="requires the trait of the mode, as Nova 29 does",
        reason="the extra spec says so",
        becomes=becomes.maxphysaddr_mode,
        before=29,
        extra_specs={"hw:maxphysaddr_mode": "emulate"},
    ),
    Difference(
        "hw:mem_encryption that is no boolean",
        of=(QUERY,),
        nova="takes it for false",
        ours="refuses the request",
        reason=(
            "an instance must not run unencrypted because of a misspelt extra"
            " spec"
        ),
        upstream=("misspelt-encryption",),
        becomes=becomes.no_boolean_is_refused,
        extra_specs={"hw:mem_encryption": "maybe"},
    ),
    Difference(
        "What Nova's scheduler adds after from_request_spec",
        of=(QUERY,),
        nova=(
            "adds the aggregates and the host of requested_destination, and"
            " group_policy=none where two groups came from outside the flavor,"
            " in resources_from_request_spec"
        ),
        ours=(
            "has them in the query at once; a host's name must have become"
            " in_tree, and limit is the caller's"
        ),
        reason=(
            "without them the query asks for the wrong hosts, or Placement"
            " refuses it"
        ),
        becomes=becomes.as_sent,
        change=lambda spec: spec.requested_destination.require_aggregates(
            ["33333333-3333-4333-8333-333333333333"]
        ),
    ),
    Difference(
        "A group without resources, an empty same_subtree",
        of=(QUERY,),
        nova=(
            "sends an empty parameter, resources_X= or same_subtree=, which"
            " Placement refuses"
        ),
        ours="leaves the parameter out",
        reason="a group of traits alone is allowed beside same_subtree",
        becomes=becomes.no_empty_parameter,
        extra_specs={"trait_x:CUSTOM_RAID": "required"},
    ),
    Difference(
        "One value without a trait",
        of=("image_metadata",),
        nova=(
            "drops the traits of all properties of that image, and lets every"
            " host pass"
        ),
        ours="leaves out that one requirement, and says so",
        reason="the other properties are as important as before",
        upstream=("one-value-drops-all", "emulated-architectures"),
        becomes=becomes.each_alone,
        properties={
            "hw_vif_model": "e1000e",
            "hw_architecture": "x86_64",
            "hw_emulation_architecture": "sparc",
        },
    ),
    Difference(
        "vIOMMU models",
        of=("image_metadata",),
        nova=(
            "makes COMPUTE_VIOMMU_<X> of hw_viommu_model, which no os-traits"
            " has, and does not read hw:viommu_model"
        ),
        ours=(
            "requires COMPUTE_VIOMMU_MODEL_<X>, of the flavor's extra spec"
            " before the image's property"
        ),
        reason=(
            "that is the trait that the libvirt driver reports, and the model"
            " that it gives the guest"
        ),
        upstream=("viommu-trait", "viommu-of-flavor"),
        becomes=becomes.viommu,
        properties={"hw_viommu_model": "intel"},
    ),
    Difference(
        "32-bit x86",
        of=("image_metadata",),
        nova=(
            "requires HW_ARCH_I686 for hw_architecture=i686, and has no trait"
            " for hw_emulation_architecture=i686"
        ),
        ours="requires HW_ARCH_X86_64, and COMPUTE_ARCH_X86_64",
        reason=(
            "an x86_64 host runs it, and reports HW_ARCH_X86_64 alone; the"
            " emulator is that of x86_64"
        ),
        upstream=("i686-excludes-all",),
        becomes=becomes.i686,
        properties={"hw_architecture": "i686"},
    ),
    Difference(
        "Sound models",
        of=("image_metadata", "sound_model"),
        nova="requires a trait for virtio alone, in a filter of its own",
        ours="requires the trait of every model",
        reason=(
            "the libvirt driver reports each of them, and a host without it"
            " fails the spawn"
        ),
        upstream=("sound-models",),
        becomes=becomes.sound,
        since=32,
        properties={"hw_sound_model": "ich9"},
    ),
    Difference(
        "Image and flavor that ask for different USB controllers, or numbers"
        " of redirected USB ports",
        of=("image_metadata",),
        nova="schedules it, and the libvirt driver of each host refuses it",
        ours="refuses it before anything is scheduled",
        reason="no host can do both",
        becomes=becomes.usb,
        since=32,
        properties={"hw_usb_model": "nec-xhci"},
        extra_specs={"hw:usb_model": "qemu-xhci"},
    ),
    Difference(
        "Devices of a guest of an emulated architecture",
        of=("image_metadata", "sound_model", "packed_virtqueue"),
        nova=(
            "requires their traits, which a host has if guests of any"
            " architecture can have them"
        ),
        ours="requires none of them, and says so",
        reason=(
            "what guests of the host's own architecture can have says nothing"
            " of an emulated one"
        ),
        becomes=becomes.without_emulated_devices,
        properties={
            "hw_emulation_architecture": "aarch64",
            "hw_disk_bus": "scsi",
            "hw_vif_model": "virtio",
            "hw_sound_model": "virtio",
            "hw_virtio_packed_ring": "true",
        },
    ),
    Difference(
        "A device that no guest of the machine type, or of i686, has",
        of=("image_metadata", "sound_model"),
        nova=(
            "schedules it, and each host fails to start it, or starts it"
            " without the device"
        ),
        ours=(
            "refuses it before anything is scheduled; a bus counts only where"
            " the guest has a disk or CD-ROM on it"
        ),
        reason="no host can do both",
        becomes=becomes.impossible,
        since=32,
        properties={"hw_machine_type": "virt", "hw_sound_model": "sb16"},
    ),
    Difference(
        "Packed rings of a network card that has none",
        of=("packed_virtqueue",),
        nova="schedules it, and each host fails to start it",
        ours="refuses it before anything is scheduled",
        reason="libvirt has them for virtio alone",
        becomes=becomes.impossible,
        since=29,
        properties={"hw_virtio_packed_ring": "true", "hw_vif_model": "e1000"},
    ),
    Difference(
        "A request that requires OWNER_NOVA already",
        of=("owner",),
        nova="leaves the groups of PCI devices without it",
        ours="requires there what it requires of other requests",
        reason="the groups need it as much as without",
        upstream=("owner-at-second-run",),
        becomes=becomes.owner_on_groups,
        change=lambda spec: spec.root_required.add("OWNER_NOVA"),
    ),
    Difference(
        "The groups of PCI devices",
        of=("owner",),
        nova="requires OWNER_NOVA",
        ours="requires COMPUTE_MANAGED_PCI_DEVICE",
        reason=(
            "Nova gives both to its PCI devices; before version 34, it removes"
            " OWNER_NOVA from them"
        ),
        becomes=becomes.trait_of_pci_devices,
    ),
    Difference(
        "The flavor's own groups",
        of=("owner",),
        nova=(
            "leaves them alone: resources1:VGPU=1 may be given another"
            " service's GPU"
        ),
        ours=(
            "requires OWNER_NOVA on each group that asks for a class whose"
            " providers Nova creates, and COMPUTE_MANAGED_PCI_DEVICE where"
            " that is CUSTOM_PCI_*"
        ),
        reason=(
            "measured on a real Placement: the root's trait does not bind its"
            " children"
        ),
        becomes=becomes.owner_on_flavors_groups,
        extra_specs={"resources1:VGPU": "1"},
    ),
    Difference(
        "Nested resources in the group without a suffix",
        of=("owner",),
        nova=(
            "leaves it alone: resources:VGPU=1 may be given another"
            " service's GPU"
        ),
        ours=(
            "asks for a class whose providers Nova creates in a group of its"
            " own, with the same trait, unless that could ask for something"
            " else (a required trait that the device may have, group_policy);"
            " then, and for other classes, it forbids the traits of other"
            " owners in the group without a suffix, and an image that requires"
            " one of them is refused"
        ),
        reason=(
            "a trait that is required there may be met by any provider of that"
            " group, the root above all"
        ),
        upstream=("owner-of-gpus",),
        becomes=becomes.not_anothers,
        extra_specs={"resources:VGPU": "1"},
    ),
    Difference(
        "The groups of device profiles",
        of=("owner",),
        nova=(
            "leaves them alone: a profile for a GPU may be given one of Nova's"
        ),
        ours=(
            "forbids OWNER_NOVA on each that asks for resources, unless it"
            " requires the trait itself"
        ),
        reason=(
            "a profile cannot name an owner, and most of Cyborg's drivers do"
            " not report theirs"
        ),
        becomes=becomes.not_of_profiles,
        # A group of another origin becomes one of a profile.
        change=lambda spec: setattr(
            spec.requested_resources[0], "requester_id", "device_profile_0"
        ),
    ),
)
"""In the order in which they are applied."""


def _any_network(spec: Any) -> None:
    (port,) = spec.requested_networks
    port.network_id = port.port_id = None


AGGREGATE_DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "A request without a project",
        of=("tenant_isolation",),
        nova="fails with an internal error",
        ours=(
            "treats it as one of a project that no aggregate is for: nothing"
            " is required, or it is rejected (tenant_aggregate_required)"
        ),
        reason="the field may be null or unset",
        becomes=becomes.as_of_another_project,
        change=lambda spec: setattr(spec, "project_id", None),
    ),
    Difference(
        "A request whose availability zone is not set",
        of=("availability_zone",),
        nova="fails with an internal error",
        ours="requires no zone",
        reason="the field may be left unset",
        becomes=becomes.nothing_required,
        change=lambda spec: delattr(spec, "_obj_availability_zone"),
    ),
    Difference(
        "A requested network that names neither a network nor a port",
        of=("routed_networks",),
        nova=(
            "fails with an internal error, or requires the aggregates of the"
            " network before it again"
        ),
        ours="requires nothing of it",
        reason="it says nothing",
        becomes=becomes.without_unnamed_networks,
        change=_any_network,
    ),
)
"""Of the filters that are for other schedulers: Nova's own take their place
inside nova-scheduler.
"""
