"""Names of image properties and extra specs: those without a row, each with the reason, and notes on unknown ones.

With the rows they are all that Nova has: a test compares both with ``ImageMetaProps`` and with the validators of extra
specs of the installed Nova. Read from Nova 27.5, 29.4, 30.3, 31.3, 32.2, 33.0 and 34.0 (``nova/objects/image_meta.py``,
``nova/api/validation/extra_specs``, ``nova/compute/api.py``, ``nova/scheduler``, ``nova/virt``).
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from itertools import chain, islice
from typing import NamedTuple

from os_prefilter.common.quoting import quote
from os_prefilter.request.remarks import LONGEST_NAME, known_properties, nearest_name, nearest_property
from os_prefilter.request.requirements import Note
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import ROWS, table
from os_prefilter.vocabulary.config_templates import PREFIX

# Between the names that are free. os_* is not: Glance and users have properties of their own there.
_OF_NOVA = ("hw_", "img_")
_FREE_IN_IMAGE = re.compile(rf"(trait:|{PREFIX}|hw_numa_(cpus|mem)\.\d+$)")
_FREE_IN_FLAVOR = re.compile(rf"((resources|trait)[a-zA-Z0-9_-]{{0,64}}:|preferred_trait:|{PREFIX})")
_OTHERS = ("resources:", "trait:", "preferred_trait:", PREFIX, "capabilities:", "aggregate_instance_extra_specs:")
_CUTOFF = 0.8
# A request may have any number of them.
_MOST = 10


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


def notes_on_names(request: Request) -> Iterator[Note]:
    """Yield a note for each image property and extra spec that Nova does not know, and that looks like one of its own.

    Slow, for commands: a scheduler has better things to do for each request.
    """
    for names, place, problem in (
        (request.image_properties, "image property", _problem_of_property),
        (request.extra_specs, "flavor extra spec", _problem_of_extra_spec),
    ):
        found = ((name, problem(name)) for name in names if isinstance(name, str) and len(name) <= LONGEST_NAME)
        yield from islice((Note(f"{place} {name}", text, warn=True) for name, text in found if text), _MOST)


@lru_cache(maxsize=4096)
def _problem_of_property(name: str) -> str:
    if name in known_properties() or _FREE_IN_IMAGE.match(name):
        return ""
    close = nearest_property(name)
    if close or name.startswith(_OF_NOVA):
        return f"Nova does not know it, and drops it{close}"
    return ""


@lru_cache(maxsize=4096)
def _problem_of_extra_spec(name: str) -> str:
    if name in _extra_specs() or _FREE_IN_FLAVOR.match(name) or reason_without_row(name):
        return ""
    namespace, colon, rest = name.partition(":")
    of_nova = f"{namespace}:" in _namespaces()
    known = [each for each in _extra_specs() if of_nova == each.startswith(f"{namespace}:")]
    close = nearest_name(name, known if of_nova or not colon else [])
    others = () if of_nova or not colon else sorted((*_namespaces(), *_OTHERS))
    for other in get_close_matches(f"{namespace}:", others, cutoff=_CUTOFF):
        if other != f"{namespace}:" and not _problem_of_extra_spec(f"{other}{rest}"):
            close = f". Did you mean {quote(other + rest)}?"
            break
    if not close and name.startswith(_OF_NOVA) and name in known_properties():
        return "Nova reads it of an image alone"
    return f"Nova knows no such extra spec{close}" if of_nova or close else ""


@cache
def _extra_specs() -> frozenset[str]:
    others = chain.from_iterable(each.extra_specs for each in WITHOUT_ROWS)
    return frozenset(name for name in (*(row.extra_spec for row in table()), *others) if name and "*" not in name)


@cache
def _namespaces() -> frozenset[str]:
    """Return the namespaces of which Nova knows all extra specs."""
    names = chain((row.extra_spec or "" for row in ROWS), *(each.extra_specs for each in WITHOUT_ROWS))
    return frozenset(f"{start}:" for start, colon, rest in (name.partition(":") for name in names) if rest.strip("*"))
