"""The conditions that one value of the vocabulary adds to a query, found by the smallest requests for that value."""

from collections.abc import Iterator, Mapping

from os_prefilter.conf.options import effective_templates
from os_prefilter.errors import RequestRejected
from os_prefilter.pipeline.pipeline import Pipeline
from os_prefilter.pipeline.query import demand_of
from os_prefilter.request.demand import RESOURCE, TRAIT, Condition
from os_prefilter.request.spec import Flavor, Image, RequestSpec
from os_prefilter.vocabulary import row_named, table
from os_prefilter.vocabulary.model import Row

Conditions = frozenset[Condition]

# What Nova's API needs beside a value; without it, it refuses the value, or the value means nothing.
_PINNED = {"hw:cpu_policy": "dedicated"}
_BESIDE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("cpu_policy", "mixed"): {"hw:cpu_dedicated_mask": "0"},
    ("cpu_thread_policy", "isolate"): _PINNED,
    ("cpu_thread_policy", "require"): _PINNED,
    ("emulator_threads_policy", "isolate"): _PINNED,
}


class SmallestRequests:
    """The smallest requests for one value, behind the filters of a pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        templates = effective_templates(pipeline.options.templates)
        self.rows = (*(row for row in table() if row.asked_by), *templates.rows)
        """All that can be requested: the vocabulary, and the configuration templates."""
        self._rows = {row.name: row for row in self.rows}
        self._deferred: set[tuple[str, str]] = set()
        self.always = self._conditions_of({})
        """The conditions of a request without any property."""
        self._always_deferred = frozenset(self._deferred)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The filters that deferred a requirement because they wait for compute nodes to report.

        A filter that defers for every request, as ``owner`` does, tells nothing about a value.
        """
        return tuple(sorted({name for name, _ in self._deferred - self._always_deferred}))

    def conditions_for(self, row: Row, value: str) -> list[Conditions]:
        """Return the conditions of each smallest request for a value, without requests that are rejected.

        There are several where a value needs another one: a TPM model is requested with each TPM version.
        """
        found = []
        for wanted in self._complete({row.name: value}):
            try:
                found.append(self._conditions_of(wanted))
            except RequestRejected:
                continue
        return found

    def _complete(self, wanted: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
        """Yield the ways to request values together with those that they need."""
        for name, value in wanted.items():
            for other, values in self._needed(self._rows[name], value):
                if other not in wanted:
                    for each in values:
                        yield from self._complete({**wanted, other: each})
                    return
        yield wanted

    def _needed(self, row: Row, value: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the rows without which a value means nothing, or is refused, and the values that each may have."""
        for name, needed in row.needs.get(value, ()):
            yield name, (needed,)
        if row.only_with and row.values[value].traits:
            devices = (each for each, term in row_named(row.only_with).values.items() if term.trait)
            yield row.only_with, tuple(sorted(row.only_with_values)) or tuple(devices)

    def _conditions_of(self, wanted: Mapping[str, str]) -> Conditions:
        spec = self._spec(wanted)
        decision = self._pipeline.apply(spec)
        self._deferred.update((run.filter, str(note)) for run in decision.runs for note in run.notes if note.waits)
        conditions = demand_of(spec).conditions()
        return frozenset(item._replace(amount=0) for item in conditions if item.kind in (RESOURCE, TRAIT))

    def _spec(self, wanted: Mapping[str, str]) -> RequestSpec:
        rows = {name: self._rows[name] for name in wanted}
        properties = {row.image_property: wanted[name] for name, row in rows.items() if row.image_property}
        extra_specs = {
            row.extra_spec: wanted[name] for name, row in rows.items() if row.extra_spec and not row.image_property
        }
        for each in wanted.items():
            extra_specs |= _BESIDE.get(each, {})
        disk_format = next((wanted[name] for name, row in rows.items() if row.image_attribute), None)
        # Two CPUs: one shared and one dedicated for the mixed policy.
        return RequestSpec(Flavor(vcpus=2, memory_mb=1, extra_specs=extra_specs), Image(properties, disk_format))


def classes_in(conditions: Conditions) -> frozenset[str]:
    """Return the resource classes that conditions name."""
    return frozenset(item.names[0] for item in conditions if item.kind == RESOURCE)
