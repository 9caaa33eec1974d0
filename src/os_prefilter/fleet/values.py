"""Checks of single values in documents: each returns the value as its type, or says where and what is wrong."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from os_prefilter.common.quoting import quote
from os_prefilter.errors import DocumentError
from os_prefilter.fleet.model import MAX_INT, uuid_in

MAX_NAME = 200
"""The longest name of a provider in Placement."""
MAX_LABEL = 255
"""The longest name of an aggregate or a zone in Nova."""

_SYMBOL = re.compile(r"[A-Z0-9_]{1,255}")


class Values:
    """Reads values of one document; ``where`` is the dotted place of a value in it."""

    def __init__(self, path: object) -> None:
        self._path = path

    def problem(self, where: str, found: str, expected: str) -> DocumentError:
        """Return the error about a value."""
        return DocumentError(self._path, f"{where}: found {found}; expected {expected}.")

    def mapping(self, where: str, value: object, known: tuple[str, ...] | None = None) -> dict[str, Any]:
        """Return a mapping with keys that are strings, and among ``known`` if that is given."""
        if not isinstance(value, dict):
            raise self.problem(where, quote(value), "a mapping")
        for key in value:
            if not isinstance(key, str):
                raise self.problem(where, f"the key {quote(key)}", "keys that are strings; quote it")
            if known is not None and key not in known:
                raise self.problem(where, f"the unknown key {quote(key)}", f"keys out of {', '.join(known)}")
        return dict(value)

    def strings(
        self,
        where: str,
        value: object,
        check: Callable[[str, object], str],
        most: int,
        checked: dict[str, str] | None = None,
    ) -> list[str]:
        """Read a list of strings, in which a list of strings (an alias, most often) may stand for its members.

        :param checked: strings that ``check`` has accepted already, and the ones to return for them
        """
        items = self._list(where, value, most)
        # Nearly all lists of a large file have nothing new.
        with suppress(KeyError, TypeError):
            return [(checked or {})[item] for item in items]
        found: list[str] = []
        for index, item in enumerate(items):
            if isinstance(item, list):
                found += [check(f"{where}[{index}][{i}]", v) for i, v in enumerate(self._list(where, item, most))]
            else:
                found.append(check(f"{where}[{index}]", item))
            if len(found) > most:
                raise self.problem(where, f"{len(found)} entries", f"at most {most}")
        return found

    def _list(self, where: str, value: object, most: int) -> list[Any]:
        if not isinstance(value, list):
            raise self.problem(where, quote(value), "a list of strings")
        if len(value) > most:
            raise self.problem(where, f"{len(value)} entries", f"at most {most}")
        return value

    def symbol(self, where: str, value: object, known: dict[str, str], kind: str, package: str) -> str:
        """Return the name of a trait or a resource class, and add it to ``known``.

        :param package: the package that must know it if it is not custom; empty if any may
        """
        if isinstance(value, str) and value in known:
            return known[value]
        if not isinstance(value, str) or not _SYMBOL.fullmatch(value):
            raise self.problem(where, quote(value), f"the name of a {kind}: 1 to 255 of A-Z, 0-9 and _")
        if value == "CUSTOM_" or (package and not value.startswith("CUSTOM_")):
            expected = f"a {kind} that the installed {package} knows, or a name that starts with CUSTOM_"
            raise self.problem(where, quote(value), expected)
        return known.setdefault(value, value)

    def integer(self, where: str, value: object, low: int, alternative: str = "") -> int:
        """Return an integer from ``low`` to the largest of Placement."""
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= MAX_INT:
            raise self.problem(where, quote(value), f"an integer from {low} to {MAX_INT} {alternative}".rstrip())
        return value

    def flag(self, where: str, value: object) -> bool:
        """Return a boolean."""
        if not isinstance(value, bool):
            raise self.problem(where, quote(value), "true or false")
        return value

    def name(self, where: str, value: object, most: int = MAX_NAME) -> str:
        """Return the name of a provider."""
        if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
            raise self.problem(where, quote(value), f"a name of 1 to {most} printable characters")
        return value

    def label(self, where: str, value: object) -> str:
        """Return the name of an aggregate or a zone."""
        return self.name(where, value, MAX_LABEL)

    def uuid(self, where: str, value: object) -> str:
        """Return a UUID in its usual form."""
        found = uuid_in(value) if isinstance(value, str) else ""
        if not found:
            raise self.problem(where, quote(value), "a UUID")
        return found

    def text(self, where: str, value: object) -> str:
        """Return text that can be written again."""
        if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
            raise self.problem(where, quote(value), "text")
        return value
