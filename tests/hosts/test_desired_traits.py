# SPDX-License-Identifier: Apache-2.0

"""What the traits of a provider become: only what a report covers, and in
which mode.
"""

import inspect
from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nova.virt import driver as nova_driver
from nova.virt import fake as nova_fake
from nova.virt.vmwareapi import driver as nova_vmware

from os_prefilter import Options
from os_prefilter.common.placement_values import is_hyphenated_uuid
from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts import capabilities
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.desired_traits import (
    Goal,
    Mode,
    goal_of,
    is_foreign,
    is_recognized,
    with_traits,
    withdrawn,
)
from os_prefilter.hosts.drivers.ironic_facts import BiosSetting, IronicFacts
from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter.hosts.marker_traits import (
    NOT_CONFIGURED,
    REPORTED,
    TraitGroup,
    keys_in,
    marker_key,
    names_noting,
    names_with,
    noted_among,
    trait_groups,
)
from os_prefilter.hosts.reporter import Reporter
from os_prefilter.vocabulary import BY_NAME, opt_in_traits
from os_prefilter.vocabulary.config_templates import (
    Template,
    Templates,
    Variant,
)
from tests.support.hosts import ARM, KVM, X86, few_libvirt_hosts

OWNER = Options()
_NOVA = Options(foreign_owner_traits=("OWNER_CYBORG", "CUSTOM_OWNER_Y"))
_ZUN = Options(owner_trait="CUSTOM_OWNER_ZUN", foreign_owner_traits=())

_GROUPS = {
    "AAAAA": frozenset(("CUSTOM_A",)),
    "BBBBB": frozenset(("CUSTOM_B", "HW_B")),
    "CCCCC": frozenset(("HW_C",)),
}
_MANAGED = sorted(trait for traits in _GROUPS.values() for trait in traits)


def _marker(keys: Collection[str]) -> frozenset[str]:
    return frozenset(names_with(REPORTED, keys))


def _note(*traits: str) -> frozenset[str]:
    return frozenset(names_noting(traits))


@given(
    st.frozensets(
        st.sampled_from([*_MANAGED, "CUSTOM_OF_AN_OPERATOR", "HW_OF_NOVA"])
    ),
    st.fixed_dictionaries({trait: st.booleans() for trait in _MANAGED}),
    *[st.frozensets(st.sampled_from(sorted(_GROUPS)))] * 3,
)
def test_report_removes_only_what_a_marker_covers_and_marks_what_is_then_true(
    others: frozenset[str],
    traits: dict[str, bool],
    covered: frozenset[str],
    wanted: frozenset[str],
    still: frozenset[str],
) -> None:
    present, goal = (
        others | _marker(covered | {"OLDER"}),
        Goal(traits, _GROUPS, wanted),
    )
    found = with_traits(present, goal, still)
    reported = keys_in(REPORTED, found)
    assert with_traits(found, goal, still) == found
    assert covered & (wanted | still) <= reported <= wanted | still
    for key, names in _GROUPS.items():
        for trait in names:
            has, custom = traits[trait], trait.startswith("CUSTOM_")
            if key in reported:
                assert (trait in found) is has
                # What an operator has set would go as ours.
                assert key in covered or not custom or trait not in present
            elif key in covered:
                assert (trait in found) is (
                    trait in present and has and not custom
                )
            else:
                assert (trait in found) is (
                    trait in present or (has and key in wanted | still)
                )
    noted = noted_among(found)
    # All that the marker covers, and an unwanted standard trait that stays
    # because the host has it.
    assert noted >= {
        trait for key in reported for trait in _GROUPS[key] if traits[trait]
    }
    assert found - set(_MANAGED) - _marker(reported) - _note(
        *noted
    ) == others - set(_MANAGED)
    for mode in Mode:
        without = withdrawn(replace(goal, owner=OWNER), mode)
        assert without.owner is None
        ours = {
            trait
            for trait in noted
            if mode is Mode.ALONE or trait.startswith("CUSTOM_")
        }
        assert (
            with_traits(found, without)
            == found - _marker(reported) - _note(*noted) - ours
        )


