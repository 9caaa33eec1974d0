# SPDX-License-Identifier: Apache-2.0

"""What a hostile tenant could write, as data (hostile.json), and the places of
a request where it could stand.
"""

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


class Place(NamedTuple):
    name: str
    put: Callable[[Any], tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]
    """Value -> the image's properties, the flavor's extra specs, and the
    image's own fields that it makes.
    """
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


def at(place: Place, *, huge: bool = True) -> list[Hostile]:
    """Return what is to be put into a place.

    :param huge: whether with what is of a megabyte
    """
    found = values() if place.takes_any else texts()
    return [
        each
        for each in found
        if huge or not (isinstance(each.value, str) and len(each.value) > HUGE)
    ]


def texts() -> Iterator[Hostile]:
    for each in _corpus()["texts"]:
        yield Hostile(
            each["purpose"],
            each["text"] + each.get("then", "") * each.get("times", 0),
        )


def values() -> Iterator[Hostile]:
    yield from texts()
    for each in _corpus()["values"]:
        yield Hostile(each["purpose"], each["value"])


_SYMBOL = "[A-Z0-9_]{1,255}"


def _property(name: str) -> Place:
    return Place(
        f"image property {name}",
        lambda value: ({name: value}, {}, {}),
        takes_any=True,
    )


def _extra_spec(name: str) -> Place:
    return Place(f"extra spec {name}", lambda value: ({}, {name: value}, {}))


def _field(name: str) -> Place:
    return Place(f"image field {name}", lambda value: ({}, {}, {name: value}))


PLACES: tuple[Place, ...] = (
    *map(
        _property,
        (
            "hw_vif_model",
            "architecture",
            "hw_time_hpet",
            "vmware_adaptertype",
            "os_distro",
            "a_note",
        ),
    ),
    Place(
        "name of an image property", lambda value: ({value: "true"}, {}, {})
    ),
    Place("name after hw_", lambda value: ({f"hw_{value}": "e1000e"}, {}, {})),
    Place(
        "trait of an image",
        lambda value: ({f"trait:{value}": "required"}, {}, {}),
        names=_SYMBOL,
    ),
    Place(
        "rule of an image's trait",
        lambda value: ({"trait:COMPUTE_NODE": value}, {}, {}),
        takes_any=True,
    ),
    *map(_field, ("name", "id", "disk_format")),
    *map(
        _extra_spec,
        (
            "hw:viommu_model",
            "hw:virtio_packed_ring",
            "note",
            "deploy-config:hyperthreading",
        ),
    ),
    Place(
        "mask of the CPUs of a realtime image",
        lambda value: (
            {"hw_cpu_realtime_mask": value},
            {
                "hw:cpu_policy": "mixed",
                "hw:cpu_realtime": "yes",
                "hw:emulator_threads_policy": "share",
            },
            {},
        ),
        takes_any=True,
    ),
    *map(
        _extra_spec,
        (
            "resources:VCPU",
            "trait:COMPUTE_NODE",
            "group_policy",
            "hw:cpu_policy",
            "hw:pmem",
        ),
    ),
    Place("name of an extra spec", lambda value: ({}, {value: "1"}, {})),
    Place(
        "class of a resource",
        lambda value: ({}, {f"resources:{value}": "1"}, {}),
        names="CUSTOM_[A-Z_]+",
    ),
    # With something behind the suffix all is left out, but for the group
    # itself: it counts, as in Nova.
    Place(
        "suffix of a group",
        lambda value: ({}, {f"resources{value}:VGPU": "1"}, {}),
        names="[A-Za-z0-9_-]{1,64}(:.*)?",
    ),
    Place(
        "trait of a flavor",
        lambda value: ({}, {f"trait:{value}": "required"}, {}),
        names=_SYMBOL,
    ),
    Place(
        "name of a configuration",
        lambda value: ({}, {f"deploy-config:{value}": "enabled"}, {}),
    ),
)
"""All places; what a tenant has is the image, what is in the flavor its
operator wrote.
"""


def spec_with(place: Place | None = None, value: Any = None) -> RequestSpec:
    """Return a request, and in one place of it what a tenant wrote."""
    properties, extra_specs, fields = (
        place.put(value) if place else ({}, {}, {})
    )
    image = Image(
        {**PLAIN_PROPERTIES, **properties},
        **{"disk_format": "qcow2", **fields},
    )
    return RequestSpec(
        Flavor(1, 512, 1, extra_specs={**PLAIN_SPECS, **extra_specs}), image
    )
