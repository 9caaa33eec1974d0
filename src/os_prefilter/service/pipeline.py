"""The pipeline: run the filters in order, and apply one decision to the request spec, completely or not at all."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from os_prefilter.common.errors import NoHostServes
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import shorten
from os_prefilter.pipeline import nova_style, writer
from os_prefilter.pipeline.decision import Decision, Run
from os_prefilter.pipeline.filter_calls import Call, Inputs, bind, call_filter
from os_prefilter.request.filter_contract import NEEDS, LoadedFilter
from os_prefilter.request.requirements import (
    NOTHING,
    ROOT,
    UNSUFFIXED,
    AggregateRequirement,
    Note,
    Preference,
    Requirement,
)
from os_prefilter.request.resources import unsuffixed_group_uses_host
from os_prefilter.request.view import Request, clone_of
from os_prefilter.rules.model import RuleSet
from os_prefilter.service import decision_log, known_traits, trait_scope
from os_prefilter.service.conf import GROUP, options_from, register_opts, warn_of_misspelt_names
from os_prefilter.service.decision_cache import DecisionCache, Outcome
from os_prefilter.service.deployment_facts import (
    PATIENCE,
    Fact,
    ReadFact,
    Reading,
    check_callable,
    known_or_none,
    readings_of,
)
from os_prefilter.service.facts_from_conf import RULES, derived_facts, facts_from, prepared
from os_prefilter.service.host_traits import HostTraitsFact, Reader
from os_prefilter.service.kept_machine_type import KeptMachineType, MachineTypeOf
from os_prefilter.service.loading import load_filters
from os_prefilter.service.metrics import Measuring
from os_prefilter.service.no_host import NoHostCheck, no_host_check, root_demand
from os_prefilter.service.report_gates import FACT, deferring_filters, gate_filter
from os_prefilter.vocabulary.options import Options, TraitScope

LOG = get_logger(__name__)

# Seconds, without a configuration.
_FACTS_INTERVAL = 60.0
_MOST_WARNINGS = 10


class Pipeline:
    """Request filters in the order in which they run. Safe to use from many threads."""

    def __init__(
        self,
        filters: Iterable[LoadedFilter],
        options: Options | None = None,
        facts: Mapping[str, Fact] | None = None,
        measuring: Measuring | None = None,
        kept_machine_type: MachineTypeOf | None = None,
    ) -> None:
        self.filters = tuple(filters)
        self.options = options or Options()
        facts = facts or {}
        deferred = deferring_filters(self.filters, self.options, facts)
        self._known = facts
        self._measuring = measuring
        self.logs_decisions = False
        """Whether each decision goes to the logger of :mod:`os_prefilter.service.decision_log`."""
        self.remarks: Callable[[Request], Iterable[Note]] | None = None
        """Yields notes on a request beside those of the filters (``os_prefilter.request.remarks``)."""

        def call_of(each: LoadedFilter) -> Call:
            call = gate_filter(each, bind(each, self.options), self.options, deferred)
            return measuring.measure(each.name, call) if measuring else call

        self._calls = [call_of(each) for each in self.filters]
        # Only those that a filter needs: a fact may be a query to every cell.
        names = {fact for each in self.filters for fact in each.facts}
        if deferred:
            names.add(FACT)
        optional = {known_traits.FACT}
        if self.options.trait_scope is TraitScope.AUTO:
            optional.add(trait_scope.FACT)
        if self.filters:
            names |= optional & facts.keys()
        self._names_of_facts = sorted(names)
        self._facts = [facts[name] for name in self._names_of_facts]
        self._changes_in_place = any(each.nova_style for each in self.filters)
        # One that changes the request spec itself may read all of it.
        self._reads = (
            None if self._changes_in_place else {name for each in self.filters for name in each.declaration.reads}
        )
        self._cache = DecisionCache(self._reads or ())
        self._kept_machine_type = KeptMachineType(kept_machine_type, self.options)
        self.host_traits: HostTraitsFact | None = None
        """Which hosts have which traits; None if the embedding service does not provide it."""
        self._no_host: NoHostCheck | None = None

    @classmethod
    def from_conf(
        cls,
        conf: cfg.ConfigOpts,
        facts: Mapping[str, ReadFact] | None = None,
        *,
        ensure_traits: Callable[[Iterable[str]], object] | None = None,
        kept_machine_type: MachineTypeOf | None = None,
        host_traits: Reader | None = None,
    ) -> "Pipeline":
        """Load the filters that ``conf`` enables.

        :param facts: what the embedding service knows of the deployment: a callable ``(context) -> value`` by name.
            :func:`os_prefilter.adapters.placement.coverage.placement_facts` returns those that Placement knows;
            docs/scheduler.rst lists all. ``rules`` is made from ``rules_dirs`` unless it is among them.
        :param ensure_traits: creates the ``CUSTOM_`` traits that Placement does not have, and raises an error if it
            lacks another one; called with those of the operator's rules before new rules are used.
        :param kept_machine_type: returns the machine type that a server which exists keeps on its next host, and None
            if it gets that host's default (:data:`os_prefilter.service.kept_machine_type.MachineTypeOf`).
        :param host_traits: reads which hosts have which traits, for ``no_host_reason``
            (:class:`os_prefilter.adapters.placement.host_traits.HostTraitsReader`); without it, no request is rejected
            for want of a host.
        :raises ConfigurationError: if the service must not start with this configuration.
        """
        _check_facts(facts)
        if ensure_traits is not None:
            check_callable("ensure_traits", ensure_traits, "names")
        if kept_machine_type is not None:
            check_callable("kept_machine_type", kept_machine_type, "context", "request_spec")
        register_opts(conf)
        warn_of_misspelt_names(conf)
        options = options_from(conf)
        names = conf[GROUP].enabled_filters
        measuring = Measuring() if conf[GROUP].metrics else None
        provided = measuring.with_gauges(facts or {}, options.trait_scope) if measuring else facts or {}
        filters = load_filters(names, NEEDS | provided.keys() | derived_facts(conf, provided))
        known = facts_from(conf, provided, filters, ensure_traits)
        pipeline = cls(filters, options, known, measuring, kept_machine_type)
        if host_traits:
            pipeline.host_traits = HostTraitsFact(host_traits, conf[GROUP].facts_interval)
            pipeline._no_host = no_host_check(pipeline.host_traits, conf[GROUP].no_host_reason)
        pipeline.logs_decisions = conf[GROUP].decision_history
        LOG.info("Request filters enabled: %s.", ", ".join(names) or "none ([prefilter] enabled_filters is empty)")
        return pipeline

    @classmethod
    def from_names(
        cls, *names: str, options: Options | None = None, facts: Mapping[str, ReadFact] | None = None
    ) -> "Pipeline":
        """Load the filters of these names, without oslo.config.

        :param facts: the facts that the filters declare as needs, a callable ``(context) -> value`` by name; each is
            read again after 60 seconds.
        :raises ConfigurationError: if one is missing, does not load, or needs a fact that is not in ``facts``.
        """
        _check_facts(facts)
        filters = load_filters(names, NEEDS | (facts or {}).keys())
        known = {name: Fact(name, read, _FACTS_INTERVAL) for name, read in prepared(facts or {}, filters).items()}
        return cls(filters, options, known)

    def __repr__(self) -> str:
        return f"<Pipeline: {', '.join(each.name for each in self.filters) or 'no filters'}>"

    def without_waiting(self) -> "Pipeline":
        """Return the pipeline as it enforces once every gate is open: nothing waits for compute nodes to report."""
        gates = {each.declaration.gate for each in self.filters} - {""}
        known = {**self._known, **{gate: Fact(gate, lambda _context: True, inf) for gate in gates}}
        return self._variant(self.filters, replace(self.options, wait_for_answers=()), known)

    def with_rules(self, rules: RuleSet) -> "Pipeline":
        """Return the pipeline with these operator's rules in place of its own; at its end, if it has none."""
        filters = self.filters
        if not any(RULES in each.facts for each in filters):
            filters += load_filters((RULES,), NEEDS | {RULES})
        known = {**self._known, RULES: Fact(RULES, lambda _context: rules, inf, unknown=rules)}
        return self._variant(filters, self.options, known)

    def on_root_only(self) -> "Pipeline":
        """Return the pipeline with each requirement once: no trait of the root goes on the unsuffixed group as well."""
        return self._variant(self.filters, replace(self.options, trait_scope=TraitScope.ROOT), self._known)

    def _variant(self, filters: Iterable[LoadedFilter], options: Options, facts: Mapping[str, Fact]) -> "Pipeline":
        variant = Pipeline(filters, options, facts)
        variant.remarks = self.remarks
        return variant

    def without_nova_style(self) -> "Pipeline":
        """Return the pipeline of the filters that only look at a request."""
        return Pipeline([each for each in self.filters if not each.nova_style], self.options, self._known)

    def describe_trait_scope(self) -> str:
        """Return what ``trait_scope = auto`` chose for the latest request, in one line; empty with another value."""
        if self.options.trait_scope is not TraitScope.AUTO:
            return ""
        fact = self._known.get(trait_scope.FACT)
        return trait_scope.describe_choice(known_or_none(fact.latest) if fact else None)

    def apply(self, request_spec: Any, context: Any = None) -> Decision:
        """Run the filters and add what they require to ``request_spec``; on any error it is as it was.

        The result for a request of the same content is applied again without running them, as long as the facts are the
        same. Where one is written the Nova way, all run each time.

        It waits for facts and for Placement 5 seconds at most, in all; what is not known by then excludes no host.

        :param context: handed to filters written the Nova way and to facts.
        :raises RequestRejected: if the request cannot be scheduled as it is, or no host can serve it.
        :raises FilterFailed: if a filter raises an error of its own.
        :raises UnsuitableRequestSpec: if the object is not RequestSpec-like.
        """
        before = nova_style.Snapshot(request_spec) if self._changes_in_place else None
        outcome = hosts = None
        # The facts, the hosts that have the traits, and Placement's confirmation: one bound for all.
        until = time.monotonic() + PATIENCE
        try:
            outcome = self._outcome(request_spec, context)
            if self._no_host and outcome.root_demand:
                hosts = self._no_host.check(outcome.root_demand, context, until)
            writer.write(outcome.additions, request_spec)
        except BaseException as error:
            if before:
                before.restore()
            if isinstance(error, NoHostServes):
                hosts = 0
                if self._measuring:
                    self._measuring.count_no_host()
            if self.logs_decisions:
                decision_log.record(request_spec, context, outcome.described if outcome else "", error, hosts)
            raise
        _log(outcome)
        if self.logs_decisions:
            decision_log.record(request_spec, context, outcome.described, hosts=hosts)
        return outcome.decision

    def decide(self, request_spec: Any, context: Any = None) -> Decision:
        """Return what the filters require for ``request_spec``, which stays as it is; errors as of :meth:`apply`.

        Whether any host can serve it is not checked, and the decision is not logged.
        """
        return self._outcome(clone_of(request_spec), context).decision

    def _outcome(self, request_spec: Any, context: Any) -> Outcome:
        """Return the outcome of an equal request from the cache, or run the filters."""
        readings = readings_of(self._facts, context)
        request = Request(request_spec, None, self._reads)
        if request.server_exists and self._kept_machine_type.matters_to(request):
            request = Request(request_spec, self._kept_machine_type.of(request_spec, context), self._reads)
        run = partial(self._run, request, request_spec, context, readings)
        if self._changes_in_place:
            return run()
        outcome, is_cached = self._cache.outcome(request, request_spec, readings, run)
        if is_cached and self._measuring:
            self._measuring.count_cached(outcome.decision.runs)
        return outcome

    def _run(self, request: Request, request_spec: Any, context: Any, readings: tuple[Reading, ...]) -> Outcome:
        values = {name: reading.value for name, reading in zip(self._names_of_facts, readings, strict=True)}
        of_rules = getattr(values.get(RULES), "traits", ())
        mirrored = trait_scope.is_mirrored(self.options.trait_scope, known_or_none(values.get(trait_scope.FACT)))
        traits_of_placement = known_or_none(values.get(known_traits.FACT))
        runs: list[Run] = []
        # Pure filters are written together at the end, so that nothing is written when a later one fails.
        pending: list[Requirement] = []
        own_groups = list(NOTHING.own_groups)
        preferred: list[Preference] = []
        in_aggregates: list[AggregateRequirement] = []
        # Without what a filter written the Nova way took back.
        required: list[Requirement] = []
        for each, call in zip(self.filters, self._calls, strict=True):
            if each.nova_style:
                # It may look at what the filters before it required.
                before = writer.prepare(request, pending, own_groups, aggregates=in_aggregates)
                writer.write(before, request_spec)
                pending, own_groups = [], []
            start = time.perf_counter()
            result = call_filter(each.name, call, request, Inputs(request_spec, context, values, pending))
            seconds = time.perf_counter() - start
            if result is NOTHING and not each.nova_style:
                runs.append(Run(each.name, (), (), seconds))
                continue
            if not each.nova_style:
                result = known_traits.leave_out_unknown(result, traits_of_placement, of_rules)
            requirements = tuple([item._replace(filter=each.name) for item in result.requirements])
            if each.nova_style:
                request = Request(request_spec, request.kept_machine_type)
                required = [item for item in required if _is_on_root(item, request)]
            else:
                requirements += _mirror(requirements, request) if mirrored else ()
                pending += requirements
                own_groups += result.own_groups
            required += requirements
            preferences = tuple([item._replace(filter=each.name) for item in result.preferences])
            preferred += preferences
            aggregates = tuple([item._replace(filter=each.name) for item in result.aggregates])
            in_aggregates += aggregates
            run = Run(each.name, requirements, result.notes, seconds, preferences, aggregates)
            if self._measuring:
                self._measuring.count_requirements(run)
            runs.append(run)
        # Without a filter the library changes nothing, and says nothing.
        decision = Decision(tuple(runs), tuple(self.remarks(request)) if runs and self.remarks else ())
        additions = writer.prepare(request, pending, own_groups, preferred, in_aggregates)
        described = decision_log.describe(decision) if self.logs_decisions else ""
        demand = root_demand(required) if self._no_host else None
        return Outcome(decision, additions, demand, _warning(decision), described)


