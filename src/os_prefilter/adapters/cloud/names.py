"""From a name that a user gave to the one thing in the cloud that has it."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any
from uuid import UUID

from os_prefilter.common.quoting import quote
from os_prefilter.errors import DocumentError

# Of a cloud with a million images, so many are looked through for close names.
_MOST = 5_000
_TOLD = 5


def is_uuid(text: str) -> bool:
    """Whether a text is a UUID with its four hyphens."""
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False


def the_one(kind: str, name: str, found: Iterable[Any], every: Iterable[Any]) -> Mapping[str, Any]:
    """Return the row of a name.

    :param kind: ``image`` or ``flavor``, for messages; also the name of the option
    :param found: rows among which it is, if anywhere
    :param every: all rows, for close names; taken only if none is found
    :raises DocumentError: there is none of that name, or there are several
    """
    rows = {row["id"]: row for row in found if _name(row) == name}
    if len(rows) == 1:
        return next(iter(rows.values()))
    if rows:
        ids = ", ".join(quote(each)[1:-1] for each in islice(rows, 2 * _TOLD))
        more = f" and {len(rows) - 2 * _TOLD} more" * (len(rows) > 2 * _TOLD)
        raise DocumentError(f"--{kind}", f"{len(rows)} {kind}s have the name {quote(name)}. Give an ID: {ids}{more}.")
    names = {_name(row) for row in islice(every, _MOST)} - {""}
    close = get_close_matches(name, sorted(names), n=_TOLD, cutoff=0.5)
    advice = (
        f"Close names: {', '.join(map(quote, close))}." if close else "Give a name or an ID that exists, or a file."
    )
    raise DocumentError(f"--{kind}", f"there is no {kind} {quote(name)}, neither in this cloud nor as a file. {advice}")


def _name(row: Any) -> str:
    name = row.get("name") if isinstance(row, dict) and isinstance(row.get("id"), str) else ""
    return name if isinstance(name, str) else ""
