# SPDX-License-Identifier: Apache-2.0

"""Devices that libosinfo implies: what is said without it, and a request that
has them required.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest

from os_prefilter import Request
from os_prefilter.adapters import osinfo
from os_prefilter.service import Service
from os_prefilter_tools.operators.property_names import (
    notes_on_implied_devices,
)
from tests.conftest import spec_of

_IMPLIED = {"hw_vif_model": "e1000e", "hw_disk_bus": "virtio"}


@pytest.fixture(autouse=True)
def _without_libosinfo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "gi", None)
    for each in (osinfo.implied_by, osinfo._libosinfo):
        each.cache_clear()
    yield
    for each in (osinfo.implied_by, osinfo._libosinfo):
        each.cache_clear()


def test_without_libosinfo_nothing_is_known_which_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        for distro in (
            "win2k19",
            "",
            "no such",
            "a\nb",
            "http://" + "x" * 10_000,
        ):
            assert osinfo.implied_by(distro) == {}
        assert not osinfo.has_libosinfo()
    assert (
        len(
            [
                record
                for record in caplog.records
                if "libosinfo cannot be asked here" in record.getMessage()
            ]
        )
        == 1
    )
    (note,) = notes_on_implied_devices(
        Request(spec_of({"os_distro": "win2k19"}))
    )
    assert (
        str(note)
        == "image property os_distro: where nova-compute has libosinfo, it"
        " decides hw_vif_model and hw_disk_bus if not set: not known here"
    )


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"os_distro": ""},
        {"os_distro": 5},
        {
            "os_distro": "win2k19",
            "hw_vif_model": "virtio",
            "hw_disk_bus": "ide",
        },
    ],
)
def test_nothing_is_said_of_an_image_without_a_system_or_with_both_devices(
    properties: dict[str, object],
) -> None:
    assert list(notes_on_implied_devices(Request(spec_of(properties)))) == []


def test_implied_devices_are_required_as_if_they_were_written_and_what_is_written_wins() -> (
    None
):
    service = Service.from_names("image_metadata")
    service.implied_by = lambda distro: _IMPLIED if distro == "win2k19" else {}
    assert {
        item.trait: item.source
        for item in service.decide(
            spec_of({"os_distro": "win2k19"})
        ).requirements
    } == {
        "COMPUTE_NET_VIF_MODEL_E1000E": (
            "by os_distro=win2k19, image property hw_vif_model=e1000e"
        ),
        "COMPUTE_STORAGE_BUS_VIRTIO": (
            "by os_distro=win2k19, image property hw_disk_bus=virtio"
        ),
    }
    both = service.decide(
        spec_of(
            {
                "os_distro": "win2k19",
                "hw_vif_model": "rtl8139",
                "hw_disk_bus": "ide",
            }
        )
    )
    assert {item.trait for item in both.requirements} == {
        "COMPUTE_NET_VIF_MODEL_RTL8139",
        "COMPUTE_STORAGE_BUS_IDE",
    }
    assert not service.decide(spec_of({"os_distro": 7})).requirements
