# SPDX-License-Identifier: Apache-2.0

"""Checks for UUIDs: the forms that Placement accepts, and the usual one that
users mean.
"""

import re

_LENGTH = 36
_DIGITS = re.compile(r"[0-9a-fA-F]{32}")
_PARTS = [8, 4, 4, 4, 12]


def is_uuid(value: object) -> bool:
    """Return whether Placement takes it for a UUID in ``member_of`` or
    ``in_tree``; hyphens may be missing.
    """
    return (
        isinstance(value, str)
        and len(value) <= _LENGTH
        and bool(_DIGITS.fullmatch(value.replace("-", "")))
    )


def is_hyphenated_uuid(text: str) -> bool:
    """Return whether it is a UUID in the usual form: digits without hyphens
    may be the name of a host or an image.
    """
    return is_uuid(text) and list(map(len, text.split("-"))) == _PARTS
