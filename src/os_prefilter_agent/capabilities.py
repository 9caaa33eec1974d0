# SPDX-License-Identifier: Apache-2.0

"""Rows of ``capabilities show``: each trait, and why the host lacks it."""

from typing import NamedTuple

from os_prefilter.hosts.capabilities import refusals, reporter_traits
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.vocabulary import BY_NAME, QUALIFIED

COLUMNS = ("Trait", "Host has it", "Because")
_ARCHITECTURE_OF = {
    qualified: architecture
    for (_, architecture), qualified in QUALIFIED.items()
}


class Capability(NamedTuple):
    """One line of the table."""

    trait: str
    answer: str
    """``yes``, ``no`` or ``not owned``."""
    because: str


def capabilities(facts: HostFacts) -> list[Capability]:
    """Return one line for each trait of a host.

    Traits of guest architectures that it does not emulate are left out.

    :raises UnusableReporter: if no reporter is installed for these facts.
    """
    reasons = refusals(facts)
    emulated = BY_NAME["emulation_architecture"]
    emulates = {
        value
        for value, term in emulated.values.items()
        if term.trait and not reasons.get(term.trait, "not")
    }
    not_owned = (
        f"set by operators; the reporter {facts.driver} does not report it"
    )
    lines = []
    # The reporter adds the traits of configuration templates.
    for trait in dict.fromkeys((*reporter_traits(), *reasons)):
        if _ARCHITECTURE_OF.get(trait, "") not in {"", *emulates}:
            continue
        reason = reasons.get(trait)
        if reason is None:
            line = Capability(trait, "not owned", not_owned)
        else:
            line = Capability(trait, "no" if reason else "yes", reason)
        lines.append(line)
    return lines
