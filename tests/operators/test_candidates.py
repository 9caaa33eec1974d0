# SPDX-License-Identifier: Apache-2.0

"""Asking a Placement that must not be changed."""

from __future__ import annotations

import re

import pytest

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.common.errors import MalformedRequest, RequestRejected
from os_prefilter.common.trait_names import Trait
from os_prefilter.pipeline.decision import Decision, Run
from os_prefilter.request.query import query_of
from os_prefilter.request.requirements import ROOT, Requirement
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.operators.candidates import ask_placement
from tests.support.placements import Observed, lone_host

_CASES = {
    "no trait": ("", "kvm-1", ""),
    "standard": ("HW_ARCH_X86_64", "kvm-1", ""),
    "custom": ("CUSTOM_OF_AN_OPERATOR", "kvm-1", ""),
    "custom, forbidden": ("!CUSTOM_OF_AN_OPERATOR", "", ""),
    "unknown": ("CUSTOM_NOBODY", "", "CUSTOM_NOBODY"),
    "two unknown": ("CUSTOM_NOBODY !CUSTOM_NONE", "", "CUSTOM_NOBODY"),
    "unknown, forbidden": ("!CUSTOM_NOBODY", "kvm-1", ""),
    "both forbidden": ("!CUSTOM_NOBODY !CUSTOM_OF_AN_OPERATOR", "", ""),
    "standard and unknown": ("HW_ARCH_X86_64 !CUSTOM_NOBODY", "kvm-1", ""),
}
"""The traits of a request, the hosts, and what Placement does not know."""


@pytest.mark.parametrize(
    ("traits", "hosts", "unknown"), _CASES.values(), ids=_CASES
)
def test_candidates_query_writes_nothing_and_treats_unknown_traits_as_absent(
    traits: str, hosts: str, unknown: str
) -> None:
    spec = RequestSpec(Flavor(vcpus=1, memory_mb=1))
    requirements = []
    for text in traits.split():
        trait = Trait(text.lstrip("!"))
        required = trait == text
        asked = spec.root_required if required else spec.root_forbidden
        asked.add(trait)
        requirements.append(Requirement(trait, required, ROOT, "test", "test"))
    decision = Decision((Run("test", tuple(requirements), (), 0),))
    with EmbeddedPlacement(lone_host()) as placement:
        observed = Observed(placement)
        query = query_of(spec)
        found = ask_placement(query, decision, observed.client, live=True)
    assert found.candidates.hosts == tuple(hosts.split())
    assert found.unknown == tuple(unknown.split())
    assert found.created == ()
    assert set(observed.methods) == {"GET"}


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            "traits:CUSTOM_A",
            (
                "of a group with resources. Did you mean 'trait:CUSTOM_A'?"
                " That one is of the host."
            ),
        ),
        (
            "trait_gpu:CUSTOM_A",
            (
                "of a group with resources_gpu:CLASS. Add them, or write"
                " trait:CUSTOM_A for one of the"
            ),
        ),
    ],
    ids=["unsuffixed", "with a suffix"],
)
def test_traits_of_a_group_without_resources_are_refused_in_the_words_of_the_flavor(
    key: str, message: str
) -> None:
    """Placement's own words are about a query that no author of a flavor has
    written.
    """
    flavor = Flavor(vcpus=1, memory_mb=1, extra_specs={key: "required"})
    query = query_of(RequestSpec(flavor))
    problem = re.escape(f"flavor extra spec: '{key}' is not {message}")
    with (
        EmbeddedPlacement(lone_host()) as placement,
        pytest.raises(MalformedRequest, match=problem),
    ):
        ask_placement(query, Decision(()), placement.client)


_REFUSED = {
    "no resources": (
        {"resources:VCPU": "0", "resources:MEMORY_MB": "0"},
        "The request has no resources, and so Placement has no candidate:",
    ),
    "unknown class": (
        {"resources:CUSTOM_NOSUCH": "1"},
        "No host has the resource class CUSTOM_NOSUCH, which Placement does",
    ),
}


@pytest.mark.parametrize(
    ("extra_specs", "message"), _REFUSED.values(), ids=_REFUSED
)
def test_query_that_placement_refuses_is_explained_in_the_words_of_the_flavor(
    extra_specs: dict[str, str], message: str
) -> None:
    query = query_of(RequestSpec(Flavor(1, 1, extra_specs=extra_specs)))
    with (
        EmbeddedPlacement(lone_host()) as placement,
        pytest.raises(RequestRejected, match=message) as caught,
    ):
        ask_placement(query, Decision(()), placement.client)
    assert "status 400" not in str(caught.value)


def test_trait_that_image_requires_and_flavor_forbids_is_named() -> None:
    flavor = Flavor(1, 1, extra_specs={"trait:HW_CPU_X86_AVX": "forbidden"})
    image = Image({"trait:HW_CPU_X86_AVX": "required"})
    query = query_of(RequestSpec(flavor, image))
    with (
        EmbeddedPlacement(lone_host()) as placement,
        pytest.raises(RequestRejected, match="HW_CPU_X86_AVX is required and"),
    ):
        ask_placement(query, Decision(()), placement.client)
