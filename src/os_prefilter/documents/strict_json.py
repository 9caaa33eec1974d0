# SPDX-License-Identifier: Apache-2.0

"""Strict reading of JSON that programs wrote and people may have edited.

It is as strict as ``strict_yaml``.

Stricter than Python's own reader, which lets the last of two equal keys win
and knows NaN and infinity.
"""

from __future__ import annotations

import json
from collections import Counter
from math import isfinite
from sys import intern
from typing import Any

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import quote
from os_prefilter.documents.files import decode, describe_value


def parse_json(data: bytes, path: object) -> object:
    """Return what JSON text holds; ``path`` names it in errors.

    :raises DocumentError: the text is not UTF-8 or not JSON, has a key twice,
        or a number that is none
    """
    text = decode(data, path)
    if not text.strip():
        raise DocumentError(
            path,
            "the file is empty; expected JSON. Check the command that"
            " wrote it.",
        )
    try:
        return strict(text)
    except json.JSONDecodeError as error:
        raise DocumentError(
            path,
            f"line {error.lineno}, column {error.colno}: broken JSON:"
            f" {error.msg}.",
        ) from error
    except RecursionError as error:
        raise DocumentError(path, "the JSON is nested too deep.") from error
    except ValueError as error:
        # A refusal of ours, or an integer of thousands of digits.
        raise DocumentError(path, describe_value(error)) from error


def strict(text: str) -> Any:
    """Return what JSON text holds.

    :raises ValueError: the text is not JSON, has a key twice, or a number that
        is none
    :raises RecursionError: it is nested too deep
    """
    return _DECODER.decode(text)


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {quote(key)} is given twice; keep one")
    # Equal strings in lists become one: a fleet repeats its traits.
    for value in found.values():
        if isinstance(value, list):
            value[:] = [
                intern(each) if isinstance(each, str) else each
                for each in value
            ]
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(
            f"the number {quote(text)} is too large, or none of JSON"
        )
    return number


_DECODER = json.JSONDecoder(
    object_pairs_hook=_read_object, parse_constant=_finite, parse_float=_finite
)
