"""What is wrong with rules although each is well-formed: with one another, with the vocabulary, and within Nova."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from os_prefilter.common.quoting import quote
from os_prefilter.request.requirements import ROOT, UNSUFFIXED
from os_prefilter.rules.model import IMAGE_PROPERTY, Condition, Rule, Value, as_nova_spells, readings, written
from os_prefilter.vocabulary import table
from os_prefilter.vocabulary.image_properties import BOOLEANS, KEPT_BY_NOVA, LEGACY_NAMES
from os_prefilter.vocabulary.model import Row, canonical_boolean

_VMWARE_ADAPTER = "vmware_adaptertype"


class Problem(NamedTuple):
    """Something wrong with a file of rules."""

    file: str
    line: int
    """0 where it is the file as a whole."""
    text: str
    warning: bool = False
    """Whether the rules may be used nevertheless."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {'warning: ' if self.warning else ''}{self.text}"


def check_rules(rules: list[Rule]) -> Iterator[Problem]:
    """Yield what is wrong with well-formed rules, taken together."""
    yield from _same_names(rules)
    for rule in rules:
        for text, warning in (*_within(rule), *_against_vocabulary(rule)):
            yield Problem(rule.file, rule.line, f"the rule {rule.name} {text}", warning)
    yield from _contradictions(rules)


def _same_names(rules: Iterable[Rule]) -> Iterator[Problem]:
    first: dict[str, Rule] = {}
    for rule in rules:
        other = first.setdefault(rule.name, rule)
        if other is not rule:
            text = f"the rule name {rule.name} is taken by {other.file}:{other.line}. Rename or remove one of them."
            yield Problem(rule.file, rule.line, text)


def _within(rule: Rule) -> Iterator[tuple[str, bool]]:
    for trait in rule.require:
        if trait in rule.forbid:
            yield f"both requires and forbids {trait}. Remove one of the two.", False
    for (place, name), times in Counter((each.place, each.name) for each in rule.when).items():
        if times > 1:
            yield f"has {times} conditions about the {place} {name}. Give one condition.", False
    for condition in rule.when:
        if condition.place == IMAGE_PROPERTY:
            yield from _image_property(condition)


def _image_property(condition: Condition) -> Iterator[tuple[str, bool]]:
    name = condition.name
    current = LEGACY_NAMES.get(name) or ("hw_disk_bus" if name == _VMWARE_ADAPTER else "")
    if current:
        yield (
            f"never applies: {name} is an old name of {current}. Write {current}; images with either name meet it.",
            False,
        )
        return
    if name not in KEPT_BY_NOVA:
        yield (
            f"never applies within Nova, which drops the image property {quote(name)} before a filter sees it. Use an "
            "extra spec, or an image property that the documentation of rules lists.",
            True,
        )
        return
    for value in sorted(condition.values, key=written):
        if name in BOOLEANS:
            if not isinstance(value, bool):
                advice = f"Write {canonical_boolean(value) or 'true or false'} without quotes."
                yield f"never applies: {name} is a boolean, and {quote(value)} is a text. {advice}", False
        elif isinstance(value, str) and as_nova_spells(name, value) != value:
            yield f"never applies: Nova has {quote(value)} as {quote(as_nova_spells(name, value))}. Write that.", False


def _against_vocabulary(rule: Rule) -> Iterator[tuple[str, bool]]:
    for condition in rule.when:
        for row in table():
            name = row.image_property if condition.place == IMAGE_PROPERTY else row.extra_spec
            if name == condition.name:
                yield from _against_row(rule, condition, row)


def _against_row(rule: Rule, condition: Condition, row: Row) -> Iterator[tuple[str, bool]]:
    for value in sorted(condition.values or row.values, key=written):
        canonical = row.canonical(value)
        if canonical is None:
            what = f"asks about {condition.name}={written(value)}, a value that the vocabulary does not have"
            if row.refuses_unknown:
                yield f"{what}: requests with it are refused. There are {', '.join(row.values)}.", False
            else:
                yield f"{what}. There are {', '.join(row.values)}.", True
            continue
        yield from _against_value(rule, row, value, canonical)


def _against_value(rule: Rule, row: Row, value: Value, canonical: str) -> Iterator[tuple[str, bool]]:
    term = row.values[canonical]
    asked = rule.require if term.required else rule.forbid
    against = rule.forbid if term.required else rule.require
    said = f"{row.image_property or row.extra_spec}={written(value)}"
    verb = "requires" if term.required else "forbids"
    if term.trait in against and rule.scope in (ROOT, UNSUFFIXED):
        yield f"contradicts the vocabulary, which {verb} {term.trait} for {said}. Remove the trait.", False
    elif term.trait in asked and rule.scope == ROOT and not term.opt_in and "query" not in row.asked_by:
        by = " or ".join(row.asked_by) or "no filter"
        yield f"repeats the vocabulary, which {verb} {term.trait} for {said} (by {by}).", True


def _contradictions(rules: Iterable[Rule]) -> Iterator[Problem]:
    """Yield pairs of rules of which one always, or for one value, requires what the other one forbids.

    Rules about different things are left alone: each is good for itself, and who asks for both is told.
    """
    rules = list(rules)
    forbidding: dict[tuple[object, ...], list[Rule]] = {}
    for rule in rules:
        for trait in rule.forbid:
            for key in _keys(rule, _where_found):
                forbidding.setdefault((rule.scope, trait, *key), []).append(rule)
    for one in rules:
        for trait in one.require:
            # By what they have in common: to compare each with each would take minutes for thousands of rules.
            keys = _keys(one, _where_to_look)
            near = chain.from_iterable(forbidding.get((one.scope, trait, *key), ()) for key in keys)
            met = ((other, _meeting(one, other)) for other in near if other is not one)
            # The first tells enough.
            for other, meeting in islice((each for each in met if each[1]), 1):
                text = (
                    f"the rule {one.name} requires {trait} on {one.scope}, which the rule {other.name} "
                    f"({other.file}:{other.line}) forbids for {meeting}. Change one of the two."
                )
                yield Problem(one.file, one.line, text)


_ANY_VALUE = "any"


def _keys(rule: Rule, marks: Callable[[Condition], Iterable[object]]) -> Iterator[tuple[object, ...]]:
    for condition in rule.when:
        for mark in marks(condition):
            yield condition.place, condition.name, mark


def _where_found(condition: Condition) -> Iterable[object]:
    return (_ANY_VALUE, *_marks(condition)) if condition.values else (_ANY_VALUE, None)


def _where_to_look(condition: Condition) -> Iterable[object]:
    return (None, *_marks(condition)) if condition.values else (_ANY_VALUE,)


def _marks(condition: Condition) -> set[object]:
    """Return what conditions have in common that one value can meet: a text, or the boolean that it spells."""
    return {("value", each) for value in condition.values for each in readings(condition.place, condition.name, value)}


def _meeting(one: Rule, other: Rule) -> str:
    """Return what a request says that meets both rules; empty if none can, or if they are about different things."""
    ours = {(each.place, each.name): each for each in one.when}
    theirs = {(each.place, each.name): each for each in other.when}
    if not (ours.keys() <= theirs.keys() or theirs.keys() <= ours.keys()):
        return ""
    said = []
    for key in ours.keys() & theirs.keys():
        values = ours[key].values | theirs[key].values
        # A text may spell a boolean, so that one value meets both although they have none in common.
        common = [value for value in values if ours[key].holds(value) and theirs[key].holds(value)]
        if values and not common:
            return ""
        said.append(Condition(*key, frozenset(sorted(common, key=written)[:1])))
    return " and ".join(sorted(map(str, said)))
