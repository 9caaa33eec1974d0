# SPDX-License-Identifier: Apache-2.0

"""The service: a pipeline with deployment facts, metrics and history."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, NamedTuple

from oslo_config import cfg

from os_prefilter.common.errors import NoHostLeft
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import describe_error, shorten
from os_prefilter.pipeline.decision import Decision
from os_prefilter.pipeline.filter_calls import Adjust
from os_prefilter.pipeline.pipeline import Pipeline, Remark
from os_prefilter.pipeline.writer import write
from os_prefilter.request.fields import field_of
from os_prefilter.request.filter_contract import NEEDS, UNKNOWN, LoadedFilter
from os_prefilter.request.query import allocation_candidates_query
from os_prefilter.request.remarks import remarks_in_nova
from os_prefilter.request.view import SERVER_OPTIONS, Request
from os_prefilter.service import (
    decision_log,
    deferral,
    deployment_facts,
    known_traits,
    trait_scope,
)
from os_prefilter.service.answer import ReasonFinder, shadow_results
from os_prefilter.service.capacity import not_known
from os_prefilter.service.conf import (
    GROUP,
    options_from,
    warn_of_misspelt_names,
)
from os_prefilter.service.decision_cache import DecisionCache
from os_prefilter.service.existing_server import (
    KEEPS_NOTHING,
    LookUpServer,
    LookUpServerOptions,
    find_server,
    find_server_options,
)
from os_prefilter.service.facts_from_conf import (
    DERIVED,
    OF_PLACEMENT,
    RULES,
    PlacementSource,
    facts_from,
    facts_of,
    needed_facts,
)
from os_prefilter.service.loading import load_filters
from os_prefilter.service.metrics import Measuring
from os_prefilter.service.request_events import (
    CachedDecision,
    Observer,
    RequestEvent,
)
from os_prefilter.service.shared import MakeStore
from os_prefilter.service.traits_to_report import traits_to_create
from os_prefilter.vocabulary.options import Options, TraitScope

LOG = get_logger(__name__)

# Seconds, without a configuration.
_FACTS_INTERVAL = 60.0
_MOST_WARNINGS = 10


class Snapshot(NamedTuple):
    """State that stays the same as long as no fact changes."""

    versions: tuple[int, ...]
    """Of the facts."""
    pipeline: Pipeline
    decisions: DecisionCache


@dataclass(eq=False, repr=False)
class Service:
    """Request filters in a deployment. Safe to use from many threads.

    :raises ConfigurationError: if a filter needs a fact that is not among
        ``facts``
    """

    filters: tuple[LoadedFilter, ...] = ()
    options: Options = field(default_factory=Options)
    facts: Mapping[str, deployment_facts.Fact] = field(default_factory=dict)
    look_up_server: LookUpServer | None = None
    """Returns what a server that exists keeps; None if that is not known."""
    reasons: ReasonFinder | None = None
    """Finds why no host is left; None without a Placement."""
    shows_reason: bool = True
    """Whether users read it; False with ``no_host_reason = off``."""
    observers: tuple[Observer, ...] = ()
    """Callables for the end of each request: metrics and history."""
    metrics: Measuring | None = None
    """Metrics of facts and host filters; those of requests are an observer."""
    remark: Remark | None = None
    """Yields notes on a request, or rejects it; see ``request.remarks``."""
    implied_by: Callable[[str], Mapping[str, str]] | None = None
    """Returns the image properties that an ``os_distro`` implies.

    None if they are not required.
    """
    placement: PlacementSource | None = None
    """What Placement knows; None if the embedding service provides all."""
    look_up_server_options: LookUpServerOptions | None = None
    """Returns what a server asks for; None if the request spec has it."""
    shadow: tuple[LoadedFilter, ...] = ()
    """Filters that are run after the others and change nothing."""

    def __post_init__(self) -> None:
        self._all_filters = (*self.filters, *self.shadow)
        self._reads_server_options = any(
            SERVER_OPTIONS in each.declaration.reads
            for each in self._all_filters
        )
        self._waits = (
            self.options.wait_for_reports and deferral.FACT in self.facts
        )
        self._facts = self._facts_for(self.filters)
        self._shadow_facts = [
            fact
            for fact in self._facts_for(self._all_filters)
            if fact not in self._facts
        ]
        self._snapshot = self._snapshot_of(
            tuple(fact.version for fact in (*self._facts, *self._shadow_facts))
        )

    @classmethod
    def from_conf(  # noqa: PLR0913 - all but the first have defaults
        cls,
        conf: cfg.ConfigOpts,
        facts: Mapping[str, deployment_facts.ReadFact] | None = None,
        *,
        placement: PlacementSource | None = None,
        look_up_server: LookUpServer | None = None,
        look_up_server_options: LookUpServerOptions | None = None,
        stores: Iterable[MakeStore] = (),
        in_nova: bool = False,
        implied_by: Callable[[str], Mapping[str, str]] | None = None,
    ) -> Service:
        """Load the filters that ``conf`` enables.

        :param facts: what the embedding service knows of the deployment: a
            callable ``(context) -> value`` by name; docs/scheduler.rst lists
            all. ``rules`` is made from ``rules_dirs`` unless it is among them.
        :param placement: what Placement knows, an
            :class:`~os_prefilter.adapters.placement.facts.CloudPlacement`.
            Its facts are read unless they are among ``facts``, and the
            ``CUSTOM_`` traits that filters may require, and that show hosts
            what to report, are created in the background; those of the
            operator's rules, before new rules are used.
        :param look_up_server: returns what is known of a server that exists
            (:data:`os_prefilter.service.existing_server.LookUpServer`).
        :param look_up_server_options: returns what a server asks for in
            addition to image and flavor, for a request spec that does not have
            it
            (:data:`os_prefilter.service.existing_server.LookUpServerOptions`).
        :param stores: where processes share what they read from Placement, the
            nearest first:
            :class:`os_prefilter.service.shared.InheritedStore` for those that
            are forked from this one, and the ``store`` of an
            :class:`os_prefilter.adapters.shared_cache.CacheStore` for those
            of other hosts.
        :param in_nova: True in Nova's own scheduler, whose drivers read
            properties alone: a trait without the property gets a note, or is
            rejected as the option ``nova_builds_guests`` says
        :param implied_by: as :attr:`implied_by`, for the option
            ``require_implied_devices``
            (:func:`os_prefilter.adapters.osinfo.implied_by`)
        :raises ConfigurationError: if the service must not start with this
            configuration.
        """
        look_ups: dict[str, object] = {
            "look_up_server": look_up_server,
            "look_up_server_options": look_up_server_options,
        }
        for name, look_up in look_ups.items():
            if look_up is not None:
                deployment_facts.check_callable(
                    name, look_up, "context", "request_spec"
                )
        warn_of_misspelt_names(conf)
        options = options_from(conf, in_nova=in_nova)
        group = conf[GROUP]
        names = group.enabled_filters
        in_shadow = group.shadow_filters
        measuring = (
            Measuring(names, options, in_shadow) if group.metrics else None
        )
        provided = facts or {}
        names_provided = NEEDS | provided.keys() | DERIVED
        if placement:
            names_provided |= OF_PLACEMENT
        filters = load_filters(names, names_provided)
        shadow = load_filters(
            in_shadow, names_provided, "shadow_filters", names
        )
        every = filters + shadow
        known = facts_from(
            conf,
            options,
            provided,
            every,
            placement=placement,
            stores=stores,
        )
        reasons = None
        if placement:
            reasons = ReasonFinder(
                placement.reasons,
                counts=group.no_host_reason == "counts",
                records=group.decision_history,
            )
        observers: list[Observer] = []
        if measuring:
            observers.append(measuring.observe)
        if group.decision_history:
            observers.append(decision_log.record)
        service = cls(
            filters,
            options,
            known,
            look_up_server,
            reasons,
            group.no_host_reason != "off",
            tuple(observers),
            measuring,
            remarks_in_nova if in_nova else None,
            implied_by if group.require_implied_devices else None,
            placement,
            look_up_server_options,
            shadow,
        )
        if placement:
            placement.create_traits(traits_to_create(every, options))
        service._log_filters()
        return service

    @classmethod
    def from_names(
        cls,
        *names: str,
        options: Options | None = None,
        facts: Mapping[str, deployment_facts.ReadFact] | None = None,
    ) -> Service:
        """Load the filters of these names, without oslo.config.

        :param facts: the facts that the filters declare as needs, a callable
            ``(context) -> value`` by name; each is read again after 60
            seconds.
        :raises ConfigurationError: if one is missing, does not load, or needs
            a fact that is not in ``facts``.
        """
        filters = load_filters(names, NEEDS | (facts or {}).keys())
        known = facts_of(facts or {}, filters, _FACTS_INTERVAL)
        return cls(filters, options or Options(), known)

    def _log_filters(self) -> None:
        names = [each.name for each in self.filters]
        addition = ""
        waits = self.options.wait_for_reports
        if names and waits and deferral.FACT not in self.facts:
            addition = (
                "; enforced at once, as this service provides no fact"
                f" {deferral.FACT!r}"
            )
        LOG.info(
            "Request filters enabled: %s%s.",
            ", ".join(names) or "none ([prefilter] enabled_filters is empty)",
            addition,
        )
        if self.shadow:
            LOG.info(
                "Request filters in shadow, which change nothing: %s.",
                ", ".join(each.name for each in self.shadow),
            )
        if self.shadow and not self.observers:
            LOG.warning(
                "[prefilter] shadow_filters has no effect: set"
                " decision_history or metrics to true, for what the filters"
                " would change."
            )

    def __repr__(self) -> str:
        names = ", ".join(each.name for each in self.filters)
        return f"<Service: {names or 'no filters'}>"

    def without_waiting(self) -> Service:
        """Return the service with every gate open.

        It does not wait for compute nodes to report.
        """
        gates = {each.declaration.gate for each in self._all_filters} - {""}
        opened = {
            gate: deployment_facts.Fact(
                gate, lambda _context: True, inf, unknown=True
            )
            for gate in gates
        }
        return replace(
            self,
            options=replace(self.options, wait_for_reports=False),
            facts={**self.facts, **opened},
        )

    def without_nova_style(self) -> Service:
        """Return the service without the filters that change a request."""
        return replace(
            self,
            filters=tuple(
                each for each in self.filters if not each.nova_style
            ),
        )

    def apply(
        self,
        request_spec: Any,
        context: Any = None,
        *,
        until: float | None = None,
    ) -> Decision:
        """Run the filters and add what they require to ``request_spec``.

        After any error, ``request_spec`` is as it was.

        The result for a request of the same content is applied again without
        running them, as long as the facts are the same. Where one is written
        the Nova way, all run each time.

        It waits 5 seconds at most, in all: for facts, and for what the
        embedding service finds out about an existing server. What is not known
        by then excludes no host.

        :param context: handed to filters written the Nova way and to facts.
        :param until: when the request waits no longer, on the clock of
            :func:`time.monotonic`; None for 5 seconds from now
        :raises RequestRejected: if the request cannot be scheduled as it is.
        :raises FilterFailed: if a filter raises an error of its own.
        :raises UnsuitableRequestSpec: if the object is not RequestSpec-like.
        """
        cached = None
        is_cached = False
        # One bound for all that it may wait for.
        if until is None:
            until = deployment_facts.latest_end()
        try:
            cached, is_cached = self._decide_once(request_spec, context, until)
            if self.shadow:
                decision = self._snapshot.pipeline.with_nova_style_shadow(
                    cached.decision, request_spec, context
                )
                cached = cached._replace(decision=decision)
            write(cached.decision.additions, request_spec)
        except BaseException as error:
            # Also eventlet's Timeout, which is no Exception.
            self.notify(
                RequestEvent(request_spec, context, cached, is_cached, error)
            )
            raise
        _log(cached)
        if self.observers:
            self.notify(
                RequestEvent(request_spec, context, cached, is_cached, None)
            )
        return cached.decision

    def decide(self, request_spec: Any, context: Any = None) -> Decision:
        """Return what the filters require, without changing ``request_spec``.

        Errors are those of :meth:`apply`.

        The decision is neither counted nor logged.
        """
        until = deployment_facts.latest_end()
        return self._decide_once(request_spec, context, until)[0].decision

    def reason(
        self,
        decision: Decision,
        request_spec: Any = None,
        context: Any = None,
        *,
        query: str = "",
        until: float | None = None,
    ) -> NoHostLeft:
        """Return why Placement has no candidate, and count that end.

        Call it once after an empty response. It asks Placement, and waits 5
        seconds at most, in all.

        :param decision: of :meth:`apply`
        :param request_spec: as it was then; for the history
        :param query: for the candidates, urlencoded; empty for that of
            :func:`os_prefilter.allocation_candidates_query`
        :param until: when the request waits no longer, on the clock of
            :func:`time.monotonic`; None for 5 seconds from now
        :return: the reason; users may read it where its ``is_public`` is true
        """
        if until is None:
            until = deployment_facts.latest_end()
        if not query and request_spec is not None:
            query = allocation_candidates_query(request_spec)
        if self.reasons:
            error = self.reasons.find(decision, query, context, until)
        else:
            error = not_known("This service has no Placement")
        self.end_without_host(error, request_spec, context)
        return error

    def answered(
        self,
        decision: Decision,
        candidates: Mapping[str, Any],
        request_spec: Any = None,
        context: Any = None,
    ) -> None:
        """Record what shadow filters would have changed in the candidates.

        Call it once after each response of Placement, with or without
        candidates. It asks nothing, and raises no error.

        :param decision: of :meth:`apply`
        :param candidates: the body of the response to
            ``GET /allocation_candidates``, from microversion 1.34 on
        :param request_spec: for the history
        """
        if not self.observers:
            return
        try:
            results = shadow_results(decision.shadow, candidates)
        except Exception as error:  # noqa: BLE001 - the request matters, shadow filters do not
            LOG.warning(
                "Failed to compare shadow filters with Placement's response:"
                " %s",
                describe_error(error),
            )
            return
        if results:
            self.notify(
                RequestEvent(request_spec, context, None, False, None, results)
            )

    def end_without_host(
        self, error: NoHostLeft, request_spec: Any, context: Any
    ) -> None:
        """Log, count and record that no host is left for a request."""
        error.is_public = error.is_public and self.shows_reason
        LOG.info(
            "No host is left for server %s: %s %s",
            field_of(request_spec, "instance_uuid"),
            error,
            list(map(tuple, error.hosts)),
        )
        self.notify(RequestEvent(request_spec, context, None, False, error))

    def notify(self, event: RequestEvent) -> None:
        """Report the end of a request to metrics and history.

        An event may come after the decision of its request.
        """
        for observe in self.observers:
            try:
                observe(event)
            except Exception as error:  # noqa: BLE001 - the request matters more than its metrics
                LOG.warning(
                    "Failed to observe a request: %s", describe_error(error)
                )

    def _decide_once(
        self, request_spec: Any, context: Any, until: float
    ) -> tuple[CachedDecision, bool]:
        """Return the decision from the cache, or run the filters.

        :return: the decision, and whether it comes from the cache
        """
        versions = deployment_facts.versions_of(self._facts, context, until)
        for fact in self._shadow_facts:
            # No request waits for a fact that only shadow filters need.
            fact.begin(context)
            versions += (fact.version,)
        snapshot = self._snapshot
        if snapshot.versions != versions:
            # Replaced as a whole: what is being decided with earlier values is
            # not kept for later ones.
            self._snapshot = snapshot = self._snapshot_of(versions)
        pipeline = snapshot.pipeline
        request = Request(request_spec, None, pipeline.reads)
        implied = self._implied_in(request)
        server = KEEPS_NOTHING
        if request.server_exists:
            server = find_server(
                self.look_up_server,
                request,
                context,
                until,
                self.options,
            )
        server_options = None
        if self.look_up_server_options and self._reads_server_options:
            server_options = find_server_options(
                self.look_up_server_options, request, context, until
            )
        if implied or server_options or server != KEEPS_NOTHING:
            request = Request(
                request_spec,
                server.machine_type,
                pipeline.reads,
                implied,
                server.has_new_flavor,
                server_options,
            )
        if pipeline.reads is None:
            return self._decided(pipeline, request, context), False
        return snapshot.decisions.decide_once(
            request,
            lambda: self._decided(pipeline, request, context),
        )

    def _facts_for(
        self, filters: tuple[LoadedFilter, ...]
    ) -> list[deployment_facts.Fact]:
        needed = needed_facts(filters, self.options) & self.facts.keys()
        # Some are one of several in a reading.
        return list(dict.fromkeys(self.facts[name] for name in sorted(needed)))

    def _implied_in(self, request: Request) -> dict[str, str]:
        if not self.implied_by:
            return {}
        distro = request.image_property("os_distro")
        if not isinstance(distro, str):
            return {}
        return {
            name: value
            for name, value in self.implied_by(distro).items()
            if request.image_property(name) is None
        }

    def _decided(
        self, pipeline: Pipeline, request: Request, context: Any
    ) -> CachedDecision:
        decision = pipeline.decide(request, context)
        described = ""
        if decision_log.record in self.observers:
            described = decision_log.describe(decision)
        warnings = [str(note) for note in decision.notes if note.warn]
        warning = ""
        if warnings:
            different = list(dict.fromkeys(warnings))
            warning = "; ".join(shorten(different, _MOST_WARNINGS))
        return CachedDecision(decision, warning, described)

    def _snapshot_of(self, versions: tuple[int, ...]) -> Snapshot:
        """Return the state with the values of facts, or with later ones."""
        values: dict[str, Any] = {}
        for fact in (*self._facts, *self._shadow_facts):
            values.update(fact.values())
        if self.metrics:
            self.metrics.observe_facts(values)
        pipeline = Pipeline(
            self.filters,
            self.options,
            values,
            self._adjustments(values),
            self.remark,
            self.shadow,
        )
        return Snapshot(versions, pipeline, DecisionCache())

    def _adjustments(self, values: Mapping[str, Any]) -> Iterable[Adjust]:
        """Yield the adjustments of a filter's result by the deployment.

        These are gates, traits that Placement lacks, and the scope.

        The last one copies what the others have left.
        """
        known = {
            name: value
            for name, value in values.items()
            if value is not UNKNOWN
        }
        if self._waits and self._all_filters:
            yield deferral.defer(
                self._all_filters, known.get(deferral.FACT), self.options
            )
        if known_traits.FACT in known:
            yield known_traits.leave_out_unknown(
                known[known_traits.FACT],
                getattr(known.get(RULES), "traits", ()),
            )
        scope = self.options.trait_scope
        # Where it is not known whether any provider is nested, one may be.
        if scope is TraitScope.AUTO and known.get(trait_scope.FACT) is False:
            scope = TraitScope.ROOT_AND_UNSUFFIXED
        if scope is TraitScope.ROOT_AND_UNSUFFIXED:
            yield partial(trait_scope.mirror, self.filters)


def _log(cached: CachedDecision) -> None:
    if cached.warning:
        LOG.warning("Ignored part of the request: %s", cached.warning)
    for run in cached.decision.shadow:
        if run.result == "failed":
            LOG.warning(
                "The shadow filter %r failed, which changes nothing: %s",
                run.filter,
                run.reason,
            )
    if LOG.logger.isEnabledFor(logging.DEBUG):
        decision = cached.decision
        decided = (
            *decision.requirements,
            *decision.preferences,
            *decision.aggregates,
        )
        LOG.debug(
            "Request filters decided: %s",
            "; ".join(map(str, decided)) or "nothing required",
        )
