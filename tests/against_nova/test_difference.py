# SPDX-License-Identifier: Apache-2.0

"""Our answer is Nova's, but for the list of differences: on generated
requests, on Nova's own objects, exactly.

100 requests for the query, 50 for the nine filters; ``tox -e exhaustive``
compares 50 times as many.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from nova import objects
from nova.scheduler.utils import ResourceRequest

from os_prefilter import Request
from os_prefilter.common.errors import MalformedRequest
from os_prefilter.common.placement_values import (
    HOST_CLASSES,
    is_resource_class,
)
from os_prefilter.request.resources import unsuffixed_resources
from os_prefilter.request.spec import RequestGroup
from os_prefilter.service import Service
from tests.against_nova.becomes import REFUSED
from tests.against_nova.differences import DIFFERENCES, QUERY, Difference
from tests.against_nova.nova import (
    FILTERS,
    NOVA,
    NovaCode,
    expected,
    filters_switched_on,
    our_filter,
    our_query,
)
from tests.against_nova.requests import IMAGE, PCI_REQUEST, request_specs
from tests.conftest import pipeline_of, spec_of, times
from tests.support.nova_objects import nova_spec

_GENERATED = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.fixture(autouse=True, scope="module")
def _novas_filters() -> Iterator[None]:
    with filters_switched_on():
        yield


@cache
def _pipeline(name: str, trait_scope: str = "auto") -> Service:
    return pipeline_of(name, reported_traits=[], trait_scope=trait_scope)


@settings(_GENERATED, max_examples=times(100))
@given(request_specs())
def test_query_equals_that_of_nova_except_for_the_listed_differences(
    spec: Any,
) -> None:
    """Where Nova refuses a request, so do we."""
    assert our_query(spec) == expected(QUERY, spec)


_KEYS = st.builds(
    "{}{}:{}{}".format,
    st.sampled_from(["resources", "trait", "Resources", "resource", " trait"]),
    st.sampled_from(
        ["", "1", "_gpu", "-", "\u0661", "a b", "x" * 64, "x" * 65, "1\n"]
    ),
    st.sampled_from(
        [
            "VGPU",
            "CUSTOM_IRON",
            "NO_SUCH",
            "VG\nPU",
            "OWNER_NOVA",
            "VGPU:1",
            "",
        ]
    ),
    st.sampled_from(
        ["", "", "\n", "\n\n", "\r", "\r\n", " ", "\x85", "\u2028", "\x00"]
    ),
)
_VALUES = st.sampled_from(
    ["required", "forbidden", "Required", "1", "0", "-1", "1.0", "0x1"]
) | st.builds(
    lambda before, zero, number, digits, after: (
        before + zero * number + digits + after
    ),
    st.sampled_from(["", " ", "\t", "+", "-", "\u3000"]),
    st.sampled_from("0\u0660\u0966\uff10"),
    st.sampled_from([0, 1, 63, 64, 65, 70, 250]),
    st.sampled_from(
        ["", "1", "\u0661", "\uff17", "1_0", "_1", "2147483647", "\u00b2"]
    ),
    st.sampled_from(["", "\n", " ", "\x1c", "\u200b"]),
)


@settings(_GENERATED, max_examples=times(200))
@given(st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_keys_and_amounts_of_a_flavor_are_read_as_nova_reads_them(
    extra_specs: dict[str, str],
) -> None:
    """Except for names that Placement cannot have: those are refused."""
    nova = ResourceRequest()
    nova._process_extra_specs(objects.Flavor(extra_specs=extra_specs))
    theirs = {
        suffix or "": (
            each.resources,
            each.required_traits,
            each.forbidden_traits,
        )
        for suffix, each in nova._rg_by_id.items()
    }
    try:
        groups = Request(spec_of(extra_specs=extra_specs)).flavor_groups
    except MalformedRequest:
        names = [
            key.removesuffix("\n").partition(":")[2] for key in extra_specs
        ]
        assert not all(
            name.isascii() and name.isprintable() and name.isidentifier()
            for name in names
        )
        return
    found = {
        suffix: (each.resources, each.required_traits, each.forbidden_traits)
        for suffix, each in groups.items()
    }
    # A trait without a name is left out.
    named = {
        suffix: (resources, yes - {""}, no - {""})
        for suffix, (resources, yes, no) in theirs.items()
    }
    # So is a resource class that Placement cannot have, if none of it is
    # requested.
    assert found == {
        suffix: (
            {
                name: amount
                for name, amount in resources.items()
                if amount or is_resource_class(name)
            },
            yes,
            no,
        )
        for suffix, (resources, yes, no) in named.items()
    }


@settings(_GENERATED, max_examples=times(50))
@given(request_specs())
def test_each_filter_requires_what_nova_does_except_for_the_listed_differences(
    spec: Any,
) -> None:
    # What Nova's query refuses gets nowhere, whatever the filters say.
    assume(NovaCode(QUERY)(spec) != REFUSED)
    ours = {name: our_filter(_pipeline(name), spec) for name in FILTERS}
    assert ours == {name: expected(name, spec) for name in FILTERS}


@settings(_GENERATED, max_examples=times(25))
@given(request_specs())
def test_traits_that_are_required_twice_are_all_that_trait_scope_adds(
    spec: Any,
) -> None:
    """Nothing is refused for amounts, which Nova's query computes itself:
    hw:mem_encryption=maybe is false there.
    """
    forbidden = (
        Request(spec).flavor_groups.get("", RequestGroup("")).forbidden_traits
    )
    for name in FILTERS:
        once, twice = (
            our_filter(_pipeline(name, trait_scope=each), spec)
            for each in ("root", "root_and_unsuffixed")
        )
        on_root = spec.root_required | {
            item[1] for item in once if item[0] == "root"
        }
        if isinstance(once, str) or isinstance(twice, str):
            # The flavor forbids it of the host's own provider: no host has
            # both.
            assert once == twice or not on_root.isdisjoint(forbidden), name
            continue
        assert once <= twice, name
        assert twice - once <= {
            ("unsuffixed", trait, True) for trait in on_root
        }, name
        # A group that requests nothing of the root would find no provider with
        # the trait.
        query = our_query(spec) if twice != once else REFUSED
        assert query == REFUSED or not HOST_CLASSES.isdisjoint(
            unsuffixed_resources(Request(spec))
        ), name


@pytest.mark.parametrize(
    "difference", DIFFERENCES, ids=lambda each: each.title
)
def test_each_listed_difference_is_shown_by_its_example_and_not_by_a_plain_request(
    difference: Difference,
) -> None:
    """In every filter that it names: an entry that no longer holds must go."""
    spec, plain = (
        _example(difference),
        _example(Difference("", (), "", "", "", difference.becomes)),
    )
    # Each request with a PCI device shows a difference.
    plain.pci_requests = objects.InstancePCIRequests(requests=[])
    for name in (each for each in difference.of if each in (QUERY, *FILTERS)):
        ours = (
            our_query(spec)
            if name == QUERY
            else our_filter(_pipeline(name), spec)
        )
        assert ours == expected(name, spec)
        same = (
            difference.before and difference.before <= NOVA
        ) or difference.since > NOVA
        assert (ours == NovaCode(name)(spec)) == bool(same), name
        answer = NovaCode(name)(plain)
        assert difference.becomes(answer, plain, NovaCode(name)) == answer


def _example(difference: Difference) -> Any:
    device = objects.RequestGroup(
        requester_id=f"{PCI_REQUEST}-0", resources={"CUSTOM_PCI_1": 1}
    )
    device.obj_set_defaults()
    request = objects.InstancePCIRequest(
        request_id=PCI_REQUEST, alias_name="a", count=1, spec=[]
    )
    spec = nova_spec(
        dict(difference.properties),
        dict(difference.extra_specs),
        is_bfv=False,
        requested_resources=[device],
        pci_requests=objects.InstancePCIRequests(requests=[request]),
        requested_destination=objects.Destination(),
    )
    spec.image.id = spec.image.name = IMAGE
    difference.change(spec)
    return spec
