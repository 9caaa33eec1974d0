# SPDX-License-Identifier: Apache-2.0

"""Generated requests: sensible ones, odd values, tenants' text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from os_prefilter.request.spec import (
    Flavor,
    Image,
    RequestGroup,
    RequestLevelParams,
    RequestSpec,
)
from os_prefilter.vocabulary import table
from os_prefilter_tools.testing.builders import request_of

TENANT = "TENANTWROTETHIS"
"""A text of characters that a trait may have.

A filter does not refuse it.
"""

_LEFT_OUT = object()
_ODD_TEXTS = (
    "",
    " ",
    "%s%n{0}",
    "a\nb",
    "\x00\x1b[2J",
    "\u202etxt.exe",
    "\ud800",
    "\uff34\uff32\uff35\uff25",
    "CUSTOM_X",
    "A" * 20_000,
)
_SCALARS: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
)
ODD = (
    _SCALARS
    | st.binary(max_size=5)
    | st.sampled_from(_ODD_TEXTS)
    | st.lists(_SCALARS, max_size=2)
)
ODD |= st.dictionaries(st.text(max_size=3), _SCALARS, max_size=2)
"""Values that do not belong into an image property."""

_GROUPS = st.sampled_from(["", "1", "_gpu"])
_CLASSES = st.sampled_from(
    ["VCPU", "MEMORY_MB", "DISK_GB", "VGPU", "FPGA", "CUSTOM_IRON", "NO_SUCH"]
)
_OWNERS = ("OWNER_NOVA", "OWNER_CYBORG")


def property_names(examples: Iterable[RequestSpec] = ()) -> list[str]:
    """Return the names of image properties that a filter may read.

    They are those of the vocabulary and of the examples.
    """
    names = {row.image_property for row in table() if row.image_property} | {
        "vmware_adaptertype",
        "os_distro",
    }
    names |= {name for row in table() for name in row.legacy_names}
    return sorted(
        names | {name for each in examples for name in _properties(each)}
    )


def extra_spec_names(examples: Iterable[RequestSpec] = ()) -> list[str]:
    """Return the names of extra specs that a filter may read, likewise."""
    names = {row.extra_spec for row in table() if row.extra_spec} | {
        "deploy-config:raid",
        "group_policy",
    }
    return sorted(
        names | {name for each in examples for name in each.flavor.extra_specs}
    )


def any_request(
    examples: Sequence[RequestSpec] = (),
) -> st.SearchStrategy[RequestSpec]:
    """Return a strategy for requests, sensible and not.

    With examples, it also gives these with one value changed or left out.
    """
    names_of_traits = {str(trait) for row in table() for trait in row.traits}
    traits = st.sampled_from(sorted(names_of_traits.union(_OWNERS)))
    values = {value for row in table() for value in row.values}
    known = st.sampled_from(sorted(values))
    required = st.builds("trait:{}".format, traits)
    keys = st.builds("{}{}:{}".format, st.just("resources"), _GROUPS, _CLASSES)
    keys |= st.builds("{}{}:{}".format, st.just("trait"), _GROUPS, traits)
    keys |= st.sampled_from(extra_spec_names(examples))
    texts = st.text(max_size=9) | st.sampled_from(
        (*_ODD_TEXTS, "0", "1", "required", "forbidden")
    )
    names = st.sampled_from(property_names(examples))
    suffixes = st.sampled_from(["pci-0", "device_profile_0", "port"])
    properties = st.dictionaries(
        names | required, known | ODD | st.just("required"), max_size=6
    )
    group = st.builds(RequestGroup, suffixes, st.just({"VGPU": 1}))
    of_level = st.builds(RequestLevelParams, st.sets(traits, max_size=2))
    requests = st.builds(
        request_of,
        st.none() | properties,
        st.dictionaries(keys, known | texts, max_size=6),
        disk_format=st.sampled_from([None, "qcow2", "vmdk", "odd"]),
        is_bfv=st.booleans(),
        requested_resources=st.lists(group, max_size=3),
        pci_request_ids=st.frozensets(st.just("pci")),
        request_level_params=of_level,
    )
    own: set[str] = set()
    for each in examples:
        own.update(each.flavor.extra_specs, _properties(each))
    if own:
        some = st.sampled_from(examples)
        changed_names = st.none() | st.sampled_from(sorted(own))
        changed = st.just(_LEFT_OUT) | known | ODD
        requests |= st.builds(with_value, some, changed_names, changed)
    elif examples:
        requests |= st.sampled_from(examples)
    return requests


def _properties(spec: RequestSpec) -> Mapping[str, object]:
    return spec.image.properties if spec.image else {}


def with_value(
    spec: RequestSpec, name: str | None, value: object
) -> RequestSpec:
    """Return a request with another value of one of its properties.

    Or of an extra spec.
    """

    def change(values: Mapping[str, Any]) -> dict[str, Any]:
        kept = {
            key: each
            for key, each in values.items()
            if key != name or value is not _LEFT_OUT
        }
        return kept | ({name: value} if name in kept else {})

    image = spec.image and replace(
        spec.image, properties=change(spec.image.properties)
    )
    # Extra specs are always texts.
    extra_specs = (
        change(spec.flavor.extra_specs)
        if isinstance(value, str) or value is _LEFT_OUT
        else None
    )
    flavor = (
        spec.flavor
        if extra_specs is None
        else replace(spec.flavor, extra_specs=extra_specs)
    )
    return replace(spec, image=image, flavor=flavor)


def odd_requests(examples: Iterable[RequestSpec]) -> Iterator[RequestSpec]:
    """Yield each example with each value left out, or an odd one."""
    for spec in examples:
        for name in (*spec.flavor.extra_specs, *_properties(spec)):
            for value in (
                _LEFT_OUT,
                None,
                True,
                0,
                -1.5,
                b"",
                [],
                ["x", 1],
                {},
                *_ODD_TEXTS,
            ):
                yield with_value(spec, name, value)


def with_fields_unset() -> list[Any]:
    """Return requests of foreign classes whose fields are missing or None."""
    flavors = [
        SimpleNamespace(extra_specs={}),
        SimpleNamespace(extra_specs=None, memory_mb=None),
    ]
    images = [
        None,
        SimpleNamespace(disk_format=None),
        SimpleNamespace(properties=None),
        SimpleNamespace(properties={}),
    ]
    found: list[Any] = [
        SimpleNamespace(flavor=flavor, image=image)
        for flavor in flavors
        for image in images
    ]
    return [SimpleNamespace(flavor=flavors[0]), *found]


def written_by_a_tenant(
    examples: Iterable[RequestSpec],
) -> Iterator[RequestSpec]:
    """Yield requests with :data:`TENANT` in each place of a tenant.

    In each name and value that a tenant can write, alone and within examples.
    """
    examples = tuple(examples)
    for text in (TENANT, TENANT.lower()):
        for name in property_names(examples):
            yield request_of({name: text})
        for name in extra_spec_names(examples):
            yield request_of({}, {name: text})
        extra_specs = {text: "1", f"hw:{text}": text}
        properties = {text: "true", f"hw_{text}": text}
        yield RequestSpec(
            Flavor(1, 512, name=text, extra_specs=extra_specs),
            Image(properties, disk_format=text, id=text, name=text),
        )
        for spec in examples:
            written = {**_properties(spec), **spec.flavor.extra_specs}
            for name, old in written.items():
                for value in (
                    f"{old}{text}",
                    f"{text}{old}",
                    f"{old}-{text}",
                    text,
                ):
                    yield deepcopy(with_value(spec, name, value))
