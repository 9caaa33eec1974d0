# SPDX-License-Identifier: Apache-2.0

"""The late check and the guest settings of a driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from nova.scheduler.utils import ResourceRequest

from os_prefilter import (
    Decision,
    Destination,
    Flavor,
    Image,
    Options,
    RequestGroup,
    RequestSpec,
    allocation_candidates_query,
)
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.common.errors import (
    FlavorImageConflict,
    ImpossibleCombination,
    NeverStartsWith,
    UnsupportedByHost,
    UnusableReporter,
)
from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.driver_check import guest_settings, unsupported
from os_prefilter.hosts.drivers.fake import REPORTER, FakeFacts
from os_prefilter.hosts.drivers.ironic_facts import BiosSetting, IronicFacts
from os_prefilter.hosts.drivers.libvirt_domain_xml import domain_elements
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts, Version
from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter.hosts.reporter import HostFacts, Setting
from os_prefilter.service import Service
from os_prefilter.vocabulary import BY_NAME, HPET, ROWS
from os_prefilter.vocabulary.config_templates import (
    BUNDLED,
    BiosChange,
    Template,
    Variant,
)
from os_prefilter.vocabulary.model import Row
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet, Inventory
from tests.conftest import ExtraSpecs, Properties, pipeline_of, spec_of
from tests.support.every_trait import CUSTOM_TRAITS
from tests.support.hosts import ARM, KVM, LXC, X86
from tests.support.nova_objects import nova_spec
from tests.support.placements import provider
from tests.support.tables import cases, pairs

_BOOLEANS = [row for row in ROWS if row.boolean and row.values["true"].trait]
_NO_HPET = replace(LXC, host="container-1")
Check = Callable[[RequestSpec, HostFacts], object]


_HPET_SOURCES = cases(f"""
hw_time_hpet=true     |                        | image property hw_time_hpet=true
trait:{HPET}=required |                        | image property trait:{HPET}=required
| trait:{HPET}=required | flavor extra spec trait:{HPET}=required
hw_time_hpet=yes | resources7:VGPU=1 trait7:{HPET}=forbidden | image property hw_time_hpet=true
hw_time_hpet=yes | trait7:{HPET}=required | flavor extra spec trait7:{HPET}=required and image property hw_time_hpet=true
""")


@pytest.mark.parametrize(
    ("properties", "extra_specs", "source"), _HPET_SOURCES
)
def test_hpet_required_by_property_or_trait_is_enabled_or_refused_by_the_host(
    properties: str, extra_specs: str, source: str
) -> None:
    spec = spec_of({**pairs(properties)}, pairs(extra_specs))
    settings = guest_settings(spec, KVM)
    assert settings.settings == (Setting("time_hpet", "true", source),)
    with pytest.raises(UnsupportedByHost, match="container-1") as refused:
        guest_settings(spec, _NO_HPET)
    assert "not possible on lxc hosts" in str(refused.value)
    assert len(refused.value.refusals) == 1


@pytest.mark.parametrize(
    "spec",
    [
        spec_of(),
        spec_of({"hw_time_hpet": "false"}),
        RequestSpec(Flavor(), None),
        spec_of(
            extra_specs={
                "resources_gpu:VGPU": "1",
                f"trait_gpu:{HPET}": "required",
            }
        ),
    ],
    ids=["nothing", "off", "no image", "of a GPU"],
)
def test_hpet_stays_off_unless_it_is_requested(spec: RequestSpec) -> None:
    assert guest_settings(spec, KVM).value("time_hpet") in (None, "false")


def _firmware_for(row: Row) -> Properties:
    """Return the properties without which a row means nothing."""
    if row.depends_on and row.depends_on.row == "firmware_type":
        return {"hw_firmware_type": "uefi"}
    return {}


@pytest.mark.parametrize("row", _BOOLEANS, ids=lambda row: row.name)
def test_boolean_device_required_by_its_trait_is_enabled_or_refused_by_the_host(
    row: Row,
) -> None:
    """The decision of 2018: the trait is the cue, and the driver fails where
    it cannot follow it.
    """
    required = {f"trait:{row.values['true'].trait}": "required"}
    spec = spec_of(_firmware_for(row), required)
    if unsupported(spec, KVM):
        # Nova 34 encrypts no ephemeral disk.
        assert row.name == "ephemeral_encryption"
    else:
        assert guest_settings(spec, KVM).value(row.name) == "true"
    with pytest.raises(UnsupportedByHost):
        guest_settings(spec, _NO_HPET)


@pytest.mark.parametrize("check", [unsupported, guest_settings])
@pytest.mark.parametrize("group", ["", "1"], ids=["unsuffixed", "group"])
@pytest.mark.parametrize("row", _BOOLEANS, ids=lambda row: row.name)
def test_trait_of_a_boolean_device_that_a_property_disables_is_a_conflict(
    row: Row, group: str, check: Check
) -> None:
    extra_specs = {f"trait{group}:{row.values['true'].trait}": "required"}
    if group:
        extra_specs["resources1:VCPU"] = "1"
    properties = {**_firmware_for(row), str(row.image_property): "false"}
    with pytest.raises(FlavorImageConflict):
        check(spec_of(properties, extra_specs), KVM)


def test_guest_settings_list_hpet_first_and_then_the_other_requested_devices() -> (
    None
):
    spec = spec_of(
        {
            "hw_vif_model": "VirtualE1000e",
            "hw_time_hpet": "on",
            "hw_machine_type": "pc-q35-7.2",
            "hw_disk_bus": "sata",
        }
    )
    settings = guest_settings(spec, KVM)
    found = [(each.name, each.value) for each in settings.settings]
    assert found == [
        ("time_hpet", "true"),
        ("vif_model", "e1000e"),
        ("disk_bus", "sata"),
        ("machine_type", "q35"),
    ]
    assert settings.machine == "pc-q35-7.2"
    assert settings.architecture == "x86_64"


@pytest.mark.parametrize(
    "value", ["virtio\nERROR fake", "x" * 10_000, ["virtio"]]
)
def test_unknown_value_is_refused_in_one_short_printable_line(
    value: object,
) -> None:
    spec = spec_of({"hw_disk_bus": value})
    (found,) = unsupported(spec, KVM)
    assert str(found).isprintable()
    assert len(str(found)) < 200
    with pytest.raises(UnsupportedByHost) as refused:
        guest_settings(spec, KVM)
    assert str(refused.value).isprintable()


def test_late_check_covers_capability_traits_of_the_host_and_ignores_other_traits() -> (
    None
):
    spec = spec_of(
        {
            "trait:COMPUTE_NET_VIF_MODEL_E1000": "required",
            "trait:CUSTOM_MINE": "required",
        },
        {
            "trait:COMPUTE_NET_VIF_MODEL_SRIOV": "required",
            "resources2:VGPU": "1",
            "trait2:HW_ARCH_X86_64": "forbidden",
            "resources1:PCPU": "1",
            "trait1:HW_ARCH_X86_64": "forbidden",
        },
        requested_resources=[
            RequestGroup(
                "port", required_traits={"CUSTOM_PHYSNET_A", "HW_ARCH_AARCH64"}
            )
        ],
    )
    sriov, architecture = unsupported(spec, KVM)
    assert str(sriov).startswith(
        "flavor extra spec trait:COMPUTE_NET_VIF_MODEL_SRIOV=required: possible"
        " on kvm hosts: "
    )
    assert str(architecture) == (
        "flavor extra spec trait1:HW_ARCH_X86_64=forbidden: the host has"
        " HW_ARCH_X86_64"
    )


_THREADS = Trait("HW_CPU_HYPERTHREADING")


@pytest.mark.parametrize(
    "properties",
    [{"hw_cpu_thread_policy": "require"}, {f"trait:{_THREADS}": "required"}],
    ids=["property", "trait"],
)
def test_trait_that_the_reporter_does_not_own_is_what_the_operator_has_set(
    properties: Properties,
) -> None:
    spec = spec_of(properties)
    (found,) = unsupported(spec, VmwareFacts())
    assert found.reason == f"{_THREADS} is not set on the host"
    host = VmwareFacts(other_traits=frozenset((_THREADS,)))
    assert unsupported(spec, host) == []


def test_trait_that_no_reporter_owns_is_not_checked() -> None:
    spec = spec_of({"trait:CUSTOM_MINE": "required"})
    assert unsupported(spec, IronicFacts()) == []


def test_default_machine_type_is_read_from_the_traits_that_the_reporter_owns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeFacts(can={"default_machine": frozenset(("pc",))})
    assert guest_settings(spec_of(), fake).family == "pc"
    monkeypatch.setattr(
        "os_prefilter.hosts.driver_check.reporter_of",
        lambda _: replace(REPORTER, owns=frozenset()),
    )
    assert not guest_settings(spec_of(), fake).family


_RAID = Template(
    "raid",
    "on",
    (Trait("CUSTOM_RAID"),),
    (Variant((BiosChange("Raid", ("On",)),)),),
)
_WITHOUT_RAID = IronicFacts(templates=BUNDLED.replace_with([_RAID]))
_WITH_RAID = replace(_WITHOUT_RAID, bios={"Raid": BiosSetting()})


def test_trait_of_a_template_is_what_the_bios_of_the_node_can() -> None:
    assert capability_traits(_WITHOUT_RAID)["CUSTOM_RAID"] is False
    assert capability_traits(_WITH_RAID)["CUSTOM_RAID"] is True


@pytest.mark.parametrize(
    "extra_specs",
    [{"deploy-config:raid": "on"}, {"trait:CUSTOM_RAID": "required"}],
    ids=["configuration", "trait"],
)
def test_template_is_refused_where_the_bios_of_the_node_cannot(
    extra_specs: ExtraSpecs,
) -> None:
    spec = spec_of(extra_specs=extra_specs)
    (found,) = unsupported(spec, _WITHOUT_RAID)
    assert "Ironic has no BIOS settings of it" in found.reason
    assert unsupported(spec, _WITH_RAID) == []


def test_device_named_by_its_trait_alone_is_refused_for_a_guest_of_nova() -> (
    None
):
    named = {f"trait:{HPET}": "required"}
    novas = replace(KVM, built_by_nova=True)
    (found,) = unsupported(spec_of({}, named), novas)
    reason = "by a trait Nova gives the guest no device; set hw_time_hpet=true"
    assert str(found) == f"flavor extra spec trait:{HPET}=required: {reason}"
    assert unsupported(spec_of({"hw_time_hpet": "yes"}, named), novas) == []
    assert unsupported(spec_of({}, named), KVM) == []


_NESTED = BY_NAME["mem_encryption_model"].traits
_DEVICES = (
    provider("sev", "MEM_ENCRYPTION_CONTEXT", "HW_CPU_X86_AMD_SEV"),
    provider("sev-es", "MEM_ENCRYPTION_CONTEXT", "HW_CPU_X86_AMD_SEV_ES"),
    provider("gpu", "VGPU"),
    provider("dpu", "FPGA", f"HW_ARCH_AARCH64 {HPET}"),
)


@pytest.fixture(scope="module")
def devices() -> Iterator[PlacementClient]:
    """Return a client of a real Placement with one host, and the providers of
    its devices as Nova and Cyborg make them.
    """
    traits = {trait for trait, has in capability_traits(KVM).items() if has}
    resources = {
        "VCPU": Inventory(16),
        "MEMORY_MB": Inventory(4096),
        "DISK_GB": Inventory(100),
    }
    host = provider("kvm-1", "", " ".join(traits - _NESTED), _DEVICES)
    fleet = Fleet((replace(host, resources=resources),))
    with EmbeddedPlacement(fleet) as placement:
        placement.know(CUSTOM_TRAITS)
        yield placement.client


_UEFI = "hw_firmware_type=uefi hw_machine_type=q35"
_STATELESS = "COMPUTE_SECURITY_STATELESS_FIRMWARE"
_IN_GROUPS = cases(f"""
# Properties | extra specs | whether the host can
|                  resources_sev:MEM_ENCRYPTION_CONTEXT=1 trait_sev:HW_CPU_X86_AMD_SEV_ES=forbidden | yes
{_UEFI}          | hw:mem_encryption=true trait:HW_CPU_X86_AMD_SEV_ES=forbidden | yes
|                  trait:HW_CPU_X86_AMD_SEV_ES=forbidden                        | yes
hw_time_hpet=yes | resources_gpu:VGPU=1 trait_gpu:{HPET}=forbidden              | yes
hw_time_hpet=no  | resources_dpu:FPGA=1 trait_dpu:{HPET}=required               | yes
|                  resources_dpu:FPGA=1 trait_dpu:HW_ARCH_AARCH64=required      | yes
{_UEFI}          | resources1:VGPU=1 trait1:{_STATELESS}=forbidden              | yes
|                  resources1:VCPU=1 trait1:{HPET}=required                     | yes
|                  resources1:VCPU=1 trait1:{HPET}=forbidden                    |
|                  resources1:MEMORY_MB=512 trait1:HW_ARCH_AARCH64=required     |
""")


@pytest.mark.parametrize(("properties", "extra_specs", "can"), _IN_GROUPS)
def test_late_check_of_traits_in_request_groups_agrees_with_placement_and_novas_query(
    properties: str, extra_specs: str, can: str, devices: PlacementClient
) -> None:
    """With the query of Nova's own code, and with ours after the filters."""
    hosts = ("kvm-1",) if can else ()
    spec = nova_spec({**pairs(properties)}, pairs(extra_specs))
    request = ResourceRequest.from_request_spec(spec.obj_clone())
    novas = request.to_querystring()
    assert devices.allocation_candidates(novas).hosts == hosts
    assert (unsupported(spec, KVM) == []) is bool(can)
    pipeline_of("hpet", "image_metadata").apply(spec)
    ours = allocation_candidates_query(spec)
    assert devices.allocation_candidates(ours).hosts == hosts


