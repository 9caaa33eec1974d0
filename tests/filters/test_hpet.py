"""hpet: the timer by property, or by the explicit trait; never both ways at once."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from os_prefilter import allocation_candidates_query, capability_traits, unsupported
from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.common.errors import FlavorImageConflict, ImpossibleCombination
from os_prefilter.filters.report_scope import EVERY_TRAIT
from os_prefilter.fleet.model import Fleet
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.vocabulary import HPET
from tests.conftest import pipeline_of, required_by, spec_of
from tests.support.hosts import ARM, EVERY_ARCHITECTURE, KVM, X86
from tests.support.placements import provider

_HOSTS = {
    "x86": replace(KVM, guests={"x86_64": X86}),
    "x86-emulates-arm": replace(KVM, guests={"x86_64": X86, "aarch64": ARM}),
    "arm": replace(KVM, architecture="aarch64", guests={"aarch64": ARM}),
    "arm-emulates-x86": replace(KVM, architecture="aarch64", guests={"aarch64": ARM, "x86_64": X86}),
}
_ASKED = [(HPET, True, "root")]


@pytest.mark.parametrize(
    ("properties", "extra_specs", "expected"),
    [
        ({}, {}, []),
        ({"hw_time_hpet": "true"}, {}, _ASKED),
        ({"hw_time_hpet": True}, {}, _ASKED),
        ({"hw_time_hpet": "YES"}, {}, _ASKED),
        ({"hw_time_hpet": 1}, {}, _ASKED),
        ({"hw_time_hpet": "false"}, {}, []),
        ({"hw_time_hpet": False}, {}, []),
        ({"hw_time_hpet": "perhaps"}, {}, []),
        ({f"trait:{HPET}": "required"}, {}, _ASKED),
        ({}, {f"trait:{HPET}": "required"}, _ASKED),
        ({}, {"resources1:VCPU": "1", f"trait1:{HPET}": "required"}, _ASKED),
        ({}, {"resources1:VGPU": "1", f"trait1:{HPET}": "required"}, []),
        ({"hw_time_hpet": "on"}, {"resources_gpu:VGPU": "1", f"trait_gpu:{HPET}": "forbidden"}, _ASKED),
        ({"hw_time_hpet": "off"}, {"resources_gpu:VGPU": "1", f"trait_gpu:{HPET}": "required"}, []),
        ({"hw_time_hpet": "on"}, {"resources1:MEM_ENCRYPTION_CONTEXT": "1", f"trait1:{HPET}": "forbidden"}, _ASKED),
        ({}, {f"trait:{HPET}": "forbidden"}, []),
        ({"hw_time_hpet": "on"}, {f"trait:{HPET}": "required"}, _ASKED),
        ({"hw_time_hpet": "off"}, {f"trait:{HPET}": "forbidden"}, []),
    ],
)
def test_hpet_is_required_by_the_image_property_or_the_explicit_trait(
    properties: dict[str, object], extra_specs: dict[str, str], expected: list[object]
) -> None:
    """Also without the trait in reported_traits: enabling the filter is the statement.

    The trait in the group of a device is one of the device.
    """
    assert required_by("hpet", spec_of(properties, extra_specs), reported_traits=[]) == expected


@pytest.mark.parametrize(
    ("properties", "extra_specs"),
    [
        ({"hw_time_hpet": "true"}, {f"trait:{HPET}": "forbidden"}),
        ({"hw_time_hpet": "false"}, {f"trait:{HPET}": "required"}),
        ({"hw_time_hpet": "false"}, {f"trait_a:{HPET}": "required"}),
        ({"hw_time_hpet": "true"}, {"resources_a:MEMORY_MB": "512", f"trait_a:{HPET}": "forbidden"}),
        ({"hw_time_hpet": "false", f"trait:{HPET}": "required"}, {}),
        ({f"trait:{HPET}": "required"}, {f"trait:{HPET}": "forbidden"}),
    ],
)
def test_contradicting_hpet_requests_are_an_error_and_change_nothing(
    properties: dict[str, object], extra_specs: dict[str, str]
) -> None:
    spec = spec_of(properties, extra_specs)
    with pytest.raises(FlavorImageConflict, match="contradict each other"):
        pipeline_of("hpet").apply(spec)
    assert spec == spec_of(properties, extra_specs)


def test_requirement_names_the_extra_spec_and_the_image_property() -> None:
    spec = spec_of({"hw_time_hpet": "true"}, {f"trait:{HPET}": "required"})
    (item,) = pipeline_of("hpet", reported_traits=[]).apply(spec).requirements
    assert item.source == f"flavor extra spec trait:{HPET}=required and image property hw_time_hpet=true"


@pytest.mark.parametrize("unknown_values", ["skip", "reject"])
def test_misspelt_boolean_of_an_image_is_false_with_a_warning(unknown_values: str) -> None:
    """As in Nova's own object of the image, where nothing shows that it was misspelt."""
    decision = pipeline_of("hpet", unknown_values=unknown_values).apply(spec_of({"hw_time_hpet": "perhaps"}))
    assert decision.requirements == ()
    assert [(note.reason, note.warn) for note in decision.notes] == [
        ("'perhaps' is not a boolean: taken as false, as in Nova", True)
    ]


