# SPDX-License-Identifier: Apache-2.0

"""Names that Nova does not know, traits without their property, and values
that Nova ignores are noted.
"""

from __future__ import annotations

import pytest
from nova.scheduler.filters.compute_capabilities_filter import (
    ComputeCapabilitiesFilter,
)
from nova.scheduler.host_manager import HostState

from os_prefilter import Request
from os_prefilter.request.remarks import remarks_in_nova
from os_prefilter.request.spec import (
    Flavor,
    Image,
    RequestGroup,
    RequestSpec,
)
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.image_properties import KEPT_BY_NOVA, LEGACY_NAMES
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.operators.property_names import (
    notes_on_names,
    notes_on_what_follows,
)
from os_prefilter_tools.testing import request_of
from tests.conftest import ExtraSpecs, Properties
from tests.support.nova_objects import nova_spec
from tests.support.tables import cases, pairs

_DROPPED = "Nova does not know it, and drops it"


def _notes(spec: RequestSpec) -> list[str]:
    return [str(note) for note in remarks_in_nova(Request(spec), Options())]


def _notes_on_property(name: str) -> list[str]:
    spec = request_of({name: "x"})
    return [str(note) for note in notes_on_names(Request(spec))]


def _notes_on_extra_spec(name: str) -> list[str]:
    spec = request_of({}, {name: "x"})
    return [str(note) for note in notes_on_names(Request(spec))]


_PROPERTIES = cases("""
hw_vif_modle  | . Did you mean hw_vif_model?
vif_model     | . Did you mean hw_vif_model?
hw:cpu_policy | . Did you mean hw_cpu_policy?
hw_warp_drive |
""")
# Of Nova, Glance, Cinder, Ironic, clients and users.
_FINE = """vmware_adaptertype hw_numa_cpus.0 trait:CUSTOM_X deploy-config:raid kernel_id ramdisk_id os_version os_hidden
    os_hash_algo image_type cinder_img_volume_type os_shutdown_timeout os_glance_import_task boot_mode
    os_acme_weekend owner_specified.openstack.md5 base_image_ref os_name"""


@pytest.mark.parametrize(("name", "hint"), _PROPERTIES)
def test_image_property_that_nova_does_not_know_is_noted_with_the_nearest(
    name: str, hint: str
) -> None:
    note = f"image property {name}: {_DROPPED}{hint}"
    assert _notes_on_property(name) == [note]


def test_image_property_with_a_line_break_is_noted_in_one_line() -> None:
    note = f"image property img_\\nx: {_DROPPED}"
    assert _notes_on_property("img_\nx") == [note]


def test_known_image_property_is_not_noted() -> None:
    names = [*sorted(KEPT_BY_NOVA), *LEGACY_NAMES, *_FINE.split()]
    assert [name for name in names if _notes_on_property(name)] == []


def test_image_property_with_a_very_long_name_is_not_noted() -> None:
    assert _notes_on_property("hw_" + "x" * 5000) == []


_EXTRA_SPECS = cases("""
hw:cpu_polcy       | Nova knows no such extra spec. Did you mean hw:cpu_policy?
hw_cpu_policy      | Nova knows no such extra spec. Did you mean hw:cpu_policy?
resource:VGPU      | Nova knows no such extra spec. Did you mean 'resources:VGPU'?
deploy_config:raid | Nova knows no such extra spec. Did you mean 'deploy-config:raid'?
os:warp            | Nova knows no such extra spec
hw_vif_model       | no effect: Nova reads hw_vif_model of an image alone
# Of an image alone, and under another namespace; not the nearest name, which
# is about something else.
hw:vif_model       | no effect: Nova reads hw_vif_model of an image alone
hw:video_model     | no effect: Nova reads hw_video_model of an image alone
hw:firmware_type   | no effect: Nova reads hw_firmware_type of an image alone
hw:machine_type    | no effect: Nova reads hw_machine_type of an image alone
os:distro          | no effect: Nova reads os_distro of an image alone
hw:secure_boot     | Nova knows no such extra spec. Did you mean os:secure_boot?
os:watchdog_action | Nova knows no such extra spec. Did you mean hw:watchdog_action?
hw:cpu_model       | Nova knows no such extra spec
traits:CUSTOM_LICENSED | a trait of a request group named s, which Placement refuses without resources. Did you mean 'trait:CUSTOM_LICENSED'?
""")
# Of Nova, and the operator's own.
_FINE_OF_FLAVORS = """resources:VGPU resources1:VCPU trait_gpu:CUSTOM_X preferred_trait:CUSTOM_X quota:cpu_shares
    hw:numa_cpus.3 pci_passthrough:alias capabilities:boot_mode deploy-config:raid group_policy
    aggregate_instance_extra_specs:ssd os_distro acme:secure_boot ops:team licence:windows cpu_arch :"""


