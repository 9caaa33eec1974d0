"""Reading rules from YAML: strictly, and all mistakes at once, each with its line."""

import re
from collections.abc import Collection
from difflib import get_close_matches

import os_traits

from os_prefilter.common.quoting import quote
from os_prefilter.documents.strict_yaml import Located, parse_located
from os_prefilter.errors import DocumentError
from os_prefilter.request.requirements import ROOT, UNSUFFIXED
from os_prefilter.rules.checks import Problem
from os_prefilter.rules.model import EXTRA_SPEC, IMAGE_PROPERTY, Condition, Rule, Value, written
from os_prefilter.vocabulary.model import CUSTOM_PREFIX, Trait, is_trait_name

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SUFFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST_TEXT = 255
_KEYS = {"image_property": IMAGE_PROPERTY, "extra_spec": EXTRA_SPEC}
_COMPARISONS = ("is", "in", "present")


def rules_in(data: bytes, file: str) -> tuple[list[Rule], list[Problem]]:
    """Return the well-formed rules of a document, and what is wrong with the others.

    :param file: names the document in problems and rules; printable
    """
    reading = _Reading(file)
    return reading.rules(data), reading.problems


class _Reading:
    """The reading of one file."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.problems: list[Problem] = []

    def rules(self, data: bytes) -> list[Rule]:
        """Return the well-formed rules; what is wrong is in ``problems`` then."""
        try:
            document = parse_located(data, self._file)
        except DocumentError as error:
            line = error.path.removeprefix(f"{self._file}:")
            self._report(int(line) if line.isdecimal() else 0, error.problem)
            return []
        items = self._fields(document, "rules", "").get("rules")
        found = [self._rule(each) for each in self._list(items, "rules")] if items else []
        return [each for each in found if each]

    def _report(self, line: int, text: str) -> None:
        self.problems.append(Problem(self._file, line, text))

    def _unexpected(self, place: Located, what: str, expected: str) -> None:
        self._report(place.line, f"{what} is {_said(place)}; expected {expected}.")

    def _fields(self, place: Located, required: str, optional: str, what: str = "the document") -> dict[str, Located]:
        known = [*required.split(), *optional.split()]
        if not isinstance(place.value, dict):
            self._unexpected(place, what, f"a mapping of {', '.join(known)}")
            return {}
        for key in sorted(place.value.keys() - set(known)):
            close = get_close_matches(key, known, n=1)
            advice = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}."
            self._report(place.key_lines[key], f"{what} has {quote(key)}, which nobody knows; {advice}")
        for key in required.split():
            if key not in place.value:
                self._report(place.line, f"{what} has no {key}.")
        return {key: value for key, value in place.value.items() if key in known}

    def _list(self, place: Located, what: str) -> list[Located]:
        if isinstance(place.value, list):
            return place.value
        self._unexpected(place, what, "a list")
        return []

    def _text(self, place: Located, what: str, expected: str = "a text of one line") -> str:
        value = place.value
        if isinstance(value, str) and value and len(value) <= _LONGEST_TEXT and value.isprintable():
            return value
        self._unexpected(place, what, f"{expected}, of at most {_LONGEST_TEXT} characters")
        return ""

    def _rule(self, place: Located) -> Rule | None:
        before = len(self.problems)
        fields = self._fields(place, "name when", "require forbid scope because", "a rule")
        name = self._name(fields["name"]) if "name" in fields else ""
        what = f"the rule {name}" if name else "a rule"
        when = self._when(fields["when"], what) if "when" in fields else ()
        require = self._traits(fields.get("require"), f"{what}: require")
        forbid = self._traits(fields.get("forbid"), f"{what}: forbid")
        if isinstance(place.value, dict) and not {"require", "forbid"} & place.value.keys():
            self._report(place.line, f"{what} asks for nothing. Give require, forbid, or both.")
        scope = self._scope(fields["scope"], what) if "scope" in fields else ROOT
        because = self._text(fields["because"], f"{what}: because") if "because" in fields else ""
        if len(self.problems) > before:
            return None
        return Rule(name, when, require, forbid, scope, because, self._file, place.line)

    def _name(self, place: Located) -> str:
        if isinstance(place.value, str) and _NAME.fullmatch(place.value):
            return place.value
        self._unexpected(
            place, "the name of a rule", "1 to 64 of a-z A-Z 0-9 _ . -, in quotes if it is on, off, yes or no"
        )
        return ""

    def _scope(self, place: Located, what: str) -> str:
        if isinstance(place.value, str) and _SUFFIX.fullmatch(place.value):
            return place.value
        self._unexpected(
            place, f"{what}: scope", f"{ROOT}, {UNSUFFIXED}, or the suffix of a request group such as _GPU"
        )
        return ROOT

    def _when(self, place: Located, what: str) -> tuple[Condition, ...]:
        places = place.value if isinstance(place.value, list) else [place]
        if not places:
            self._unexpected(place, f"{what}: when", "a condition, or a list of them that must all hold")
        found = [each for each in (self._condition(each, f"{what}: when") for each in places) if each]
        seen: set[tuple[str, str]] = set()
        for each in found:
            if (each.place, each.name) in seen:
                self._report(place.line, f"{what} asks twice about the {each.place} {each.name}. Give one condition.")
            seen.add((each.place, each.name))
        return tuple(found)

    def _condition(self, place: Located, what: str) -> Condition | None:
        fields = self._fields(place, "", " ".join((*_KEYS, *_COMPARISONS)), what)
        if not isinstance(place.value, dict):
            return None
        keys, comparisons = fields.keys() & set(_KEYS), fields.keys() & set(_COMPARISONS)
        if len(keys) != 1:
            self._report(place.line, f"{what} names {_number(keys)}; expected one of {' and '.join(_KEYS)}.")
        if len(comparisons) != 1:
            self._report(place.line, f"{what} compares by {_number(comparisons)}; expected one of is, in and present.")
        if len(keys) != 1 or len(comparisons) != 1:
            return None
        (key,), (comparison,) = keys, comparisons
        name = self._text(fields[key], f"{what}: {key}")
        values = self._values(comparison, fields[comparison], f"{what}: {comparison}")
        return Condition(_KEYS[key], name, values) if name and values is not None else None

    def _values(self, comparison: str, place: Located, what: str) -> frozenset[Value] | None:
        if comparison == "present":
            if place.value is True:
                return frozenset()
            self._unexpected(place, what, "true")
            return None
        places = self._list(place, what) if comparison == "in" else [place]
        if isinstance(place.value, list) and not places:
            self._unexpected(place, what, "at least one value")
        values = [each.value if isinstance(each.value, bool) else self._text(each, what, _VALUE) for each in places]
        if len(set(values)) < len(values):
            self._report(place.line, f"{what} has a value twice. Keep one.")
        return frozenset(values) if values and "" not in values else None

    def _traits(self, place: Located | None, what: str) -> tuple[Trait, ...]:
        if place is None:
            return ()
        places = self._list(place, what)
        if isinstance(place.value, list) and not places:
            self._unexpected(place, what, "at least one trait")
        names: list[Trait] = []
        for each in places:
            problem = _wrong_trait(each.value)
            if problem:
                self._unexpected(each, f"a trait of {what}", problem)
            elif each.value in names:
                self._report(each.line, f"{what} has {each.value} twice. Keep one.")
            else:
                names.append(Trait(each.value))
        return tuple(names)


_VALUE = "a text, true or false"


def _said(place: Located) -> str:
    if isinstance(place.value, bool):
        return written(place.value)
    if isinstance(place.value, str):
        return quote(place.value)
    kind = "a mapping" if isinstance(place.value, dict) else "a list"
    return kind if place.value else "empty"


def _number(names: Collection[str]) -> str:
    return " and ".join(sorted(names)) or "nothing"


def _wrong_trait(name: object) -> str:
    """Return what was expected in place of a name that is not that of a trait; empty if it is one."""
    if not isinstance(name, str) or not is_trait_name(name):
        return "the name of a trait: A-Z, 0-9 and _"
    if name.startswith(CUSTOM_PREFIX) or name in os_traits.get_traits():
        return ""
    close = get_close_matches(name, os_traits.get_traits(), n=1)
    like = f" (close to it: {close[0]})" if close else ""
    return f"a standard trait that the installed os-traits has{like}, or one that begins with CUSTOM_"
