"""The law of the whole project, as code.

A host reports all that the filters require of it if and only if its late check accepts the request. Requests are made
of values of the vocabulary: one by one, in pairs, and in triples with a platform.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import combinations
from typing import NamedTuple

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.capabilities import capability_traits, known_traits
from os_prefilter.errors import RequestRejected
from os_prefilter.late_check import unsupported
from os_prefilter.reporters import HostFacts
from os_prefilter.request import Request
from os_prefilter.stated import stated_requirements
from os_prefilter.templates import effective
from os_prefilter.terms import Row
from os_prefilter.vocabulary import BY_NAME, ROWS
from tests.conftest import pipeline_of

FILTERS = (
    "image_metadata",
    "hpet",
    "deploy_config",
    "image_type",
    "accelerators",
    "packed_virtqueue",
    "ephemeral_encryption",
    "sound_model",
    "tpm_secret_security",
)
"""All filters that ask what a host can do; the others ask whose it is, or whether it is enabled."""

Choice = tuple[Row, str]
"""A row and one of its values."""

_ROWS = (*(row for row in ROWS if row.asked_by), *effective(None).rows)
CHOICES: tuple[Choice, ...] = tuple((row, value) for row in _ROWS for value in row.values)
_MACHINES = tuple((BY_NAME["machine_type"], value) for value in BY_NAME["machine_type"].values)
_EMULATED = tuple(
    (BY_NAME["emulation_architecture"], value) for value in ("x86_64", "i686", "aarch64", "s390x", "sparc")
)


class Case(NamedTuple):
    """A request and what it requires of a host."""

    choices: tuple[Choice, ...]
    spec: RequestSpec
    required: tuple[tuple[str, bool], ...] | None
    """(trait, required) of all requirements; None where the filters, or the building of the query, reject it."""

    def __str__(self) -> str:
        return " ".join(f"{row.name}={value}" for row, value in self.choices)


def spec_with(choices: Iterable[Choice], extra_specs: Mapping[str, str] | None = None) -> RequestSpec:
    """Return a request for these values."""
    properties: dict[str, object] = {}
    specs = dict(extra_specs or {})
    disk_format = None
    for row, value in choices:
        if row.image_property:
            properties[row.image_property] = value
        elif row.extra_spec:
            specs[row.extra_spec] = value
        else:
            disk_format = value
    return RequestSpec(Flavor(vcpus=1, memory_mb=512, extra_specs=specs), Image(properties, disk_format=disk_format))


def case_of(choices: tuple[Choice, ...], extra_specs: Mapping[str, str] | None = None) -> Case:
    """Return a request for these values with what the filters and Nova's own translation require."""
    spec = spec_with(choices, extra_specs)
    try:
        decision = _pipeline().apply(spec)
        stated = stated_requirements(Request(spec))
    except RequestRejected:
        return Case(choices, spec_with(choices, extra_specs), None)
    items = (*decision.requirements, *stated)
    return Case(choices, spec_with(choices, extra_specs), tuple({(item.trait, item.required) for item in items}))


_pipeline = cache(lambda: pipeline_of(*FILTERS, reported_traits=["*"]))


@cache
def single_cases() -> tuple[Case, ...]:
    """Return each value alone, and each with one of the flavor's ways to name a device by its trait."""
    explicit = [
        case_of((), {f"{key}:{row.values['true'].trait}": rule})
        for row in ROWS
        if row.boolean and row.values["true"].trait
        for key, rule in (("trait", "required"), ("trait1", "required"), ("trait", "forbidden"))
    ]
    return (*map(case_of, ((choice,) for choice in CHOICES)), *explicit)


@cache
def pair_cases() -> tuple[Case, ...]:
    """Return each two values of different rows."""
    return tuple(case_of(pair) for pair in combinations(CHOICES, 2) if pair[0][0] is not pair[1][0])


@cache
def platform_cases() -> tuple[Case, ...]:
    """Return each value on each machine type of some emulated architectures."""
    own = (BY_NAME["machine_type"], BY_NAME["emulation_architecture"])
    return tuple(
        case_of((machine, emulated, choice))
        for machine in _MACHINES
        for emulated in _EMULATED
        for choice in CHOICES
        if choice[0] not in own
    )


def disagreements(cases: Iterable[Case], facts: HostFacts) -> Iterator[str]:
    """Yield each request for which a host's traits and its late check do not say the same."""
    traits: dict[str, bool] = dict.fromkeys(known_traits(), False)
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
            else [name if wanted else f"!{name}" for name, wanted in case.required if traits.get(name, False) != wanted]
        )
        if bool(refused) != bool(missing):
            yield f"{case} on {facts}: missing {missing}, late check {refused}"
