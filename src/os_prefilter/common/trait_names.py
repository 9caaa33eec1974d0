# SPDX-License-Identifier: Apache-2.0

"""Trait names: a check by Placement's rules, and a type for checked ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple, NewType

import os_traits

from os_prefilter.common.quoting import quote

Trait = NewType("Trait", str)
"""A checked name of a trait, never a tenant's text.

It is one of the vocabulary's, or :func:`trait_named` has checked it.
"""

CUSTOM_PREFIX = "CUSTOM_"

_TRAIT_NAME = re.compile(r"[A-Z0-9_]{1,255}")


class AddedIn(NamedTuple):
    """Where a standard trait was added."""

    os_traits: str
    """The version of os-traits."""
    openstack: str
    """The first release whose upper constraints have that version."""


_ADDED = {
    ("3.0.0", "2023.2"): "COMPUTE_NET_VIRTIO_PACKED",
    (
        "3.1.0",
        "2024.2",
    ): (
        "COMPUTE_SECURITY_STATELESS_FIRMWARE COMPUTE_SECURITY_TPM_CRB"
        " COMPUTE_SECURITY_TPM_TIS HW_CPU_X86_AMD_SEV_ES"
    ),
    ("3.2.0", "2025.1"): "COMPUTE_NET_VIF_MODEL_IGB",
    (
        "3.3.0",
        "2025.1",
    ): (
        "COMPUTE_SECURITY_TPM_SECRET_SECURITY_DEPLOYMENT"
        " COMPUTE_SECURITY_TPM_SECRET_SECURITY_HOST"
        " COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER"
    ),
    (
        "3.5.0",
        "2025.2",
    ): (
        "COMPUTE_SOUND_MODEL_AC97 COMPUTE_SOUND_MODEL_ES1370"
        " COMPUTE_SOUND_MODEL_ICH6 COMPUTE_SOUND_MODEL_ICH9"
        " COMPUTE_SOUND_MODEL_PCSPK COMPUTE_SOUND_MODEL_SB16"
        " COMPUTE_SOUND_MODEL_USB COMPUTE_SOUND_MODEL_VIRTIO"
        " COMPUTE_USB_MODEL_NEC_XHCI COMPUTE_USB_MODEL_QEMU_XHCI"
    ),
    ("3.7.0", "2026.2"): "HW_CPU_X86_AMD_SEV_SNP",
    ("3.8.0", "2026.2"): "HW_CPU_X86_INTEL_TDX",
}
ADDED_IN: Mapping[str, AddedIn] = {
    name: AddedIn(*versions)
    for versions, names in _ADDED.items()
    for name in names.split()
}
"""Standard traits of the vocabulary that os-traits 2.10.0 does not have."""


@cache
def standard_traits() -> frozenset[str]:
    """Return the names of all standard traits.

    Those of the installed os-traits, and newer ones of the vocabulary.
    """
    return frozenset((*os_traits.get_traits(), *ADDED_IN))


def is_trait_name(name: object) -> bool:
    """Return whether Placement could have a trait of that name.

    By ``placement/schemas/trait.py``.
    """
    return isinstance(name, str) and bool(_TRAIT_NAME.fullmatch(name))


def trait_named(name: str) -> Trait:
    """Check the name of a trait that an operator or a filter chose.

    :raises ValueError: if Placement could not have a trait of that name.
    """
    if not is_trait_name(name):
        raise ValueError(
            f"{quote(name)} is not the name of a trait: A-Z, 0-9 and _, 255"
            " characters at most"
        )
    return Trait(name)
