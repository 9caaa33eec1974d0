"""Gates: a requirement is enforced only once every compute node has reported whether it can meet it (ADR 0003).

A missing trait has two meanings: the host cannot do it, or the host has not reported yet. A :class:`Gate` tells them
apart for the traits of a row of the vocabulary. It is open once every compute node has one of the traits
``reported_by``; until then a filter in ``[prefilter] wait_for_answers`` defers the requirement. A filter may also
declare a gate for all that it requires, as ``owner`` does (:class:`os_prefilter.request.filter_contract.Declaration`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from os_prefilter.common.errors import InvalidOption, MissingFact
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import escape_line, join_names, pluralize, quote
from os_prefilter.common.trait_names import CUSTOM_PREFIX, Trait
from os_prefilter.pipeline.filter_calls import Adjust
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.requirements import Note, Requirement, Requirements
from os_prefilter.request.view import Request
from os_prefilter.service.loading import installed_filters
from os_prefilter.vocabulary import REPORTED, REPORTED_CUSTOM, ROWS, opt_in_traits
from os_prefilter.vocabulary.config_templates import PREFIX, Templates
from os_prefilter.vocabulary.model import Row
from os_prefilter.vocabulary.options import Options

LOG = get_logger(__name__)

FACT = "answers"
"""The name of the fact; its value is a :class:`Coverage`."""
EVERY = "*"
"""In the option ``wait_for_answers``: every enabled filter whose requirements can be deferred."""

ALWAYS = "always"
"""The kind of a gate for traits that Nova's own virt drivers report."""
IF_REPORTED = "if reported"
"""The kind of a gate for traits that no driver of Nova reports by itself."""

EXAMPLES = 3
"""The number of unreported compute nodes whose names are kept."""

# Nova's libvirt driver asks about KVM guests alone, and so reports one value of many (hosts/desired_traits.py).
_PARTLY_REPORTED = frozenset(("emulation_architecture",))
_ADVICE = (
    "[prefilter] wait_for_answers names the filter: pass Service.from_conf(conf, facts="
    "os_prefilter.adapters.placement.coverage.placement_facts(conf, client)), or empty the option."
)


class Gate(NamedTuple):
    """Traits that a compute node reports together."""

    row: str
    """Name of a row; ``deploy-config`` for all configuration templates; or the name of a filter with its own gate."""
    kind: str
    """:data:`ALWAYS` or :data:`IF_REPORTED`."""
    traits: frozenset[Trait]
    reported_by: frozenset[Trait]
    """A compute node that has one of these has reported all of :attr:`traits`."""


class Unreported(NamedTuple):
    """The compute nodes that have not reported."""

    number: int
    examples: tuple[str, ...] = ()
    """The names of the first few, sorted."""

    @classmethod
    def of(cls, names: Iterable[str]) -> "Unreported":
        """Return the compute nodes of these names."""
        names = sorted(names)
        return cls(len(names), tuple(names[:EXAMPLES]))

    def __str__(self) -> str:
        among = "among them " if self.number > len(self.examples) else ""
        return f"{pluralize(self.number, 'compute node')} ({among}{escape_line(', '.join(self.examples))})"


@dataclass(frozen=True)
class Coverage:
    """The state of all compute nodes at one time: the value of the fact ``answers``."""

    unreported: Mapping[frozenset[Trait], Unreported]
    """:attr:`Gate.reported_by` -> the compute nodes that have none of these traits."""
    compute_nodes: bool = True
    """False if there are none; the first one to come may not have reported."""
    in_use: frozenset[str] = field(default=frozenset(), compare=False)
    """Each trait that any resource provider has."""
    covered: frozenset[str] | None = None
    """The traits that hosts report by the configuration of this service; None for all."""
    reported_otherwise: bool = False
    """True if hosts have reported by another section ``[prefilter]``, or by an earlier release."""

    def __repr__(self) -> str:
        if not self.compute_nodes:
            return "<no compute node>"
        rows: dict[Unreported, list[str]] = {}
        for gate in GATES:
            rows.setdefault(self.unreported[gate.reported_by], []).append(gate.row)
        closed = [f"{', '.join(dict.fromkeys(names))}: {nodes}" for nodes, names in rows.items() if nodes.number]
        return f"<not reported: {'; '.join(closed) or 'nothing'}>"


def gates_of(row: Row) -> tuple[Gate, ...]:
    """Return the gates of a row: one for what Nova's drivers report, one for what they do not."""
    opt_in = opt_in_traits((row,))
    always = row.traits - opt_in
    found = []
    if always:
        # A driver that reports one value of a row knows the row, and leaves out what the host does not support. That it
        # is older than a value of the row is not seen: Nova's drivers got each row as a whole.
        driver = frozenset() if row.name in _PARTLY_REPORTED else always
        found.append(Gate(row.name, ALWAYS, always, driver | {REPORTED}))
    if opt_in:
        # Only the marker counts: such a trait may be set by hand, which says nothing about the other values.
        all_custom = all(trait.startswith(CUSTOM_PREFIX) for trait in opt_in)
        markers = (REPORTED, REPORTED_CUSTOM) if all_custom else (REPORTED,)
        found.append(Gate(row.name, IF_REPORTED, opt_in, frozenset(markers)))
    return tuple(found)


