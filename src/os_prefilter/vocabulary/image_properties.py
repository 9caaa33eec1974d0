# SPDX-License-Identifier: Apache-2.0

"""Image properties in Nova: names, legacy names, spelling of values.

Nova hands its filters no dictionary but an object with a field for each
property that it knows (``nova/objects/image_meta.py``, 34.0.0); any other
property is gone before a request filter sees it. The tests compare these lists
with that class.
"""

from __future__ import annotations

from collections.abc import Mapping

LEGACY_NAMES: Mapping[str, str] = {
    "architecture": "hw_architecture",
    "auto_disk_config": "hw_auto_disk_config",
    "bdm_v2": "img_bdm_v2",
    "bittorrent": "img_bittorrent",
    "block_device_mapping": "img_block_device_mapping",
    "cache_in_nova": "img_cache_in_nova",
    "hypervisor_type": "img_hv_type",
    "hypervisor_version_requires": "img_hv_requested_version",
    "ipxe_boot": "hw_ipxe_boot",
    "mappings": "img_mappings",
    "owner_id": "img_owner_id",
    "root_device_name": "img_root_device_name",
    "vm_mode": "hw_vm_mode",
    "vmware_disktype": "hw_disk_type",
    "vmware_image_version": "img_version",
    "vmware_linked_clone": "img_linked_clone",
    "vmware_ostype": "os_distro",
    "xenapi_device_id": "hw_device_id",
    "xenapi_image_compression_level": "img_compression_level",
    "xenapi_skip_agent_inject_files_at_boot": (
        "os_skip_agent_inject_files_at_boot"
    ),
    "xenapi_skip_agent_inject_ssh": "os_skip_agent_inject_ssh",
    "xenapi_use_agent": "img_use_agent",
}
"""Legacy name -> current name."""

_BOOLEANS = """
hw_boot_menu hw_ephemeral_encryption hw_firmware_stateless hw_ipxe_boot
hw_locked_memory hw_mem_encryption hw_pmu hw_qemu_guest_agent hw_time_hpet
hw_vif_multiqueue_enabled hw_virtio_packed_ring img_bdm_v2 img_bittorrent
img_cache_in_nova img_hide_hypervisor_id img_linked_clone img_use_agent
os_require_quiesce os_skip_agent_inject_files_at_boot os_skip_agent_inject_ssh
"""

BOOLEANS = frozenset(_BOOLEANS.split())
"""Properties whose value Nova keeps as a boolean; any other spelling is False.
"""

_OTHERS = """
hw_architecture hw_auto_disk_config hw_cdrom_bus hw_cpu_cores hw_cpu_max_cores
hw_cpu_max_sockets hw_cpu_max_threads hw_cpu_policy hw_cpu_realtime_mask
hw_cpu_sockets hw_cpu_thread_policy hw_cpu_threads hw_device_id hw_disk_bus
hw_disk_type hw_emulation_architecture hw_ephemeral_encryption_format
hw_ephemeral_encryption_secret_uuid hw_firmware_type hw_floppy_bus hw_input_bus
hw_machine_type hw_maxphysaddr_bits hw_maxphysaddr_mode hw_mem_encryption_model
hw_mem_page_size hw_numa_nodes hw_pci_numa_affinity_policy hw_pointer_model
hw_redirected_usb_ports hw_rescue_bus hw_rescue_device hw_rng_model
hw_scsi_model hw_serial_port_count hw_sound_model hw_tpm_model hw_tpm_version
hw_usb_model hw_video_model hw_video_ram hw_vif_model hw_viommu_model
hw_vm_mode hw_watchdog_action img_compression_level img_config_drive
img_hv_requested_version img_hv_type img_owner_id img_root_device_name
img_signature img_signature_certificate_uuid img_signature_hash_method
img_signature_key_type img_version os_admin_user os_command_line os_distro
os_secure_boot os_type
"""

KEPT_BY_NOVA = BOOLEANS | frozenset(_OTHERS.split())
"""Properties that a filter inside Nova can see as one value.

Lists (``hw_numa_cpus.0`` and the like) are not.
"""

LISTS = frozenset(
    (
        "hw_numa_cpus",
        "hw_numa_mem",
        "img_block_device_mapping",
        "img_mappings",
        "traits_required",
    )
)
"""Fields of Nova's that have no single value."""

LOWER_CASED = frozenset(("os_type",))
"""Properties without a row whose value Nova lower-cases."""
