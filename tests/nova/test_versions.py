# SPDX-License-Identifier: Apache-2.0

"""A Nova that is older or newer than the tested releases: nova-scheduler says
so when it starts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import version

import nova.utils
import pytest
from nova.virt.libvirt import driver
from oslo_utils import importutils

import os_prefilter
from os_prefilter.adapters.nova_conf import unsupported_nova
from os_prefilter.hosts.drivers.nova_releases import NOVA_RELEASES
from tests.support.nova_start import Start, entries

Install = Callable[[str, str], None]

_OURS = f"os-prefilter {version('os-prefilter')}"


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (
            "28.1.0",
            "they may require traits that its compute services do not report",
        ),
        (
            "99.0.0",
            (
                "a new request filter of Nova with the purpose of one of ours"
                " runs as well"
            ),
        ),
    ],
)
def test_scheduler_with_an_unsupported_nova_starts_with_a_warning_that_names_both_versions(
    version: str,
    message: str,
    install: Install,
    start: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    install("nova", version)
    start("hpet")
    assert entries()[-1] == "ours"
    (warning,) = [
        each.getMessage()
        for each in caplog.records
        if each.name == "os_prefilter.nova"
    ]
    assert warning.startswith(
        f"{_OURS} is tested with Nova 27 (2023.1), 29 (2024.1), "
    )
    assert (
        f", not with Nova {version}. The filters run all the same, but"
        f" {message}" in warning
    )


@pytest.mark.parametrize(
    "version", ["27.0.0", "31.0.0", "34.3.1", "34.1.0.dev12", "unknown"]
)
def test_supported_or_unknown_nova_gives_no_warning(
    version: str, install: Install
) -> None:
    install("nova", version)
    assert unsupported_nova() == ""


def test_nova_that_lacks_what_the_entry_point_imports_gives_an_error_with_both_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nova raises the error of the import as it is when nova-scheduler
    starts.
    """
    monkeypatch.delattr(os_prefilter, "nova")
    for name in list(sys.modules):
        if name.startswith("os_prefilter.nova"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(nova.utils, "SM_IMAGE_PROP_PREFIX")
    with pytest.raises(ImportError) as raised:
        importutils.import_class("os_prefilter.nova.activate")
    last = str(raised.value)
    assert last.startswith(f"{_OURS} does not work in Nova 34.")
    assert (
        "cannot import name 'SM_IMAGE_PROP_PREFIX' from 'nova.utils'" in last
    )
    assert (
        ", 34 (2026.2). Install the release of os-prefilter for this Nova"
        in last
    )


def test_oldest_libvirt_and_qemu_of_the_installed_nova_are_known() -> None:
    release = NOVA_RELEASES[int(version("nova").partition(".")[0])]
    assert (release.libvirt, release.qemu) == (
        driver.MIN_LIBVIRT_VERSION,
        driver.MIN_QEMU_VERSION,
    )
