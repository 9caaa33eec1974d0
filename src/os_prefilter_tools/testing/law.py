# SPDX-License-Identifier: Apache-2.0

"""The law of the whole project, as code.

A host reports all that the filters require of it if and only if its late check
accepts the request. Requests are made of values of the vocabulary: one by one,
in pairs, and in triples with a platform.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations, islice
from typing import NamedTuple

from os_prefilter.common.errors import RequestRejected
from os_prefilter.hosts.capabilities import capability_traits, reporter_traits
from os_prefilter.hosts.driver_check import unsupported
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.request.query import requirements_without_filters
from os_prefilter.request.remarks import remarks_in_nova
from os_prefilter.request.spec import Flavor, Image, RequestSpec
from os_prefilter.request.view import Request
from os_prefilter.service import Service
from os_prefilter.vocabulary import row_named, table
from os_prefilter.vocabulary.model import Row
from os_prefilter.vocabulary.options import Options

Choice = tuple[Row, str]
"""A row and one of its values."""

_EMULATED = ("x86_64", "i686", "aarch64", "armv7l", "s390x", "sparc")


class Cloud(NamedTuple):
    """What requirements depend on apart from the request."""

    emulated: frozenset[str] = frozenset()
    """The option ``emulated_architectures``."""
    by_nova: bool = False
    """True if Nova builds the guests."""


_PLAIN = Cloud()


def cloud_of(facts: HostFacts) -> Cloud:
    """Return the cloud of a host."""
    return Cloud(facts.emulated_architectures, facts.built_by_nova)


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
        return " ".join(
            f"{row.name}={value}" for row, value in self.choices
        ) or str(self.spec.flavor.extra_specs)


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
def choices(emulated: frozenset[str] = frozenset()) -> tuple[Choice, ...]:
    """Return each value of each row that filters require.

    Also return those of the bundled configuration templates.

    :param emulated: the option ``emulated_architectures``
    """
    rows = Options(emulated_architectures=emulated).rows
    return tuple(
        (row, value) for row in rows if row.required_by for value in row.values
    )


def spec_with(
    some: Iterable[Choice], extra_specs: Mapping[str, str] | None = None
) -> RequestSpec:
    """Return a request for these values."""
    properties: dict[str, object] = {}
    specs = dict(extra_specs or {})
    disk_format = None
    for row, value in some:
        if row.image_property:
            properties[row.image_property] = value
        elif row.extra_spec:
            specs[row.extra_spec] = value
        else:
            disk_format = value
    return RequestSpec(
        Flavor(vcpus=1, memory_mb=512, extra_specs=specs),
        Image(properties, disk_format=disk_format),
    )


def case_of(
    some: tuple[Choice, ...],
    extra_specs: Mapping[str, str] | None = None,
    cloud: Cloud = _PLAIN,
) -> Case:
    """Return a request for these values, with all that is required.

    By the filters and Nova's own translation.
    """
    spec = spec_with(some, extra_specs)
    try:
        decision = _pipeline(cloud).apply(spec)
        from_request = requirements_without_filters(Request(spec))
    except RequestRejected:
        return Case(some, spec_with(some, extra_specs), None)
    items = (
        item
        for item in (*decision.requirements, *from_request)
        if Request(spec).is_of_host(item.scope)
    )
    required = tuple({(item.trait, item.required) for item in items})
    notes = (note for run in decision.runs for note in run.notes)
    return Case(some, spec_with(some, extra_specs), required, not any(notes))


@cache
def _pipeline(cloud: Cloud) -> Service:
    options = Options(
        reported_traits=("*",),
        emulated_architectures=cloud.emulated,
        nova_builds_guests=cloud.by_nova,
    )
    return replace(
        Service.from_names(*list_requiring_filters(), options=options),
        remark=remarks_in_nova,
    )


@cache
def single_cases(cloud: Cloud = _PLAIN) -> tuple[Case, ...]:
    """Return each value alone, and with each device that a flavor names.

    The flavor names the device by its trait.
    """
    explicit = [
        case_of(
            (),
            {**resources, f"trait{suffix}:{row.values['true'].trait}": rule},
            cloud=cloud,
        )
        for row in table()
        if row.boolean and row.values["true"].trait
        for suffix, resources in (
            ("", {}),
            ("1", {"resources1:VCPU": "1"}),
            ("2", {"resources2:VGPU": "1"}),
        )
        for rule in ("required", "forbidden")
    ]
    return (
        *(
            case_of((choice,), cloud=cloud)
            for choice in choices(cloud.emulated)
        ),
        *explicit,
    )


@cache
def pair_cases(
    owned: frozenset[str] | None = None,
    first: int = 0,
    step: int = 1,
    cloud: Cloud = _PLAIN,
) -> tuple[Case, ...]:
    """Return each two values of different rows.

    :param owned: only those in which one is of these rows
    :param first: index of the first one to return
    :param step: return each ``step``-th one from there
    """
    pairs = []
    for pair in combinations(choices(cloud.emulated), 2):
        row, other = pair[0][0], pair[1][0]
        is_owned = owned is None or row.name in owned or other.name in owned
        if row is not other and is_owned:
            pairs.append(pair)
    return tuple(case_of(pair, cloud=cloud) for pair in pairs[first::step])


@cache
def platform_cases(
    first: int = 0, step: int = 1, cloud: Cloud = _PLAIN
) -> tuple[Case, ...]:
    """Return each value on each machine type of emulated architectures.

    Only some architectures count, and the default machine type of i686.

    :param first: index of the first one to return
    :param step: return each ``step``-th one from there
    """
    machine, emulation = (
        row_named("machine_type"),
        row_named("emulation_architecture"),
    )
    offered = [
        choice
        for choice in choices(cloud.emulated)
        if choice[0] is emulation and choice[1] in _EMULATED
    ]
    platforms: list[tuple[Choice, ...]] = [
        ((machine, family), each)
        for family in machine.values
        for each in offered
    ]
    # A guest whose image names it has a default machine type of its own.
    i686 = (row_named("architecture"), "i686")
    platforms += [(i686,), *((i686, each) for each in offered)]
    triples = (
        (*platform, choice)
        for platform in platforms
        for choice in choices(cloud.emulated)
        if choice[0] not in (platform[0][0], emulation)
    )
    return tuple(
        case_of(triple, cloud=cloud)
        for triple in islice(triples, first, None, step)
    )


def disagreements(cases: Iterable[Case], facts: HostFacts) -> Iterator[str]:
    """Yield each request on which a host's traits and late check differ.

    Where hosts do not report a part of it, the late check may refuse more; the
    filters must exclude no capable host.
    """
    traits: dict[str, bool] = dict.fromkeys(reporter_traits(), False)
    traits.update(dict.fromkeys(facts.other_traits, True))
    traits.update(capability_traits(facts))
    for case in cases:
        try:
            refused = [str(item) for item in unsupported(case.spec, facts)]
        except RequestRejected as error:
            refused = [str(error)]
        missing = (
            ["rejected"]
            if case.required is None
            else [
                name if wanted else f"!{name}"
                for name, wanted in case.required
                if traits.get(name, False) != wanted
            ]
        )
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
