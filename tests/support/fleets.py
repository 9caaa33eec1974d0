# SPDX-License-Identifier: Apache-2.0

"""Random fleets: nesting, sharing, usage, aggregates, names in any script."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from os_prefilter_tools.fleet.model import (
    MAX_INT,
    Aggregate,
    Fleet,
    Inventory,
    Provider,
    aggregate_uuid,
    provider_uuid,
)

NAMES = st.text(min_size=1, max_size=12).filter(str.isprintable)
TIME = "2026-11-21T18:00:00Z"
TRAITS = (
    "COMPUTE_NODE",
    "COMPUTE_STATUS_DISABLED",
    "COMPUTE_NET_VIF_MODEL_E1000E",
    "COMPUTE_NET_VIF_MODEL_IGB",
    "COMPUTE_SECURITY_TPM_2_0",
    "COMPUTE_SECURITY_TPM_TIS",
    "COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER",
    "COMPUTE_FIRMWARE_UEFI",
    "COMPUTE_SECURITY_STATELESS_FIRMWARE",
    "HW_CPU_HYPERTHREADING",
    "HW_CPU_X86_AMD_SEV",
    "CUSTOM_COMPUTE_TIME_HPET",
    "CUSTOM_HYPERVISOR_TYPE_KVM",
    "HW_ARCH_X86_64",
    "OWNER_NOVA",
    "MISC_SHARES_VIA_AGGREGATE",
)
CLASSES = (
    "VCPU",
    "PCPU",
    "MEMORY_MB",
    "DISK_GB",
    "VGPU",
    "MEM_ENCRYPTION_CONTEXT",
    "CUSTOM_FPGA",
)


@st.composite
def inventories(draw: Any) -> Inventory:
    """Return an inventory as Placement could have it; half of them only have a
    total.
    """
    total = draw(st.integers(1, 1000) | st.just(MAX_INT))
    if draw(st.booleans()):
        return Inventory(total)
    return Inventory(
        total,
        reserved=draw(st.integers(0, min(total, 9))),
        min_unit=draw(st.integers(1, 3)),
        max_unit=draw(st.integers(3, MAX_INT)),
        step_size=draw(st.integers(1, 3)),
        allocation_ratio=draw(st.sampled_from([0.5, 1.0, 1.1, 16.0])),
        used=draw(st.integers(0, 2000)),
    )


@st.composite
def fleets(draw: Any, *, written: bool = False) -> Fleet:
    """Return a fleet as Placement has it, siblings by name, nothing described.

    :param written: as a fleet file written by hand has it
    """
    names = draw(st.lists(NAMES, min_size=1, max_size=8, unique=True))
    labels = draw(st.lists(NAMES, max_size=3, unique=True))
    zones = st.sampled_from(["", "north", "süd", "<b>"])
    metadata = st.dictionaries(
        st.sampled_from(["filter_tenant_id", "trait:CUSTOM_A"]),
        st.sampled_from(["required", ""]),
    )
    known = [
        Aggregate(
            draw(_uuids(aggregate_uuid(each))),
            each,
            draw(zones),
            draw(metadata),
        )
        for each in labels
    ]
    unnamed = str(uuid.uuid5(uuid.NAMESPACE_URL, "unnamed"))
    uuids = st.sampled_from([*(each.uuid for each in known), unnamed])
    resources = st.dictionaries(
        st.sampled_from(CLASSES), inventories(), max_size=4
    )
    traits = st.sets(st.sampled_from(TRAITS), max_size=8)
    description = st.text(st.characters(codec="utf-8"), max_size=5)

    def provider(name: str, left: list[str]) -> Provider:
        number = draw(st.integers(0, len(left)))
        below = [left.pop() for _ in range(number)]
        aggregates = draw(st.lists(uuids, unique=True, max_size=3))
        if not written:
            below.sort()
            aggregates.sort()
        children = []
        for each in below:
            further = left if draw(st.booleans()) else []
            children.append(provider(each, further))
        return Provider(
            name,
            draw(_uuids(provider_uuid(name))),
            draw(resources),
            frozenset(draw(traits)),
            tuple(aggregates),
            tuple(children),
            draw(description) if written else "",
        )

    roots = []
    while names:
        roots.append(provider(names.pop(), names))
    if not written:
        roots.sort(key=lambda each: each.name)
    return Fleet(
        tuple(roots),
        draw(st.sampled_from(["", TIME])),
        {each.uuid: each for each in known},
    )


def _uuids(usual: str) -> st.SearchStrategy[str]:
    return st.just(usual) | st.uuids(version=4).map(str)


def emptied(provider: Provider) -> Provider:
    """Return a provider without usage, and all below it."""
    resources = {
        name: replace(each, used=0)
        for name, each in provider.resources.items()
    }
    return replace(
        provider,
        resources=resources,
        providers=tuple(map(emptied, provider.providers)),
    )
