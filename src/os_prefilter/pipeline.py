"""The pipeline: filters in their order, one decision, applied to the request spec as a whole or not at all."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, Self

from oslo_config import cfg

from os_prefilter import application, nova_style
from os_prefilter.conf import GROUP, options_from, refused, register_opts
from os_prefilter.deployment import facts_from
from os_prefilter.errors import FilterFailed, PrefilterError, RequestRejected
from os_prefilter.facts import Ask, Fact
from os_prefilter.metrics import Measuring
from os_prefilter.options import HOST_CLASSES, Options
from os_prefilter.plugins import LoadedFilter, load_filters
from os_prefilter.request import Request
from os_prefilter.requirements import ROOT, UNSUFFIXED, Note, OwnGroup, Requirement, Requirements
from os_prefilter.stated import unsuffixed_resources
from os_prefilter.texts import first_of
from os_prefilter.waiting import FACT, names_that_wait, waiting

LOG = logging.getLogger(__name__)

# Seconds, without a configuration.
_FACTS_INTERVAL = 60.0
_MOST_WARNINGS = 10

_ROOT_CLASSES = frozenset(HOST_CLASSES)

# What filters may declare as needs beside the facts.
_OPTIONS, _ASKED_BEFORE = "options", "asked_before"
_NEEDS = frozenset((_OPTIONS, _ASKED_BEFORE))


class _Pending:
    """What is to be written into a request spec."""

    def __init__(self) -> None:
        self.requirements: list[Requirement] = []
        self.own_groups: list[OwnGroup] = []


_Call = Callable[[Request, Any, Any, _Pending], object]
"""A filter with its needs bound: ``(request, request_spec, context, what is pending)``."""


class Run(NamedTuple):
    """What one filter did for one request."""

    filter: str
    asked: tuple[Requirement, ...]
    notes: tuple[Note, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What the filters required of one request, who did, because of what, and how long each took."""

    runs: tuple[Run, ...]

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """All requirements, in the order of the filters."""
        return tuple(item for run in self.runs for item in run.asked)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What was asked and did not become a requirement, and why."""
        return tuple(note for run in self.runs for note in run.notes)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by filter."""
        return {run.filter: run.seconds for run in self.runs}


