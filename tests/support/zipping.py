# SPDX-License-Identifier: Apache-2.0

"""``zip(..., strict=True)``, which Python 3.9 does not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

_MISSING = object()


def zip_equal(*sides: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the items of all sides together.

    :raises ValueError: if one side has fewer items than another
    """
    for items in zip_longest(*sides, fillvalue=_MISSING):
        # Not "in", which asks the items: some are equal to everything.
        if any(each is _MISSING for each in items):
            raise ValueError("one side has fewer items than another")
        yield items
