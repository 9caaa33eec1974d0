# SPDX-License-Identifier: Apache-2.0

"""Asking a Placement that must not be changed."""

import pytest

from os_prefilter import Flavor, RequestSpec
from os_prefilter.common.errors import MalformedRequest
from os_prefilter.common.trait_names import Trait
from os_prefilter.pipeline.decision import Decision, Run
from os_prefilter.request.query import query_of
from os_prefilter.request.requirements import ROOT, Requirement
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.operators.candidates import ask_placement
from tests.support.placements import Observed, lone_host

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


def test_candidates_query_writes_nothing_and_treats_unknown_traits_as_absent() -> (
    None
):
    with EmbeddedPlacement(lone_host()) as placement:
        observed = Observed(placement)
        for asked, hosts, unknown in _CASES:
            spec = RequestSpec(Flavor(vcpus=1, memory_mb=1))
            for each in asked.split():
                (
                    spec.root_forbidden
                    if each[0] == "!"
                    else spec.root_required
                ).add(Trait(each.lstrip("!")))
            items = tuple(
                Requirement(
                    Trait(each.lstrip("!")),
                    each[0] != "!",
                    ROOT,
                    "a test",
                    "a test",
                )
                for each in asked.split()
            )
            found = ask_placement(
                query_of(spec),
                Decision((Run("a test", items, (), 0),)),
                observed.client,
                live=True,
            )
            assert (found.candidates.hosts, found.unknown, found.created) == (
                hosts,
                unknown,
                (),
            ), asked
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
)
def test_traits_of_a_group_without_resources_are_refused_in_the_words_of_the_flavor(
    key: str, message: str
) -> None:
    """Placement's own words are about a query that no author of a flavor has
    written.
    """
    query = query_of(
        RequestSpec(
            Flavor(vcpus=1, memory_mb=1, extra_specs={key: "required"})
        )
    )
    with (
        EmbeddedPlacement(lone_host()) as placement,
        pytest.raises(MalformedRequest) as raised,
    ):
        ask_placement(query, Decision(()), placement.client)
    assert f"flavor extra spec: '{key}' is not {message}" in str(raised.value)
