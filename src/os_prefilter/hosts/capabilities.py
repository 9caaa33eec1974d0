"""What a host can do, as traits: one answer for each trait that its reporter owns."""

from functools import cache, lru_cache, partial
from typing import NamedTuple

from os_prefilter.conf.options import effective_templates
from os_prefilter.errors import UnusableReporter
from os_prefilter.hosts.loading import load_reporter
from os_prefilter.hosts.reporter import HostFacts, Reporter
from os_prefilter.vocabulary import QUALIFIED, table
from os_prefilter.vocabulary.model import Row, Trait


class _Meaning(NamedTuple):
    """What a trait says of a host."""

    row: Row
    value: str
    architecture: str


@cache
def _meanings() -> dict[Trait, list[_Meaning]]:
    # Several rows share a trait: disk_bus and cdrom_bus; they mean the same.
    found: dict[Trait, list[_Meaning]] = {}
    for row in table():
        for value, term in row.values.items():
            if term.trait and term.required:
                found.setdefault(term.trait, []).append(_Meaning(row, value, ""))
    for (trait, architecture), qualified in QUALIFIED.items():
        found[qualified] = [meaning._replace(architecture=architecture) for meaning in found[trait]]
    return found


def capability_traits(facts: HostFacts) -> dict[str, bool]:
    """Return whether the host has each trait that its reporter owns: none of them is left out.

    :raises UnusableReporter: if no reporter is installed for these facts.
    """
    return {trait: not reason for trait, reason in refusals(facts).items()}


def refusals(facts: HostFacts) -> dict[Trait, str]:
    """Return why the host does not have each trait that its reporter owns; empty for those that it has.

    :raises UnusableReporter: if no reporter is installed for these facts.
    """
    reporter = reporter_of(facts)
    configured = sorted(effective_templates(facts.templates).found_traits) if reporter.configure else ()
    traits = dict.fromkeys((*_meanings(), *configured))
    return {trait: refusal_of(trait, facts, reporter) for trait in traits if owns(reporter, trait, facts)}


def owns(reporter: Reporter, trait: str, facts: HostFacts) -> bool:
    """Whether the reporter answers for a trait."""
    if any(meaning.row.name in reporter.owns for meaning in _meanings().get(Trait(trait), ())):
        return True
    return bool(reporter.configure) and trait in effective_templates(facts.templates).found_traits


def refusal_of(trait: Trait, facts: HostFacts, reporter: Reporter) -> str:
    """Return why the host does not have a trait that its reporter owns."""
    if reporter.configure:
        templates = effective_templates(facts.templates)
        if trait in templates.found_traits:
            return templates.lack(trait, partial(reporter.configure, facts))
    row, value, architecture = next(each for each in _meanings()[trait] if each.row.name in reporter.owns)
    return reporter.refusal(facts, row.name, value, architecture)


def evidence_of(trait: Trait, facts: HostFacts) -> str:
    """Return what became of real guests that asked for what a trait says: ``Evidence``."""
    reporter = reporter_of(facts)
    meaning = next((each for each in _meanings().get(trait, ()) if each.row.name in reporter.owns), None)
    if reporter.evidence is None or meaning is None:
        return ""
    return reporter.evidence(facts, meaning.row.name, meaning.value, meaning.architecture)


def known_traits() -> tuple[Trait, ...]:
    """Return all traits that say something of a host, in the order of the vocabulary."""
    return tuple(_meanings())


def reporter_of(facts: HostFacts) -> Reporter:
    """Return the installed reporter for these facts.

    :raises UnusableReporter: if there is none, or it does not load, or it is not one for such facts.
    """
    if not facts.driver:
        kind = type(facts).__name__
        raise UnusableReporter("", f'{kind} names no driver; add to the class: driver: ClassVar[str] = "..."')
    reporter = _reporter(facts.driver)
    if not isinstance(facts, reporter.facts):
        found = type(facts).__name__
        raise UnusableReporter(facts.driver, f"it reads {reporter.facts.__name__} and was given {found}")
    return reporter


# An entry point does not change while the process lives.
_reporter = lru_cache(maxsize=None)(load_reporter)
