# SPDX-License-Identifier: Apache-2.0

"""Values that Placement accepts: resource classes, amounts and UUIDs."""

from __future__ import annotations

import re

import os_resource_classes

_CUSTOM_CLASS = re.compile(r"CUSTOM_[A-Z0-9_]{1,248}")
_STANDARD_CLASSES = frozenset(os_resource_classes.STANDARDS)
_UUID_LENGTH = 36
_UUID_DIGITS = re.compile(r"[0-9a-fA-F]{32}")
_UUID_PARTS = [8, 4, 4, 4, 12]

HOST_CLASSES = frozenset(("VCPU", "PCPU", "MEMORY_MB"))
"""Resource classes on the root provider of each host, of any virt driver."""

LARGEST_AMOUNT = 2**31 - 1
"""The largest amount of a resource: INTEGER in Placement's database."""


def resource_amount(value: object) -> int | None:
    """Parse an amount as Nova's ``int()`` does; None if it is no number.

    It may have any sign.
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def is_resource_class(name: object) -> bool:
    """Return whether Placement could have a resource class of that name."""
    return isinstance(name, str) and (
        name in _STANDARD_CLASSES or bool(_CUSTOM_CLASS.fullmatch(name))
    )


def is_uuid(value: object) -> bool:
    """Return whether Placement takes it for a UUID; hyphens may be missing.

    Such as in ``member_of`` or ``in_tree``.
    """
    return (
        isinstance(value, str)
        and len(value) <= _UUID_LENGTH
        and bool(_UUID_DIGITS.fullmatch(value.replace("-", "")))
    )


def is_hyphenated_uuid(text: str) -> bool:
    """Return whether it is a UUID in the usual form, with hyphens.

    Digits without them may be the name of a host or an image.
    """
    return is_uuid(text) and list(map(len, text.split("-"))) == _UUID_PARTS