def _filtered(spec: RequestSpec, _facts: HostFacts) -> object:
    return pipeline_of("image_metadata").apply(spec)


@pytest.mark.parametrize("check", [unsupported, guest_settings, _filtered])
@pytest.mark.parametrize(
    "properties",
    [
        {"hw_tpm_model": "tpm-crb", "hw_tpm_version": "1.2"},
        {"os_secure_boot": "required", "hw_firmware_type": "bios"},
    ],
    ids=["TPM", "Secure Boot"],
)
def test_impossible_combination_is_refused_by_late_check_guest_settings_and_filter(
    properties: Properties, check: Check
) -> None:
    with pytest.raises(ImpossibleCombination) as error:
        check(spec_of(properties), KVM)
    assert error.value.sources == tuple(
        f"image property {name}={value}" for name, value in properties.items()
    )


def test_refusal_names_the_property_behind_a_default() -> None:
    found = unsupported(spec_of({"hw_tpm_version": "2.0"}), KVM)
    assert list(map(str, found)) == [
        (
            "image property hw_tpm_version=2.0: with the default"
            " tpm_secret_security user: [libvirt] swtpm_enabled is off"
        ),
        "image property hw_tpm_version=2.0: [libvirt] swtpm_enabled is off",
        (
            "image property hw_tpm_version=2.0: with the default tpm_model"
            " tpm-tis: [libvirt] swtpm_enabled is off"
        ),
    ]


