"""Image properties and extra specs that Nova knows and the vocabulary has no row for, each with the reason.

With the rows they are all that Nova has: a test compares both with ``ImageMetaProps`` and with the validators of extra
specs of the installed Nova. Read from Nova 27.5, 29.4, 30.3, 31.3, 32.2, 33.0 and 34.0 (``nova/objects/image_meta.py``,
``nova/api/validation/extra_specs``, ``nova/compute/api.py``, ``nova/scheduler``, ``nova/virt``).
"""

from fnmatch import fnmatchcase
from typing import NamedTuple


class WithoutRow(NamedTuple):
    """Properties that require no trait of a host, for one reason."""

    reason: str
    image_properties: tuple[str, ...]
    extra_specs: tuple[str, ...]
    """Names as Nova's validators have them; ``*`` stands for any text."""

    def has_extra_spec(self, name: str) -> bool:
        """Whether an extra spec is one of these."""
        return any(fnmatchcase(name, pattern) for pattern in self.extra_specs)


def _names(reason: str, *, image: str = "", flavor: str = "") -> WithoutRow:
    return WithoutRow(reason, tuple(image.split()), tuple(flavor.split()))


WITHOUT_ROWS: tuple[WithoutRow, ...] = (
    # What Nova translates, or decides with the state of each host.
    _names(
        "the query has it as resources, traits or groups",
        image="traits_required",
        flavor="resources*:* trait*:* group_policy hw:pmem hw:cpu_dedicated_mask",
    ),
    _names(
        "Nova's NUMATopologyFilter compares it with the cells and the free pages of each host",
        image="hw_mem_page_size hw_numa_nodes hw_numa_cpus hw_numa_mem",
        flavor="hw:mem_page_size hw:numa_nodes hw:numa_cpus.* hw:numa_mem.*",
    ),
    _names("Nova's PciPassthroughFilter finds the devices, or Placement does", flavor="pci_passthrough:alias"),
    _names(
        "Nova's ImagePropertiesFilter compares it with what each host reports; a trait cannot compare numbers",
        image="img_hv_requested_version hw_maxphysaddr_bits",
    ),
    _names("Nova's ComputeCapabilitiesFilter compares it with what each host reports", flavor="capabilities:*"),
    _names(
        "Nova's AggregateInstanceExtraSpecsFilter compares it with the aggregates of each host",
        flavor="aggregate_instance_extra_specs:*",
    ),
    # Read of another image than the server's, or of a device that few guests get.
    _names(
        "Nova reads it of the image that a server is rescued with, on the host where the server is; of a server that "
        "boots from a volume, nova-api checks COMPUTE_RESCUE_BFV of that host",
        image="hw_rescue_bus hw_rescue_device",
    ),
    _names("a guest has no floppy disk unless its user adds one", image="hw_floppy_bus"),
    # Every host of the drivers that read it can do it.
    _names(
        "it arranges the guest's CPUs; every libvirt host can, and other drivers arrange none",
        image="hw_cpu_sockets hw_cpu_cores hw_cpu_threads hw_cpu_max_sockets hw_cpu_max_cores hw_cpu_max_threads",
        flavor="hw:cpu_sockets hw:cpu_cores hw:cpu_threads hw:cpu_max_sockets hw:cpu_max_cores hw:cpu_max_threads",
    ),
    _names(
        "Nova 27 and 29 validate these names, and no Nova reads them",
        flavor="hw:max_cpu_sockets hw:max_cpu_cores hw:max_cpu_threads",
    ),
    _names(
        "it schedules the guest's dedicated CPUs; hw:cpu_policy requires those",
        image="hw_cpu_realtime_mask",
        flavor="hw:cpu_realtime hw:cpu_realtime_mask",
    ),
    _names(
        "it locks the guest's memory, which every KVM and QEMU host can; Nova refuses it without hw:mem_page_size, "
        "which only those hosts have",
        image="hw_locked_memory",
        flavor="hw:locked_memory",
    ),
    _names(
        "every KVM and QEMU host can, and the guests of other drivers run without it",
        image="hw_boot_menu hw_vif_multiqueue_enabled hw_qemu_guest_agent img_hide_hypervisor_id "
        "os_require_quiesce os_admin_user os_command_line",
        flavor="hw:boot_menu hw:vif_multiqueue_enabled hw:hide_hypervisor_id hide_hypervisor_id",
    ),
    _names(
        "QEMU has the unit for guests of x86 and ARM; hw_architecture leads to a host of those",
        image="hw_pmu",
        flavor="hw:pmu",
    ),
    _names(
        "Nova 34 gives every guest of KVM and QEMU a random number generator, unless its flavor says no; no supported "
        "Nova reads the model",
        image="hw_rng_model",
        flavor="hw_rng:allowed hw_rng:rate_bytes hw_rng:rate_period",
    ),
    _names(
        "it counts only where nova.conf of the host has [serial_console] enabled, and every libvirt host can",
        image="hw_serial_port_count",
        flavor="hw:serial_port_count",
    ),
    _names(
        "the flavor limits the amount, which the libvirt and VMware drivers give to any video card",
        image="hw_video_ram",
        flavor="hw_video:ram_max_mb",
    ),
    _names(
        "it limits or reserves what a guest gets of its host: an amount, of which a trait says nothing",
        flavor="quota:cpu_* quota:memory_* quota:disk_* quota:vif_*",
    ),
    _names("it names the secret for hw_ephemeral_encryption", image="hw_ephemeral_encryption_secret_uuid"),
    _names(
        "hosts verify signatures by [glance] verify_glance_signatures of nova.conf, which is to be the same on all",
        image="img_signature img_signature_hash_method img_signature_key_type img_signature_certificate_uuid",
    ),
    # nova/virt/osinfo.py; what it takes is of the installed osinfo-db.
    _names(
        "where nova-compute has libosinfo, the libvirt driver takes the model of the NIC and the bus of the disk from "
        "it, such as e1000e for win2k19, and no trait is required for these: name them by hw_vif_model and hw_disk_bus",
        image="os_distro",
    ),
    _names(
        "it sets the clock, the Hyper-V features and the file system of ephemeral disks, which every host can",
        image="os_type",
    ),
    # Drivers for which it is a matter of aggregates.
    _names(
        "only the VMware driver reads it; img_hv_type=vmware leads to one of its clusters, and every cluster can",
        image="hw_disk_type img_linked_clone",
        flavor="vmware:hw_version",
    ),
    _names(
        "only the VMware driver reads it; the policies of a cluster have names of the operator's, so name a trait or "
        "an aggregate in the same flavor",
        flavor="vmware:storage_policy",
    ),
    # Of the control plane.
    _names(
        "nova-api makes the server's volumes and devices of it",
        image="img_bdm_v2 img_block_device_mapping img_mappings img_root_device_name",
    ),
    _names("nova-api compares it with the request, and no driver reads it", image="hw_auto_disk_config"),
    _names("Nova decides by it which projects see the image", image="img_owner_id"),
    _names("every driver gives a guest a config drive", image="img_config_drive"),
    _names(
        "no supported Nova reads it",
        image="hw_device_id hw_ipxe_boot img_bittorrent img_cache_in_nova img_compression_level "
        "img_use_agent img_version os_skip_agent_inject_files_at_boot os_skip_agent_inject_ssh",
    ),
    _names(
        "of the Hyper-V driver, which Nova 29 no longer has",
        flavor="os:monitors os:resolution os:vram",
    ),
)
"""All of them."""


def reason_without_row(name: str) -> str:
    """Return why an image property or extra spec has no row; empty if it is none of these."""
    found = (each for each in WITHOUT_ROWS if name in each.image_properties or each.has_extra_spec(name))
    return next((each.reason for each in found), "")
