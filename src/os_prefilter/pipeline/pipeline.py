# SPDX-License-Identifier: Apache-2.0

"""The pipeline: run the filters, and apply one decision or nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from time import perf_counter
from types import MappingProxyType
from typing import Any

from os_prefilter.common.errors import PrefilterError, RequestRejected
from os_prefilter.common.quoting import describe_error
from os_prefilter.pipeline.decision import (
    Decision,
    DecisionBuilder,
    Run,
    ShadowRun,
)
from os_prefilter.pipeline.filter_calls import Adjust, Call, bind, call_filter
from os_prefilter.pipeline.writer import write
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.requirements import NOTHING, Note
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.options import Options

Remark = Callable[[Request, Options, Collection[str]], Iterable[Note]]
"""``(request, options, names of the enabled filters) -> notes``."""


class Pipeline:
    """Request filters in the order in which they run.

    It has no state: use it from many threads.

    :param options: how filters turn requests into requirements
    :param facts: the values of the deployment facts that filters need, by
        name; :data:`os_prefilter.request.filter_contract.UNKNOWN` for one that
        is not known
    :param adjust: applied in turn to the result of each filter, but for those
        written the Nova way
    :param remark: yields notes on a request in addition to those of the
        filters, or rejects it (``request/remarks.py``)
    :param shadow: filters that change nothing: each runs after ``filters`` as
        if it alone were the last of them
    :raises MissingFact: if a filter needs a fact that is not among ``facts``
    """

    def __init__(  # noqa: PLR0913, PLR0917 - all have defaults
        self,
        filters: Iterable[LoadedFilter] = (),
        options: Options | None = None,
        facts: Mapping[str, Any] = MappingProxyType({}),
        adjust: Iterable[Adjust] = (),
        remark: Remark | None = None,
        shadow: Iterable[LoadedFilter] = (),
    ) -> None:
        self.filters = tuple(filters)
        self.options = options or Options()
        self._calls = [
            (each, bind(each, self.options, facts)) for each in self.filters
        ]
        self._shadow_calls = [
            (each, bind(each, self.options, facts)) for each in shadow
        ]
        self._adjust = tuple(adjust)
        self._remark = remark
        self._names = frozenset(each.name for each in self.filters)
        cached = [
            each for each, _ in self._shadow_calls if not each.nova_style
        ]
        self.reads = _reads_of((*self.filters, *cached))

    def apply(self, request_spec: Any, context: Any = None) -> Decision:
        """Run the filters and add what they require to ``request_spec``.

        On any error it is as it was.

        :raises RequestRejected: if the request cannot be scheduled as it is.
        :raises FilterFailed: if a filter raises an error of its own.
        :raises UnsuitableRequestSpec: if the object is not RequestSpec-like.
        """
        decision = self.decide(
            Request(request_spec, None, self.reads), context
        )
        write(decision.additions, request_spec)
        return decision

    def decide(self, request: Request, context: Any = None) -> Decision:
        """Return what the filters require; the request stays as it is.

        Errors are those of :meth:`apply`.

        :param context: handed to filters written the Nova way
        """
        builder = DecisionBuilder(request, context)
        try:
            for each, call in self._calls:
                self._run(each, call, builder)
            # Without a filter the library changes nothing, and says nothing.
            remarks: tuple[Note, ...] = ()
            if self._remark and self._calls:
                remarks = tuple(
                    self._remark(builder.request, self.options, self._names)
                )
            decision = builder.decision(remarks)
        except PrefilterError as error:
            error.runs = tuple(builder.runs)
            raise
        shadow = self._shadow_runs(builder.fork, nova_style=False)
        return replace(decision, shadow=shadow) if shadow else decision

    def with_nova_style_shadow(
        self, decision: Decision, request_spec: Any, context: Any
    ) -> Decision:
        """Return a decision with the runs of Nova-style shadow filters.

        Not a part of :meth:`decide`: they may read all of a request, so that
        their results cannot be cached with the decision.

        :param request_spec: without what the decision adds to it
        """

        def begin() -> DecisionBuilder:
            filtered = Request(request_spec).copy_spec()
            write(decision.additions, filtered)
            return DecisionBuilder(Request(filtered), context)

        runs = self._shadow_runs(begin, nova_style=True)
        if not runs:
            return decision
        return replace(decision, shadow=decision.shadow + runs)

    def _shadow_runs(
        self, begin: Callable[[], DecisionBuilder], *, nova_style: bool
    ) -> tuple[ShadowRun, ...]:
        """Return what shadow filters would have done; their errors are in it.

        eventlet's Timeout, which is no Exception, is the request's own.

        :param begin: makes the builder of each, after the enabled filters
        """
        runs = []
        for each, call in self._shadow_calls:
            if each.nova_style is not nova_style:
                continue
            try:
                builder = begin()
                self._run(each, call, builder)
                # What contradicts the request or an enabled filter.
                builder.decision()
                (done,) = builder.runs
                waiting = [str(note) for note in done.notes if note.waits]
                requires = done.requirements or done.aggregates
                run = ShadowRun(
                    each.name,
                    "deferred" if waiting and not requires else "passed",
                    "; ".join(waiting) or None,
                    done.requirements,
                    done.aggregates,
                    tuple(builder.own_groups),
                    tuple(note for note in done.notes if not note.waits),
                )
            except RequestRejected as error:
                run = ShadowRun(each.name, "rejected", str(error))
            except Exception as error:  # noqa: BLE001 - also of what it returned
                reason = describe_error(error.__cause__ or error)
                run = ShadowRun(each.name, "failed", reason)
            runs.append(run)
        return tuple(runs)

    def _run(
        self, each: LoadedFilter, call: Call, builder: DecisionBuilder
    ) -> None:
        start = perf_counter()
        try:
            result = call_filter(each, call, builder, self._adjust)
        except PrefilterError as error:
            if error.filter == each.name:
                builder.runs.append(
                    Run(each.name, (), (), perf_counter() - start)
                )
            raise
        seconds = perf_counter() - start
        if result is NOTHING:
            # Most filters have nothing to say of a request.
            builder.runs.append(Run(each.name, (), (), seconds))
        else:
            builder.add(each, result, seconds)


def _reads_of(filters: tuple[LoadedFilter, ...]) -> frozenset[str] | None:
    """Return the fields that filters read beyond the view; None for all."""
    # One that changes the request spec itself may read all of it.
    if any(each.nova_style for each in filters):
        return None
    return frozenset(
        name for each in filters for name in each.declaration.reads
    )