def test_refusal_names_an_unknown_value_once() -> None:
    spec = spec_of(
        {"hw_tpm_version": "3.0"},
        {"hw:tpm_version": "4.0", "deploy-config:raid": "5"},
    )
    assert list(map(str, unsupported(spec, KVM))) == [
        (
            "flavor extra spec 'deploy-config:raid'='5': no configuration"
            " template"
        ),
        "image property hw_tpm_version='3.0': unknown value",
    ]


_SECURE = {"os_secure_boot": "required"}
_SECURE_X86 = replace(
    KVM, guests={"x86_64": replace(X86, default_machine="q35")}, smm=True
)
_SECURE_PC = replace(
    _SECURE_X86,
    built_by_nova=True,
    guests={"x86_64": replace(X86, default_machine="pc")},
)
_SECURE_ARM = replace(
    KVM,
    architecture="aarch64",
    guests={"aarch64": replace(ARM, secure_boot=True)},
)


@pytest.mark.parametrize("check", [unsupported, guest_settings])
def test_secure_boot_of_a_guest_of_nova_without_uefi_is_refused_with_what_to_set(
    check: Check,
) -> None:
    novas = replace(_SECURE_X86, built_by_nova=True)
    try:
        refused = str(check(spec_of(_SECURE), novas))
    except UnsupportedByHost as error:
        refused = str(error)
    reason = (
        "as Nova builds the guest, none has it with an image without"
        " hw_firmware_type"
    )
    assert reason in refused
    assert "set hw_firmware_type=uefi as well" in refused


