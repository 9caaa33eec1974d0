# SPDX-License-Identifier: Apache-2.0

"""What the traits of a provider become: only what a report covers, and in
which mode.
"""

from __future__ import annotations

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
from os_prefilter.hosts.capabilities import capability_traits, unknown_traits
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
    CPU,
    DEPRECATED,
    NOT_CONFIGURED,
    REPORTED,
    TraitGroup,
    is_deprecated,
    keys_in,
    marker_key,
    names_noting,
    names_with,
    noted_among,
    trait_groups,
)
from os_prefilter.hosts.reporter import HostFacts, Reporter
from os_prefilter.vocabulary import BY_NAME, opt_in_traits
from os_prefilter.vocabulary.config_templates import (
    Template,
    Templates,
    Variant,
)
from tests.support.hosts import KVM, X86, few_libvirt_hosts

OWNER = Options()
_NOVA = Options(foreign_owner_traits=("OWNER_CYBORG", "CUSTOM_OWNER_Y"))
_ZUN = Options(owner_trait="CUSTOM_OWNER_ZUN", foreign_owner_traits=())
_NOTHING: frozenset[str] = frozenset()

_GROUPS = {
    "AAAAA": frozenset({"CUSTOM_A"}),
    "BBBBB": frozenset({"CUSTOM_B", "HW_B"}),
    "CCCCC": frozenset({"HW_C"}),
}
_MANAGED = sorted(trait for traits in _GROUPS.values() for trait in traits)
_OTHERS = ["CUSTOM_OF_AN_OPERATOR", "HW_OF_NOVA"]
_TRAITS = st.frozensets(st.sampled_from([*_MANAGED, *_OTHERS]))
_HAS = st.fixed_dictionaries({trait: st.booleans() for trait in _MANAGED})
_KEYS = st.frozensets(st.sampled_from(sorted(_GROUPS)))


def _marker(keys: Collection[str]) -> frozenset[str]:
    return frozenset(names_with(REPORTED, keys))


def _note(*traits: str) -> frozenset[str]:
    return frozenset(names_noting(traits))


def _is_custom(trait: str) -> bool:
    return trait.startswith("CUSTOM_")


@given(_TRAITS, _HAS, _KEYS, _KEYS, _KEYS)
def test_report_removes_only_what_a_marker_covers_and_marks_what_is_then_true(
    others: frozenset[str],
    traits: dict[str, bool],
    covered: frozenset[str],
    wanted: frozenset[str],
    still: frozenset[str],
) -> None:
    present = others | _marker(covered | {"OLDER"})
    goal = Goal(traits, _GROUPS, wanted)
    found = with_traits(present, goal, still)
    reported = keys_in(REPORTED, found)
    assert with_traits(found, goal, still) == found
    asked = wanted | still
    assert covered & asked <= reported
    assert reported <= asked
    for key, names in _GROUPS.items():
        for trait in names:
            has = traits[trait]
            was_present = trait in present
            is_found = trait in found
            if key in reported:
                assert is_found is has
                # What an operator has set would go as ours.
                if key not in covered and _is_custom(trait):
                    assert not was_present
            elif key in covered:
                stays = was_present and has and not _is_custom(trait)
                assert is_found is stays
            else:
                is_added = has and key in asked
                assert is_found is (was_present or is_added)
    noted = noted_among(found)
    # All that the marker covers, and an unwanted standard trait that stays
    # because the host has it.
    for key in reported:
        assert noted >= {trait for trait in _GROUPS[key] if traits[trait]}
    managed = frozenset(_MANAGED)
    markers = _marker(reported) | _note(*noted)
    assert found - managed - markers == others - managed
    custom = frozenset(filter(_is_custom, noted))
    for mode, ours in ((Mode.ALONE, noted), (Mode.BESIDE, custom)):
        without = withdrawn(replace(goal, owner=OWNER), mode)
        assert without.owner is None
        assert with_traits(found, without) == found - markers - ours


