# SPDX-License-Identifier: Apache-2.0

"""What a hostile tenant could write, as data (hostile.json), and the places of
a request where it could stand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from os_prefilter import Flavor, Image, RequestSpec

PLAIN_PROPERTIES: Mapping[str, Any] = {"hw_disk_bus": "virtio"}
PLAIN_SPECS: Mapping[str, str] = {"resources:VGPU": "1"}
HUGE = 10_000
"""A text longer than this is huge."""


class Hostile(NamedTuple):
    purpose: str
    value: Any

    def __str__(self) -> str:
        return self.purpose


Parts = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
"""The image's properties, the flavor's extra specs, and the image's own
fields.
"""


class Place(NamedTuple):
    name: str
    put: Callable[[Any], Parts]
    """Value -> the parts of a request that it makes."""
    takes_any: bool = False
    """Whether the value may be of any type, not a text alone."""
    names: str = "(?!)"
    """Texts of this form are names that the writer of the input chooses."""

    def __str__(self) -> str:
        return self.name


@cache
def _corpus() -> Any:
    return json.loads(
        Path(__file__).with_name("hostile.json").read_text(encoding="utf-8")
    )


def _is_huge(value: Any) -> bool:
    return isinstance(value, str) and len(value) > HUGE


def at(place: Place, *, huge: bool = True) -> list[Hostile]:
    """Return what is to be put into a place.

    :param huge: whether with what is of a megabyte
    """
    found = values() if place.takes_any else texts()
    return [each for each in found if huge or not _is_huge(each.value)]


def texts() -> Iterator[Hostile]:
    for each in _corpus()["texts"]:
        repeated = each.get("then", "") * each.get("times", 0)
        yield Hostile(each["purpose"], each["text"] + repeated)


def values() -> Iterator[Hostile]:
    yield from texts()
    for each in _corpus()["values"]:
        yield Hostile(each["purpose"], each["value"])


def _property(name: str) -> Place:
    title = f"image property {name}"
    return Place(title, lambda value: ({name: value}, {}, {}), takes_any=True)


def _extra_spec(name: str) -> Place:
    return Place(f"extra spec {name}", lambda value: ({}, {name: value}, {}))


def _field(name: str) -> Place:
    return Place(f"image field {name}", lambda value: ({}, {}, {name: value}))


def _name_of_property(title: str, form: str, value: str) -> Place:
    return Place(title, lambda text: ({form.format(text): value}, {}, {}))


def _name_of_extra_spec(title: str, form: str, value: str) -> Place:
    return Place(title, lambda text: ({}, {form.format(text): value}, {}))


def _realtime_mask(value: Any) -> Parts:
    extra_specs = {
        "hw:cpu_policy": "mixed",
        "hw:cpu_realtime": "yes",
        "hw:emulator_threads_policy": "share",
    }
    return {"hw_cpu_realtime_mask": value}, extra_specs, {}


_PROPERTIES = "hw_vif_model architecture hw_time_hpet vmware_adaptertype os_distro a_note"
_EXTRA_SPECS = (
    "hw:viommu_model hw:virtio_packed_ring note deploy-config:hyperthreading"
)
_MORE_EXTRA_SPECS = (
    "resources:VCPU trait:COMPUTE_NODE group_policy hw:cpu_policy hw:pmem"
)
_SYMBOL = "[A-Z0-9_]{1,255}"


def _places() -> Iterator[Place]:
    yield from map(_property, _PROPERTIES.split())
    yield _name_of_property("name of an image property", "{}", "true")
    yield _name_of_property("name after hw_", "hw_{}", "e1000e")
    trait = _name_of_property("trait of an image", "trait:{}", "required")
    yield trait._replace(names=_SYMBOL)
    rule = _property("trait:COMPUTE_NODE")
    yield rule._replace(name="rule of an image's trait")
    yield from map(_field, ("name", "id", "disk_format"))
    yield from map(_extra_spec, _EXTRA_SPECS.split())
    mask = "mask of the CPUs of a realtime image"
    yield Place(mask, _realtime_mask, takes_any=True)
    yield from map(_extra_spec, _MORE_EXTRA_SPECS.split())
    yield _name_of_extra_spec("name of an extra spec", "{}", "1")
    amount = _name_of_extra_spec("class of a resource", "resources:{}", "1")
    yield amount._replace(names="CUSTOM_[A-Z_]+")
    # With something behind the suffix all is left out, but for the group
    # itself: it counts, as in Nova.
    suffix = _name_of_extra_spec("suffix of a group", "resources{}:VGPU", "1")
    yield suffix._replace(names="[A-Za-z0-9_-]{1,64}(:.*)?")
    trait = _name_of_extra_spec("trait of a flavor", "trait:{}", "required")
    yield trait._replace(names=_SYMBOL)
    configuration = "name of a configuration"
    yield _name_of_extra_spec(configuration, "deploy-config:{}", "enabled")


PLACES: tuple[Place, ...] = tuple(_places())
"""All places; what a tenant has is the image, what is in the flavor its
operator wrote.
"""


def spec_with(place: Place | None = None, value: Any = None) -> RequestSpec:
    """Return a request, and in one place of it what a tenant wrote."""
    properties, extra_specs, fields = (
        place.put(value) if place else ({}, {}, {})
    )
    fields = {"disk_format": "qcow2", **fields}
    image = Image({**PLAIN_PROPERTIES, **properties}, **fields)
    return RequestSpec(
        Flavor(1, 512, 1, extra_specs={**PLAIN_SPECS, **extra_specs}), image
    )
