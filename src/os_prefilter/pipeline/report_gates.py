"""Which compute nodes have said whether they can: what a filter may wait for before it excludes those that did not.

A trait that is missing has two meanings: the host cannot do it, or nobody has asked the host. A *gate* tells them apart
for the traits of a row of the vocabulary. It is open once each compute node answers, that is, has one of the gate's
``answers``; until then a filter that waits does not ask for these traits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from os_prefilter.common.quoting import escape_line, pluralize
from os_prefilter.request.requirements import Requirement
from os_prefilter.vocabulary import REPORTED, REPORTED_CUSTOM, ROWS, opt_in_traits
from os_prefilter.vocabulary.config_templates import Templates
from os_prefilter.vocabulary.model import CUSTOM_PREFIX, Row, Trait

ALWAYS = "always"
"""The kind of a gate for traits that Nova's own virt drivers report."""
IF_REPORTED = "if reported"
"""The kind of a gate for traits that no driver of Nova reports by itself."""

EXAMPLES = 3
"""Of how many compute nodes without an answer the names are kept."""

# Nova's libvirt driver asks about KVM guests alone, and so reports one value of many: reporting.py.
_HALF_ANSWERED = frozenset(("emulation_architecture",))


class Gate(NamedTuple):
    """Traits for which a compute node answers together."""

    row: str
    """Of the vocabulary, or ``deploy-config`` for what configuration templates need of nodes."""
    kind: str
    """:data:`ALWAYS` or :data:`IF_REPORTED`."""
    traits: frozenset[Trait]
    answers: frozenset[Trait]
    """A compute node that has one of these answers for all of :attr:`traits`."""


class Silent(NamedTuple):
    """The compute nodes that do not answer."""

    number: int
    examples: tuple[str, ...] = ()
    """The names of the first few, sorted."""

    @classmethod
    def of(cls, names: Iterable[str]) -> "Silent":
        """Return the compute nodes of these names."""
        names = sorted(names)
        return cls(len(names), tuple(names[:EXAMPLES]))


@dataclass(frozen=True)
class Coverage:
    """What is known of all compute nodes at one time: the value of the fact ``answers``."""

    silent: Mapping[frozenset[Trait], Silent]
    """:attr:`Gate.answers` -> the compute nodes that have none of these."""
    compute_nodes: bool = True
    """Whether there are any; the first that comes may be one that does not answer."""
    in_use: frozenset[str] = field(default=frozenset(), compare=False)
    """Each trait that any resource provider has."""

    def is_open(self, gate: Gate) -> bool:
        """Whether each compute node answers for the gate's traits, and there are compute nodes."""
        return self.compute_nodes and not self.silent[gate.answers].number

    def __repr__(self) -> str:
        if not self.compute_nodes:
            return "<no compute node>"
        rows: dict[Silent, list[str]] = {}
        for gate in GATES:
            rows.setdefault(self.silent[gate.answers], []).append(gate.row)
        closed = [
            f"{', '.join(dict.fromkeys(names))}: {_told(silent)}" for silent, names in rows.items() if silent.number
        ]
        return f"<without an answer: {'; '.join(closed) or 'no compute node'}>"


def gates_of(row: Row) -> tuple[Gate, ...]:
    """Return the gates of a row: one for what Nova's drivers report, one for what they do not."""
    reported = opt_in_traits((row,))
    own = row.traits - reported
    found = []
    if own:
        seen = frozenset((REPORTED,)) if row.name in _HALF_ANSWERED else own | {REPORTED}
        found.append(Gate(row.name, ALWAYS, own, seen))
    if reported:
        all_custom = all(trait.startswith(CUSTOM_PREFIX) for trait in reported)
        markers = (REPORTED, REPORTED_CUSTOM) if all_custom else (REPORTED,)
        found.append(Gate(row.name, IF_REPORTED, reported, frozenset(markers)))
    return tuple(found)


GATES: tuple[Gate, ...] = tuple(gate for row in ROWS for gate in gates_of(row))
"""The gates of the vocabulary."""


def gates_by_trait(templates: Templates) -> dict[str, Gate]:
    """Return the gate of each trait that a capability reporter answers for.

    :param templates: the deployment's configuration templates
    """
    of_nodes = _of_templates(templates)
    found: dict[str, Gate] = dict.fromkeys(templates.found_traits, of_nodes)
    return found | {trait: gate for gate in GATES for trait in gate.traits}


def _of_templates(templates: Templates) -> Gate:
    """Return the gate of what nodes of Ironic say of themselves; the rest an operator sets, who is asked by no gate."""
    return Gate("deploy-config", IF_REPORTED, templates.found_traits, frozenset((REPORTED,)))


def held_back(item: Requirement, coverage: Coverage | None, gates: Mapping[str, Gate]) -> str:
    """Return why a requirement must wait; empty if it can be asked for without excluding a host that can.

    :param coverage: None if nothing is known yet
    """
    trait = item.trait
    if not item.required:
        # It excludes only hosts that have it. Placement would refuse a query with a trait that was never created.
        return _not_forbidden(trait, coverage) if trait.startswith(CUSTOM_PREFIX) else ""
    if coverage is None:
        return f"{trait} is not asked for: which compute nodes say whether they have it is not known yet"
    gate = gates.get(trait)
    if gate is None:
        return "" if trait in coverage.in_use else f"{trait} is not asked for: nothing has it yet"
    if coverage.is_open(gate):
        return ""
    if not coverage.compute_nodes:
        return f"{trait} is not asked for: there is no compute node yet"
    silent = coverage.silent[gate.answers]
    verb = "do" if silent.number > 1 else "does"
    return f"{trait} is not asked for: {_told(silent)} {verb} not say yet; 'os-prefilter readiness' shows more"


def _not_forbidden(trait: Trait, coverage: Coverage | None) -> str:
    if coverage is None:
        return f"{trait} is not forbidden: whether anything has it is not known yet"
    return "" if trait in coverage.in_use else f"no host has {trait}: it need not be forbidden"


def _told(silent: Silent) -> str:
    names = escape_line(", ".join(silent.examples))
    some = "among them " if silent.number > len(silent.examples) else ""
    return f"{pluralize(silent.number, 'compute node')} ({some}{names})"