@pytest.mark.parametrize(("name", "problem"), _EXTRA_SPECS)
def test_extra_spec_that_nova_does_not_know_is_noted_with_the_nearest(
    name: str, problem: str
) -> None:
    place = f"flavor extra spec {name}"
    assert _notes_on_extra_spec(name) == [f"{place}: {problem}"]


_WITHOUT_NAMESPACE = cases("""
gpu          | with a field of that name, which no KVM host has, and excludes none of them.         | CUSTOM_GPU          | True
my-licence.x | with a field of that name, which no KVM host has, and excludes none of them.         | CUSTOM_MY_LICENCE_X | True
vcpus_total  | by default, compares it with that field of each host, and excludes every host that   | CUSTOM_VCPUS_TOTAL  | False
update       | by default, compares it with that field of each host, and excludes every host that   | CUSTOM_UPDATE       | False
num_vm_error | by default, compares it with that field of each host, and excludes every host that   | CUSTOM_NUM_VM_ERROR | False
""")


@pytest.mark.parametrize(
    ("name", "problem", "trait", "passes"), _WITHOUT_NAMESPACE
)
def test_extra_spec_without_a_namespace_is_noted_as_novas_filter_takes_it(
    name: str, problem: str, trait: str, passes: str
) -> None:
    (note,) = _notes_on_extra_spec(name)
    assert problem in note
    assert f"trait:{trait}=required" in note
    assert f"aggregate_instance_extra_specs:{name}" in note
    assert str(_passes_on_kvm({name: "x"})) == passes


def _passes_on_kvm(extra_specs: dict[str, str]) -> bool:
    """Return what Nova's own filter says of a host of its libvirt driver."""
    host = HostState("host", "node", "11111111-2222-4333-8444-555555555555")
    host.stats = {"num_vm_error": "1", "io_workload": "0"}
    host.cpu_info = '{"arch": "x86_64"}'
    spec = nova_spec({}, extra_specs)
    passes: bool = ComputeCapabilitiesFilter().host_passes(host, spec)
    return passes


_CAPABILITIES = cases("""
capabilities:boot_mode     |                                   | 1
capabilities:gpu:model     |                                   | 1
capabilities:boot_mode     | resources:CUSTOM_BAREMETAL_GOLD=1 | 0
capabilities:boot_mode     | resources1:CUSTOM_X=1             | 0
capabilities:cpu_info:arch |                                   | 0
capabilities:num_vm_error  |                                   | 0
capabilities:vcpus_total   |                                   | 0
""")


@pytest.mark.parametrize(("name", "others", "count"), _CAPABILITIES)
def test_capability_that_no_kvm_host_has_is_noted_but_on_bare_metal(
    name: str, others: str, count: str
) -> None:
    extra_specs = {name: "x", **pairs(others)}
    notes = _notes_on_what_follows(extra_specs)
    reasons = [each for each in notes if "excludes every KVM host" in each]
    assert len(reasons) == int(count)
    if reasons:
        assert not _passes_on_kvm({name: "x"})