class Pipeline:
    """Request filters in the order in which they run. Safe to use from many threads."""

    def __init__(
        self,
        filters: Iterable[LoadedFilter],
        options: Options | None = None,
        facts: Mapping[str, Fact] | None = None,
        measuring: Measuring | None = None,
    ) -> None:
        self.filters = tuple(filters)
        self.options = options or Options()
        self._facts = dict(facts or {})
        waits = names_that_wait(self.filters, self.options.wait_for_answers, self._facts)
        self._calls = [self._bound(each, waits=each.name in waits) for each in self.filters]
        if measuring:
            pairs = zip(self.filters, self._calls, strict=True)
            self._calls = [measuring.measured(each.name, call) for each, call in pairs]
        self._changes_in_place = any(each.nova_style for each in self.filters)

    @classmethod
    def from_conf(
        cls,
        conf: cfg.ConfigOpts,
        facts: Mapping[str, Ask] | None = None,
        *,
        ensure_traits: Callable[[Iterable[str]], object] | None = None,
    ) -> Self:
        """Load the filters that ``conf`` enables.

        :param facts: what the embedding service knows of the deployment: a callable ``(context) -> value`` by name.
            ``minimum_compute_version`` gives the lowest service version of all compute services, ``owner_coverage``
            whether every compute node has the owner trait in Placement; ``owner`` needs one of the two. ``answers``
            gives an :class:`os_prefilter.answers.Coverage`; filters that wait for answers need it. ``rules`` is made
            from ``rules_dirs`` unless it is among them.
        :param ensure_traits: creates the ``CUSTOM_`` traits that Placement does not have, and raises an error if it
            lacks another one; called with those of the operator's rules before new rules are used.
        :raises ConfigurationError: if the service must not start with this configuration.
        """
        register_opts(conf)
        try:
            options = options_from(conf)
            measuring = Measuring() if conf[GROUP].metrics else None
            known = facts_from(conf, facts or {}, measuring, ensure_traits)
            names = conf[GROUP].enabled_filters
        except cfg.Error as error:
            raise refused(error) from error
        pipeline = cls(load_filters(names, _NEEDS | known.keys()), options, known, measuring)
        if ("rules" in names) != ("rules" in (facts or {}) or bool(conf[GROUP].rules_dirs)):
            LOG.warning(
                "No rule applies: that takes rules in [prefilter] enabled_filters, and directories in rules_dirs."
            )
        LOG.info("Request filters enabled: %s.", ", ".join(names) or "none ([prefilter] enabled_filters is empty)")
        return pipeline

    @classmethod
    def from_names(cls, *names: str, options: Options | None = None, facts: Mapping[str, Ask] | None = None) -> Self:
        """Load the filters of these names, without oslo.config.

        :param facts: the facts that the filters declare as needs, a callable ``(context) -> value`` by name; each is
            asked for again after 60 seconds.
        :raises ConfigurationError: if one is missing, does not load, or needs a fact that is not in ``facts``.
        """
        known = {name: Fact(name, ask, _FACTS_INTERVAL) for name, ask in (facts or {}).items()}
        return cls(load_filters(names, _NEEDS | known.keys()), options, known)

    def __repr__(self) -> str:
        return f"<Pipeline: {', '.join(each.name for each in self.filters) or 'no filters'}>"

    def apply(self, request_spec: Any, context: Any = None) -> Decision:
        """Run the filters and add what they require to ``request_spec``; on any error it is as it was.

        :param context: handed to filters written the Nova way and to facts.
        :raises RequestRejected: if the request cannot be scheduled as it was asked.
        :raises FilterFailed: if a filter raises an error of its own.
        :raises UnsuitableRequestSpec: if the object is not RequestSpec-like.
        """
        before = nova_style.Snapshot(request_spec) if self._changes_in_place else None
        try:
            decision = self._run(request_spec, context)
        except BaseException:
            if before:
                before.restore()
            raise
        _log(decision)
        return decision

    def _run(self, request_spec: Any, context: Any) -> Decision:
        request = Request(request_spec)
        runs: list[Run] = []
        # Pure filters are written together at the end, so that nothing is written when a later one fails.
        pending = _Pending()
        for each, call in zip(self.filters, self._calls, strict=True):
            if each.nova_style:
                # It may look at what the filters before it required.
                self._write(pending, request_spec, request)
                pending = _Pending()
            start = perf_counter()
            answer = _answer(each.name, call, request, request_spec, context, pending)
            seconds = perf_counter() - start
            asked = tuple([Requirement(*item[:4], each.name) for item in answer.asked])
            if each.nova_style:
                request = Request(request_spec)
            else:
                asked += self._mirrored(asked, request_spec, request)
                pending.requirements += asked
                pending.own_groups += answer.own_groups
            runs.append(Run(each.name, asked, answer.notes, seconds))
        self._write(pending, request_spec, request)
        return Decision(tuple(runs))

    def _bound(self, each: LoadedFilter, *, waits: bool) -> _Call:
        """Return the filter as something to call with the request alone, so that no request pays for its needs."""
        call = self._with_needs(each)
        return waiting(call, self._facts[FACT], self.options) if waits else call

    def _with_needs(self, each: LoadedFilter) -> _Call:
        if each.nova_style:
            return lambda _request, request_spec, context, _pending: nova_style.run(
                each.name, each.function, context, request_spec
            )
        facts = [(need, self._facts[need]) for need in each.needs if need not in _NEEDS]
        function = partial(each.function, options=self.options) if _OPTIONS in each.needs else each.function
        if _ASKED_BEFORE in each.needs:
            return lambda request, _request_spec, context, pending: function(
                request,
                asked_before=tuple(pending.requirements),
                **{need: fact.value(context) for need, fact in facts},
            )
        if not facts:
            return lambda request, _request_spec, _context, _pending: function(request)
        return lambda request, _request_spec, context, _pending: function(
            request, **{need: fact.value(context) for need, fact in facts}
        )

    def _mirrored(self, asked: tuple[Requirement, ...], request_spec: Any, request: Request) -> tuple[Requirement, ...]:
        """Return the host's required traits again, for the unsuffixed group, where the candidates stay the same."""
        if not self.options.mirror_to_unsuffixed:
            return ()
        on_root = [item for item in asked if item.scope == ROOT and item.required]
        if not on_root or _ROOT_CLASSES.isdisjoint(unsuffixed_resources(request_spec, request)):
            return ()
        return tuple(item._replace(scope=UNSUFFIXED) for item in on_root)

    @staticmethod
    def _write(pending: _Pending, request_spec: Any, request: Request) -> None:
        if pending.requirements or pending.own_groups:
            application.apply_requirements(pending.requirements, request_spec, request, pending.own_groups)


def _answer(name: str, call: Callable[..., object], *given: Any) -> Requirements:
    try:
        answer = call(*given)
    except RequestRejected as error:
        error.filter = name
        raise
    except PrefilterError:
        raise
    except Exception as error:
        raise FilterFailed(name, error) from error
    if not isinstance(answer, Requirements) or not all(map(_is_requirement, answer.asked)):
        raise FilterFailed(name, TypeError(f"it answered with a {type(answer).__name__}, not Requirements"))
    return answer


def _is_requirement(item: object) -> bool:
    return isinstance(item, Requirement) and isinstance(item.required, bool)


def _log(decision: Decision) -> None:
    warnings = list(dict.fromkeys(str(note) for note in decision.notes if note.warn))
    if warnings:
        LOG.warning("Part of a request was not asked for: %s", "; ".join(first_of(warnings, _MOST_WARNINGS)))
    if LOG.isEnabledFor(logging.DEBUG):
        LOG.debug("Request filters required: %s", "; ".join(map(str, decision.requirements)) or "nothing")
