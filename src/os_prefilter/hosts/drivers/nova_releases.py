# SPDX-License-Identifier: Apache-2.0

"""Releases of Nova, and the oldest libvirt and QEMU that each runs on.

Sources: ``MIN_LIBVIRT_VERSION`` and ``MIN_QEMU_VERSION`` in
``nova/virt/libvirt/driver.py`` of each release; a test compares the row of the
installed one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from os_prefilter.hosts.drivers.libvirt_facts import Version


class NovaRelease(NamedTuple):
    """A release of Nova."""

    openstack: str
    """The release of OpenStack that it belongs to."""
    libvirt: Version
    """The oldest libvirt that its driver runs on."""
    qemu: Version
    """The oldest QEMU that its driver runs on."""


NOVA_RELEASES: Mapping[int, NovaRelease] = {
    27: NovaRelease("2023.1", (6, 0, 0), (4, 2, 0)),
    29: NovaRelease("2024.1", (7, 0, 0), (5, 2, 0)),
    30: NovaRelease("2024.2", (7, 0, 0), (5, 2, 0)),
    31: NovaRelease("2025.1", (8, 0, 0), (6, 2, 0)),
    32: NovaRelease("2025.2", (8, 0, 0), (6, 2, 0)),
    33: NovaRelease("2026.1", (8, 0, 0), (6, 2, 0)),
    34: NovaRelease("2026.2", (8, 0, 0), (6, 2, 0)),
}
"""Major version of Nova -> its release."""

NEWEST_NOVA = max(NOVA_RELEASES)


def list_releases() -> str:
    """Return the releases as text: ``27 (2023.1), 29 (2024.1)``."""
    return ", ".join(
        f"{number} ({release.openstack})"
        for number, release in NOVA_RELEASES.items()
    )