def _notes_on_what_follows(extra_specs: ExtraSpecs) -> list[str]:
    spec = RequestSpec(Flavor(1, 512, 20, extra_specs=extra_specs), Image())
    return [str(note) for note in notes_on_what_follows(Request(spec))]


_AFTER_PLACEMENT = cases("""
pci_passthrough:alias=a100:1 | the devices are not examined here
accel:device_profile=fpga    | its devices are not examined here
""")


@pytest.mark.parametrize(("extra_spec", "problem"), _AFTER_PLACEMENT)
def test_devices_that_placement_is_not_asked_for_are_noted(
    extra_spec: str, problem: str
) -> None:
    name = extra_spec.partition("=")[0]
    (note,) = _notes_on_what_follows(pairs(extra_spec))
    assert note.startswith(f"flavor extra spec {name}: {problem}")


def test_devices_with_request_groups_are_not_noted() -> None:
    spec = RequestSpec(
        Flavor(1, 512, extra_specs={"accel:device_profile": "fpga"}),
        requested_resources=[RequestGroup("device_profile_0", {"FPGA": 1})],
    )
    assert [*notes_on_what_follows(Request(spec))] == []


_BARE_METAL = cases("""
# The other extra specs | what is to be set
trait:CUSTOM_X=required                                    | resources:VCPU=0, resources:MEMORY_MB=0, resources:DISK_GB=0
resources:VCPU=0                                           | resources:MEMORY_MB=0, resources:DISK_GB=0
resources:VCPU=0 resources:MEMORY_MB=0 resources:DISK_GB=0 |
""")


@pytest.mark.parametrize(("others", "missing"), _BARE_METAL)
def test_flavor_for_bare_metal_is_noted_with_the_amounts_to_set_to_zero(
    others: str, missing: str
) -> None:
    bare_metal = {"resources:CUSTOM_BAREMETAL1_SMALL": "1"}
    notes = _notes_on_what_follows({**bare_metal, **pairs(others)})
    assert len(notes) == bool(missing)
    assert all(note.endswith(f". Set {missing}") for note in notes)


def test_notes_on_thousands_of_capabilities_are_ten_short_ones() -> None:
    names = {f"capabilities:{number}": "x" for number in range(10_000)}
    names["capabilities:" + "x" * 65536] = "x"
    notes = _notes_on_what_follows(names)
    assert len(notes) == 10
    assert max(map(len, notes)) < 400


def test_known_extra_spec_is_not_noted() -> None:
    names = [row.extra_spec for row in ROWS if row.extra_spec]
    names += _FINE_OF_FLAVORS.split()
    assert [name for name in names if _notes_on_extra_spec(name)] == []


def test_at_most_ten_names_of_an_image_and_no_odd_one_are_noted() -> None:
    names: dict[object, object] = {5: "x", None: "y"}
    for number in range(1000):
        names[f"hw_{number}"] = "x"
    spec = RequestSpec(Flavor(1, 512), Image(names))  # type: ignore[arg-type]
    assert len(list(notes_on_names(Request(spec)))) == 10


_HPET = "CUSTOM_COMPUTE_TIME_HPET"
_WITHOUT_PROPERTY = cases("""
# The trait | properties | extra specs | the names of the property
CUSTOM_COMPUTE_TIME_HPET          |                 |                    | hw_time_hpet
CUSTOM_COMPUTE_TIME_HPET          | hw_time_hpet=no |                    | hw_time_hpet
CUSTOM_I686_COMPUTE_FIRMWARE_UEFI |                 |                    | hw_firmware_type
COMPUTE_SECURITY_TPM_2_0          |                 |                    | hw_tpm_version or hw:tpm_version
COMPUTE_SECURITY_TPM_CRB          |                 | hw:tpm_version=2.0 | hw_tpm_model or hw:tpm_model
COMPUTE_SECURITY_UEFI_SECURE_BOOT |                 |                    | os_secure_boot or os:secure_boot
COMPUTE_STORAGE_BUS_SCSI          |                 |                    | hw_disk_bus or hw_cdrom_bus
HW_CPU_X86_AMD_SEV                |                 |                    | hw_mem_encryption_model or hw:mem_encryption_model
""")


