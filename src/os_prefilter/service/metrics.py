# SPDX-License-Identifier: Apache-2.0

"""Metrics of each filter for Prometheus, with ``[prefilter] metrics = true``.

They are in the default registry of prometheus_client, which the embedding
service serves. The labels are names of filters and of rows of the vocabulary,
never anything of a request.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from os_prefilter.common import errors
from os_prefilter.hosts.marker_traits import groups_by_trait
from os_prefilter.service.deferral import FACT, Reports
from os_prefilter.service.request_events import RequestEvent
from os_prefilter.vocabulary.options import Options

# Seconds. Filters take some ten microseconds; those of others may take longer.
_BUCKETS = (
    0.00001,
    0.000025,
    0.00005,
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.01,
    0.1,
    1.0,
    10.0,
)
# Families without the label "filter"; all others must have it.
_WITHOUT_FILTER = ("no_host", "unreported", "before", "after")
# Of shadow filters.
_IN_SHADOW = "shadow_"
# Two services may be built at once.
_REGISTERING = threading.Lock()


class Measuring:
    """The metrics of a service.

    :param names: of its filters
    :param options: what groups the traits that hosts report
    :param shadow: the names of its shadow filters
    :raises ConfigurationError: if prometheus_client is not installed
    """

    def __init__(
        self,
        names: Iterable[str],
        options: Options | None = None,
        shadow: Iterable[str] = (),
    ) -> None:
        options = options or Options()
        self._groups = groups_by_trait(options.templates)
        try:
            with _REGISTERING:
                self._families = _families()
        except ModuleNotFoundError as error:
            raise errors.ConfigurationError(
                f"[prefilter] metrics needs {error.name}, which is not"
                f" installed: {errors.install_extra('metrics')}, or set"
                " metrics = false."
            ) from error
        # All are exposed from the start, with 0.
        for key, family in vars(self._families).items():
            if key not in _WITHOUT_FILTER:
                for name in shadow if key.startswith(_IN_SHADOW) else names:
                    family.labels(name)
        # One of many pairs of labels: without any, a share of requests without
        # a host is no number, not even 0.
        self._families.no_host.labels("traits", "")

    def observe(self, event: RequestEvent) -> None:
        """Count the runs of the filters, and what they required.

        A filter that ended with an error counts as well.

        A trait in two scopes counts once. What was decided before took no time
        now.
        """
        families, error = self._families, event.error
        for run in event.runs:
            families.runs.labels(run.filter).inc()
            if not event.is_cached:
                families.seconds.labels(run.filter).observe(run.seconds)
            traits = {(item.trait, item.required) for item in run.requirements}
            families.requirements.labels(run.filter).inc(
                len(traits) + len(run.aggregates)
            )
            families.deferred.labels(run.filter).inc(
                sum(note.waits for note in run.notes)
            )
        self._observe_shadow(event)
        if isinstance(error, errors.NoHostLeft):
            families.no_host.labels(error.stage, " and ".join(error.by)).inc()
        elif isinstance(error, errors.PrefilterError) and error.filter:
            if isinstance(error, errors.RequestRejected):
                families.rejections.labels(error.filter).inc()
            else:
                families.failures.labels(error.filter).inc()

    def _observe_shadow(self, event: RequestEvent) -> None:
        families = self._families
        if event.cached_decision:
            for run in event.cached_decision.decision.shadow:
                families.shadow_requests.labels(run.filter).inc()
                # Not a failure of a filter, which ends a request.
                if run.result == "failed":
                    families.shadow_failures.labels(run.filter).inc()
        for run, candidates, lacking in event.shadow:
            if lacking:
                families.shadow_fewer_hosts.labels(run.filter).inc()
            if lacking and lacking == candidates:
                families.shadow_no_host.labels(run.filter).inc()

    def count_hosts(self, host_filter: str, before: int, after: int) -> None:
        """Count the hosts before and after a host filter of the scheduler."""
        self._families.before.labels(host_filter).inc(before)
        self._families.after.labels(host_filter).inc(after)

    def observe_facts(self, facts: Mapping[str, Any]) -> None:
        """Set the gauge where the fact ``reports`` is known."""
        reports = facts.get(FACT)
        if not isinstance(reports, Reports):
            return
        most: dict[str, int] = {}
        for trait, nodes in reports.unreported.items():
            row = self._groups[trait].row
            most[row] = max(most.get(row, 0), nodes.number)
        for row, number in most.items():
            self._families.unreported.labels(row).set(number)


@lru_cache(maxsize=1)
def _families() -> SimpleNamespace:
    """Register the metrics once in a process."""
    import prometheus_client as prometheus  # noqa: PLC0415 - an extra

    def counter(name: str, text: str) -> Any:
        return prometheus.Counter(f"os_prefilter_{name}", text, ["filter"])

    return SimpleNamespace(
        runs=counter(
            "filter_runs",
            "Requests that a filter decided, evaluated or cached",
        ),
        rejections=counter(
            "filter_rejections",
            "Requests that a filter rejected, because of what they require",
        ),
        failures=counter(
            "filter_failures",
            "Requests at which a filter failed with an error of its own",
        ),
        seconds=prometheus.Histogram(
            "os_prefilter_filter_seconds",
            "Time in a filter",
            ["filter"],
            buckets=_BUCKETS,
        ),
        requirements=counter(
            "filter_requirements",
            "Traits, and sets of aggregates, that a filter required or"
            " forbade",
        ),
        deferred=counter(
            "filter_deferred",
            "Traits that a filter does not require yet: hosts must report"
            " first",
        ),
        shadow_requests=counter(
            "shadow_requests", "Requests that a shadow filter decided"
        ),
        shadow_fewer_hosts=counter(
            "shadow_fewer_hosts",
            "Requests that would have had fewer hosts with a shadow filter",
        ),
        shadow_no_host=counter(
            "shadow_no_host",
            "Requests that would have had no host with a shadow filter",
        ),
        shadow_failures=counter(
            "shadow_failures",
            "Requests at which a shadow filter failed, which changed nothing",
        ),
        no_host=prometheus.Counter(
            "os_prefilter_no_host",
            "Requests for which no host was left",
            ["stage", "by"],
        ),
        before=prometheus.Counter(
            "os_prefilter_hosts_before",
            "Hosts before a host filter",
            ["host_filter"],
        ),
        after=prometheus.Counter(
            "os_prefilter_hosts_after",
            "Hosts that a host filter left",
            ["host_filter"],
        ),
        unreported=prometheus.Gauge(
            "os_prefilter_compute_nodes_not_reported",
            "Compute nodes that have not reported whether they have the traits"
            " of a row of the vocabulary",
            ["row"],
            # Of several processes, the one that queried last.
            multiprocess_mode="mostrecent",
        ),
    )