def _check_facts(facts: Mapping[str, ReadFact] | None) -> None:
    for name, read in (facts or {}).items():
        check_callable(f"the deployment fact {name!r}", read, "context")


def _is_on_root(item: Requirement, request: Request) -> bool:
    return item.scope == ROOT and item.trait in (request.root_required if item.required else request.root_forbidden)


def _mirror(requirements: tuple[Requirement, ...], request: Request) -> tuple[Requirement, ...]:
    """Return the required traits of the root again, for the unsuffixed group, if the candidates stay the same."""
    # Not the forbidden ones: each provider of the group is excluded by one, so a host would be by the trait of its GPU.
    on_root = [item for item in requirements if item.scope == ROOT and item.required]
    if not on_root or not unsuffixed_group_uses_host(request):
        return ()
    return tuple(item._replace(scope=UNSUFFIXED) for item in on_root)


def _warning(decision: Decision) -> str:
    warnings = list(dict.fromkeys(str(note) for note in decision.notes if note.warn))
    return "; ".join(shorten(warnings, _MOST_WARNINGS))


def _log(outcome: Outcome) -> None:
    if outcome.warning:
        LOG.warning("Ignored part of the request: %s", outcome.warning)
    if LOG.logger.isEnabledFor(logging.DEBUG):
        LOG.debug("Request filters required: %s", "; ".join(map(str, outcome.decision.requirements)) or "nothing")
        if outcome.decision.preferences:
            LOG.debug("Request filters preferred: %s", "; ".join(map(str, outcome.decision.preferences)))
        if outcome.decision.aggregates:
            LOG.debug("Request filters require aggregates: %s", "; ".join(map(str, outcome.decision.aggregates)))