def test_trait_of_an_emulated_architecture_goes_once_no_scheduler_offers_it() -> (
    None
):
    """And the report of it is for schedulers that do not offer it as well."""
    trait, facts = (
        "COMPUTE_ARCH_AARCH64",
        replace(KVM, guests={"x86_64": X86, "aarch64": ARM}),
    )
    offered, plain = marker_key((trait, "emulated")), marker_key((trait,))
    state = with_traits(frozenset(), goal_of(facts, (offered,), Mode.BESIDE))
    assert state == {trait, *_marker((offered, plain)), *_note(trait)}
    for wanted, found in (((plain,), _marker((plain,))), ((), frozenset())):
        assert with_traits(state, goal_of(facts, wanted, Mode.BESIDE)) == found
    # Within the hour, the answer is that of now; what was offered may be told
    # apart.
    assert with_traits(
        state, goal_of(facts, (), Mode.BESIDE), (offered, plain)
    ) == _marker((plain,))
    goal = goal_of(facts, (), Mode.BESIDE, emulated=frozenset(("aarch64",)))
    assert with_traits(state, goal, (offered, plain)) == state


def test_beside_nova_a_libvirt_host_manages_only_traits_its_driver_does_not_report() -> (
    None
):
    for facts in few_libvirt_hosts():
        traits = capability_traits(
            replace(facts, emulated_architectures=frozenset())
        )
        beside = goal_of(facts, (), Mode.BESIDE).traits
        emulated = {
            trait
            for trait in traits
            if trait.startswith("COMPUTE_ARCH_") and facts.virt_type == "kvm"
        }
        emulated -= {f"COMPUTE_ARCH_{facts.architecture.upper()}"}
        assert set(beside) == (traits.keys() & opt_in_traits()) | emulated
        assert all(traits[trait] is has for trait, has in beside.items())
        assert not beside.keys() & set(
            nova_driver.CAPABILITY_TRAITS_MAP.values()
        )
        assert goal_of(facts, (), Mode.ALONE).traits == traits


def test_beside_nova_a_vmware_host_manages_device_traits_its_driver_never_reports() -> (
    None
):
    """Its source, and that of the fake driver, name no such trait; OWNER_NOVA
    and the architecture are not managed.
    """
    beside = goal_of(VmwareFacts(), (), Mode.BESIDE).traits
    assert beside["COMPUTE_NET_VIF_MODEL_VMXNET3"]
    assert not beside["COMPUTE_NET_VIF_MODEL_VIRTIO"]
    assert not beside.keys() & {
        "HW_ARCH_X86_64",
        "COMPUTE_IMAGE_TYPE_VMDK",
        "COMPUTE_SECURITY_UEFI_SECURE_BOOT",
    }
    assert not beside.keys() & set(nova_driver.CAPABILITY_TRAITS_MAP.values())
    for trait in beside:
        assert trait not in inspect.getsource(nova_vmware) + inspect.getsource(
            nova_fake
        )


