# SPDX-License-Identifier: Apache-2.0

"""Quote, escape and truncate untrusted text for messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_SHOWN_LENGTH = 80
_ERROR_LENGTH = 500
# Text is cut before its end, and then looked at: so much further, as a
# password must not be cut at its @.
_LONGEST_LOGIN = 1_000
# To the last @, as a password may have one that should be escaped and is not.
# Second: one with a /, where what follows the colon is no port. The third is
# what urllib3 says of the text before that /. Bounded: text may be long.
_LOGIN_IN_URL = re.compile(
    r"(?<=://)(?:[^\s/?#]{1,500}@|[^\s/?#@:]{0,200}:(?!\d*(?:[/?#,;\s]|$))\S{0,500}@)|(?<=Failed"
    r" to parse: )[^\s/]+"
)


def quote(value: object, length: int = _SHOWN_LENGTH) -> str:
    """Quote a value for a message: one line, ASCII, cut, without passwords.

    It is cut after ``length``; passwords are masked in URLs.
    """
    if isinstance(value, str):
        # Cut first: the value may be megabytes long.
        text = ascii(
            mask_passwords(value[: length + _LONGEST_LOGIN])[: length + 1]
        )
    elif isinstance(value, (bool, int, float, type(None))):
        text = (
            ascii(value)
            if not isinstance(value, int) or value.bit_length() < 256  # noqa: PLR2004
            else "a huge number"
        )
    else:
        text = f"a {type(value).__name__}"
    return text if len(text) <= length else text[:length] + "..."


def escape_line(text: str) -> str:
    """Return untrusted text as one printable line."""
    return text if text.isprintable() else ascii(text)[1:-1]


def describe_error(error: BaseException) -> str:
    """Describe an error of a client library: kind and text, on one line.

    It is cut, and has no passwords.
    """
    try:
        whole = str(error)
    except Exception:  # noqa: BLE001 - describing an error must not raise another one
        whole = "it has no text"
    text = escape_line(
        mask_passwords(whole[: _ERROR_LENGTH + _LONGEST_LOGIN])[:_ERROR_LENGTH]
    )
    return f"{type(error).__name__}: {text[:_ERROR_LENGTH]}"


def find_misspelt(name: str, others: Iterable[str]) -> str | None:
    """Return the name that is most likely a misspelt ``name``.

    Such as ``flavour`` for ``flavor``.
    """
    # image_id is another thing than image.
    candidates = [each for each in others if not each.startswith(("_", name))]
    return next(
        iter(get_close_matches(name, candidates, n=1, cutoff=0.7)), None
    )


def mask_passwords(text: str) -> str:
    """Put ``***`` in place of user and password in each URL of a text."""
    return _LOGIN_IN_URL.sub("***@", text)


def join_names(names: Iterable[str]) -> str:
    """Return names for a message: sorted, comma-separated, or "none"."""
    return ", ".join(sorted(names)) or "none"


def pluralize(number: int, what: str) -> str:
    """Return "1 host", or "2 hosts"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def shorten(
    items: Sequence[str], most: int, count: int | None = None
) -> list[str]:
    """Return the first items, and after them how many more there are.

    :param count: of all, where ``items`` are but some of them.
    """
    shown = [*items[:most]]
    more = (len(items) if count is None else count) - len(shown)
    if more > 0:
        shown.append(f"and {more} more")
    return shown


def join_first_names(names: Sequence[str], most: int) -> str:
    """Return the first of untrusted names, such as "a, b and 3 more"."""
    text = ", ".join(map(escape_line, names[:most]))
    more = len(names) - most
    return f"{text} and {more} more" if more > 0 else text
