"""What the traits of a provider become: only what the reporter answers for, and in which mode."""

import inspect
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nova.virt import driver as nova_driver
from nova.virt import fake as nova_fake
from nova.virt.vmwareapi import driver as nova_vmware

from os_prefilter import Options
from os_prefilter.common.uuids import is_hyphenated_uuid
from os_prefilter.hosts import capabilities
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.desired_traits import Mode, is_foreign, is_recognized, select_managed, with_marker, with_traits
from os_prefilter.hosts.drivers.fake import FakeFacts
from os_prefilter.hosts.drivers.ironic_facts import BiosSetting, IronicFacts
from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter.hosts.reporter import HostFacts, Reporter, standard_traits
from os_prefilter.service.report_scope import EVERY_TRAIT
from os_prefilter.vocabulary import BY_NAME, QUALIFIED, REPORTED, REPORTED_CUSTOM, opt_in_traits
from tests.support.hosts import few_libvirt_hosts, libvirt_hosts

NAMES = st.sampled_from([f"CUSTOM_{letter}" for letter in "ABCDEFGH"])
OWNER = Options()
_NOVA = Options(foreign_owner_traits=("OWNER_CYBORG", "CUSTOM_OWNER_Y"))
_ZUN = Options(owner_trait="CUSTOM_OWNER_ZUN", foreign_owner_traits=())


@given(st.frozensets(NAMES), st.dictionaries(NAMES, st.booleans()))
def test_report_sets_managed_traits_and_keeps_all_others(present: frozenset[str], traits: dict[str, bool]) -> None:
    found = with_traits(present, traits)
    assert all((trait in found) is has for trait, has in traits.items())
    assert found - traits.keys() == present - traits.keys()
    assert with_traits(found, traits) == found


def test_beside_nova_a_libvirt_host_manages_only_traits_its_driver_does_not_report() -> None:
    for facts in few_libvirt_hosts():
        traits = capability_traits(facts)
        beside = select_managed(traits, Mode.BESIDE, facts)
        emulated = (
            {trait for trait in traits if trait.startswith("COMPUTE_ARCH_")} if facts.virt_type == "kvm" else set()
        )
        emulated -= {f"COMPUTE_ARCH_{facts.architecture.upper()}"}
        assert set(beside) == (traits.keys() & opt_in_traits()) | emulated
        assert all(traits[trait] is has for trait, has in beside.items())
        assert not beside.keys() & set(nova_driver.CAPABILITY_TRAITS_MAP.values())
        assert select_managed(traits, Mode.ALONE, facts) == traits


def test_beside_nova_a_vmware_host_manages_device_traits_its_driver_never_reports() -> None:
    """Its source, and that of the fake driver, name no such trait; OWNER_NOVA and the architecture are not managed."""
    beside = select_managed(capability_traits(VmwareFacts()), Mode.BESIDE, VmwareFacts())
    assert beside["COMPUTE_NET_VIF_MODEL_VMXNET3"]
    assert not beside["COMPUTE_NET_VIF_MODEL_VIRTIO"]
    assert not beside.keys() & {"HW_ARCH_X86_64", "COMPUTE_IMAGE_TYPE_VMDK", "COMPUTE_SECURITY_UEFI_SECURE_BOOT"}
    assert not beside.keys() & set(nova_driver.CAPABILITY_TRAITS_MAP.values())
    every = {trait for row in BY_NAME.values() for trait in row.traits}
    for trait in select_managed(dict.fromkeys(every, True), Mode.BESIDE, VmwareFacts()):
        assert trait not in inspect.getsource(nova_vmware) + inspect.getsource(nova_fake)


class _OtherFacts(HostFacts):
    driver = "another package's"


@pytest.mark.parametrize(
    ("reported_by_nova", "managed_trait"),
    [
        (standard_traits, "CUSTOM_VM_MODE_HVM"),
        (lambda _: frozenset(("CUSTOM_VM_MODE_HVM",)), "COMPUTE_NET_VIF_MODEL_E1000"),
    ],
)
def test_reporter_of_another_package_declares_what_its_nova_driver_writes(
    monkeypatch: pytest.MonkeyPatch, reported_by_nova: Callable[[HostFacts], frozenset[str]], managed_trait: str
) -> None:
    """By default, all standard traits: then they are not managed beside a nova-compute."""
    reporter = Reporter(_OtherFacts, lambda *_: "", reported_by_nova=reported_by_nova)
    monkeypatch.setattr(capabilities, "_reporter", lambda _: reporter)
    traits = {"COMPUTE_NET_VIF_MODEL_E1000": True, "CUSTOM_VM_MODE_HVM": True}
    assert select_managed(traits, Mode.BESIDE, _OtherFacts()) == {managed_trait: True}