@pytest.mark.parametrize(
    "destination", [None, Destination(cell="one")], ids=["new", "moves"]
)
@pytest.mark.parametrize(
    ("properties", "facts", "when_new"),
    [
        (_SECURE, replace(_SECURE_X86, built_by_nova=True), False),
        (
            _SECURE | {"hw_architecture": "x86_64"},
            replace(_SECURE_X86, built_by_nova=True),
            False,
        ),
        (
            _SECURE | {"hw_firmware_type": "uefi"},
            replace(_SECURE_X86, built_by_nova=True),
            True,
        ),
        (_SECURE, replace(_SECURE_ARM, built_by_nova=True), True),
        (_SECURE, _SECURE_X86, True),
        (_SECURE, _SECURE_PC, False),
        (_SECURE | {"hw_machine_type": "pc"}, _SECURE_PC, False),
        (
            {"os_secure_boot": "optional"},
            replace(_SECURE_X86, built_by_nova=True),
            True,
        ),
    ],
    ids=[
        "x86_64",
        "x86_64 named",
        "UEFI",
        "aarch64",
        "our settings",
        "default pc",
        "pc named",
        "optional",
    ],
)
def test_secure_boot_without_uefi_is_refused_only_for_a_new_x86_guest_of_nova(
    properties: Properties,
    facts: LibvirtFacts,
    when_new: bool,
    destination: Destination | None,
) -> None:
    spec = spec_of(properties, requested_destination=destination)
    accepted = when_new or destination is not None
    assert (unsupported(spec, facts) == []) is accepted


