# SPDX-License-Identifier: Apache-2.0

"""Rows of ``capabilities show``: each trait, and why the host lacks it."""

from __future__ import annotations

from typing import NamedTuple

from os_prefilter.hosts.capabilities import (
    refusals,
    reporter_traits,
    unknown_traits,
)
from os_prefilter.hosts.reporter import HostFacts

COLUMNS = ("Trait", "Host has it", "Because")


class Capability(NamedTuple):
    """One line of the table."""

    trait: str
    answer: str
    """``yes``, ``no``, ``not known`` or ``not owned``."""
    because: str


def capabilities(facts: HostFacts) -> list[Capability]:
    """Return one line for each trait of a host.

    :raises UnusableReporter: if no reporter is installed for these facts.
    """
    reasons = refusals(facts)
    unknown = unknown_traits(facts)
    not_owned = (
        f"set by operators; the reporter {facts.driver} does not report it"
    )
    lines = []
    # The reporter adds the traits of configuration templates.
    for trait in dict.fromkeys((*reporter_traits(), *reasons)):
        reason = reasons.get(trait)
        if trait in unknown:
            line = Capability(trait, "not known", unknown[trait])
        elif reason is None:
            line = Capability(trait, "not owned", not_owned)
        else:
            line = Capability(trait, "no" if reason else "yes", reason)
        lines.append(line)
    return lines