def test_only_hosts_with_the_timer_remain(hosts: Callable[..., tuple[str, ...]]) -> None:
    spec = {"hw_time_hpet": "true"}
    before, after = hosts(spec_of(spec)), hosts(spec_of(spec), "hpet")
    assert {"arm-1", "vmware-1"} <= set(before) - set(after)
    assert "kvm-old-1" in after


def _hosts_of_cloud(offered: frozenset[str]) -> dict[str, LibvirtFacts]:
    """Return the hosts of a cloud that offers to emulate these architectures."""
    return {name: replace(facts, emulated_architectures=offered) for name, facts in _HOSTS.items()}


@pytest.fixture(scope="module")
def placements() -> Iterator[dict[frozenset[str], PlacementClient]]:
    """Return clients of real Placements to which hosts of two architectures reported, by what their cloud emulates."""
    with ExitStack() as stack:
        yield {offered: stack.enter_context(_reporting(offered)) for offered in (frozenset[str](), EVERY_ARCHITECTURE)}


@contextmanager
def _reporting(offered: frozenset[str]) -> Iterator[PlacementClient]:
    has = {name: capability_traits(facts) for name, facts in _hosts_of_cloud(offered).items()}
    traits = {name: " ".join(trait for trait in found if found[trait]) for name, found in has.items()}
    fleet = Fleet(tuple(provider(name, "VCPU MEMORY_MB DISK_GB", traits[name]) for name in traits))
    with EmbeddedPlacement(fleet) as embedded:
        embedded.client.ensure_traits(EVERY_TRAIT.known)
        yield embedded.client


def _candidates(
    emulated: str, reported: tuple[str, ...], offered: frozenset[str], placement: PlacementClient
) -> tuple[set[str], set[str]]:
    """Return the hosts that Placement offers for a guest with the timer, and those that accept it."""
    properties: dict[str, object] = {"hw_time_hpet": "true"}
    if emulated:
        properties["hw_emulation_architecture"] = emulated
    if emulated in ("x86_64", "i686"):
        # On the host of the other architecture its default would be one of that.
        properties["hw_machine_type"] = "pc"
    spec = spec_of(properties, memory_mb=8)
    able = {name for name, facts in _hosts_of_cloud(offered).items() if not unsupported(spec, facts)}
    options = {"reported_traits": list(reported), "emulated_architectures": sorted(offered)}
    try:
        pipeline_of("image_metadata", "hpet", **options).apply(spec)
    except ImpossibleCombination as error:
        assert str(error).startswith("image property hw_time_hpet=true is impossible with image property hw_emulation_")
        return set(), able
    return set(placement.allocation_candidates(allocation_candidates_query(spec)).hosts), able


@pytest.mark.parametrize(
    ("request_of", "others"),
    [
        (("", EVERY_ARCHITECTURE), set()),
        (("x86_64", EVERY_ARCHITECTURE), {"arm-emulates-x86"}),
        (("i686", EVERY_ARCHITECTURE), {"arm-emulates-x86"}),
        (("", frozenset()), set()),
        # The trait of the timer is that of the host's own guests.
        (("x86_64", frozenset()), set()),
        (("i686", frozenset()), set()),
    ],
    ids=["own", "x86_64", "i686", "own-not-offered", "x86_64-not-offered", "i686-not-offered"],
)
@pytest.mark.parametrize("reported", [(), (HPET,), ("*",)], ids=str)
def test_candidates_are_the_hosts_that_can_give_the_timer_to_a_guest_of_the_architecture(
    request_of: tuple[str, frozenset[str]],
    others: set[str],
    reported: tuple[str, ...],
    placements: dict[frozenset[str], PlacementClient],
) -> None:
    """With and without the trait in reported_traits: enabling the filter is the statement."""
    emulated, offered = request_of
    able = {"x86", "x86-emulates-arm"} | others
    assert _candidates(emulated, reported, offered, placements[offered]) == (able, able)


@pytest.mark.parametrize("offered", [EVERY_ARCHITECTURE, frozenset()], ids=["offered", "not-offered"])
def test_no_host_gives_the_timer_to_a_guest_of_arm(
    offered: frozenset[str], placements: dict[frozenset[str], PlacementClient]
) -> None:
    assert _candidates("aarch64", (), offered, placements[offered]) == (set(), set())
