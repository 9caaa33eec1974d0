# SPDX-License-Identifier: Apache-2.0

"""What the request filters cost, beside Nova's own and beside a loop by hand:
``python -m tests.benchmarks.pipeline``.

All sides get the same requests, each one once and as it came: what a filter
has written is not there the next time. ``small`` takes seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from statistics import median
from time import perf_counter
from typing import Any
from unittest import mock

import nova.conf
import os_traits
from nova import objects
from nova.scheduler import request_filter

from os_prefilter import Flavor, Image, Options, RequestSpec
from os_prefilter.nova.activation import SAME_PURPOSE
from os_prefilter.service import Service
from os_prefilter.vocabulary import BY_NAME, rows_required_by
from tests.support import nova_objects

PROPERTIES = {
    "hw_architecture": "x86_64",
    "hw_cdrom_bus": "sata",
    "hw_cpu_sockets": "1",
    "hw_disk_bus": "scsi",
    "hw_machine_type": "q35",
    "hw_pointer_model": "usbtablet",
    "hw_qemu_guest_agent": "yes",
    "hw_rng_model": "virtio",
    "hw_scsi_model": "virtio-scsi",
    "hw_video_model": "virtio",
    "hw_vif_model": "virtio",
    "hw_vif_multiqueue_enabled": "true",
    "hw_virtio_packed_ring": "true",
    "hw_watchdog_action": "reset",
    "os_distro": "debian",
    "os_require_quiesce": "yes",
    "os_type": "linux",
}
"""Seventeen that Nova knows; six of them, and two things that no property
says, make eight traits.
"""
TEN = (
    "architecture cdrom_bus disk_bus machine_type qemu_guest_agent rng_model"
    " video_model vif_model"
)
"""What eight of them are called after ``hw_``: ten things are said together
with two extra specs; five make traits.
"""
_FACTS: dict[str, Callable[[Any], Any]] = {
    "owner_is_reported": lambda _context: True,
    "minimum_compute_version": lambda _context: 1000,
}

Side = tuple[Callable[[Any], object], Callable[[], Any]]
"""What is called, and what makes the request for it."""


def _extra_specs(number: int) -> dict[str, str]:
    return {"hw:cpu_policy": "shared", "quota:cpu_shares": str(number)}


def nova_spec(
    number: int = 0, properties: Mapping[str, str] = PROPERTIES
) -> Any:
    """Return a request spec of Nova's; of another flavor for each number."""
    unset = dict.fromkeys(
        ("numa_topology", "pci_requests", "availability_zone")
    )
    groups = objects.SecurityGroupList(objects=[])
    fields = {
        "is_bfv": False,
        "requested_resources": [],
        "project_id": "project",
        "num_instances": 1,
        **unset,
    }
    return nova_objects.nova_spec(
        properties, _extra_specs(number), security_groups=groups, **fields
    )


def own_spec(number: int = 0) -> RequestSpec:
    """Return the same as an object of this library's."""
    flavor = Flavor(1, 512, 1, extra_specs=_extra_specs(number), name="small")
    return RequestSpec(flavor=flavor, image=Image(PROPERTIES, "qcow2"))


def by_hand(request_spec: RequestSpec) -> None:
    """Look values up and add traits to a set: the floor."""
    add = request_spec.root_required.add
    for name, value in request_spec.image.properties.items():
        traits = _TRAITS_BY_HAND.get(name)
        if traits:
            trait = traits.get(value)
            if trait:
                add(trait)
    trait = _IMAGE_TYPES.get(request_spec.image.disk_format)
    if trait:
        add(trait)
    add(os_traits.OWNER_NOVA)
    request_spec.root_forbidden.add(os_traits.COMPUTE_STATUS_DISABLED)


_TRAITS_BY_HAND: dict[str, dict[object, str]] = {
    str(row.image_property): {
        value: term.trait
        for value, term in row.values.items()
        if term.trait and not term.opt_in
    }
    for row in rows_required_by("image_metadata")
    + rows_required_by("packed_virtqueue")
}
_IMAGE_TYPES = {
    value: term.trait for value, term in BY_NAME["image_type"].values.items()
}


def medians(
    sides: Mapping[str, Side], rounds: int, calls: int
) -> dict[str, float]:
    """Return the median seconds of one call of each side, turn by turn, each
    call with a request made just before.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, (call, made) in sides.items():
            for _ in range(calls):
                spec, start = made(), perf_counter()
                call(spec)
                seconds[name].append(perf_counter() - start)
    return {name: median(each) for name, each in seconds.items()}


def _traits_of(
    call: Callable[[Any], object], spec: Any
) -> tuple[set[str], set[str]]:
    call(spec)
    return set(spec.root_required), set(spec.root_forbidden)


def measure(rounds: int, calls: int) -> None:
    """Print the filters beside Nova's and the loop by hand."""

    def fresh() -> Callable[[Any], object]:
        return Service.from_names(
            *SAME_PURPOSE, options=Options(), facts=_FACTS
        ).apply

    def nova_call(spec: Any) -> None:
        request_filter.process_reqspec(None, spec)

    ours, expected = fresh(), _traits_of(nova_call, nova_spec())
    for call, spec in (
        (ours, nova_spec()),
        (ours, nova_spec(1)),
        (ours, own_spec()),
        (by_hand, own_spec()),
    ):
        assert _traits_of(call, spec) == expected
    number, ten = (
        count(1),
        {f"hw_{name}": PROPERTIES[f"hw_{name}"] for name in TEN.split()},
    )
    sides: dict[str, Side] = {
        "Nova's process_reqspec": (nova_call, nova_spec),
        "this library, the request was made before": (fresh(), nova_spec),
        "this library, it never was": (
            fresh(),
            lambda: nova_spec(next(number)),
        ),
        "a loop by hand": (by_hand, own_spec),
        "this library, the same request was made before": (fresh(), own_spec),
        "this library, the same never was": (
            fresh(),
            lambda: own_spec(next(number)),
        ),
        "Nova's process_reqspec, ten": (nova_call, lambda: nova_spec(0, ten)),
        "this library, ten, the request was made before": (
            fresh(),
            lambda: nova_spec(0, ten),
        ),
        "this library, ten, it never was": (
            fresh(),
            lambda: nova_spec(next(number), ten),
        ),
    }
    times = list(medians(sides, rounds, calls).items())
    print(
        f"{len(expected[0])} traits required, {len(expected[1])} forbidden,"
        " the same by all."
    )
    parts = {
        "On Nova's RequestSpec": times[:3],
        "On this library's RequestSpec": times[3:6],
        "On Nova's RequestSpec with ten properties and extra specs": times[6:],
    }
    for title, part in parts.items():
        print(f"\n{title}")
        for name, seconds in part:
            print(
                f"  {name:68} {seconds * 1e6:7.1f} us"
                f" {seconds / part[0][1]:6.2f} x"
            )


def _newest(*_given: object, **_named: object) -> int:
    return 1000


def main(arguments: Sequence[str]) -> None:
    rounds, calls = (3, 20) if "small" in arguments else (30, 200)
    nova.conf.CONF([], project="nova", default_config_files=[])
    for option in (
        "image_metadata_prefilter",
        "query_placement_for_image_type_support",
    ):
        nova.conf.CONF.set_override(option, True, "scheduler")
    # Nova's one query to its databases. A Mock would take longer than what is
    # measured.
    with mock.patch.object(
        objects.service, "get_minimum_version_all_cells", _newest
    ):
        measure(rounds, calls)


if __name__ == "__main__":
    main(sys.argv[1:])