def test_reporter_of_another_package_declares_what_its_nova_driver_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By default, all standard traits: then they are not managed beside a
    nova-compute.
    """
    traits = {"COMPUTE_NET_VIF_MODEL_E1000": True, "CUSTOM_VM_MODE_HVM": True}
    monkeypatch.setattr(
        "os_prefilter.hosts.desired_traits.capability_traits", lambda _: traits
    )
    default = Reporter(VmwareFacts, lambda *_: "")
    declared = replace(
        default, reported_by_nova=lambda _: frozenset(("CUSTOM_VM_MODE_HVM",))
    )
    for reporter, managed in (
        (default, "CUSTOM_VM_MODE_HVM"),
        (declared, "COMPUTE_NET_VIF_MODEL_E1000"),
    ):
        monkeypatch.setattr(capabilities, "_reporter", lambda _: reporter)  # noqa: B023
        assert goal_of(VmwareFacts(), (), Mode.BESIDE).traits == {
            managed: True
        }


def test_provider_with_the_trait_of_another_owner_or_neutron_is_foreign() -> (
    None
):
    ours = ["", "OWNER_NOVA COMPUTE_NODE", "CUSTOM_OWNER_X"]
    others = [
        "OWNER_NOVA OWNER_CYBORG",
        "OWNER_SOMEBODY",
        "CUSTOM_VNIC_TYPE_NORMAL CUSTOM_PHYSNET_A",
        "CUSTOM_OWNER_Y",
    ]
    assert [
        each for each in ours + others if is_foreign(each.split(), _NOVA)
    ] == others
    assert [
        each
        for each in ("CUSTOM_OWNER_ZUN", "OWNER_NOVA")
        if is_foreign(each.split(), _ZUN)
    ] == ["OWNER_NOVA"]


def test_nested_provider_is_the_owners_if_one_of_its_resource_classes_is() -> (
    None
):
    """Others may come from a ``provider.yaml``; the filter ``owner`` requires
    the trait all the same.
    """
    owned = [
        "VGPU",
        "CUSTOM_PCI_10DE_1EB8",
        "PCPU MEMORY_MB",
        "VGPU CUSTOM_LICENSE",
    ]
    neutrons = [
        "NET_BW_EGR_KILOBIT_PER_SEC NET_BW_IGR_KILOBIT_PER_SEC",
        "NET_PACKET_RATE_KILOPACKET_PER_SEC",
    ]
    assert [
        each
        for each in (*owned, *neutrons, "FPGA", "")
        if is_recognized(each.split(), OWNER)
    ] == owned


def test_only_the_hyphenated_uuid_form_counts_as_a_provider_uuid() -> None:
    uuid = "2f0d6f3e-5f0b-4c1c-9a57-5bbb0c3f1b11"
    assert all(map(is_hyphenated_uuid, (uuid, uuid.upper())))
    assert not any(
        map(
            is_hyphenated_uuid,
            (uuid.replace("-", ""), f"{{{uuid}}}", f"{uuid}\n", "kvm-1"),
        )
    )


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (IronicFacts(bios={"LogicalProc": BiosSetting()}), True),
        (
            IronicFacts(bios={"LogicalProc": BiosSetting(changeable=False)}),
            False,
        ),
        (IronicFacts(bios_interface="no-bios"), False),
        # Not read, or not now: absence of knowledge.
        (IronicFacts(bios_interface="redfish"), None),
        (IronicFacts(), None),
    ],
)
def test_hyperthreading_is_not_reported_until_ironic_has_read_the_bios_settings(
    facts: IronicFacts, *, expected: bool | None
) -> None:
    """A trait that is there stays, and so does an earlier report, until the
    node is known to lack it.
    """
    trait, others = "HW_CPU_HYPERTHREADING", BY_NAME["image_type"].traits
    goal, known = (
        goal_of(each, map(marker_key, ((trait,), others)), Mode.BESIDE)
        for each in (facts, IronicFacts(bios={"LogicalProc": BiosSetting()}))
    )
    reported = with_traits(frozenset(), known)
    assert with_traits(reported, goal) == reported - (
        {trait, *_note(trait)} if expected is False else set()
    )
    assert with_traits(reported, withdrawn(goal, Mode.ALONE)) == frozenset()
    assert goal.traits.get(trait) is expected
    found = with_traits(
        frozenset((trait,)) if expected is None else frozenset(), goal
    )
    assert (trait in found) is (expected is not False)
    assert keys_in(REPORTED, found) == {
        marker_key(others),
        *([] if expected is None else [marker_key((trait,))]),
    }
    # What Nova's driver reports of the node.
    assert (
        capability_traits(facts).keys() - goal.traits.keys() - {trait}
        <= others | facts.templates.found_traits
    )


def test_host_that_is_not_configured_by_request_answers_with_one_key_for_all_templates() -> (
    None
):
    """A node in Ironic answers for each trait, even if it has none."""
    trait = Trait("CUSTOM_TURBO")
    templates = Templates(
        (
            Template(
                "turbo", "on", (trait,), (Variant(node={"vendor": "dell*"}),)
            ),
        )
    )
    alone, keys = (
        frozenset((trait,)),
        frozenset((marker_key((trait,)), NOT_CONFIGURED)),
    )
    assert TraitGroup("deploy-config", alone, keys, alone) in trait_groups(
        templates, frozenset()
    )
    for facts, found in (
        (KVM, {NOT_CONFIGURED}),
        (IronicFacts(bios_interface="no-bios"), keys - {NOT_CONFIGURED}),
    ):
        goal = goal_of(replace(facts, templates=templates), keys, Mode.BESIDE)
        assert keys_in(REPORTED, with_traits(frozenset(), goal)) == found