def test_secure_boot_of_our_settings_has_uefi() -> None:
    settings = guest_settings(spec_of(_SECURE), _SECURE_X86)
    elements = domain_elements(settings)
    (system,) = [each for each in elements if each.startswith("<os")]
    assert 'firmware="efi"' in system
    assert '<feature name="secure-boot" enabled="yes"' in system


def test_trait_by_name_of_a_server_that_moves_is_no_reason_to_refuse_it() -> (
    None
):
    novas = replace(KVM, built_by_nova=True)
    spec = spec_of({"hw_time_hpet": "false"}, {f"trait:{HPET}": "required"})
    with pytest.raises(FlavorImageConflict):
        unsupported(spec, novas)
    spec.requested_destination = Destination(cell="one")
    assert unsupported(spec, novas) == []
    assert unsupported(spec_of({}, {f"trait:{HPET}": "required"}), novas) != []


def test_settings_of_a_guest_have_the_name_of_its_architecture() -> None:
    facts = replace(KVM, emulated=frozenset(("m68k",)))
    spec = spec_of({"hw_emulation_architecture": "m68k"})
    assert guest_settings(spec, facts).architecture == "m68k"
    i686 = spec_of({"hw_architecture": "i686"})
    assert guest_settings(i686, KVM).architecture == "i686"


_EMULATED_DEVICES = {
    "hw_time_hpet": "true",
    "hw_firmware_type": "uefi",
    "hw_viommu_model": "intel",
    "hw_machine_type": "virt",
}


def test_late_check_refuses_no_device_of_an_emulated_guest() -> None:
    """The facts say nothing of these; libvirt refuses what it cannot do."""
    facts = replace(KVM, emulated=frozenset(("m68k",)))
    for name, value in _EMULATED_DEVICES.items():
        spec = spec_of({"hw_emulation_architecture": "m68k", name: value})
        assert unsupported(spec, facts) == []
        (item,) = unsupported(spec, KVM)
        assert item.reason == "the host has no QEMU for m68k guests"


def test_late_check_refuses_what_a_machine_type_of_an_emulated_guest_lacks() -> (
    None
):
    facts = replace(KVM, emulated=frozenset(("aarch64",)))
    named = {"hw_machine_type": "virt", "hw_disk_bus": "ide"}
    spec = spec_of({"hw_emulation_architecture": "aarch64", **named})
    (item,) = unsupported(spec, facts)
    assert item.reason == "a guest of machine type virt never has it"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "",
            (
                "reporter '' cannot be used: Facts names no driver; add to the"
                " class"
            ),
        ),
        ("nosuch", "'nosuch'.*there are fake, ironic, libvirt, vmware"),
        (
            "libvirt",
            (
                "reporter 'libvirt' cannot be used: it reads LibvirtFacts and"
                " was given Facts"
            ),
        ),
    ],
)
def test_facts_without_a_reporter_for_them_are_an_error(
    name: str, problem: str
) -> None:
    class Facts(HostFacts):
        driver = name

    with pytest.raises(UnusableReporter, match=problem):
        unsupported(spec_of(), Facts())


