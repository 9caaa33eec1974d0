# SPDX-License-Identifier: Apache-2.0

"""The driver's half: what is refused, what must be switched on, and by which
of its names it was asked for.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import product

import pytest
from nova.scheduler.utils import ResourceRequest

from os_prefilter import (
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
from tests.conftest import pipeline_of, spec_of
from tests.support.every_trait import CUSTOM_TRAITS
from tests.support.hosts import ARM, KVM, LXC, NOTHING, X86
from tests.support.nova_objects import nova_spec
from tests.support.placements import provider

_BOOLEANS = [row for row in ROWS if row.boolean and row.values["true"].trait]
_NO_HPET = replace(LXC, host="container-1")


@pytest.mark.parametrize(
    ("spec", "source"),
    [
        (
            spec_of({"hw_time_hpet": "true"}),
            "image property hw_time_hpet=true",
        ),
        (
            spec_of({f"trait:{HPET}": "required"}),
            f"image property trait:{HPET}=required",
        ),
        (
            spec_of(extra_specs={f"trait:{HPET}": "required"}),
            f"flavor extra spec trait:{HPET}=required",
        ),
        (
            spec_of(
                {"hw_time_hpet": "yes"},
                {"resources7:VGPU": "1", f"trait7:{HPET}": "forbidden"},
            ),
            "image property hw_time_hpet=true",
        ),
        (
            spec_of({"hw_time_hpet": "yes"}, {f"trait7:{HPET}": "required"}),
            (
                f"flavor extra spec trait7:{HPET}=required and image property"
                " hw_time_hpet=true"
            ),
        ),
    ],
)
def test_hpet_required_by_property_or_trait_is_enabled_or_refused_by_the_host(
    spec: RequestSpec, source: str
) -> None:
    settings = guest_settings(spec, KVM)
    assert settings.settings == (Setting("time_hpet", "true", source),)
    with pytest.raises(UnsupportedByHost, match="container-1") as refused:
        guest_settings(spec, _NO_HPET)
    assert "not possible on lxc hosts" in str(refused.value)
    assert len(refused.value.refusals) == 1


def test_hpet_stays_off_unless_it_was_asked_for() -> None:
    of_a_gpu = spec_of(
        extra_specs={
            "resources_gpu:VGPU": "1",
            f"trait_gpu:{HPET}": "required",
        }
    )
    for spec in (
        spec_of(),
        spec_of({"hw_time_hpet": "false"}),
        RequestSpec(Flavor(), None),
        of_a_gpu,
    ):
        assert guest_settings(spec, KVM).value("time_hpet") in (None, "false")


@pytest.mark.parametrize("row", _BOOLEANS, ids=lambda row: row.name)
def test_boolean_device_required_by_its_trait_is_enabled_or_refused_by_the_host(
    row: Row,
) -> None:
    """The decision of 2018: the trait is the cue, and the driver fails where
    it cannot follow it.

    Beside a property that disables the device it is a conflict.
    """
    required = {f"trait:{row.values['true'].trait}": "required"}
    properties: dict[str, object] = (
        {"hw_firmware_type": "uefi"}
        if row.depends_on and row.depends_on.row == "firmware_type"
        else {}
    )
    spec = spec_of(dict(properties), required)
    if unsupported(spec, KVM):
        # Nova 34 encrypts no ephemeral disk.
        assert row.name == "ephemeral_encryption"
    else:
        assert guest_settings(spec, KVM).value(row.name) == "true"
    with pytest.raises(UnsupportedByHost):
        guest_settings(spec, _NO_HPET)
    in_a_group = {
        f"trait1:{row.values['true'].trait}": "required",
        "resources1:VCPU": "1",
    }
    for check, extra_specs in product(
        (unsupported, guest_settings), (required, in_a_group)
    ):
        with pytest.raises(FlavorImageConflict):
            check(
                spec_of(
                    {**properties, str(row.image_property): "false"},
                    extra_specs,
                ),
                KVM,
            )


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
    assert (settings.machine, settings.architecture) == (
        "pc-q35-7.2",
        "x86_64",
    )


@pytest.mark.parametrize(
    "value", ["virtio\nERROR fake", "x" * 10_000, ["virtio"]]
)
def test_unknown_value_is_refused_in_one_short_printable_line(
    value: object,
) -> None:
    (found,) = unsupported(spec_of({"hw_disk_bus": value}), KVM)
    assert str(found).isprintable()
    assert len(str(found)) < 200
    with pytest.raises(UnsupportedByHost) as refused:
        guest_settings(spec_of({"hw_disk_bus": value}), KVM)
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
    assert [
        str(item).partition(": possible on kvm hosts: ")[0]
        for item in unsupported(spec, KVM)
    ] == [
        "flavor extra spec trait:COMPUTE_NET_VIF_MODEL_SRIOV=required",
        (
            "flavor extra spec trait1:HW_ARCH_X86_64=forbidden: the host has"
            " HW_ARCH_X86_64"
        ),
    ]


def test_trait_that_the_reporter_does_not_own_is_what_the_operator_has_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = Trait("HW_CPU_HYPERTHREADING")
    for asked in (
        {"hw_cpu_thread_policy": "require"},
        {f"trait:{threads}": "required"},
    ):
        found = unsupported(spec_of(dict(asked)), VmwareFacts())
        assert [each.reason for each in found] == [
            f"{threads} is not set on the host"
        ]
        assert (
            unsupported(
                spec_of(dict(asked)),
                VmwareFacts(other_traits=frozenset((threads,))),
            )
            == []
        )
    assert (
        unsupported(spec_of({"trait:CUSTOM_MINE": "required"}), IronicFacts())
        == []
    )
    fake = FakeFacts(can={"default_machine": frozenset(("pc",))})
    assert guest_settings(spec_of(), fake).family == "pc"
    monkeypatch.setattr(
        "os_prefilter.hosts.driver_check.reporter_of",
        lambda _: replace(REPORTER, owns=frozenset()),
    )
    assert not guest_settings(spec_of(), fake).family


def test_trait_of_a_template_is_what_the_bios_of_the_node_can() -> None:
    variants = (Variant((BiosChange("Raid", ("On",)),)),)
    node = IronicFacts(
        templates=BUNDLED.replace_with(
            [Template("raid", "on", (Trait("CUSTOM_RAID"),), variants)]
        )
    )
    able = replace(node, bios={"Raid": BiosSetting()})
    assert [
        capability_traits(facts).get("CUSTOM_RAID") for facts in (node, able)
    ] == [False, True]
    for asked in (
        {"deploy-config:raid": "on"},
        {"trait:CUSTOM_RAID": "required"},
    ):
        (found,) = unsupported(spec_of(extra_specs=dict(asked)), node)
        assert "Ironic has no BIOS settings of it" in found.reason
        assert unsupported(spec_of(extra_specs=dict(asked)), able) == []


def test_device_named_by_its_trait_alone_is_refused_for_a_guest_of_nova() -> (
    None
):
    named, novas = (
        {f"trait:{HPET}": "required"},
        replace(KVM, built_by_nova=True),
    )
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
    """Return a client of a real Placement with one host, and providers of
    devices below it as Nova and Cyborg do.
    """
    traits = {
        trait for trait, has in capability_traits(KVM).items() if has
    } - _NESTED
    host = provider(
        "kvm-1", "VCPU MEMORY_MB DISK_GB", " ".join(traits), _DEVICES
    )
    room = {
        "VCPU": Inventory(16),
        "MEMORY_MB": Inventory(4096),
        "DISK_GB": Inventory(100),
    }
    with EmbeddedPlacement(
        Fleet((replace(host, resources=room),))
    ) as placement:
        placement.know(CUSTOM_TRAITS)
        yield placement.client


_ENCRYPTED = {"hw_firmware_type": "uefi", "hw_machine_type": "q35"}


@pytest.mark.parametrize(
    ("properties", "extra_specs", "can"),
    [
        (
            {},
            {
                "resources_sev:MEM_ENCRYPTION_CONTEXT": "1",
                "trait_sev:HW_CPU_X86_AMD_SEV_ES": "forbidden",
            },
            True,
        ),
        (
            _ENCRYPTED,
            {
                "hw:mem_encryption": "true",
                "trait:HW_CPU_X86_AMD_SEV_ES": "forbidden",
            },
            True,
        ),
        ({}, {"trait:HW_CPU_X86_AMD_SEV_ES": "forbidden"}, True),
        (
            {"hw_time_hpet": "yes"},
            {"resources_gpu:VGPU": "1", f"trait_gpu:{HPET}": "forbidden"},
            True,
        ),
        (
            {"hw_time_hpet": "no"},
            {"resources_dpu:FPGA": "1", f"trait_dpu:{HPET}": "required"},
            True,
        ),
        (
            {},
            {
                "resources_dpu:FPGA": "1",
                "trait_dpu:HW_ARCH_AARCH64": "required",
            },
            True,
        ),
        (
            _ENCRYPTED,
            {
                "resources1:VGPU": "1",
                "trait1:COMPUTE_SECURITY_STATELESS_FIRMWARE": "forbidden",
            },
            True,
        ),
        ({}, {"resources1:VCPU": "1", f"trait1:{HPET}": "required"}, True),
        ({}, {"resources1:VCPU": "1", f"trait1:{HPET}": "forbidden"}, False),
        (
            {},
            {
                "resources1:MEMORY_MB": "512",
                "trait1:HW_ARCH_AARCH64": "required",
            },
            False,
        ),
    ],
)
def test_late_check_of_traits_in_request_groups_agrees_with_placement_and_novas_query(
    properties: dict[str, object],
    extra_specs: dict[str, str],
    can: bool,
    devices: PlacementClient,
) -> None:
    """With the query of Nova's own code, and with ours after the filters."""
    spec = nova_spec(properties, extra_specs)
    novas = ResourceRequest.from_request_spec(
        spec.obj_clone()
    ).to_querystring()
    assert devices.allocation_candidates(novas).hosts == ("kvm-1",) * can
    assert (unsupported(spec, KVM) == []) is can
    pipeline_of("hpet", "image_metadata").apply(spec)
    assert (
        devices.allocation_candidates(allocation_candidates_query(spec)).hosts
        == ("kvm-1",) * can
    )


