"""Releases of Nova: the oldest libvirt and QEMU that each runs on, and the traits and values that each added.

Sources: ``MIN_LIBVIRT_VERSION`` and ``MIN_QEMU_VERSION`` in ``nova/virt/libvirt/driver.py`` of each release; a test
compares the row of the installed one. For traits and values: os-traits 2.10.0 to 3.9.0, the upper constraints of each
release, and ``nova/objects/image_meta.py``, ``nova/objects/fields.py``, ``nova/network/model.py`` and
``nova/api/validation/extra_specs`` of Nova 27.0.0 to 34.
"""

from collections.abc import Mapping
from typing import NamedTuple

from os_prefilter.common.trait_names import ADDED_IN, CUSTOM_PREFIX
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts, Version
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.model import Row


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

OLDEST = "2023.1"
"""The oldest release that is looked at: what it has may be older."""

ADDED_TO_NOVA: Mapping[str, Mapping[str, str]] = {
    # Name of the row -> value, or "" for the property itself -> release.
    "firmware_stateless": {"": "2024.2"},
    "maxphysaddr_mode": {"": "2024.1"},
    "mem_encryption_model": {"": "2025.2", "amd-sev-snp": "2026.2", "intel-tdx": "2026.2"},
    "packed_virtqueue": {"": "2024.1"},
    "sound_model": {"": "2025.2"},
    "tpm_secret_security": {"": "2026.1"},
    "usb_model": {"": "2025.2"},
    "usb_redirection": {"": "2025.2"},
    "vif_model": {"igb": "2025.1"},
}
"""Properties and values that Nova got after :data:`OLDEST`."""


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


def release_of_trait(trait: str) -> str:
    """Return the first release whose Placement has a trait; empty for a ``CUSTOM_`` trait, which any may have."""
    if not trait or trait.startswith(CUSTOM_PREFIX):
        return ""
    return ADDED_IN[trait].openstack if trait in ADDED_IN else OLDEST


def release_of_value(row: Row, value: str) -> str:
    """Return the first release whose Nova accepts a value; empty for a property that Nova does not know."""
    is_of_nova = row.image_property or row.extra_spec or row.image_attribute
    if BY_NAME.get(row.name) is not row or not is_of_nova:
        return ""
    added = ADDED_TO_NOVA.get(row.name, {})
    return added.get(value) or added.get("") or OLDEST