def test_traits_of_emulators_are_reported_as_one_group() -> None:
    """Of the host's own architecture, Nova's driver reports it."""
    facts = replace(KVM, emulated=frozenset(("aarch64", "s390x")))
    traits = {"COMPUTE_ARCH_AARCH64", "COMPUTE_ARCH_S390X"}
    row = BY_NAME["emulation_architecture"]
    key = marker_key(row.traits - opt_in_traits((row,)))
    state = with_traits(_NOTHING, goal_of(facts, (key,), Mode.BESIDE))
    assert state == {*traits, *_marker((key,)), *_note(*traits)}
    without_qemu = goal_of(KVM, (key,), Mode.BESIDE)
    assert with_traits(state, without_qemu) == _marker((key,))
    unwanted = goal_of(KVM, (), Mode.BESIDE)
    assert with_traits(state, unwanted) == _NOTHING


def test_trait_that_novas_driver_has_come_to_report_is_no_longer_the_agents() -> (
    None
):
    """An agent alone sets it as well; beside a nova-compute that one keeps it
    as it should be.
    """
    present = frozenset({"HW_A", "HW_B", *_note("HW_A", "HW_B")})
    novas_own = {"HW_A": True, "HW_B": False}
    goal = Goal({}, {}, frozenset(), reported_by_nova=novas_own)
    assert with_traits(present, goal) == {"HW_A"}


def _says_an_architecture(trait: str) -> bool:
    return trait.startswith("COMPUTE_ARCH_")


_TRAITS_OF_NOVA = set(nova_driver.CAPABILITY_TRAITS_MAP.values())


def test_beside_nova_a_libvirt_host_manages_only_traits_its_driver_does_not_report() -> (
    None
):
    for facts in few_libvirt_hosts():
        traits = capability_traits(facts)
        beside = goal_of(facts, (), Mode.BESIDE).traits
        managed = traits.keys() & opt_in_traits()
        if facts.virt_type == "kvm":
            own_trait = f"COMPUTE_ARCH_{facts.architecture.upper()}"
            managed |= set(filter(_says_an_architecture, traits)) - {own_trait}
        unknown = unknown_traits(facts)
        managed -= unknown.keys()
        assert beside == {trait: traits[trait] for trait in managed}
        assert _TRAITS_OF_NOVA.isdisjoint(beside)
        known = {name: traits[name] for name in traits if name not in unknown}
        assert goal_of(facts, (), Mode.ALONE).traits == known


_QEMU_HANGS = replace(KVM, guests={"x86_64": replace(X86, devices=None)})
_EVERY_KEY = frozenset(
    marker_key(group.traits) for group in trait_groups(KVM.templates)
)
_LSI = "CUSTOM_COMPUTE_SCSI_MODEL_LSILOGIC"
_PCNET = "COMPUTE_NET_VIF_MODEL_PCNET"


@pytest.mark.parametrize("mode", Mode, ids=lambda mode: mode.value)
def test_trait_of_a_device_stays_reported_while_qemu_lists_none(
    mode: Mode,
) -> None:
    before = with_traits(_NOTHING, goal_of(KVM, _EVERY_KEY, mode))
    assert _LSI in before
    assert (_PCNET in before) is (mode is Mode.ALONE)
    # Nova's own trait stays Nova's: no note says that an agent has set it.
    before |= {_PCNET}
    after = with_traits(before, goal_of(_QEMU_HANGS, _EVERY_KEY, mode))
    assert after == before


def test_trait_of_a_device_is_not_reported_before_qemu_lists_it() -> None:
    goal = goal_of(_QEMU_HANGS, _EVERY_KEY, Mode.ALONE)
    reported = with_traits(_NOTHING, goal)
    assert not reported & unknown_traits(_QEMU_HANGS).keys()
    assert "COMPUTE_STORAGE_BUS_VIRTIO" in reported


def test_beside_nova_a_vmware_host_manages_device_traits_its_driver_never_reports() -> (
    None
):
    """Its source, and that of the fake driver, name no such trait; OWNER_NOVA
    and the architecture are not managed.
    """
    beside = goal_of(VmwareFacts(), (), Mode.BESIDE).traits
    assert beside["COMPUTE_NET_VIF_MODEL_VMXNET3"]
    assert not beside["COMPUTE_NET_VIF_MODEL_VIRTIO"]
    assert "HW_ARCH_X86_64" not in beside
    assert "COMPUTE_IMAGE_TYPE_VMDK" not in beside
    assert "COMPUTE_SECURITY_UEFI_SECURE_BOOT" not in beside
    assert _TRAITS_OF_NOVA.isdisjoint(beside)
    sources = inspect.getsource(nova_vmware) + inspect.getsource(nova_fake)
    for trait in beside:
        assert trait not in sources


