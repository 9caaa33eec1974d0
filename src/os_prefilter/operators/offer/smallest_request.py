"""What one value of the vocabulary asks of a host, found out by asking for it and for as little else as possible."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from os_prefilter.conf.options import effective_templates
from os_prefilter.errors import RequestRejected
from os_prefilter.filters.nova_translation import stated_requirements
from os_prefilter.pipeline.pipeline import Pipeline
from os_prefilter.request.requirements import ROOT, UNSUFFIXED, Note
from os_prefilter.request.resources import unsuffixed_resources
from os_prefilter.request.spec import Flavor, Image, RequestSpec
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import row_named, table
from os_prefilter.vocabulary.model import Row

_Traits = frozenset[tuple[str, bool]]
"""(trait, whether it is required or forbidden)."""

# What else Nova wants beside a value, without which its API refuses it or it means nothing.
_PINNED = {"hw:cpu_policy": "dedicated"}
_BESIDE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("cpu_policy", "mixed"): {"hw:cpu_dedicated_mask": "0"},
    ("cpu_thread_policy", "isolate"): _PINNED,
    ("cpu_thread_policy", "require"): _PINNED,
    ("emulator_threads_policy", "isolate"): _PINNED,
}


class Asked(NamedTuple):
    """What a request asks of a host."""

    root: _Traits
    """Of its root provider."""
    unsuffixed: _Traits
    """Of the providers that give something to the group without a suffix: the root, and those of other resources."""
    resources: frozenset[str]
    """The resource classes of that group; none if they are those that every request asks for."""

    @property
    def traits(self) -> frozenset[str]:
        """All traits that are looked at."""
        return frozenset(trait for trait, _ in self.root | self.unsuffixed)


class SmallestRequests:
    """The smallest requests that ask for one value, behind the filters of a pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._templates = effective_templates(pipeline.options.templates)
        self.rows = (*(row for row in table() if row.asked_by), *self._templates.rows)
        """What can be asked for: the vocabulary, and the configuration templates."""
        self._rows = {row.name: row for row in self.rows}
        self._configured = {row.name for row in self._templates.rows}
        self._deferred: set[tuple[str, Note]] = set()
        self._usual = frozenset(_resources(self._spec({})))
        self.always = self._asked({})
        """What is asked of every host, by a request for nothing in particular."""
        self._always_deferred = frozenset(self._deferred)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The filters that did not ask for a value, because they wait for compute nodes to report.

        What a filter defers for every request, as ``owner`` does, says nothing of a value.
        """
        return tuple(sorted({name for name, _ in self._deferred - self._always_deferred}))

    def traits(self, row: Row, value: str) -> frozenset[str]:
        """Return the traits that a value stands for."""
        if row.name in self._configured:
            return frozenset(self._templates.of(row.name, value).traits)
        trait = row.values[value].trait
        return frozenset((trait,)) if trait else frozenset()

    def asking_for(self, row: Row, value: str) -> list[Asked]:
        """Return what each smallest request for a value asks for, without those that are rejected.

        There are several where it makes no sense alone: the model of a TPM is asked for with each version of one.
        """
        found = []
        for wanted in self._complete({row.name: value}):
            try:
                found.append(self._asked(wanted))
            except RequestRejected:
                continue
        return found

    def _complete(self, wanted: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
        """Yield the ways to ask for the values of some rows together with those without which they mean nothing."""
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
        if row.only_with and self.traits(row, value):
            devices = (each for each, term in row_named(row.only_with).values.items() if term.trait)
            yield row.only_with, tuple(sorted(row.only_with_values)) or tuple(devices)

    def _asked(self, wanted: Mapping[str, str]) -> Asked:
        spec = self._spec(wanted)
        request = Request(spec)
        resources = _resources(spec)
        stated = stated_requirements(request)
        decision = self._pipeline.apply(spec)
        self._deferred.update((run.filter, note) for run in decision.runs for note in run.notes if note.waits)
        requirements = [*stated, *decision.requirements]

        def on(scope: str) -> _Traits:
            return frozenset((item.trait, item.required) for item in requirements if item.scope == scope)

        return Asked(on(ROOT), on(UNSUFFIXED), frozenset() if resources == self._usual else resources)

    def _spec(self, wanted: Mapping[str, str]) -> RequestSpec:
        rows = {name: self._rows[name] for name in wanted}
        properties = {row.image_property: wanted[name] for name, row in rows.items() if row.image_property}
        extra_specs = {
            row.extra_spec: wanted[name] for name, row in rows.items() if row.extra_spec and not row.image_property
        }
        for each in wanted.items():
            extra_specs |= _BESIDE.get(each, {})
        disk_format = next((wanted[name] for name, row in rows.items() if row.image_attribute), None)
        # Two CPUs: one of each kind, where they are mixed.
        return RequestSpec(Flavor(vcpus=2, memory_mb=1, extra_specs=extra_specs), Image(properties, disk_format))


def _resources(spec: RequestSpec) -> frozenset[str]:
    return frozenset(unsuffixed_resources(spec, Request(spec)))