def _with_trait(
    place: str, trait: str, properties: str = "", extra_specs: str = ""
) -> RequestSpec:
    """Return a request that requires a trait by name, in image or flavor."""
    in_image: Properties = {**pairs(properties)}
    in_flavor = pairs(extra_specs)
    name = f"trait:{trait}"
    if place == "image property":
        in_image[name] = "required"
    else:
        in_flavor[name] = "required"
    return request_of(in_image, in_flavor)


_PLACES = pytest.mark.parametrize(
    "place", ["flavor extra spec", "image property"]
)


@_PLACES
@pytest.mark.parametrize(
    ("trait", "properties", "extra_specs", "names"), _WITHOUT_PROPERTY
)
def test_trait_by_name_without_its_property_is_noted(
    place: str, trait: str, properties: str, extra_specs: str, names: str
) -> None:
    spec = _with_trait(place, trait, properties, extra_specs)
    reason = (
        f"Nova only chooses a host by it; it builds the guest by {names},"
        " which does not ask for it"
    )
    assert _notes(spec) == [f"{place} trait:{trait}=required: {reason}"]


_WITH_PROPERTY = cases("""
CUSTOM_COMPUTE_TIME_HPET   | hw_time_hpet=yes           |
COMPUTE_SECURITY_TPM_2_0   |                            | hw:tpm_version=2.0
COMPUTE_SECURITY_TPM_TIS   |                            | hw:tpm_version=2.0
COMPUTE_STORAGE_BUS_SCSI   | hw_cdrom_bus=scsi          |
CUSTOM_COMPUTE_MACHINE_Q35 | hw_machine_type=pc-q35-9.1 |
HW_CPU_X86_AMD_SEV         |                            | hw:mem_encryption=true
""")


@_PLACES
@pytest.mark.parametrize(
    ("trait", "properties", "extra_specs"), _WITH_PROPERTY
)
def test_trait_by_name_with_its_property_is_not_noted(
    place: str, trait: str, properties: str, extra_specs: str
) -> None:
    assert not _notes(_with_trait(place, trait, properties, extra_specs))


@_PLACES
@pytest.mark.parametrize(
    "trait",
    [
        "HW_ARCH_X86_64",
        "HW_CPU_HYPERTHREADING",
        "CUSTOM_HYPERVISOR_TYPE_KVM",
        "CUSTOM_X",
        "COMPUTE_NODE",
        "COMPUTE_IMAGE_TYPE_RAW",
    ],
)
def test_trait_of_a_host_that_nova_switches_nothing_on_by_is_not_noted(
    place: str, trait: str
) -> None:
    assert not _notes(_with_trait(place, trait))


@pytest.mark.parametrize(
    "extra_specs",
    [
        {f"trait:{_HPET}": "forbidden"},
        {"resources_gpu:VGPU": "1", f"trait_gpu:{_HPET}": "required"},
        {"trait:a b": "required"},
    ],
    ids=["forbidden", "of another provider", "malformed"],
)
def test_trait_that_is_not_required_of_the_host_is_not_noted(
    extra_specs: ExtraSpecs,
) -> None:
    assert not _notes(request_of({}, extra_specs))


_UEFI_ALONE = (
    "Nova reads it under UEFI alone, which only aarch64 has by default; set"
    " hw_firmware_type=uefi"
)
_TABLET = (
    "Nova gives a guest with a USB tablet or disk another one;"
    " hw_input_bus=virtio avoids the tablet"
)