_OF_ALL = Reporter(VmwareFacts, lambda *_: "")
_OF_CUSTOM = replace(
    _OF_ALL, reported_by_nova=lambda _: frozenset({"CUSTOM_VM_MODE_HVM"})
)


@pytest.mark.parametrize(
    ("reporter", "managed"),
    [
        (_OF_ALL, "CUSTOM_VM_MODE_HVM"),
        (_OF_CUSTOM, "COMPUTE_NET_VIF_MODEL_E1000"),
    ],
    ids=["default", "declared"],
)
def test_reporter_of_another_package_declares_what_its_nova_driver_writes(
    reporter: Reporter, managed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default, all standard traits: then they are not managed beside a
    nova-compute.
    """
    traits = {"COMPUTE_NET_VIF_MODEL_E1000": True, "CUSTOM_VM_MODE_HVM": True}
    monkeypatch.setattr(
        "os_prefilter.hosts.desired_traits.capability_traits", lambda _: traits
    )
    monkeypatch.setattr(capabilities, "_reporter", lambda _: reporter)
    goal = goal_of(VmwareFacts(), (), Mode.BESIDE)
    assert goal.traits == {managed: True}


@pytest.mark.parametrize(
    "traits", ["", "OWNER_NOVA COMPUTE_NODE", "CUSTOM_OWNER_X"]
)
def test_provider_without_the_trait_of_another_owner_is_ours(
    traits: str,
) -> None:
    assert not is_foreign(traits.split(), _NOVA)


@pytest.mark.parametrize(
    "traits",
    [
        "OWNER_NOVA OWNER_CYBORG",
        "OWNER_SOMEBODY",
        "CUSTOM_VNIC_TYPE_NORMAL CUSTOM_PHYSNET_A",
        "CUSTOM_OWNER_Y",
    ],
)
def test_provider_with_the_trait_of_another_owner_or_neutron_is_foreign(
    traits: str,
) -> None:
    assert is_foreign(traits.split(), _NOVA)


def test_provider_of_nova_is_foreign_to_another_owner() -> None:
    assert is_foreign(["OWNER_NOVA"], _ZUN)
    assert not is_foreign(["CUSTOM_OWNER_ZUN"], _ZUN)


@pytest.mark.parametrize(
    "classes",
    ["VGPU", "CUSTOM_PCI_10DE_1EB8", "PCPU MEMORY_MB", "VGPU CUSTOM_LICENSE"],
)
def test_nested_provider_is_the_owners_if_one_of_its_resource_classes_is(
    classes: str,
) -> None:
    """Others may come from a ``provider.yaml``; the filter ``owner`` requires
    the trait all the same.
    """
    assert is_recognized(classes.split(), OWNER)


@pytest.mark.parametrize(
    "classes",
    [
        "NET_BW_EGR_KILOBIT_PER_SEC NET_BW_IGR_KILOBIT_PER_SEC",
        "NET_PACKET_RATE_KILOPACKET_PER_SEC",
        "FPGA",
        "",
    ],
)
def test_nested_provider_of_other_resource_classes_is_not_the_owners(
    classes: str,
) -> None:
    assert not is_recognized(classes.split(), OWNER)


_UUID = "2f0d6f3e-5f0b-4c1c-9a57-5bbb0c3f1b11"


@pytest.mark.parametrize("text", [_UUID, _UUID.upper()])
def test_hyphenated_uuid_counts_as_a_provider_uuid(text: str) -> None:
    assert is_hyphenated_uuid(text)


@pytest.mark.parametrize(
    "text", [_UUID.replace("-", ""), f"{{{_UUID}}}", f"{_UUID}\n", "kvm-1"]
)
def test_no_other_form_counts_as_a_provider_uuid(text: str) -> None:
    assert not is_hyphenated_uuid(text)


_CHANGEABLE = IronicFacts(bios={"LogicalProc": BiosSetting()})
_FIXED = IronicFacts(bios={"LogicalProc": BiosSetting(changeable=False)})


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (_CHANGEABLE, True),
        (_FIXED, False),
        (IronicFacts(bios_interface="no-bios"), False),
        # Not read, or not now: absence of knowledge.
        (IronicFacts(bios_interface="redfish"), None),
        (IronicFacts(), None),
    ],
    ids=["changeable", "fixed", "no-bios", "not read", "not now"],
)
def test_hyperthreading_is_not_reported_until_ironic_has_read_the_bios_settings(
    facts: IronicFacts, *, expected: bool | None
) -> None:
    """A trait that is there stays, and so does an earlier report, until the
    node is known to lack it.
    """
    trait = "HW_CPU_HYPERTHREADING"
    others = BY_NAME["image_type"].traits
    keys = {marker_key((trait,)), marker_key(others)}
    goal = goal_of(facts, keys, Mode.BESIDE)
    assert goal.traits.get(trait) is expected
    reported = with_traits(_NOTHING, goal_of(_CHANGEABLE, keys, Mode.BESIDE))
    gone = {trait, *_note(trait)} if expected is False else set()
    assert with_traits(reported, goal) == reported - gone
    assert with_traits(reported, withdrawn(goal, Mode.ALONE)) == _NOTHING
    present = {trait} if expected is None else set()
    found = with_traits(frozenset(present), goal)
    assert (trait in found) is (expected is not False)
    if expected is None:
        keys.remove(marker_key((trait,)))
    assert keys_in(REPORTED, found) == keys
    # What Nova's driver reports of the node.
    unmanaged = capability_traits(facts).keys() - goal.traits.keys() - {trait}
    assert unmanaged <= others | facts.templates.found_traits


_TURBO = Trait("CUSTOM_TURBO")
_DELL = Variant(node={"vendor": "dell*"})
_TEMPLATES = Templates((Template("turbo", "on", (_TURBO,), (_DELL,)),))
_KEY = marker_key((_TURBO,))


def test_traits_of_a_template_are_a_group_with_a_key_of_its_own() -> None:
    traits = frozenset({_TURBO})
    keys = frozenset({_KEY, NOT_CONFIGURED})
    group = TraitGroup("deploy-config", traits, keys, traits)
    assert group in trait_groups(_TEMPLATES)


@pytest.mark.parametrize(
    ("facts", "reported"),
    [(KVM, NOT_CONFIGURED), (IronicFacts(bios_interface="no-bios"), _KEY)],
    ids=["host", "node in Ironic"],
)
def test_host_that_is_not_configured_by_request_answers_with_one_key_for_all_templates(
    facts: HostFacts, reported: str
) -> None:
    """A node in Ironic answers for each trait, even if it has none."""
    facts = replace(facts, templates=_TEMPLATES)
    goal = goal_of(facts, {_KEY, NOT_CONFIGURED}, Mode.BESIDE)
    assert keys_in(REPORTED, with_traits(_NOTHING, goal)) == {reported}


_MARKED = frozenset({"pc", "pc-i440fx-1.4"})
_WANTED = frozenset({marker_key(BY_NAME["image_type"].traits)})


def _host_that_marks(machine_types: frozenset[str] | None) -> HostFacts:
    guest = replace(KVM.guests["x86_64"], deprecated_machines=machine_types)
    return replace(KVM, guests={"x86_64": guest})


def _report_of(
    machine_types: frozenset[str] | None,
    present: frozenset[str] = _NOTHING,
    wanted: frozenset[str] = _WANTED,
) -> frozenset[str]:
    facts = _host_that_marks(machine_types)
    return with_traits(present, goal_of(facts, wanted, Mode.BESIDE))


@pytest.mark.parametrize(
    ("machine_types", "machine_type", "expected"),
    [
        pytest.param(_MARKED, "pc-i440fx-1.4", True, id="marked"),
        pytest.param(_MARKED, "pc", True, id="short name"),
        pytest.param(_MARKED, "pc-i440fx-9.1", False, id="not marked"),
        pytest.param(frozenset(), "pc", False, id="none is marked"),
        pytest.param(None, "pc", None, id="not known"),
    ],
)
def test_report_has_the_machine_types_that_libvirt_marks(
    machine_types: frozenset[str] | None,
    machine_type: str,
    expected: bool | None,
) -> None:
    found = _report_of(machine_types)
    assert is_deprecated(machine_type, found) is expected


def test_only_the_present_marks_stay_on_a_provider() -> None:
    before = _report_of(_MARKED, frozenset({"COMPUTE_NODE"}))
    assert _report_of(_MARKED, before) == before
    after = _report_of(frozenset({"pc"}), before)
    assert is_deprecated("pc", after) is True
    assert is_deprecated("pc-i440fx-1.4", after) is False
    assert _deprecated_in(_report_of(None, after)) == []


def _deprecated_in(traits: frozenset[str]) -> list[str]:
    return [trait for trait in traits if trait.startswith(DEPRECATED)]


def test_nothing_is_marked_where_no_scheduler_wants_anything() -> None:
    before = _report_of(_MARKED)
    assert _report_of(_MARKED, before, frozenset()) == _NOTHING


def test_removed_report_leaves_no_marks() -> None:
    goal = goal_of(_host_that_marks(_MARKED), _WANTED, Mode.BESIDE)
    found = with_traits(_report_of(_MARKED), withdrawn(goal, Mode.BESIDE))
    assert _deprecated_in(found) == []


def test_more_marks_than_a_name_has_room_for_are_in_several() -> None:
    machine_types = frozenset(f"pc-q35-{number}" for number in range(100))
    found = _report_of(machine_types)
    assert len(_deprecated_in(found)) == 3
    assert all(len(trait) <= 255 for trait in _deprecated_in(found))
    for machine_type in machine_types:
        assert is_deprecated(machine_type, found) is True


def test_host_of_another_driver_marks_nothing() -> None:
    goal = goal_of(VmwareFacts(), _WANTED, Mode.BESIDE)
    assert _deprecated_in(with_traits(_NOTHING, goal)) == []


def _cpus_of(facts: HostFacts, present: frozenset[str] = _NOTHING) -> set[str]:
    found = with_traits(present, goal_of(facts, _WANTED, Mode.BESIDE))
    return {trait for trait in found if trait.startswith(CPU)}


def _with_cpu(model: str, **settings: object) -> HostFacts:
    guest = replace(KVM.guests["x86_64"], host_model=model)
    changed = {"guests": {"x86_64": guest}, **settings}
    return replace(KVM, **changed)  # type: ignore[arg-type]


def test_hosts_have_the_same_marker_if_libvirt_describes_the_same_cpu() -> (
    None
):
    old, new = _cpus_of(_with_cpu("old")), _cpus_of(_with_cpu("new"))
    assert len(old) == 1
    assert _cpus_of(replace(_with_cpu("old"), host="other")) == old
    assert old.isdisjoint(new)


@pytest.mark.parametrize(
    ("settings", "has_marker"),
    [
        pytest.param({"cpu_mode": ""}, True, id="Nova's default"),
        pytest.param({"cpu_mode": "host-model"}, True, id="host-model"),
        pytest.param({"cpu_mode": "host-passthrough"}, True, id="passthrough"),
        pytest.param(
            {"cpu_mode": "custom", "cpu_models": ("EPYC",)}, False, id="custom"
        ),
        pytest.param({"cpu_mode": "none"}, False, id="none"),
        pytest.param({"virt_type": "qemu"}, False, id="emulated"),
        pytest.param(
            {"configuration_unknown": "no file"}, False, id="not known"
        ),
    ],
)
def test_cpu_is_marked_where_guests_get_that_of_the_host(
    settings: dict[str, object], has_marker: bool
) -> None:
    assert bool(_cpus_of(_with_cpu("old", **settings))) is has_marker


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(_with_cpu(""), id="libvirt lists none"),
        pytest.param(VmwareFacts(), id="another driver"),
    ],
)
def test_cpu_that_is_not_known_is_not_marked(facts: HostFacts) -> None:
    assert _cpus_of(facts) == set()


def test_only_the_present_cpu_stays_on_a_provider() -> None:
    """A marker may be of another release, or of the host's earlier CPU."""
    before = frozenset(_cpus_of(_with_cpu("old"))) | {f"{CPU}ANOTHER"}
    assert _cpus_of(_with_cpu("new"), before) == _cpus_of(_with_cpu("new"))
    assert _cpus_of(_with_cpu(""), before) == set()


def test_removed_report_leaves_no_cpu() -> None:
    facts = _with_cpu("old")
    goal = withdrawn(goal_of(facts, _WANTED, Mode.BESIDE), Mode.BESIDE)
    assert with_traits(frozenset(_cpus_of(facts)), goal) == _NOTHING