def test_traits_to_create_include_every_custom_trait_of_the_vocabulary() -> None:
    known = EVERY_TRAIT.known
    machines = BY_NAME["default_machine"].traits
    assert known >= machines
    assert known >= {name for (trait, _), name in QUALIFIED.items() if trait in machines}
    assert known >= {trait for row in BY_NAME.values() for trait in row.traits if trait.startswith("CUSTOM_")}
    assert all(trait.startswith("CUSTOM_") for trait in known)


@pytest.mark.parametrize(
    ("options", "traits", "foreign"),
    [
        (_NOVA, "", False),
        (_NOVA, "OWNER_NOVA COMPUTE_NODE", False),
        (_NOVA, "OWNER_NOVA OWNER_CYBORG", True),
        (_NOVA, "OWNER_SOMEBODY", True),
        (_NOVA, "CUSTOM_VNIC_TYPE_NORMAL CUSTOM_PHYSNET_A", True),
        (_NOVA, "CUSTOM_OWNER_X", False),
        (_NOVA, "CUSTOM_OWNER_Y", True),
        (_ZUN, "CUSTOM_OWNER_ZUN", False),
        (_ZUN, "OWNER_NOVA", True),
    ],
)
def test_provider_with_the_trait_of_another_owner_or_neutron_is_foreign(
    options: Options, traits: str, foreign: bool
) -> None:
    assert is_foreign(traits.split(), options) is foreign


@pytest.mark.parametrize(
    ("classes", "recognized"),
    [
        ("", False),
        ("VGPU", True),
        ("CUSTOM_PCI_10DE_1EB8", True),
        ("PCPU MEMORY_MB", True),
        ("NET_BW_EGR_KILOBIT_PER_SEC NET_BW_IGR_KILOBIT_PER_SEC", False),
        ("NET_PACKET_RATE_KILOPACKET_PER_SEC", False),
        ("VGPU FPGA", False),
    ],
)
def test_nested_provider_is_the_owners_only_if_all_its_resource_classes_are(classes: str, recognized: bool) -> None:
    assert is_recognized(classes.split(), OWNER) is recognized


def test_only_the_hyphenated_uuid_form_counts_as_a_provider_uuid() -> None:
    uuid = "2f0d6f3e-5f0b-4c1c-9a57-5bbb0c3f1b11"
    assert all(map(is_hyphenated_uuid, (uuid, uuid.upper())))
    assert not any(map(is_hyphenated_uuid, (uuid.replace("-", ""), f"{{{uuid}}}", f"{uuid}\n", "kvm-1")))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (IronicFacts(bios={"LogicalProc": BiosSetting()}), True),
        (IronicFacts(bios={"LogicalProc": BiosSetting(changeable=False)}), False),
        (IronicFacts(bios_interface="no-bios"), False),
        # Not read, or not now: absence of knowledge.
        (IronicFacts(bios_interface="redfish"), None),
        (IronicFacts(), None),
    ],
)
def test_hyperthreading_trait_is_not_managed_until_ironic_has_read_the_bios_settings(
    facts: IronicFacts, *, expected: bool | None
) -> None:
    assert select_managed(capability_traits(facts), Mode.BESIDE, facts).get("HW_CPU_HYPERTHREADING") is expected


def test_on_an_ironic_node_all_traits_but_the_image_types_are_managed() -> None:
    facts = IronicFacts(architecture="x86_64", bios={"LogicalProc": BiosSetting()})
    traits = capability_traits(facts)
    assert traits.keys() - select_managed(traits, Mode.BESIDE, facts).keys() == BY_NAME["image_type"].traits


@pytest.mark.parametrize(
    ("facts", "known"),
    [
        (FakeFacts(), True),
        (next(libvirt_hosts()), True),
        (VmwareFacts(), True),
        (IronicFacts(), False),
        (IronicFacts(bios_interface="no-bios"), True),
        (IronicFacts(bios={"LogicalProc": BiosSetting()}), True),
    ],
)
def test_report_marker_is_set_only_if_all_capabilities_of_the_host_are_known(facts: HostFacts, known: bool) -> None:
    """Where Ironic has not read the BIOS settings, it stays as it was: neither said nor taken back."""
    traits = capability_traits(facts)
    for found, marker in (
        (with_marker(traits, facts), REPORTED),
        (with_marker(traits, facts, REPORTED_CUSTOM), REPORTED_CUSTOM),
    ):
        assert found == (traits | {marker: True} if known else traits)


@pytest.mark.parametrize(
    ("present", "traits", "expected"),
    [
        ({"CUSTOM_PREFILTER_REPORTED_7", "X"}, {REPORTED: True}, {REPORTED, "X"}),
        ({"CUSTOM_PREFILTER_REPORTED_7", REPORTED, "X"}, {REPORTED: False}, {"X"}),
        ({"CUSTOM_PREFILTER_REPORTED_7", REPORTED, REPORTED_CUSTOM}, {}, None),
    ],
)
def test_report_marker_of_another_release_is_removed_when_this_release_reports(
    present: set[str], traits: dict[str, bool], expected: set[str] | None
) -> None:
    assert with_traits(frozenset(present), traits) == (present if expected is None else expected)
