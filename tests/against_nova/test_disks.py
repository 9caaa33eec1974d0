# SPDX-License-Identifier: Apache-2.0

"""A bus excludes hosts by their machine types only where Nova's
``get_disk_info`` gives the guest a device on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import nova.conf
import pytest
from nova import exception, objects
from nova.virt.libvirt import blockinfo

from os_prefilter import Image, RequestSpec
from os_prefilter.common.errors import ImpossibleCombination
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.machine_types import MACHINES, families_without
from tests.conftest import pipeline_of
from tests.support.nova_objects import nova_spec

_DEVICES = {"cdrom": "cdrom_bus", "disk": "disk_bus", "floppy": "floppy_bus"}
_DEFAULTS = BY_NAME["default_machine"].values
_DISKS: tuple[Mapping[str, int], ...] = ({}, {"swap": 64}, {"ephemeral_gb": 1})


@pytest.fixture(autouse=True)
def _kvm() -> Iterator[None]:
    nova.conf.CONF.set_override("virt_type", "kvm", "libvirt")
    yield
    nova.conf.CONF.clear_override("virt_type", "libvirt")


def _buses(spec: Any) -> list[tuple[str, str]]:
    """Return (row, bus) of each disk that Nova's libvirt driver gives to a
    guest of the request at its spawn.
    """
    instance = objects.Instance(
        flavor=spec.flavor,
        ephemeral_gb=spec.flavor.ephemeral_gb,
        system_metadata={},
        image_ref="",
        config_drive="",
        launched_at=None,
    )
    mapping = blockinfo.get_disk_info("kvm", instance, spec.image)["mapping"]
    return [(_DEVICES[disk["type"]], disk["bus"]) for disk in mapping.values()]


def _families_without_one(spec: Any, row: str, bus: str) -> set[str]:
    """Return the families of machine types that cannot have what Nova gives
    the guest on a bus for a kind of disk.
    """
    return {
        family
        for family in MACHINES
        if (row, bus) in _buses(spec) and family in families_without(row, bus)
    }


@pytest.mark.parametrize(
    "name", ["hw_cdrom_bus", "hw_disk_bus", "hw_floppy_bus", "hw_rescue_bus"]
)
def test_bus_is_refused_on_a_machine_type_only_if_nova_builds_a_device_on_it(
    name: str,
) -> None:
    """And forbids default machine types likewise; each bus that Nova's driver
    takes, in Nova's object and in ours.
    """
    families, compared = (
        {
            term.trait
            for family, term in _DEFAULTS.items()
            if family in MACHINES
        },
        0,
    )
    for disk_format, disks, bus in product(
        ("qcow2", "iso"), _DISKS, objects.fields.DiskBus.ALL
    ):
        spec = nova_spec({name: bus})
        spec.image.disk_format = disk_format
        for field, amount in disks.items():
            setattr(spec.flavor, field, amount)
        try:
            never = _families_without_one(spec, name.removeprefix("hw_"), bus)
        except exception.UnsupportedHardware:
            continue
        for each in (
            spec,
            RequestSpec(
                spec.flavor, Image({name: bus}, disk_format=disk_format)
            ),
        ):
            decision = pipeline_of("image_metadata").apply(each)
            forbidden = {
                item.trait
                for item in decision.requirements
                if not item.required
            }
            assert forbidden & families == {
                _DEFAULTS[family].trait for family in never
            }
        assert {
            family for family in MACHINES if _is_refused(spec, family)
        } == never
        compared += 1
    assert compared >= 36


def _is_refused(spec: Any, machine: str) -> bool:
    clone = spec.obj_clone()
    clone.image.properties.hw_machine_type = machine
    try:
        pipeline_of("image_metadata").apply(clone)
    except ImpossibleCombination:
        return True
    return False


_NOT_BUILT = (
    {"hw_machine_type": "q35", "hw_cdrom_bus": "ide"},
    {"hw_machine_type": "q35", "hw_rescue_bus": "ide"},
    {"hw_machine_type": "virt", "hw_floppy_bus": "fdc"},
    {"hw_usb_model": "none", "hw_rescue_bus": "usb"},
    {"hw_usb_model": "none", "hw_disk_bus": "usb"},
    {"hw_usb_model": "none", "hw_sound_model": "usb"},
)


def test_guest_that_nova_builds_without_the_device_is_not_refused() -> None:
    for properties in _NOT_BUILT:
        spec = nova_spec(properties)
        assert {bus for _row, bus in _buses(spec)} == {
            properties.get("hw_disk_bus", "virtio")
        }
        pipeline_of("image_metadata").apply(spec)
    for name in ("hw_rescue_bus", "hw_floppy_bus"):
        assert (
            pipeline_of("image_metadata")
            .apply(nova_spec({name: "usb"}))
            .requirements
            == ()
        )
