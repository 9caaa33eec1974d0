"""Counts of what each filter does, for Prometheus; nothing of it is there unless ``[prefilter] metrics`` is true.

They are in the default registry of prometheus_client: whoever embeds the pipeline serves them. The labels are names of
filters and of rows of the vocabulary, never anything of a request.
"""

import threading
from collections.abc import Iterable, Mapping
from functools import lru_cache
from time import perf_counter
from typing import Any, NamedTuple

from os_prefilter.errors import ConfigurationError, RequestRejected
from os_prefilter.pipeline.decision import Run
from os_prefilter.pipeline.deployment_facts import Ask
from os_prefilter.pipeline.filter_calls import Call, Given
from os_prefilter.pipeline.report_gates import FACT, GATES, Coverage
from os_prefilter.request.view import Request

# Seconds. Filters take some ten microseconds; those of others may take longer.
_BUCKETS = (0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.01, 0.1, 1.0, 10.0)


# Two pipelines may be built at once.
_REGISTERING = threading.Lock()


class _Families(NamedTuple):
    """The metrics, each with the label ``filter``; of ``unreported``, ``row`` and ``kind``."""

    runs: Any
    rejections: Any
    failures: Any
    seconds: Any
    requirements: Any
    held_back: Any
    unreported: Any


class Measuring:
    """What a pipeline that is measured needs.

    :raises ConfigurationError: if prometheus_client is not installed
    """

    def __init__(self) -> None:
        try:
            with _REGISTERING:
                self._families = _families()
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"[prefilter] metrics needs {error.name}, which is not installed: pip install 'os-prefilter[metrics]', "
                "or set metrics = false."
            ) from error

    def measured(self, name: str, call: Call) -> Call:
        """Return the filter ``name``, as the pipeline calls it, counted: its runs and how they end."""
        # All six are there from the start, with 0.
        runs, rejections, failures, seconds, _, _ = (family.labels(name) for family in self._families[:6])

        def run(request: Request, given: Given) -> object:
            runs.inc()
            start = perf_counter()
            try:
                return call(request, given)
            except RequestRejected:
                rejections.inc()
                raise
            except Exception:
                failures.inc()
                raise
            finally:
                seconds.observe(perf_counter() - start)

        return run

    def asked(self, run: Run) -> None:
        """Count what a filter asked for; a trait that it asked for in two scopes is one."""
        self._families.requirements.labels(run.filter).inc(len({(item.trait, item.required) for item in run.asked}))
        self._families.held_back.labels(run.filter).inc(sum(note.waits for note in run.notes))

    def again(self, runs: Iterable[Run]) -> None:
        """Count what filters answered before, and were not run for again."""
        for run in runs:
            self._families.runs.labels(run.filter).inc()
            self.asked(run)

    def with_gauge(self, facts: Mapping[str, Ask]) -> Mapping[str, Ask]:
        """Return facts of which ``answers`` sets the gauge of the compute nodes that have not reported."""
        if FACT not in facts:
            return facts

        def ask(context: Any) -> Coverage:
            coverage: Coverage = facts[FACT](context)
            for gate in GATES:
                unreported = coverage.unreported[gate.reported_by]
                self._families.unreported.labels(gate.row, gate.kind).set(unreported.number)
            return coverage

        return {**facts, FACT: ask}


@lru_cache(maxsize=1)
def _families() -> _Families:
    """Register the metrics: once in a process, however many pipelines it has."""
    import prometheus_client as prometheus  # noqa: PLC0415 - an extra

    def counter(name: str, text: str) -> Any:
        return prometheus.Counter(f"os_prefilter_filter_{name}", text, ["filter"])

    return _Families(
        counter("runs", "Requests that a filter answered, run or remembered"),
        counter("rejections", "Requests that a filter rejected, because of what they ask for"),
        counter("failures", "Requests at which a filter failed with an error of its own"),
        prometheus.Histogram("os_prefilter_filter_seconds", "Time in a filter", ["filter"], buckets=_BUCKETS),
        counter("requirements", "Traits that a filter required or forbade"),
        counter("held_back", "Traits that a filter did not ask for yet, because it waits for answers"),
        prometheus.Gauge(
            "os_prefilter_compute_nodes_without_answer",
            "Compute nodes that do not say whether they have the traits of a row of the vocabulary",
            ["row", "kind"],
            # Of several processes, the one that asked last.
            multiprocess_mode="mostrecent",
        ),
    )
