"""Generated requests: all that a user and an operator can write, odd values, and text of a tenant in every place."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from os_prefilter.adapters.from_json import request_spec_from
from os_prefilter.request.spec import Flavor, Image, RequestGroup, RequestSpec
from os_prefilter.vocabulary import table
from os_prefilter_tools.testing.builders import request_of

TENANT = "TENANTWROTETHIS"
"""A text of characters that a trait may have, so that a filter does not refuse it."""

_LEFT_OUT = object()
_HUGE = "A" * 20_000
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
    _HUGE,
)
ODD: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=5)
    | st.sampled_from(_ODD_TEXTS)
    | st.lists(st.text(max_size=3) | st.integers(), max_size=2)
    | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)
)
"""Values that do not belong into an image property."""

_ODD_EXTRA_SPECS = st.text(max_size=9) | st.sampled_from(_ODD_TEXTS)
_GROUPS = st.sampled_from(["", "1", "_gpu"])
_CLASSES = st.sampled_from(["VCPU", "MEMORY_MB", "DISK_GB", "VGPU", "FPGA", "CUSTOM_IRON", "NO_SUCH"])
_RULES = st.sampled_from(["required", "forbidden", "x"])
_FORMATS = st.sampled_from([None, "qcow2", "vmdk", "odd"])


def known_traits() -> list[str]:
    """Return the traits of the vocabulary and the owner traits."""
    return sorted({str(trait) for row in table() for trait in row.traits} | {"OWNER_NOVA", "OWNER_CYBORG"})


def property_names(examples: Iterable[RequestSpec] = ()) -> list[str]:
    """Return the names of image properties that a filter may read: of the vocabulary, and of the examples."""
    names = {row.image_property for row in table() if row.image_property} | {"vmware_adaptertype", "os_distro"}
    names |= {name for row in table() for name in row.legacy_names}
    return sorted(names | {name for each in examples for name in _properties(each)})


def extra_spec_names(examples: Iterable[RequestSpec] = ()) -> list[str]:
    """Return the names of extra specs that a filter may read, likewise."""
    names = {row.extra_spec for row in table() if row.extra_spec} | {"deploy-config:raid", "group_policy"}
    return sorted(names | {name for each in examples for name in each.flavor.extra_specs})


def any_request(examples: Sequence[RequestSpec] = ()) -> st.SearchStrategy[RequestSpec]:
    """Return requests of all kinds, sensible and not, on their own and as variations of the examples."""
    values = {value for row in table() for value in row.values}
    values |= {value for each in examples for value in _texts(each)}
    known, names, traits = st.sampled_from(sorted(values)), property_names(examples), st.sampled_from(known_traits())
    properties = st.dictionaries(st.sampled_from(names), known | ODD, max_size=6)
    required = st.sets(traits, max_size=2).map(lambda some: {f"trait:{each}": "required" for each in some})
    extra_specs = st.dictionaries(st.sampled_from(extra_spec_names(examples)), known | _ODD_EXTRA_SPECS, max_size=4)
    resources = st.dictionaries(_keys("resources", _CLASSES), st.sampled_from(["0", "1", "x"]), max_size=3)
    rules = st.dictionaries(_keys("trait", traits), _RULES, max_size=2)
    bases = st.none() | _change_examples(examples, known) if examples else st.none()
    return st.builds(
        _request,
        bases,
        st.none() | st.tuples(properties, required).map(lambda parts: {**parts[0], **parts[1]}),
        st.tuples(extra_specs, resources, rules).map(lambda parts: {**parts[0], **parts[1], **parts[2]}),
        _FORMATS,
        is_bfv=st.booleans(),
        groups=st.sets(st.sampled_from(["pci-0", "device_profile_0", "port"])),
        pci=st.frozensets(st.just("pci")),
        root_required=st.sets(traits, max_size=2),
    )


def _change_examples(examples: Sequence[RequestSpec], known: st.SearchStrategy[str]) -> st.SearchStrategy[RequestSpec]:
    """Return the examples, unchanged or with one value changed or left out."""
    names = sorted({name for each in examples for name in (*each.flavor.extra_specs, *_properties(each))})
    if not names:
        return st.sampled_from(examples)
    values = st.just(_LEFT_OUT) | known | ODD
    return st.builds(with_value, st.sampled_from(examples), st.none() | st.sampled_from(names), values)


def _properties(spec: RequestSpec) -> Mapping[str, object]:
    return spec.image.properties if spec.image else {}


def with_value(spec: RequestSpec, name: str | None, value: object) -> RequestSpec:
    """Return a request with another value of a property or extra spec that it has."""

    def change(values: Mapping[str, Any]) -> dict[str, Any]:
        kept = {key: each for key, each in values.items() if key != name or value is not _LEFT_OUT}
        return kept | ({name: value} if name in kept else {})

    image = spec.image and replace(spec.image, properties=change(spec.image.properties))
    # Extra specs are always texts.
    extra_specs = change(spec.flavor.extra_specs) if isinstance(value, str) or value is _LEFT_OUT else None
    flavor = spec.flavor if extra_specs is None else replace(spec.flavor, extra_specs=extra_specs)
    return replace(spec, image=image, flavor=flavor)


def odd_requests(examples: Iterable[RequestSpec]) -> Iterator[RequestSpec]:
    """Yield each example with each of its values left out or replaced by an odd one."""
    for spec in examples:
        for name in (*spec.flavor.extra_specs, *_properties(spec)):
            for value in (_LEFT_OUT, None, True, 0, -1.5, b"", [], ["x", 1], {}, *_ODD_TEXTS):
                yield with_value(spec, name, value)


def _keys(prefix: str, names: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda group, name: f"{prefix}{group}:{name}", _GROUPS, names)


def _texts(spec: RequestSpec) -> list[str]:
    values = [*spec.flavor.extra_specs.values(), *_properties(spec).values()]
    return [value for value in values if isinstance(value, str)]


def _request(  # noqa: PLR0913 - the fields of a request
    base: RequestSpec | None,
    properties: dict[str, Any] | None,
    extra_specs: dict[str, str],
    disk_format: str | None,
    *,
    is_bfv: bool,
    groups: set[str],
    pci: frozenset[str],
    root_required: set[str],
) -> RequestSpec:
    flavor, image = Flavor(1, 512, 1, extra_specs=extra_specs), None
    if base:
        flavor = replace(base.flavor, extra_specs={**extra_specs, **base.flavor.extra_specs})
    if properties is not None:
        image = Image(properties, disk_format=disk_format)
    if base and base.image:
        image = replace(base.image, properties={**(properties or {}), **base.image.properties})
    resources = [RequestGroup(name, {"VGPU": 1}) for name in sorted(groups)]
    spec = RequestSpec(flavor, image, is_bfv, resources, pci)
    spec.root_required.update(root_required)
    return spec


def stored_by_nova(spec: RequestSpec) -> RequestSpec:
    """Return the request as read from the JSON that Nova stores, as far as JSON has such values."""
    properties = dict(spec.image.properties) if spec.image else None
    data: dict[str, Any] = {
        "flavor": {"nova_object.data": {"memory_mb": spec.flavor.memory_mb, "extra_specs": spec.flavor.extra_specs}},
        "image": {"nova_object.data": {"properties": {"nova_object.data": properties}}} if spec.image else None,
        "is_bfv": spec.is_bfv,
    }
    text = json.dumps({"nova_object.name": "RequestSpec", "nova_object.data": data}, default=repr)
    return request_spec_from(json.loads(text), "a stored request spec")


def with_fields_unset() -> list[Any]:
    """Return requests of foreign classes whose fields are missing or None."""
    flavors = [None, SimpleNamespace(extra_specs={}), SimpleNamespace(extra_specs=None, memory_mb=None)]
    images = [None, SimpleNamespace(disk_format=None), SimpleNamespace(properties=None), SimpleNamespace(properties={})]
    found: list[Any] = [SimpleNamespace(flavor=flavor, image=image) for flavor in flavors for image in images]
    return [SimpleNamespace(flavor=None), SimpleNamespace(image=None), *found]


def written_by_a_tenant(examples: Iterable[RequestSpec]) -> Iterator[RequestSpec]:
    """Yield requests with :data:`TENANT` in each name and value that a tenant can write, alone and within examples."""
    examples = tuple(examples)
    for text in (TENANT, TENANT.lower()):
        yield from (request_of({name: text}) for name in property_names(examples))
        yield from (request_of({}, {name: text}) for name in extra_spec_names(examples))
        yield RequestSpec(
            Flavor(1, 512, name=text, extra_specs={text: "1", f"hw:{text}": text}),
            Image({text: "true", f"hw_{text}": text}, disk_format=text, id=text, name=text),
        )
        for spec in examples:
            for name, old in {**_properties(spec), **spec.flavor.extra_specs}.items():
                for value in (f"{old}{text}", f"{text}{old}", f"{old}-{text}", text):
                    yield deepcopy(with_value(spec, name, value))