def test_the_image_is_not_read_when_booting_from_a_volume() -> None:
    spec = RequestSpec(Flavor(vcpus=1), Image(disk_format="vhd"), is_bfv=True)
    assert unsupported(spec, KVM) == []
    (item,) = unsupported(replace(spec, is_bfv=False), KVM)
    assert item.value == "vhd"


_46_BITS = replace(KVM, physical_address_bits=46)
_EMULATE = {"hw_maxphysaddr_mode": "emulate"}


def test_address_bits_of_the_hosts_processors_are_accepted() -> None:
    spec = spec_of({**_EMULATE, "hw_maxphysaddr_bits": "46"})
    assert unsupported(spec, _46_BITS) == []


_WRONG_BITS: dict[str, tuple[Properties, ExtraSpecs]] = {
    "image property hw_maxphysaddr_bits=47: the host's processors have 46": (
        {"hw_maxphysaddr_bits": 47},
        {},
    ),
    (
        "flavor extra spec hw:maxphysaddr_bits=52: the host's processors have"
        " 46"
    ): ({}, {"hw:maxphysaddr_bits": "52"}),
    (
        "image property hw_maxphysaddr_bits=31: QEMU takes a whole number from"
        " 32"
    ): ({"hw_maxphysaddr_bits": 31}, {}),
    "image property hw_maxphysaddr_bits=True: QEMU takes a whole number": (
        {"hw_maxphysaddr_bits": True},
        {},
    ),
    r"flavor extra spec hw:maxphysaddr_bits='4\x1b': QEMU takes": (
        {},
        {"hw:maxphysaddr_bits": "4\x1b"},
    ),
    "QEMU takes a whole number from 32 to 52": (
        {},
        {"hw:maxphysaddr_bits": "9" * 5_000},
    ),
}


@pytest.mark.parametrize("problem", _WRONG_BITS)
def test_address_bits_that_the_guest_cannot_have_are_refused(
    problem: str,
) -> None:
    """Those of QEMU, and of the host's processors: libvirt starts no other
    guest.
    """
    properties, extra_specs = _WRONG_BITS[problem]
    spec = spec_of({**_EMULATE, **properties}, extra_specs)
    (found,) = map(str, unsupported(spec, _46_BITS))
    assert problem in found
    assert found.isprintable()


@pytest.mark.parametrize(
    "mode",
    [{"hw_maxphysaddr_mode": "passthrough"}, {}],
    ids=["not written", "no meaning"],
)
@pytest.mark.parametrize(
    ("properties", "extra_specs"),
    [({"hw_maxphysaddr_bits": "46"}, {}), *_WRONG_BITS.values()],
    ids=["valid", *_WRONG_BITS],
)
def test_address_bits_are_checked_for_an_emulated_address_space_alone(
    properties: Properties, extra_specs: ExtraSpecs, mode: Properties
) -> None:
    spec = spec_of({**mode, **properties}, extra_specs)
    assert unsupported(spec, _46_BITS) == []


_NOVAS = replace(
    KVM,
    guests={"x86_64": replace(X86, machines_are_complete=False)},
    built_by_nova=True,
    nova_release=34,
)
_OLD_MACHINE = "it gets a device (vmcoreinfo) that QEMU has"
_NO_BITS = "libvirt takes no number of bits with"
_NEVER_STARTS: list[tuple[Properties, str, str]] = [
    (
        {"hw_machine_type": "pc-i440fx-2.4"},
        "image property hw_machine_type=pc-i440fx-2.4",
        _OLD_MACHINE,
    ),
    (
        {"hw_machine_type": "pc-q35-2.4"},
        "image property hw_machine_type=pc-q35-2.4",
        _OLD_MACHINE,
    ),
    (
        {"hw_machine_type": "pc-i440fx-1.7"},
        "image property hw_machine_type=pc-i440fx-1.7",
        _OLD_MACHINE,
    ),
    (
        {"hw_maxphysaddr_mode": "passthrough", "hw_maxphysaddr_bits": 42},
        "image property hw_maxphysaddr_bits=42",
        _NO_BITS,
    ),
    (
        {"hw_maxphysaddr_bits": 42},
        "image property hw_maxphysaddr_bits=42",
        "Nova ignores the number without a mode",
    ),
    (
        {"hw_video_ram": 16},
        "image property hw_video_ram=16",
        "the flavor allows 0 MiB of video memory",
    ),
]
_STARTS: list[Properties] = [
    {"hw_machine_type": "pc-i440fx-2.5"},
    {"hw_machine_type": "pc-i440fx-2.12"},
    # Of a vendor: what it has is not known.
    {"hw_machine_type": "pc-i440fx-rhel7.2.0"},
    {"hw_maxphysaddr_mode": "passthrough"},
    {"hw_maxphysaddr_mode": "emulate", "hw_maxphysaddr_bits": 42},
    {"hw_video_ram": 0},
]