GATES: tuple[Gate, ...] = tuple(gate for row in ROWS for gate in gates_of(row))
"""The gates of the vocabulary."""
REPORTS: frozenset[frozenset[Trait]] = frozenset((*(gate.reported_by for gate in GATES), frozenset((REPORTED,))))
"""Each :attr:`Gate.reported_by`, of which a :class:`Coverage` tells; :func:`deferral` looks up no other."""


def gates_by_trait(templates: Templates) -> dict[str, Gate]:
    """Return the gate of each trait that a capability reporter reports; configurations have one gate together.

    :param templates: the deployment's
    """
    configurations = Gate(PREFIX.rstrip(":"), IF_REPORTED, templates.found_traits, frozenset((REPORTED,)))
    return {trait: gate for gate in (configurations, *GATES) for trait in gate.traits}


def deferral(item: Requirement, coverage: Coverage | None, gates: Mapping[str, Gate]) -> str:
    """Return why a requirement is deferred; empty if it excludes no capable host.

    :param coverage: None if it is not known yet
    """
    trait = item.trait
    if not item.required:
        # It excludes only hosts that have it. Placement would refuse a query with a trait that was never created.
        if not trait.startswith(CUSTOM_PREFIX) or (coverage and trait in coverage.in_use):
            return ""
        if coverage:
            return f"{trait} need not be forbidden: no provider has it"
        return f"{trait} is not forbidden yet: whether any provider has it is not known"
    gate = gates.get(trait)
    if coverage is None:
        problem = "which compute nodes have reported is not known"
    elif gate is None:
        problem = "" if trait in coverage.in_use else "no provider has it"
    elif coverage.covered is not None and trait not in coverage.covered:
        problem = "hosts report what [prefilter] enabled_filters and reported_traits name, and it is not among that"
    elif not coverage.compute_nodes:
        problem = "there is no compute node"
    else:
        nodes = coverage.unreported[gate.reported_by]
        verb = "have" if nodes.number > 1 else "has"
        # An operator whose hosts all have reported must not look for silent ones.
        by_this = (
            " by this section [prefilter] (hosts have by another section, or by an earlier release)"
            if coverage.reported_otherwise
            else ""
        )
        problem = f"{nodes} {verb} not reported{by_this}; 'os-prefilter readiness' shows more" if nodes.number else ""
    return f"{trait} is not required yet: {problem}" if problem else ""


def deferring_filters(filters: Sequence[LoadedFilter], options: Options, provided: Collection[str]) -> frozenset[str]:
    """Return the names of the filters whose requirements ``[prefilter] wait_for_answers`` defers.

    The name of an installed filter that is not enabled is ignored with a warning, so that removing a filter from
    ``enabled_filters`` is enough to disable it.

    :param provided: the names of the facts that there are
    :raises InvalidOption: if a name is not that of an installed filter, or of a filter that cannot be deferred
    :raises MissingFact: if a filter is deferred, and the fact ``answers`` is not provided
    """
    names = set(options.wait_for_answers) - {EVERY}
    by_name = {each.name: each for each in filters}
    disabled = names - by_name.keys()
    installed = installed_filters() if disabled else {}
    for name in sorted(names):
        declared = by_name.get(name)
        if not declared and name not in installed:
            problem = f"is not an installed filter. Installed filters: {join_names(installed.keys() | by_name.keys())}"
        elif declared and declared.declaration.gate:
            problem = f"has its own gate, the fact {declared.declaration.gate}"
        elif declared and declared.nova_style:
            problem = "is written the Nova way and changes the request itself, so that nothing can be deferred"
        else:
            continue
        raise InvalidOption("wait_for_answers", f"{quote(name)} {problem}. Correct the name, or remove it.")
    if disabled:
        LOG.warning(
            "[prefilter] wait_for_answers names %s, not in enabled_filters: ignored. Remove it there, or enable it.",
            join_names(disabled),
        )
    every = {each.name for each in filters if not each.declaration.gate and not each.nova_style}
    deferred = frozenset(every if EVERY in options.wait_for_answers else by_name.keys() & names)
    if deferred and FACT not in provided:
        raise MissingFact(min(deferred), FACT, _ADVICE)
    return deferred


def defer(names: Collection[str], coverage: Coverage | None, options: Options) -> Adjust:
    """Return what lets these filters require only what excludes no capable host.

    :param names: the result of :func:`deferring_filters`
    :param coverage: None if it is not known yet
    """
    gates = gates_by_trait(options.templates)

    def without_deferred(each: LoadedFilter, result: Requirements, request: Request) -> Requirements:
        if each.name not in names:
            return result
        kept: list[Requirement] = []
        notes = list(result.notes)
        for item in result.requirements:
            # A gate says which compute nodes have reported; it says nothing of the devices below them.
            reason = deferral(item, coverage, gates if request.is_of_host(item.scope) else {})
            if reason:
                notes.append(Note(item.source, reason, waits=item.required or coverage is None))
            else:
                kept.append(item)
        return replace(result, requirements=tuple(kept), notes=tuple(notes))

    return without_deferred
