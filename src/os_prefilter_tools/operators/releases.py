# SPDX-License-Identifier: Apache-2.0

"""The release of Nova and of Placement that added a trait or a value.

Sources: os-traits 2.10.0 to 3.9.0, the upper constraints of each release, and
``nova/objects/image_meta.py``, ``nova/objects/fields.py``,
``nova/network/model.py`` and ``nova/api/validation/extra_specs`` of Nova
27.0.0 to 34.
"""

from __future__ import annotations

from collections.abc import Mapping

from os_prefilter.common.trait_names import ADDED_IN, CUSTOM_PREFIX
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.model import Row

OLDEST = "2023.1"
"""The oldest release that is looked at: what it has may be older."""

ADDED_TO_NOVA: Mapping[str, Mapping[str, str]] = {
    # Name of the row -> value, or "" for the property itself -> release.
    "firmware_stateless": {"": "2024.2"},
    "maxphysaddr_mode": {"": "2024.1"},
    "mem_encryption_model": {
        "": "2025.2",
        "amd-sev-snp": "2026.2",
        "intel-tdx": "2026.2",
    },
    "packed_virtqueue": {"": "2024.1"},
    "sound_model": {"": "2025.2"},
    "tpm_secret_security": {"": "2026.1"},
    "usb_model": {"": "2025.2"},
    "usb_redirection": {"": "2025.2"},
    "vif_model": {"igb": "2025.1"},
}
"""Properties and values that Nova got after :data:`OLDEST`."""


def release_of_trait(trait: str) -> str:
    """Return the first release whose Placement has a trait.

    Empty for a ``CUSTOM_`` trait, which any may have.
    """
    if not trait or trait.startswith(CUSTOM_PREFIX):
        return ""
    return ADDED_IN[trait].openstack if trait in ADDED_IN else OLDEST


def release_of_value(row: Row, value: str) -> str:
    """Return the first release whose Nova accepts a value.

    Empty for a property that Nova does not know.
    """
    is_of_nova = row.image_property or row.extra_spec or row.image_attribute
    if BY_NAME.get(row.name) is not row or not is_of_nova:
        return ""
    added = ADDED_TO_NOVA.get(row.name, {})
    return added.get(value) or added.get("") or OLDEST
