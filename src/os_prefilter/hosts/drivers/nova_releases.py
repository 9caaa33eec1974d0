"""The releases of Nova that this package is tested with, and the oldest libvirt and QEMU that each runs on.

Source: ``MIN_LIBVIRT_VERSION`` and ``MIN_QEMU_VERSION`` in ``nova/virt/libvirt/driver.py`` of each release; a test
compares the row of the installed one.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts, Version


class NovaRelease(NamedTuple):
    """A release of Nova."""

    openstack: str
    """The release of OpenStack that it belongs to."""
    libvirt: Version
    """The oldest libvirt that its driver runs on."""
    qemu: Version
    """The oldest QEMU that its driver runs on."""


NOVA_RELEASES: Mapping[int, NovaRelease] = MappingProxyType(
    {
        27: NovaRelease("2023.1", (6, 0, 0), (4, 2, 0)),
        29: NovaRelease("2024.1", (7, 0, 0), (5, 2, 0)),
        30: NovaRelease("2024.2", (7, 0, 0), (5, 2, 0)),
        31: NovaRelease("2025.1", (8, 0, 0), (6, 2, 0)),
        32: NovaRelease("2025.2", (8, 0, 0), (6, 2, 0)),
        33: NovaRelease("2026.1", (8, 0, 0), (6, 2, 0)),
        34: NovaRelease("2026.2", (8, 0, 0), (6, 2, 0)),
    }
)
"""Major version of Nova -> its release."""

NEWEST_NOVA = max(NOVA_RELEASES)


def list_releases() -> str:
    """Return the releases as text: ``27 (2023.1), 29 (2024.1)``."""
    return ", ".join(f"{number} ({release.openstack})" for number, release in NOVA_RELEASES.items())


def describe_too_old(facts: LibvirtFacts) -> str:
    """Return a sentence if the host's libvirt or QEMU is older than the Nova that builds its guests runs on."""
    needs = NOVA_RELEASES.get(facts.nova_release or 0)
    if needs is None or not facts.built_by_nova:
        return ""
    older = facts.list_older(needs.libvirt, needs.qemu)
    old = " and ".join(f"{what} {found} is older than {oldest}" for what, found, oldest in older)
    return f"{old}: nova-compute of Nova {facts.nova_release} does not start here." if old else ""