def _filter_for_nova(spec: RequestSpec) -> Decision:
    options = Options(nova_builds_guests=True)
    service = Service.from_names("image_metadata", options=options)
    return service.apply(spec)


@pytest.mark.parametrize(
    ("properties", "source", "reason"),
    _NEVER_STARTS,
    ids=[source for _, source, _ in _NEVER_STARTS],
)
def test_value_with_which_no_guest_of_nova_starts_is_refused(
    properties: Properties, source: str, reason: str
) -> None:
    """On each host whose guests Nova builds, as the filters say before."""
    (found,) = unsupported(spec_of(properties), _NOVAS)
    refused = f"{source}: as Nova builds the guest, {reason}"
    assert str(found).startswith(refused)
    with pytest.raises(NeverStartsWith) as error:
        _filter_for_nova(spec_of(properties))
    rejected = f"No guest of Nova has {source}: {reason}"
    assert str(error.value).startswith(rejected)


@pytest.mark.parametrize("properties", _STARTS)
def test_value_with_which_a_guest_of_nova_may_start_is_accepted(
    properties: Properties,
) -> None:
    assert unsupported(spec_of(properties), _NOVAS) == []
    _filter_for_nova(spec_of(properties))


_NEVER_AND_MAYBE = [properties for properties, *_ in _NEVER_STARTS] + _STARTS


@pytest.mark.parametrize("properties", _NEVER_AND_MAYBE)
def test_value_is_accepted_where_another_driver_builds_the_guest(
    properties: Properties,
) -> None:
    facts = replace(_NOVAS, built_by_nova=False)
    assert unsupported(spec_of(properties), facts) == []
    Service.from_names("image_metadata").apply(spec_of(properties))


@pytest.mark.parametrize("properties", _NEVER_AND_MAYBE)
def test_value_of_a_server_that_exists_is_accepted(
    properties: Properties,
) -> None:
    destination = Destination(cell="cell1")
    spec = spec_of(properties, requested_destination=destination)
    _filter_for_nova(spec)
    assert unsupported(spec, _NOVAS) == []


@pytest.mark.parametrize("libvirt", [(8, 7, 0), (9, 0, 0)])
def test_address_space_without_bits_is_refused_of_nova_before_libvirt_9_2(
    libvirt: Version,
) -> None:
    facts = replace(_NOVAS, libvirt_version=libvirt)
    (found,) = unsupported(spec_of(_EMULATE), facts)
    assert "needs a number of bits; set hw_maxphysaddr_bits" in str(found)


def test_address_space_without_bits_is_accepted_with_libvirt_9_2() -> None:
    facts = replace(_NOVAS, libvirt_version=(9, 2, 0))
    assert unsupported(spec_of(_EMULATE), facts) == []


@pytest.mark.parametrize("libvirt", [(8, 7, 0), (9, 0, 0), (9, 2, 0)])
def test_our_settings_give_an_address_space_its_bits(libvirt: Version) -> None:
    facts = replace(_NOVAS, built_by_nova=False, libvirt_version=libvirt)
    assert unsupported(spec_of(_EMULATE), facts) == []
    assert guest_settings(spec_of(_EMULATE), facts).physical_address_bits


def test_filter_notes_an_address_space_without_bits() -> None:
    """No trait distinguishes hosts by their libvirt."""
    decision = _filter_for_nova(spec_of(_EMULATE))
    (note,) = decision.notes
    assert "it starts with libvirt 9.2 and newer alone" in str(note)