_MEANINGLESS = cases("""
hw_pointer_model=usbtablet | hw_input_bus=virtio                  | Nova gives the guest the tablet of hw_input_bus instead
hw_usb_model=none          |                                      | TABLET
hw_usb_model=none          | hw_input_bus=virtio hw_disk_bus=usb  | TABLET
hw_tpm_model=tpm-crb       |                                      | it means nothing without hw_tpm_version
hw_firmware_stateless=true |                                      | it means nothing without hw_firmware_type=uefi
os_secure_boot=optional    | hw_machine_type=q35                  | UEFI_ALONE
os_secure_boot=required    |                                      | UEFI_ALONE
os_secure_boot=optional    | hw_architecture=aarch64 hw_firmware_type=bios | UEFI_ALONE
""")
_LONG_REASONS = {"TABLET": _TABLET, "UEFI_ALONE": _UEFI_ALONE}


@pytest.mark.parametrize(("written", "others", "reason"), _MEANINGLESS)
def test_property_that_another_one_makes_meaningless_is_noted(
    written: str, others: str, reason: str
) -> None:
    spec = request_of({**pairs(written), **pairs(others)})
    (note,) = remarks_in_nova(Request(spec), Options())
    assert str(note) == f"{written}: {_LONG_REASONS.get(reason, reason)}"
    assert note.warn


_WITH_EFFECT = cases("""
hw_pointer_model=usbtablet
hw_usb_model=none hw_input_bus=virtio
hw_usb_model=none hw_input_bus=virtio hw_cdrom_bus=usb
os_secure_boot=required hw_firmware_type=uefi
os_secure_boot=optional hw_architecture=aarch64
os_secure_boot=disabled
hw_tpm_model=tpm-crb hw_tpm_version=2.0
""")


@pytest.mark.parametrize("properties", _WITH_EFFECT)
def test_property_that_has_an_effect_is_not_noted(properties: str) -> None:
    assert not _notes(request_of({**pairs(properties)}))


def test_contradiction_of_flavor_and_image_is_not_noted() -> None:
    """The filters reject it."""
    properties = {"hw_tpm_version": "2.0", "hw_tpm_model": "tpm-crb"}
    assert not _notes(request_of(properties, {"hw:tpm_model": "tpm-tis"}))


def _with_config_drive(
    machine_type: str,
    cdrom_bus: str,
    config_drive: str = "mandatory",
    disk_format: str = "qcow2",
) -> RequestSpec:
    return request_of(
        {
            "hw_machine_type": machine_type,
            "hw_cdrom_bus": cdrom_bus,
            "img_config_drive": config_drive,
        },
        disk_format=disk_format,
    )


def test_config_drive_on_a_bus_that_the_machine_type_lacks_is_noted() -> None:
    """It is a CD-ROM but with ``config_drive_format = vfat`` in the host's
    nova.conf, which no request says.
    """
    spec = _with_config_drive("q35", "ide")
    (note,) = remarks_in_nova(Request(spec), Options())
    assert note.warn
    assert str(note).startswith(
        "image property hw_cdrom_bus=ide: the config drive is a CD-ROM by"
        " default, and with image property hw_machine_type=q35 no guest has"
        " one"
    )


@pytest.mark.parametrize(
    "spec",
    [
        _with_config_drive("q35", "sata"),
        _with_config_drive("q35", "ide", "optional"),
        _with_config_drive("pc", "ide"),
        _with_config_drive("q35", "ide", disk_format="iso"),
    ],
    ids=["bus exists", "optional", "another machine", "filters reject it"],
)
def test_config_drive_that_is_possible_or_rejected_is_not_noted(
    spec: RequestSpec,
) -> None:
    assert not any("config drive" in note for note in _notes(spec))


def test_secret_security_of_a_flavor_is_noted_for_images_without_a_tpm() -> (
    None
):
    """Operators set it for those images that ask for one."""
    spec = request_of(extra_specs={"hw:tpm_secret_security": "user"})
    options = Options(nova_builds_guests=True)
    notes = remarks_in_nova(Request(spec), options, ["tpm_secret_security"])
    assert [str(note) for note in notes] == [
        "hw:tpm_secret_security=user: it means nothing without hw_tpm_version"
    ]
