"""Filters that wait: what they ask for is enforced once every compute node says whether it can (ADR 0014)."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from oslo_log import log as logging

from os_prefilter.common.quoting import join_names, quote
from os_prefilter.conf.options import Options, effective_templates
from os_prefilter.errors import InvalidOption, MissingFact
from os_prefilter.filters.loading import LoadedFilter, installed_filters
from os_prefilter.pipeline.filter_calls import Call, Given
from os_prefilter.pipeline.report_gates import Coverage, Gate, gates_by_trait, held_back
from os_prefilter.request.requirements import Note, Requirement, Requirements
from os_prefilter.request.view import Request

LOG = logging.getLogger(__name__)

FACT = "answers"
"""The name of the fact; its value is a :class:`os_prefilter.pipeline.report_gates.Coverage`."""

EVERY = "*"
"""In the option: each enabled filter that can wait."""

_OWN_GATE = "owner"
_ADVICE = (
    "[prefilter] wait_for_answers names the filter: pass Pipeline.from_conf(conf, facts={'answers': "
    "os_prefilter.adapters.placement.report_coverage.AnswerCoverage(client)}), or empty the option."
)


def names_that_wait(filters: Sequence[LoadedFilter], names: Sequence[str], provided: Collection[str]) -> frozenset[str]:
    """Return the names of the filters that wait.

    The name of an installed filter that is not enabled is ignored with a warning, so that removing a filter from
    ``enabled_filters`` is enough to disable it.

    :param names: the option ``wait_for_answers``
    :param provided: the names of the facts that there are
    :raises InvalidOption: if a name is not that of an installed filter, or of a filter that cannot wait
    :raises MissingFact: if a filter waits, and nobody says for what
    """
    by_name = {each.name: each for each in filters}
    for name in names:
        if name != EVERY:
            _check(name, by_name)
    disabled = set(names) - by_name.keys() - {EVERY}
    if disabled:
        LOG.warning(
            "[prefilter] wait_for_answers names %s, not in enabled_filters: ignored. Remove it there, or enable it.",
            join_names(disabled),
        )
    every = {name for name, each in by_name.items() if name != _OWN_GATE and not each.nova_style}
    waiting = frozenset(every if EVERY in names else by_name.keys() & set(names))
    if waiting and FACT not in provided:
        raise MissingFact(min(waiting), FACT, _ADVICE)
    return waiting


def _check(name: str, by_name: dict[str, LoadedFilter]) -> None:
    if name == _OWN_GATE:
        problem = "the filter owner waits by itself, see the option owner_gate. Remove it here."
    elif name not in by_name:
        installed = installed_filters()
        if name in installed:
            return
        problem = (
            f"{quote(name)} is not an installed filter. Enabled filters: {join_names(by_name)}. Installed filters: "
            f"{join_names(installed)}. Correct the name, or remove it here."
        )
    elif by_name[name].nova_style:
        problem = (
            f"the filter {quote(name)} is written the Nova way and changes the request itself, so that nothing can be "
            "held back. Remove it here."
        )
    else:
        return
    raise InvalidOption("wait_for_answers", problem)


def waiting(call: Call, options: Options) -> Call:
    """Return a filter, as the pipeline calls it, that asks only for what excludes no host that can."""
    return partial(_answer, call, gates_by_trait(effective_templates(options.templates)))


def _answer(call: Call, gates: dict[str, Gate], request: Request, given: Given) -> object:
    answer = call(request, given)
    if not isinstance(answer, Requirements) or not answer.asked:
        return answer
    coverage: Coverage | None = given.facts[FACT]
    asked: list[Requirement] = []
    notes = list(answer.notes)
    for item in answer.asked:
        # A gate says which compute nodes report a trait of theirs; of devices below them it says nothing.
        reason = held_back(item, coverage, gates if request.is_of_host(item.scope) else {})
        if reason:
            notes.append(Note(item.source, reason, waits=item.required or coverage is None))
        else:
            asked.append(item)
    return replace(answer, asked=tuple(asked), notes=tuple(notes))
