# SPDX-License-Identifier: Apache-2.0

"""JSON that is read strictly: what is no JSON, or says two things, is refused
with its place.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from os_prefilter.common.errors import DocumentError
from os_prefilter.documents.strict_json import parse_json


def test_valid_json_is_parsed_with_or_without_a_byte_order_mark() -> None:
    """Every kind of value, in UTF-8 with or without a byte order mark."""
    text = '{"a": [1, -2.5, true, null, "ü\\u0041"], "b": {}}'.encode()
    assert (
        parse_json(text, "x")
        == parse_json(b"\xef\xbb\xbf" + text, "x")
        == {
            "a": [1, -2.5, True, None, "üA"],
            "b": {},
        }
    )


def test_equal_strings_of_lists_are_one_object() -> None:
    """A fleet of many hosts repeats the names of their traits; other values of
    a list stay as they are.
    """
    parsed: Any = parse_json(
        b'{"a": {"traits": ["AVX", 1, null, ["AVX"]]}, "b": {"traits": ["AVX",'
        b" true]}}",
        "x",
    )
    assert parsed == {
        "a": {"traits": ["AVX", 1, None, ["AVX"]]},
        "b": {"traits": ["AVX", True]},
    }
    assert parsed["a"]["traits"][0] is parsed["b"]["traits"][0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "the file is empty; expected JSON"),
        # Python 3.13 points at the comma, those before it behind it.
        (
            b'{"a": 1,}',
            f"line 1, column {8 if sys.version_info >= (3, 13) else 9}",
        ),
        (b'{\n"a" 1}', "line 2, column 5"),
        (b"{} {}", "column 4"),
        (b'{"a": \xff}', "byte 6 is not UTF-8"),
        (b'{"a": 1, "b": {"c": 1, "c": 1}}', "the key 'c' is given twice"),
        (b'{"a": NaN}', "'NaN' is too large, or none of JSON"),
        (b'{"a": -Infinity}', "'-Infinity' is too large"),
        (b'{"a": 1e999}', "'1e999' is too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "thousands of digits"),
        (b'{"a": ' + b"[" * 100_000, "nested too deep"),
        (b'{"a\x1b": 1}', "column 4"),
    ],
)
def test_invalid_json_is_refused_with_file_and_reason_on_one_line(
    text: bytes, says: str
) -> None:
    with pytest.raises(DocumentError) as raised:
        parse_json(text, "fleet.json")
    message = str(raised.value)
    assert message.startswith("fleet.json: ")
    assert says in message
    assert message.isprintable()
    assert len(message) < 300
