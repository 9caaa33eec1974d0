"""Asking a Placement that must not be changed."""

from collections.abc import Iterator

import pytest

from os_prefilter import Flavor
from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.common.trait_names import Trait
from os_prefilter.operators.candidates import ask_live_placement
from os_prefilter.pipeline.decision import Decision, Run
from os_prefilter.request.requirements import ROOT, Requirement
from tests.conftest import spec_of
from tests.support.placements import Observed, lone_host


@pytest.fixture
def observed() -> Iterator[Observed]:
    with EmbeddedPlacement(lone_host()) as placement:
        yield Observed(placement)


_CASES = [
    # Required and forbidden traits, hosts, unknown traits.
    ("", ("kvm-1",), ()),
    ("HW_ARCH_X86_64", ("kvm-1",), ()),
    ("CUSTOM_OF_AN_OPERATOR", ("kvm-1",), ()),
    ("!CUSTOM_OF_AN_OPERATOR", (), ()),
    ("CUSTOM_NOBODY", (), ("CUSTOM_NOBODY",)),
    ("CUSTOM_NOBODY !CUSTOM_NONE", (), ("CUSTOM_NOBODY",)),
    ("!CUSTOM_NOBODY", ("kvm-1",), ()),
    ("!CUSTOM_NOBODY !CUSTOM_OF_AN_OPERATOR", (), ()),
    ("HW_ARCH_X86_64 !CUSTOM_NOBODY", ("kvm-1",), ()),
]


@pytest.mark.parametrize(("asked", "hosts", "unknown"), _CASES)
def test_candidates_query_writes_nothing_and_treats_unknown_traits_as_absent(
    observed: Observed, asked: str, hosts: tuple[str, ...], unknown: tuple[str, ...]
) -> None:
    spec = spec_of()
    items = tuple(
        Requirement(Trait(each.lstrip("!")), each[0] != "!", ROOT, "a test", "a test") for each in asked.split()
    )
    for item in items:
        (spec.root_required if item.required else spec.root_forbidden).add(item.trait)
    spec.flavor = Flavor(vcpus=1, memory_mb=1)
    found = ask_live_placement(spec, Decision((Run("a test", items, (), 0.0),)), observed.client)
    assert (found.candidates.hosts, found.unknown, found.created) == (hosts, unknown, ())
    assert set(observed.methods) <= {"GET"}
