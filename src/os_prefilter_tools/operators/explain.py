# SPDX-License-Identifier: Apache-2.0

"""The requirements and preferences of a request, with their reasons.

Each with its filter and source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from os_prefilter.common.errors import RequestRejected
from os_prefilter.common.quoting import escape_line
from os_prefilter.pipeline.decision import Decision, ShadowRun
from os_prefilter.request.query import requirements_without_filters
from os_prefilter.request.requirements import (
    ROOT,
    AggregateRequirement,
    Preference,
    Requirement,
)
from os_prefilter.request.view import Request
from os_prefilter.service import Service
from os_prefilter_tools.operators.refused_by_nova import (
    OF_IMAGE,
    other_notes,
    refused_by_nova,
)


class Explanation(NamedTuple):
    """One requirement or preference, a refusal or a note."""

    trait: str
    """The trait, or ``member_of=in:UUID,UUID`` for aggregates.

    Empty where nothing is required.
    """
    rule: str
    """What becomes of it.

    ``refused``, ``required``, ``forbidden``, ``preferred``, or ``note`` for
    what is not required, or what to look at in what is. ``in shadow`` follows
    where a shadow filter would do so.
    """
    scope: str
    by: str
    """The filter, or ``request`` for the request itself.

    That is, flavor, image and request groups. ``nova-api`` for what it
    refuses.
    """
    because: str


def explain(
    request_spec: Any, service: Service, context: Any = None
) -> tuple[Explanation, ...]:
    """Apply ``service`` and return each requirement, filter and source.

    What Nova refuses comes first, then requirements of the request itself,
    then those of the filters in their order, with ignored parts.

    :raises PrefilterError: as :meth:`os_prefilter.service.Service.apply` does;
        a rejection only of a request that Nova does not refuse
    """
    # Without remarks the scheduler is another one than Nova's.
    texts = refused_by_nova(request_spec) if service.remark else ()
    refused: list[Explanation] = []
    for text in texts:
        # Nova boots with a flavor that has a refused value already.
        rule = "refused" if text.startswith(OF_IMAGE) else "note"
        refused.append(Explanation("", rule, "", "nova-api", text))
    try:
        from_request = requirements_without_filters(Request(request_spec))
        decision = service.apply(request_spec, context)
    except RequestRejected:
        # No scheduler, and so no filter, sees the request.
        if any(each.rule == "refused" for each in refused):
            return tuple(refused)
        raise
    return (
        *refused,
        *map(line_of, from_request),
        *lines_of(decision, texts),
        *_lines_in_shadow(decision.shadow, texts),
    )


def lines_of(
    decision: Decision, refused: Collection[str] = ()
) -> tuple[Explanation, ...]:
    """Return the lines of the filters only.

    :param refused: what nova-api refuses; values without another note
    """
    lines: list[Explanation] = []
    for run in decision.runs:
        for items in (run.requirements, run.aggregates, run.preferences):
            lines += map(line_of, items)
        lines += (
            Explanation("", "note", "", run.filter, text)
            for text in other_notes(map(str, run.notes), refused)
        )
    lines += (
        Explanation("", "note", "", "request", text)
        for text in other_notes(map(str, decision.remarks), refused)
    )
    return tuple(lines)


def _lines_in_shadow(
    runs: Iterable[ShadowRun], refused: Collection[str]
) -> Iterator[Explanation]:
    for run in runs:
        for items in (run.requirements, run.aggregates):
            for line in map(line_of, items):
                rule = f"{line.rule} in shadow"
                yield line._replace(rule=rule, by=run.filter)
        if run.reason is not None:
            text = escape_line(f"in shadow, {run.result}: {run.reason}")
            yield Explanation("", "note", "", run.filter, text)
        for text in other_notes(map(str, run.notes), refused):
            yield Explanation("", "note", "", run.filter, f"in shadow: {text}")


def line_of(
    item: Requirement | AggregateRequirement | Preference,
) -> Explanation:
    """Return the line of one requirement or preference."""
    if isinstance(item, Preference):
        return Explanation(
            item.trait,
            "preferred",
            ROOT,
            item.filter,
            escape_line(item.source),
        )
    rule = "required" if item.required else "forbidden"
    if isinstance(item, AggregateRequirement):
        names = ",".join(item.aggregates)
        return Explanation(
            f"member_of=in:{names}",
            rule,
            item.scope,
            item.filter,
            escape_line(item.because),
        )
    return Explanation(
        item.trait,
        rule,
        escape_line(item.scope),
        item.filter,
        escape_line(item.source),
    )