@pytest.mark.parametrize(
    "values",
    [
        ("hw_tpm_model=tpm-crb", "hw_tpm_version=1.2"),
        ("os_secure_boot=required", "hw_firmware_type=bios"),
    ],
)
def test_impossible_combination_is_refused_by_late_check_guest_settings_and_filter(
    values: tuple[str, str],
) -> None:
    properties = dict(each.split("=") for each in values)
    for refuse in (
        unsupported,
        guest_settings,
        lambda spec, _: pipeline_of("image_metadata").apply(spec),
    ):
        with pytest.raises(ImpossibleCombination) as error:
            refuse(spec_of(dict(properties)), KVM)
        assert error.value.sources == tuple(
            f"image property {each}" for each in values
        )


def test_refusal_names_the_property_behind_a_default_and_an_unknown_value_once() -> (
    None
):
    assert [
        str(item)
        for item in unsupported(spec_of({"hw_tpm_version": "2.0"}), KVM)
    ] == [
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
    unknown = unsupported(
        spec_of(
            {"hw_tpm_version": "3.0"},
            {"hw:tpm_version": "4.0", "deploy-config:raid": "5"},
        ),
        KVM,
    )
    assert list(map(str, unknown)) == [
        (
            "flavor extra spec 'deploy-config:raid'='5': no configuration"
            " template"
        ),
        "image property hw_tpm_version='3.0': unknown value",
    ]


def test_value_beside_which_no_guest_of_nova_starts_is_refused_with_advice() -> (
    None
):
    """An ISO image only on an x86_64 host."""
    guests = {"x86_64": X86, "aarch64": ARM}
    own = replace(
        KVM,
        guests=guests,
        spice_enabled=True,
        emulated_architectures=frozenset(guests),
    )
    novas = replace(own, built_by_nova=True)
    emulated = {
        "hw_emulation_architecture": "aarch64",
        "hw_machine_type": "virt",
    }
    iso = RequestSpec(Flavor(), Image(disk_format="iso", properties=emulated))
    (found,) = unsupported(iso, novas)
    reason = (
        "none has it beside image field disk_format=iso; set hw_cdrom_bus=scsi"
        " as well"
    )
    assert found.reason == f"as Nova builds the guest, {reason}"
    assert unsupported(iso, own) == []
    assert unsupported(iso, replace(novas, architecture="aarch64")) == []


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
    check: Callable[[RequestSpec, HostFacts], object],
) -> None:
    novas = replace(_SECURE_X86, built_by_nova=True)
    try:
        refused = str(check(spec_of(dict(_SECURE)), novas))
    except UnsupportedByHost as error:
        refused = str(error)
    assert (
        "as Nova builds the guest, none has it beside an image without"
        " hw_firmware_type" in refused
    )
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
    properties: dict[str, object],
    facts: LibvirtFacts,
    when_new: bool,
    destination: Destination | None,
) -> None:
    spec = replace(
        spec_of(dict(properties)), requested_destination=destination
    )
    assert (unsupported(spec, facts) == []) is (
        when_new or destination is not None
    )


