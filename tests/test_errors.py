"""Messages are one short ASCII line, whatever a tenant wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from os_prefilter.common.quoting import quote


@given(st.text() | st.integers() | st.floats() | st.binary() | st.none() | st.lists(st.text()))
def test_any_value_is_shown_as_one_short_printable_ascii_line(value: object) -> None:
    text = quote(value)
    assert text.isascii()
    assert text.isprintable()
    assert len(text) <= 83


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("e1000", "'e1000'"),
        ("a\nb", "'a\\nb'"),
        ("\x1b[31m", "'\\x1b[31m'"),
        pytest.param(10**5000, "a huge number", id="huge"),
        ([1], "a list"),
        (None, "None"),
    ],
)
def test_untrusted_value_is_quoted_escaped_or_described_by_its_kind(value: object, expected: str) -> None:
    assert quote(value) == expected
