# SPDX-License-Identifier: Apache-2.0

"""Text of tenants, operators and libraries in messages."""

from __future__ import annotations

from os_prefilter.common.quoting import mask_passwords

_MASKED = {
    "at http://me:secret@h:1/v3, refused": "at http://***@h:1/v3, refused",
    "http://secret@h/": "http://***@h/",
    "http://me:se'cr\"et@h/": "http://***@h/",
    "http://me:se@cret@h/": "http://***@h/",
    "http://me:se/cr@et@h/v3": "http://***@h/v3",
    "http://me:se?cret@h/v3": "http://***@h/v3",
    "rabbit://a:b@h:1,c:d@i:2/": "rabbit://***@i:2/",
}
_SHOWN = (
    "http://h:5000/v3?x=a@b",
    "http://h:5000/v3/users/foo@bar.com",
    "http://h/users/foo@bar.com",
    "a: b@c",
    "http://h:1",
)


def test_login_in_a_url_is_not_shown_and_another_at_sign_is() -> None:
    for text, without in (
        *_MASKED.items(),
        *((text, text) for text in _SHOWN),
    ):
        assert mask_passwords(text) == without