def test_secure_boot_of_our_settings_has_uefi() -> None:
    (system,) = [
        each
        for each in domain_elements(
            guest_settings(spec_of(dict(_SECURE)), _SECURE_X86)
        )
        if "<os" in each
    ]
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


def test_x86_device_firmware_or_machine_type_is_refused_for_an_emulated_m68k_guest() -> (
    None
):
    """Also where its machine types are unknown; its settings carry its own
    name.
    """
    emulated = {"hw_emulation_architecture": "m68k"}
    own = replace(KVM, architecture="m68k", guests={"m68k": NOTHING})
    assert guest_settings(spec_of(emulated), own).architecture == "m68k"
    facts = replace(KVM, guests={"x86_64": X86, "m68k": NOTHING})
    asked = {
        "hw_time_hpet": "true",
        "hw_firmware_type": "uefi",
        "hw_viommu_model": "intel",
        "hw_machine_type": "pc",
    }
    for name, value in asked.items():
        kind = "machine type pc" if name == "hw_machine_type" else "m68k"
        (item,) = unsupported(spec_of({**emulated, name: value}), facts)
        assert item.reason == f"a guest of {kind} never has it"
        with pytest.raises(ImpossibleCombination):
            pipeline_of("image_metadata", "hpet").apply(
                spec_of({**emulated, name: value})
            )


