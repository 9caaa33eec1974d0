# SPDX-License-Identifier: Apache-2.0

"""Hosts with configured capabilities, the example for authors of reporters.

Nova's fake driver and tests use them.

A reporter is three things, in this order below: the facts, the function, and
the constant that an entry point names::

    [project.entry-points."os_prefilter.capability_reporters"]
    fake = "os_prefilter.hosts.drivers.fake:REPORTER"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import ClassVar

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.quoting import join_names, quote
from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts.reporter import (
    HostFacts,
    Reporter,
    traits_without_devices,
)
from os_prefilter.vocabulary import BY_NAME, row_named, table

LIKE_NOVA: Mapping[str, frozenset[str]] = {
    "architecture": frozenset(("x86_64",)),
    "hypervisor_type": frozenset(("fake",)),
    "vm_mode": frozenset(("hvm",)),
    "image_type": frozenset(("raw",)),
    "device_profile": frozenset(("any",)),
    "maxphysaddr_mode": frozenset(("emulate", "passthrough")),
    "firmware_stateless": frozenset(("true",)),
}
"""The capabilities of Nova's fake driver.

``supported_instances`` and ``capabilities`` in ``nova/virt/fake.py``.
"""


@dataclass(frozen=True, kw_only=True)
class FakeFacts(HostFacts):
    """The capabilities of a fake host.

    :raises ValueError: if :attr:`can` has a row or a value that the vocabulary
        does not have.
    """

    driver: ClassVar[str] = "fake"

    architecture: str = "x86_64"
    can: Mapping[str, frozenset[str]] = field(
        default_factory=lambda: LIKE_NOVA
    )
    """Row of the vocabulary -> the values that the host can do."""

    def __post_init__(self) -> None:
        known = {row.name: row.values for row in table()}
        for row, values in self.can.items():
            if unknown := values.difference(known.get(row, ())):
                what = (
                    f"{quote(row)} with {join_names(map(quote, unknown))},"
                    " which the vocabulary does not have"
                )
                raise ValueError(
                    f"FakeFacts.can has {what}; 'os-prefilter vocabulary list'"
                    " shows what it has."
                )

    @cached_property
    def traits(self) -> frozenset[Trait]:
        """The traits of what it can do."""
        found = set()
        for row, values in self.can.items():
            for value in values:
                term = row_named(row).values[value]
                if term.trait and term.required:
                    found.add(term.trait)
        return frozenset(found)


def refusal(facts: FakeFacts, row: str, value: str, _architecture: str) -> str:
    """Return why the host cannot do ``value`` of ``row``; empty if it can.

    The reason is the same for guests of every architecture.
    """
    known = row_named(row).canonical(value)
    if known is not None:
        term = row_named(row).values[known]
        # By trait, not by value: disks and CD-ROMs share the traits of buses,
        # i686 requires that of x86_64, and the thread policy "isolate" forbids
        # its trait.
        has = term.trait in facts.traits
        if term.trait is None or has == term.required:
            return ""
    return f"the fake host is not configured for {row}"


def reported_by_nova(facts: FakeFacts) -> frozenset[str]:
    """Return what Nova's fake driver reports: not its architecture either."""
    return traits_without_devices(facts) - BY_NAME["architecture"].traits


REPORTER = Reporter(FakeFacts, refusal, reported_by_nova=reported_by_nova)
"""The reporter ``fake``, which owns every row.

Give ``owns`` fewer if operators set the traits of the others.
"""
