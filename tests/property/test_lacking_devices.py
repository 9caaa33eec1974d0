# SPDX-License-Identifier: Apache-2.0

"""Hosts whose QEMU lacks what Nova's driver reports by lists of its own, as
Red Hat's does: the law holds there, and Placement does not offer them.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from os_prefilter import allocation_candidates_query, unsupported
from os_prefilter.adapters.placement.facts import PlacementFacts
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.hosts.capabilities import capability_traits, unknown_traits
from os_prefilter.hosts.desired_traits import Mode, goal_of
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.service import Service
from os_prefilter.service.loading import load_filters
from os_prefilter.service.traits_to_report import (
    traits_to_create,
    wanted_groups,
)
from os_prefilter.vocabulary import LACKING
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.testing.law import options_of, single_cases
from os_prefilter_tools.testing.reporters import compare
from tests.conftest import spec_of
from tests.support.hosts import KVM, RED_HATS_NOT, X86
from tests.support.placements import traits_of
from tests.support.reporting_fleets import fleet_of

_DEBIANS = replace(KVM, built_by_nova=True, nova_release=34)
assert X86.devices is not None
_LEAN = replace(X86, devices=X86.devices - frozenset(RED_HATS_NOT.split()))
_RED_HATS = replace(_DEBIANS, guests={"x86_64": _LEAN})
_SEVEN = {
    "CUSTOM_COMPUTE_LACKS_NET_VIF_MODEL_NE2K_PCI",
    "CUSTOM_COMPUTE_LACKS_NET_VIF_MODEL_PCNET",
    "CUSTOM_COMPUTE_LACKS_NET_VIF_MODEL_VMXNET3",
    "CUSTOM_COMPUTE_LACKS_SOUND_MODEL_AC97",
    "CUSTOM_COMPUTE_LACKS_SOUND_MODEL_ES1370",
    "CUSTOM_COMPUTE_LACKS_SOUND_MODEL_SB16",
    "CUSTOM_COMPUTE_LACKS_SOUND_MODEL_USB",
}
_NAMES = ("image_metadata", "sound_model")
_NOVAS = {
    trait
    for trait, has in capability_traits(_DEBIANS).items()
    if has and not trait.startswith("CUSTOM_")
}
_DEBIAN, _RED_HAT = "host-0", "host-1"


def _lacking(facts: LibvirtFacts) -> set[str]:
    traits = capability_traits(facts)
    return {trait for trait in LACKING.values() if traits[trait]}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (_DEBIANS, set()),
        (_RED_HATS, _SEVEN),
        (replace(_RED_HATS, built_by_nova=False), set()),
    ],
    ids=["every device", "Red Hat's", "not built by Nova"],
)
def test_host_reports_what_qemu_lacks_although_nova_reports_it(
    facts: LibvirtFacts, expected: set[str]
) -> None:
    assert _lacking(facts) == expected


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        # Nova's driver does not report these two there either.
        ({"libvirt_version": (9, 2, 0)}, set()),
        # It reports the PC speaker, which this libvirt cannot give.
        (
            {
                "libvirt_version": (9, 0, 0),
                "hypervisor_version": (7, 2, 0),
            },
            {"CUSTOM_COMPUTE_LACKS_SOUND_MODEL_PCSPK"},
        ),
    ],
    ids=["igb and virtio sound", "pcspk"],
)
def test_host_does_not_report_what_nova_leaves_out_by_version(
    versions: dict[str, Any], expected: set[str]
) -> None:
    assert _lacking(replace(_DEBIANS, **versions)) == expected


def test_lacking_devices_are_not_known_without_the_list_of_qemu() -> None:
    guests = {"x86_64": replace(X86, devices=None)}
    unknown = unknown_traits(replace(_DEBIANS, guests=guests))
    assert "CUSTOM_COMPUTE_LACKS_NET_VIF_MODEL_PCNET" in unknown
    assert "CUSTOM_COMPUTE_LACKS_SOUND_MODEL_PCSPK" not in unknown


@pytest.mark.parametrize("virt_type", ["kvm", "qemu", "lxc"])
def test_required_traits_and_late_check_agree_where_qemu_lacks_devices(
    virt_type: str, record_property: Callable[[str, object], None]
) -> None:
    """Each value, and each trait of a device that a flavor requires or
    forbids by its name.
    """
    facts = replace(_RED_HATS, virt_type=virt_type)
    cases = single_cases(options_of(facts))
    named = [case for case in cases if "PCNET" in str(case.spec.flavor)]
    assert len(named) == 6
    compare(cases, facts, record_property)


@pytest.mark.parametrize("rule", ["required", "forbidden"])
def test_late_check_refuses_a_named_device_that_nova_reports_wrongly(
    rule: str,
) -> None:
    spec = spec_of({}, {"trait:COMPUTE_NET_VIF_MODEL_PCNET": rule})
    assert unsupported(spec, _RED_HATS)
    assert bool(unsupported(spec, _DEBIANS)) == (rule == "forbidden")


@pytest.mark.parametrize(
    ("properties", "extra_specs", "expected"),
    [
        ({"hw_vif_model": "pcnet"}, {}, [_DEBIAN]),
        ({"hw_sound_model": "ac97"}, {}, [_DEBIAN]),
        ({}, {"hw:sound_model": "sb16"}, [_DEBIAN]),
        ({"hw_vif_model": "e1000"}, {}, [_DEBIAN, _RED_HAT]),
        ({"hw_sound_model": "ich9"}, {}, [_DEBIAN, _RED_HAT]),
        (
            {},
            {"trait:COMPUTE_NET_VIF_MODEL_PCNET": "required"},
            [_DEBIAN],
        ),
        ({"trait:COMPUTE_NET_VIF_MODEL_PCNET": "required"}, {}, [_DEBIAN]),
        ({}, {"trait:COMPUTE_NET_VIF_MODEL_PCNET": "forbidden"}, []),
    ],
    ids=str,
)
def test_placement_offers_no_host_that_lacks_what_its_nova_reports(
    properties: dict[str, str],
    extra_specs: dict[str, str],
    expected: list[str],
) -> None:
    """Both hosts have the same traits of Nova's; ``reported_traits`` is
    empty.
    """
    options = Options(nova_builds_guests=True)
    filters = load_filters(_NAMES, provided=None)
    groups = wanted_groups(filters, options)
    wanted = frozenset().union(*(group.keys for group in groups))
    # What a nova-compute with Debian's QEMU reports, and with Red Hat's.
    fleet = fleet_of([_NOVAS, _NOVAS])
    request = spec_of(properties, extra_specs)
    with EmbeddedPlacement(fleet) as placement:
        reports = PlacementFacts(placement.client, groups=groups).reports
        before = _service(options, reports).apply(deepcopy(request))
        # No host has reported any.
        assert not {item.trait for item in before.requirements} & _SEVEN
        placement.know(traits_to_create(filters, options))
        for name, facts in ((_DEBIAN, _DEBIANS), (_RED_HAT, _RED_HATS)):
            goal = goal_of(facts, wanted, Mode.BESIDE)
            ProviderTraits(placement.client, name).sync(goal)
        assert traits_of(placement, _RED_HAT) >= _SEVEN
        assert not traits_of(placement, _DEBIAN) & _SEVEN
        _service(options, reports).apply(request)
        query = allocation_candidates_query(request)
        found = placement.client.allocation_candidates(query)
    assert sorted(found.hosts) == expected


def _service(options: Options, reports: Callable[[Any], Any]) -> Service:
    return Service.from_names(
        *_NAMES, options=options, facts={"reports": reports}
    )