@pytest.mark.parametrize(
    ("name", "says"),
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
    name: str, says: str
) -> None:
    class Facts(HostFacts):
        driver = name

    with pytest.raises(UnusableReporter, match=says):
        unsupported(spec_of(), Facts())


def test_the_image_is_not_read_when_booting_from_a_volume() -> None:
    spec = RequestSpec(Flavor(vcpus=1), Image(disk_format="vhd"), is_bfv=True)
    assert unsupported(spec, KVM) == []
    assert [
        item.value for item in unsupported(replace(spec, is_bfv=False), KVM)
    ] == ["vhd"]


@pytest.mark.parametrize(
    ("properties", "extra_specs", "refused"),
    [
        ({"hw_maxphysaddr_bits": "46"}, {}, ""),
        (
            {"hw_maxphysaddr_bits": 47},
            {},
            (
                "image property hw_maxphysaddr_bits=47: the host's processors"
                " have 46"
            ),
        ),
        (
            {},
            {"hw:maxphysaddr_bits": "52"},
            (
                "flavor extra spec hw:maxphysaddr_bits=52: the host's"
                " processors have 46"
            ),
        ),
        (
            {"hw_maxphysaddr_bits": 31},
            {},
            (
                "image property hw_maxphysaddr_bits=31: QEMU takes a whole"
                " number from 32"
            ),
        ),
        (
            {"hw_maxphysaddr_bits": True},
            {},
            (
                "image property hw_maxphysaddr_bits=True: QEMU takes a whole"
                " number"
            ),
        ),
        (
            {},
            {"hw:maxphysaddr_bits": "4\x1b"},
            r"flavor extra spec hw:maxphysaddr_bits='4\x1b': QEMU takes",
        ),
        (
            {},
            {"hw:maxphysaddr_bits": "9" * 5_000},
            "QEMU takes a whole number from 32 to 52",
        ),
    ],
)
def test_address_bits_that_the_guest_cannot_have_are_refused(
    properties: dict[str, object], extra_specs: dict[str, str], refused: str
) -> None:
    """Those of QEMU, and of the host's processors: libvirt starts no other
    guest.
    """
    facts = replace(KVM, physical_address_bits=46)
    found = unsupported(
        spec_of({"hw_maxphysaddr_mode": "emulate", **properties}, extra_specs),
        facts,
    )
    assert [
        refused in str(item) and str(item).isprintable() for item in found
    ] == [True] * bool(refused)
    # With the other mode they are not written, and without one they mean
    # nothing.
    for mode in ({"hw_maxphysaddr_mode": "passthrough"}, {}):
        assert (
            unsupported(spec_of({**mode, **properties}, extra_specs), facts)
            == []
        )


