# SPDX-License-Identifier: Apache-2.0

"""On a real Placement: whose provider each part of a request gets, for every
tree and every request, enumerated.

For one tree in six; ``tox -e exhaustive`` takes all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from os_prefilter import allocation_candidates_query
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import provider_uuid
from tests.conftest import one_in, pipeline_of
from tests.support.gpu_trees import (
    PCI_REQUEST,
    PROFILE,
    REQUESTS,
    Asked,
    Outcome,
    Tree,
    fleet_of,
    outcomes,
    trees,
)

_ALL_TREES = list(trees())
_TREES = _ALL_TREES[:: one_in(9)]
_SCOPES = ("root", "root_and_unsuffixed")


@pytest.fixture(scope="module")
def gpus() -> Iterator[PlacementClient]:
    with EmbeddedPlacement(fleet_of(_TREES)) as placement:
        yield placement.client


class _Found:
    def __init__(self, some: list[Tree]) -> None:
        self._names = {
            provider_uuid(each.name): each.name
            for tree in some
            for top in tree.fleet
            for each in top.walk()
        }
        self._gpus = {
            device.provider.name
            for tree in some
            for device in tree.devices
            if device.has("VGPU")
        }
        self._hosts = {tree.name for tree in some}

    def outcomes(self, answer: Any, asked: Asked) -> Iterator[Outcome]:
        for request in answer["allocation_requests"]:
            groups = {
                suffix: [self._names[rp] for rp in rps]
                for suffix, rps in request["mappings"].items()
            }
            taken = {
                self._names[rp]: each["resources"]
                for rp, each in request["allocations"].items()
            }
            (host,) = {
                name
                for name in groups[""]
                if name in self._hosts and "VCPU" in taken[name]
            }
            found = [host]
            for suffix in asked.gpus:
                found += (
                    groups[suffix]
                    if suffix
                    else self._unsuffixed_gpu(groups, taken)
                )
            for number in range(asked.pci):
                found += groups[f"{PCI_REQUEST}-{number}"]
            found += groups[PROFILE] if asked.profile else []
            yield tuple(found)

    def _unsuffixed_gpu(
        self, groups: dict[str, list[str]], taken: dict[str, dict[str, int]]
    ) -> list[str]:
        """Return the provider of the VGPU that the flavor asks for without a
        suffix, wherever the filter put it.
        """
        if "_owned_VGPU" in groups:
            return groups["_owned_VGPU"]
        left = Counter(
            {name: taken[name].get("VGPU", 0) for name in groups[""]}
        )
        left.subtract(
            rps[0]
            for suffix, rps in groups.items()
            if suffix and rps[0] in self._gpus & left.keys()
        )
        (gpu,) = +left
        return [gpu]


_FOUND = _Found(_TREES)


def _query(asked: Asked, scope: str | None) -> str:
    spec = asked.spec()
    if scope:
        pipeline_of("owner", trait_scope=scope).apply(spec)
    return allocation_candidates_query(spec, limit=None)


def _answer(
    placement: PlacementClient, asked: Asked, query: str
) -> Counter[Outcome]:
    answer = placement.request("GET", f"/allocation_candidates?{query}")
    return Counter(_FOUND.outcomes(answer, asked))


@pytest.mark.parametrize("asked", REQUESTS, ids=lambda each: each.name)
def test_each_part_of_a_request_gets_the_right_owners_provider_and_no_host_is_lost(
    asked: Asked, gpus: PlacementClient
) -> None:
    """Exactly: all that who knows the owners would choose from, and nothing
    else.

    Where a VGPU must stay in the unsuffixed group, a provider without any
    owner's trait is chosen from, too. Without the filter, any of the right
    class is: so the trees hold what the filter is there for.
    """
    known = [each for tree in _TREES for each in outcomes(tree, asked)]
    for query in {_query(asked, scope) for scope in _SCOPES}:
        answer = _answer(gpus, asked, query)
        assert set(answer) == {
            each.outcome for each in known if each.right or each.undetectable
        }
        assert set(answer.values()) <= {1}
    assert set(_answer(gpus, asked, _query(asked, None))) == {
        each.outcome for each in known
    }


def test_enumeration_covers_the_documented_number_of_choices() -> None:
    known = [
        (asked, each)
        for asked in REQUESTS
        for tree in _ALL_TREES
        for each in outcomes(tree, asked)
    ]
    right = sum(each.right for _, each in known)
    undetectable = [asked.name for asked, each in known if each.undetectable]
    assert (
        len(_ALL_TREES),
        len(REQUESTS),
        len(_ALL_TREES) * len(REQUESTS) * len(_SCOPES),
    ) == (170, 20, 6_800)
    # Choices; those that are wrong are prevented, but for some that cannot be
    # detected.
    assert (
        len(known),
        right,
        len(known) - right - len(undetectable),
        len(undetectable),
    ) == (
        25_046,
        4_616,
        19_846,
        584,
    )
    assert set(undetectable) == {
        each.name for each in REQUESTS if each.in_place
    }
