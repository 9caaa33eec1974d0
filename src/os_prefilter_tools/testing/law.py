# SPDX-License-Identifier: Apache-2.0

"""The law of the whole project, as code.

A host reports all that the filters require of it if and only if its late check
accepts the request. Requests are made of values of the vocabulary: one by one,
in pairs, and in triples with a platform.

Left out are devices of guests of an emulated architecture: no trait and no
late check is about them. That a host emulates the architecture is in the law.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations, islice, product
from typing import NamedTuple

from os_prefilter.common.errors import RequestRejected
from os_prefilter.hosts.capabilities import (
    capability_traits,
    reporter_traits,
    unknown_traits,
)
from os_prefilter.hosts.driver_check import unsupported
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.request.query import requirements_without_filters
from os_prefilter.request.remarks import remarks_in_nova
from os_prefilter.request.spec import RequestSpec
from os_prefilter.request.view import Request
from os_prefilter.service import Service
from os_prefilter.vocabulary import DEVICES, LACKING, row_named, table
from os_prefilter.vocabulary.model import Row
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.operators.offer.offered_values import spec_with

Choice = tuple[Row, str]
"""A row and one of its values."""

_PLAIN = Options(reported_traits=("*",))


def options_of(facts: HostFacts) -> Options:
    """Return the options of a cloud with a host, all of whose traits count."""
    return replace(_PLAIN, nova_builds_guests=facts.built_by_nova)


class Case(NamedTuple):
    """A request and what it requires of a host."""

    choices: tuple[Choice, ...]
    spec: RequestSpec
    required: tuple[tuple[str, bool], ...] | None
    """(trait, required) of all requirements of the host.

    None where the filters, or Nova's query, reject it.
    """
    is_complete: bool = True
    """False if no host reports a part of what it requests.

    The filters note such a part.
    """

    def __str__(self) -> str:
        values = [f"{row.name}={value}" for row, value in self.choices]
        return " ".join(values) or str(self.spec.flavor.extra_specs)


@cache
def list_requiring_filters() -> tuple[str, ...]:
    """Return the filters that require abilities of a host.

    The others are about its owner or its state.
    """
    return tuple(
        dict.fromkeys(
            name
            for row in Options().rows
            for name in row.required_by
            if name != "query"
        )
    )


@cache
def choices() -> tuple[Choice, ...]:
    """Return each value of each row that filters require.

    Also return those of the bundled configuration templates.
    """
    return tuple(
        (row, value)
        for row in Options().rows
        if row.required_by
        for value in row.values
    )


def _is_left_out(some: Iterable[Choice]) -> bool:
    """Return whether a request has a device of an emulated guest."""
    names = {row.name for row, _ in some}
    return "emulation_architecture" in names and not names.isdisjoint(DEVICES)


def case_of(
    some: tuple[Choice, ...],
    extra_specs: Mapping[str, str] | None = None,
    options: Options = _PLAIN,
) -> Case:
    """Return a request for these values, with all that is required.

    By the filters and Nova's own translation.
    """
    spec = spec_with(some, extra_specs or {})
    try:
        decision = _pipeline(options).apply(spec)
        from_request = requirements_without_filters(Request(spec))
    except RequestRejected:
        return Case(some, spec_with(some, extra_specs or {}), None)
    items = (
        item
        for item in (*decision.requirements, *from_request)
        if Request(spec).is_of_host(item.scope)
    )
    required = tuple({(item.trait, item.required) for item in items})
    notes = (note for run in decision.runs for note in run.notes)
    return Case(
        some, spec_with(some, extra_specs or {}), required, not any(notes)
    )


@cache
def _pipeline(options: Options) -> Service:
    filters = list_requiring_filters()
    service = Service.from_names(*filters, options=options)
    return replace(service, remark=remarks_in_nova)


@cache
def single_cases(options: Options = _PLAIN) -> tuple[Case, ...]:
    """Return each value alone, and with each device that a flavor names.

    The flavor names the device by its trait.
    """
    cases = [case_of((each,), None, options) for each in choices()]
    groups: dict[str, dict[str, str]] = {
        "": {},
        "1": {"resources1:VCPU": "1"},
        "2": {"resources2:VGPU": "1"},
    }
    traits = [row.values["true"].trait for row in table() if row.boolean]
    traits += LACKING
    for trait, suffix in product(filter(None, traits), groups):
        for rule in ("required", "forbidden"):
            extra_specs = {**groups[suffix], f"trait{suffix}:{trait}": rule}
            cases.append(case_of((), extra_specs, options))
    return tuple(cases)


@cache
def pair_cases(
    owned: frozenset[str] | None = None,
    first: int = 0,
    step: int = 1,
    options: Options = _PLAIN,
) -> tuple[Case, ...]:
    """Return each two values of different rows.

    :param owned: only those in which one is of these rows
    :param first: index of the first one to return
    :param step: return each ``step``-th one from there
    """
    pairs = []
    for pair in combinations(choices(), 2):
        row, other = pair[0][0], pair[1][0]
        is_owned = owned is None or row.name in owned or other.name in owned
        if row is not other and is_owned and not _is_left_out(pair):
            pairs.append(pair)
    return tuple(case_of(pair, None, options) for pair in pairs[first::step])


@cache
def platform_cases(
    first: int = 0, step: int = 1, options: Options = _PLAIN
) -> tuple[Case, ...]:
    """Return each value on each machine type of guests of i686.

    A guest whose image names that architecture has a default machine type and
    firmware of its own.

    :param first: index of the first one to return
    :param step: return each ``step``-th one from there
    """
    machine = row_named("machine_type")
    i686 = (row_named("architecture"), "i686")
    triples = (
        (i686, (machine, family), choice)
        for family in machine.values
        for choice in choices()
        if choice[0] not in (machine, i686[0])
    )
    some = islice(triples, first, None, step)
    return tuple(
        case_of(triple, None, options)
        for triple in some
        if not _is_left_out(triple)
    )


def disagreements(cases: Iterable[Case], facts: HostFacts) -> Iterator[str]:
    """Yield each request on which a host's traits and late check differ.

    Where hosts do not report a part of it, the late check may refuse more; the
    filters must exclude no capable host.
    """
    traits: dict[str, bool] = dict.fromkeys(reporter_traits(), False)
    traits.update(dict.fromkeys(facts.other_traits, True))
    traits.update(capability_traits(facts))
    for device, lacking in LACKING.items():
        # Nova's driver reports such a device, wrongly.
        traits[device] = traits[device] or traits[lacking]
    unknown = unknown_traits(facts)
    for case in cases:
        # What is not known is not reported, and refuses no request.
        if any(name in unknown for name, _ in case.required or ()):
            continue
        try:
            refused = [str(item) for item in unsupported(case.spec, facts)]
        except RequestRejected as error:
            refused = [str(error)]
        missing = ["rejected"]
        if case.required is not None:
            missing = [
                name if wanted else f"!{name}"
                for name, wanted in case.required
                if traits.get(name, False) != wanted
            ]
        if bool(refused) != bool(missing) and (missing or case.is_complete):
            # The host lacks a trait that means more than the value of the
            # request.
            meanings = [
                f"{row.name}={value}"
                for row in table()
                for value in row.values
                if row.values[value].trait in missing
            ]
            yield (
                f"{case} on {facts}: missing {missing}, which mean {meanings},"
                f" late check {refused}"
            )
