# SPDX-License-Identifier: Apache-2.0

"""Notes of commands on the operating system that an image names."""

from __future__ import annotations

import pytest

from os_prefilter.request.view import Request
from os_prefilter_tools.operators.property_names import notes_on_guest_system
from tests.conftest import spec_of

_WINDOWS = {
    "hw_firmware_type": "uefi",
    "os_secure_boot": "required",
    "hw_tpm_version": "2.0",
}
_NO_RELEASE = (
    "it names no release, and Nova drops os_version: not known which CPU the"
    " system needs. Write libosinfo's short name, with the release"
)


def _notes(
    properties: dict[str, object], extra_specs: dict[str, str] | None = None
) -> list[str]:
    request = Request(spec_of(properties, extra_specs or {}))
    return [str(note) for note in notes_on_guest_system(request)]


@pytest.mark.parametrize("distro", ["rhel", "rocky", "SLES", "windows"])
def test_system_without_a_release_is_noted(distro: str) -> None:
    assert _notes({"os_distro": distro, "os_version": "10"}) == [
        f"image property os_distro={distro}: {_NO_RELEASE}"
    ]


_MISSPELT = {
    "RHEL10": "rhel10",
    "rhel-10": "rhel10",
    "rocky_9": "rocky9",
    "CentOS Stream 10": "centos-stream10",
    "Win11": "win11",
    "Windows 11": "win11",
    "windows-server-2025": "win2k25",
    "centos10": "centos-stream10",
    "leap16": "opensuse16",
}


@pytest.mark.parametrize(("distro", "meant"), _MISSPELT.items(), ids=_MISSPELT)
def test_misspelt_system_is_noted_with_its_name(
    distro: str, meant: str
) -> None:
    assert _notes({"os_distro": distro}) == [
        f"image property os_distro={distro}: libosinfo has no such short name:"
        f" not known which CPU the system needs. Did you mean {meant}?"
    ]


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"os_distro": ""},
        {"os_distro": 5},
        {"os_distro": "debian"},
        {"os_distro": "rhel8.10"},
        {"os_distro": "rhel10.0"},
        {"os_distro": "winxp"},
        {"os_distro": "win2k25"},
        {"os_distro": "--"},
        {"os_distro": "rhel" * 1000},
        {"os_distro": "win11", **_WINDOWS},
    ],
    ids=str,
)
def test_nothing_is_noted_of_a_system_that_is_known_or_needs_nothing(
    properties: dict[str, object],
) -> None:
    assert _notes(properties) == []


_LACKING: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "nothing named": (
        {},
        {},
        "hw_firmware_type=uefi, os_secure_boot=required, hw_tpm_version=2.0",
    ),
    "firmware alone": (
        {"hw_firmware_type": "uefi"},
        {},
        "os_secure_boot=required, hw_tpm_version=2.0",
    ),
    "the rest by the flavor": (
        {},
        {"os:secure_boot": "required", "hw:tpm_version": "2.0"},
        "hw_firmware_type=uefi",
    ),
}


@pytest.mark.parametrize(
    ("properties", "extra_specs", "missing"), _LACKING.values(), ids=_LACKING
)
def test_windows_11_is_noted_without_the_devices_that_it_requires(
    properties: dict[str, str], extra_specs: dict[str, str], missing: str
) -> None:
    notes = _notes({"os_distro": "win11", **properties}, extra_specs)
    assert notes == [
        "image property os_distro=win11: Microsoft requires UEFI, Secure Boot"
        " and TPM 2.0, and Nova gives a guest what is named. Set"
        f" {missing} in the image"
    ]
