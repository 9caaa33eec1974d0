# SPDX-License-Identifier: Apache-2.0

"""The capabilities of a host as traits.

The installed reporters, the traits that each owns, and why one is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache, partial

from os_prefilter.common.entry_points import load_entry_point
from os_prefilter.common.errors import UnusableReporter
from os_prefilter.common.quoting import join_names
from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts.reporter import HostFacts, Reporter
from os_prefilter.vocabulary import (
    I686,
    table,
)

REPORTERS = "os_prefilter.capability_reporters"
"""The entry point group of capability reporters."""


_TraitValue = tuple[str, str, str]
"""Row, value and guest architecture (i686 or empty) of a trait.

The last arguments of ``Reporter.refusal``.
"""


@cache
def _values_by_trait() -> dict[Trait, list[_TraitValue]]:
    # disk_bus and cdrom_bus share their traits.
    found: dict[Trait, list[_TraitValue]] = {}
    for row in table():
        for value, term in row.values.items():
            if term.trait and term.required:
                found.setdefault(term.trait, []).append((row.name, value, ""))
    for trait, apart in I686.items():
        found[apart] = [(row, value, "i686") for row, value, _ in found[trait]]
    return found


def capability_traits(facts: HostFacts) -> dict[str, bool]:
    """Return whether the host has each trait that its reporter owns.

    False for one of which that is not known (``unknown_traits``).

    :raises UnusableReporter: if no reporter is installed for these facts.
    """
    unknown = unknown_traits(facts)
    return {
        trait: not reason and trait not in unknown
        for trait, reason in refusals(facts).items()
    }


def unknown_traits(facts: HostFacts) -> Mapping[Trait, str]:
    """Return why it is not known whether the host has some traits.

    :raises UnusableReporter: if no reporter is installed for these facts.
    """
    return reporter_of(facts).unknown(facts)


def refusals(facts: HostFacts) -> dict[Trait, str]:
    """Return the reason why the host lacks each trait that its reporter owns.

    Empty for traits that it has, and for those of which that is not known.

    :raises UnusableReporter: if no reporter is installed for these facts.
    """
    reporter = reporter_of(facts)
    found = {
        trait: _refusal_of_vocabulary(trait, facts, reporter)
        for trait in _values_by_trait()
    }
    configured = reporter.configured(facts) if reporter.configured else {}
    decided = {
        trait: reason for trait, reason in found.items() if reason is not None
    }
    return {**decided, **configured}


def refusal_of(
    trait: Trait, facts: HostFacts, reporter: Reporter
) -> str | None:
    """Return why the host lacks a trait; empty if it has it.

    None if its reporter does not decide it.
    """
    configured = reporter.configured(facts) if reporter.configured else {}
    if trait in configured:
        return configured[trait]
    return _refusal_of_vocabulary(trait, facts, reporter)


def _refusal_of_vocabulary(
    trait: Trait, facts: HostFacts, reporter: Reporter
) -> str | None:
    for value in _values_by_trait().get(trait, ()):
        if value[0] in reporter.owns:
            return reporter.refusal(facts, *value)
    return None


def reporter_traits() -> tuple[Trait, ...]:
    """Return all traits that a reporter can own, in the vocabulary's order."""
    return tuple(_values_by_trait())


def load_reporter(driver: str) -> Reporter:
    """Import the capability reporter of a virt driver.

    :raises UnusableReporter: if it is missing, offered twice, does not import,
        or is not a reporter.
    """
    plugin = load_entry_point(
        REPORTERS, driver, partial(UnusableReporter, driver)
    )
    if not isinstance(plugin, Reporter):
        raise UnusableReporter(
            driver,
            f"it is a {type(plugin).__name__}, not an"
            " os_prefilter.hosts.reporter.Reporter",
        )
    unknown = set(plugin.owns) - {row.name for row in table()}
    if unknown:
        raise UnusableReporter(
            driver,
            f"it owns {join_names(unknown)}, which is no row of the"
            " vocabulary",
        )
    return plugin


def reporter_of(facts: HostFacts) -> Reporter:
    """Return the installed reporter for these facts.

    :raises UnusableReporter: if there is none, or it does not load, or it is
        not one for such facts.
    """
    if not facts.driver:
        kind = type(facts).__name__
        raise UnusableReporter(
            "",
            f"{kind} names no driver; add to the class: driver: ClassVar[str]"
            ' = "..."',
        )
    reporter = _reporter(facts.driver)
    if not isinstance(facts, reporter.facts):
        found = type(facts).__name__
        raise UnusableReporter(
            facts.driver,
            f"it reads {reporter.facts.__name__} and was given {found}",
        )
    return reporter


# An entry point does not change while the process lives.
_reporter = lru_cache(maxsize=None)(load_reporter)
