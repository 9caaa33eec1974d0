# SPDX-License-Identifier: Apache-2.0

"""The traits of a libvirt host are those that Nova's own driver reports of it,
but for the differences listed here.

The page "What a libvirt host reports" has their reasons.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from nova import conf as nova_conf
from nova.virt.libvirt import config as nova_config
from nova.virt.libvirt import driver
from nova.virt.libvirt import host as nova_host

from os_prefilter import capability_traits
from os_prefilter.adapters.libvirt.documents import domain_capabilities_from
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from tests.support.corpus import corpus_files, corpus_hosts
from tests.support.hosts import with_every_device
from tests.support.libvirt_xml import domain_capabilities
from tests.support.libvirt_xml import facts as facts_of

_SYNTHETIC = (
    domain_capabilities(
        machine="pc-i440fx-7.2",
        buses="ide fdc scsi virtio usb sata",
        video="vga qxl virtio none",
    ),
    domain_capabilities(
        machine="pc-q35-7.2",
        buses="fdc scsi virtio usb sata",
        video="vga bochs",
        secure="no yes",
    ),
)
_CASES = [
    (facts_of(None, *_SYNTHETIC), _SYNTHETIC),
    *((facts, corpus_files(facts)) for facts in corpus_hosts()),
]


def _nova_traits(
    facts: LibvirtFacts, documents: tuple[bytes, ...]
) -> dict[str, bool]:
    host = nova_host.Host.__new__(nova_host.Host)
    host._supports_secure_boot = None
    answers: dict[str, dict[str, Any]] = defaultdict(dict)
    for number, document in enumerate(documents):
        parsed = nova_config.LibvirtConfigDomainCaps()
        parsed.parse_str(document.decode())
        answers[domain_capabilities_from("test", document).architecture][
            str(number)
        ] = parsed
    architecture = SimpleNamespace(
        host=SimpleNamespace(cpu=SimpleNamespace(arch=facts.architecture))
    )
    drv = driver.LibvirtDriver.__new__(driver.LibvirtDriver)
    drv._host = host
    with (
        mock.patch.object(
            host, "get_domain_capabilities", return_value=answers
        ),
        mock.patch.object(host, "get_capabilities", return_value=architecture),
        mock.patch.object(
            host,
            "has_min_version",
            lambda *args, **options: _new_enough(facts, *args, **options),
        ),
    ):
        conf = nova_conf.CONF
        conf.set_override("virt_type", facts.virt_type, "libvirt")
        conf.set_override("swtpm_enabled", facts.swtpm_enabled, "libvirt")
        try:
            return {
                **drv._get_vif_model_traits(),
                **drv._get_storage_bus_traits(),
                **drv._get_video_model_traits(),
                **drv._get_iommu_model_traits(),
                **drv._get_tpm_traits(),
                **drv._get_packed_virtqueue_traits(),
                **drv._get_sound_model_traits(),
                **drv._get_cpu_arch_traits(),
                **drv._get_cpu_emulation_arch_traits(),
                "COMPUTE_SECURITY_UEFI_SECURE_BOOT": host.supports_secure_boot,
            }
        finally:
            conf.clear_override("virt_type", "libvirt")
            conf.clear_override("swtpm_enabled", "libvirt")


def _new_enough(
    facts: LibvirtFacts,
    lv_ver: Any = None,
    hv_ver: Any = None,
    hv_type: Any = None,
) -> bool:
    return (lv_ver is None or facts.libvirt_version >= lv_ver) and (
        hv_ver is None or facts.hypervisor_version >= hv_ver
    )


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case[0].host)
def test_libvirt_traits_equal_those_of_the_nova_driver(
    case: tuple[LibvirtFacts, tuple[bytes, ...]],
) -> None:
    facts, nova = with_every_device(case[0]), _nova_traits(*case)
    ours = capability_traits(facts)
    # Nova reports an architecture that no image of its own can name.
    different = {
        trait for trait, has in nova.items() if ours.get(trait, False) != has
    } - {"COMPUTE_ARCH_RISCV64"}
    if facts.architecture not in ("x86_64", "aarch64"):
        # Nova's late check takes a vIOMMU nowhere else; its driver reports two
        # of them everywhere.
        different -= {
            "COMPUTE_VIOMMU_MODEL_AUTO",
            "COMPUTE_VIOMMU_MODEL_VIRTIO",
        }
    own = facts.guests.get(facts.architecture)
    if own is None or own.tpm_versions is None:
        # Nova assumes both where libvirt lists none; here they are not known.
        different -= {"COMPUTE_SECURITY_TPM_1_2", "COMPUTE_SECURITY_TPM_2_0"}
    if own is None or not own.tpm_models:
        # libvirt offers no emulated TPM at all; then there is none of any
        # version.
        different -= {"COMPUTE_SECURITY_TPM_1_2", "COMPUTE_SECURITY_TPM_2_0"}
        different -= {"COMPUTE_SECURITY_TPM_TIS", "COMPUTE_SECURITY_TPM_CRB"}
    if facts.libvirt_version < (9, 1, 0) and facts.hypervisor_version >= (
        7,
        1,
        0,
    ):
        # libvirt passes an option for it that QEMU no longer has; Nova reports
        # it everywhere.
        different -= {"COMPUTE_SOUND_MODEL_PCSPK"}
    if facts.architecture != "x86_64":
        # It is part of x86's machine types.
        different -= {"COMPUTE_SOUND_MODEL_PCSPK"}
    if facts.architecture == "aarch64":
        # Nova goes by <loader secure>, which is x86's; our settings ask the
        # firmware itself for it.
        different -= {"COMPUTE_SECURITY_UEFI_SECURE_BOOT"}
    if facts.architecture == "armv7l":
        # Nova's late check takes no vIOMMU there; our settings start one.
        different -= {"COMPUTE_VIOMMU_MODEL_SMMUV3"}
    assert different == set(), {
        trait: (nova[trait], ours.get(trait)) for trait in different
    }
