# SPDX-License-Identifier: Apache-2.0

"""Scope of required traits: root provider, or unsuffixed group too (ADR 0003).

Both give the same candidates, and which one is faster depends on the cloud.
Where no provider is nested and none shares its resources, Placement selects
the providers of the unsuffixed group by their traits first; otherwise it looks
at the trees of all hosts, and at the root's traits first. With ``[prefilter]
trait_scope = auto`` the pipeline chooses by the fact ``nested_providers``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.requirements import ROOT, UNSUFFIXED, Requirements
from os_prefilter.request.resources import unsuffixed_group_uses_host
from os_prefilter.request.view import Request

FACT = "nested_providers"
"""Name of the fact: whether any provider is nested or shares its resources."""


def mirror(
    enabled: Collection[LoadedFilter],
    each: LoadedFilter,
    result: Requirements,
    request: Request,
) -> Requirements:
    """Require the root's traits of the unsuffixed group too.

    It does so only where the candidates stay the same, and so not for a filter
    that is in shadow.
    """
    if each not in enabled:
        return result
    # Not the forbidden ones: each provider of the group is excluded by one, so
    # a host would be by the trait of its GPU.
    on_root = [
        item
        for item in result.requirements
        if item.scope == ROOT and item.required
    ]
    if not on_root or not unsuffixed_group_uses_host(request):
        return result
    again = tuple(item._replace(scope=UNSUFFIXED) for item in on_root)
    return replace(result, requirements=(*result.requirements, *again))