_OLD_MACHINE = (
    "image property hw_machine_type={}: as Nova builds the guest, it gets a"
    " device (vmcoreinfo) that QEMU has"
)


@pytest.mark.parametrize(
    ("properties", "refused"),
    [
        (
            {"hw_machine_type": "pc-i440fx-2.4"},
            _OLD_MACHINE.format("pc-i440fx-2.4"),
        ),
        ({"hw_machine_type": "pc-q35-2.4"}, _OLD_MACHINE.format("pc-q35-2.4")),
        (
            {"hw_machine_type": "pc-i440fx-1.7"},
            _OLD_MACHINE.format("pc-i440fx-1.7"),
        ),
        ({"hw_machine_type": "pc-i440fx-2.5"}, ""),
        ({"hw_machine_type": "pc-i440fx-2.12"}, ""),
        # Those of a vendor: what they have is not known.
        ({"hw_machine_type": "pc-i440fx-rhel7.2.0"}, ""),
        (
            {"hw_maxphysaddr_mode": "passthrough", "hw_maxphysaddr_bits": 42},
            "hw_maxphysaddr_bits=42: as Nova builds",
        ),
        ({"hw_maxphysaddr_mode": "passthrough"}, ""),
        ({"hw_maxphysaddr_bits": 42}, ""),
        ({"hw_maxphysaddr_mode": "emulate", "hw_maxphysaddr_bits": 42}, ""),
    ],
)
def test_value_with_which_no_guest_of_nova_starts_is_refused(
    properties: dict[str, object], refused: str
) -> None:
    """On each host whose guests Nova builds, as the filters say before; a
    driver with our settings builds them.
    """
    guests = {"x86_64": replace(X86, machines_are_complete=False)}
    facts = replace(KVM, guests=guests, built_by_nova=True, nova_release=34)
    found = [str(item) for item in unsupported(spec_of(properties), facts)]
    assert [refused in item for item in found] == [True] * bool(refused), found
    assert (
        unsupported(spec_of(properties), replace(facts, built_by_nova=False))
        == []
    )
    filters = Service.from_names(
        "image_metadata", options=Options(nova_builds_guests=True)
    )
    with (
        pytest.raises(NeverStartsWith, match="No guest of Nova starts with")
        if refused
        else nullcontext()
    ):
        filters.apply(spec_of(properties))
    # Of another builder, and of a server that runs, it is not known.
    Service.from_names("image_metadata").apply(spec_of(properties))
    exists = replace(
        spec_of(properties), requested_destination=Destination(cell="cell1")
    )
    filters.apply(exists)
    assert unsupported(exists, facts) == []


@pytest.mark.parametrize(
    ("libvirt", "is_refused"),
    [((8, 7, 0), True), ((9, 0, 0), True), ((9, 2, 0), False)],
)
def test_address_space_without_bits_is_refused_of_nova_before_libvirt_9_2(
    libvirt: Version, *, is_refused: bool
) -> None:
    """No trait tells such hosts from others: the filter notes it. Our settings
    have a number of bits.
    """
    spec = spec_of({"hw_maxphysaddr_mode": "emulate"})
    facts = replace(
        KVM, built_by_nova=True, nova_release=34, libvirt_version=libvirt
    )
    found = [str(item) for item in unsupported(spec, facts)]
    assert [
        "needs a number of bits; set hw_maxphysaddr_bits" in item
        for item in found
    ] == [True] * is_refused
    assert unsupported(spec, replace(facts, built_by_nova=False)) == []
    assert guest_settings(
        spec, replace(facts, built_by_nova=False)
    ).physical_address_bits
    decision = Service.from_names(
        "image_metadata", options=Options(nova_builds_guests=True)
    ).apply(spec)
    notes = [str(note) for run in decision.runs for note in run.notes]
    assert [
        "it starts with libvirt 9.2 and newer alone" in note for note in notes
    ] == [True]
