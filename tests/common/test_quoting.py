"""Text of tenants, operators and libraries in messages."""

import pytest

from os_prefilter.common.quoting import mask_passwords


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("at http://me:secret@h:1/v3, refused", "at http://***@h:1/v3, refused"),
        ("http://secret@h/", "http://***@h/"),
        ("http://me:se'cr\"et@h/", "http://***@h/"),
        ("http://me:se@cret@h/", "http://***@h/"),
        ("http://me:se/cr@et@h/v3", "http://***@h/v3"),
        ("http://me:se?cret@h/v3", "http://***@h/v3"),
        ("rabbit://a:b@h:1,c:d@i:2/", "rabbit://***@i:2/"),
    ],
)
def test_login_in_a_url_is_not_shown(text: str, without: str) -> None:
    assert mask_passwords(text) == without


@pytest.mark.parametrize(
    "text",
    [
        "http://h:5000/v3?x=a@b",
        "http://h:5000/v3/users/foo@bar.com",
        "http://h/users/foo@bar.com",
        "a: b@c",
        "http://h:1",
    ],
)
def test_at_sign_outside_of_a_login_is_shown(text: str) -> None:
    assert mask_passwords(text) == text
