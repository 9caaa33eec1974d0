"""Effects of the operator's rules on each image: the hosts without the rule, and with it.

A rule may also be about what is no part of an image: a flavor, a project, a hint. Each image is then judged in a
request that says so, on hosts of any size.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import TYPE_CHECKING, Any, NamedTuple

from os_prefilter.request.spec import Image, RequestSpec
from os_prefilter.request.view import Request
from os_prefilter.rules import conditions as rule_conditions
from os_prefilter.rules.model import Rule, RuleSet
from os_prefilter.service import Service
from os_prefilter.vocabulary import table
from os_prefilter_tools.fleet.host_index import HostIndex
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.operators.audit import image_audit
from os_prefilter_tools.operators.readiness import compute_nodes

if TYPE_CHECKING:
    from os_prefilter_tools.fleet import demand

_ANY_VALUES = ("true", "any")
"""Values of an extra spec or a hint that only has to be present."""
_VALUES_OF_NOVA = {"trait": "required", "resources": "1"}
"""Beginnings of extra specs that have values of their own."""
_MOST_TRIED = 100


class OnImage(NamedTuple):
    """The effect of a rule on one image."""

    name: str
    before: int
    """How many hosts could serve the image without the rule."""
    after: int
    """How many can with it."""
    reason: str
    """Why the request is rejected, if it is."""


class Effect(NamedTuple):
    """One effect of a rule, and the images that share it."""

    rule: Rule
    request: str
    """Conditions of the request beside the image, in words; empty for none."""
    verdict: image_audit.ImageVerdict | None
    """None if it applies to no image."""
    images: tuple[OnImage, ...] = ()


def rule_effects(rules: Sequence[Rule], images: Iterable[Image], fleet: Fleet, service: Service) -> list[Effect]:
    """Return the effects of each rule alone on the images, in the order of the rules, the worst effect first.

    :param service: the filters beside the rules; its own rules are left out
    :raises PrefilterError: if a filter fails; a request that is rejected is a result
    """
    # Without a compute node everything is deferred.
    enforcing = service.without_waiting() if compute_nodes(fleet) else service
    before: dict[tuple[int, str], image_audit.Requested] = {}
    queries: dict[str, tuple[demand.Condition, ...]] = {}
    without = enforcing.with_rules(RuleSet())
    images = tuple(images)

    def judge(rule: Rule) -> Iterator[_Judged]:
        """Yield the requests for images that the rule applies to, without it and with it."""
        alone = RuleSet((rule,))
        with_rule = enforcing.with_rules(alone)
        for clause in rule.when:
            of_image = tuple(each for each in clause if each.place == rule_conditions.IMAGE_PROPERTY)
            request = rule_conditions.describe_clauses(
                [tuple(each for each in clause if each.place != rule_conditions.IMAGE_PROPERTY)]
            )
            # What is required already is not added: it comes from the image, or not at all.
            said = [
                each
                for each in clause
                if each.place not in (rule_conditions.IMAGE_PROPERTY, rule_conditions.REQUIRES, rule_conditions.FORBIDS)
            ]
            for number, image in enumerate(images):
                if not rule_conditions.RuleSubject(Request(RequestSpec(image_audit.ANY_FLAVOR, image))).meets(of_image):
                    continue
                # With each value that the rule may except.
                for values in islice(product(*map(_values, said)), _MOST_TRIED):
                    spec = _request(image, list(zip(said, values, strict=True)))
                    # Each request once for all rules.
                    key = number, repr(replace(spec, image=None))
                    if key not in before:
                        before[key] = image_audit.requested_by(spec, without, queries, set())
                    if alone.match(Request(spec), (*before[key].from_request, *before[key].added)):
                        after = image_audit.requested_by(spec, with_rule, queries, set())
                        yield _Judged(request, image_audit.name_of(image), before[key], after)
                        break

    judged = [(rule, list(judge(rule))) for rule in rules]
    conditions = {item for found in queries.values() for item in found}
    index = HostIndex.by_capability(fleet, conditions, any_size=True)
    return [effect for rule, found in judged for effect in _effects(rule, found, index)]


class _Judged(NamedTuple):
    request: str
    name: str
    before: image_audit.Requested
    after: image_audit.Requested


def _effects(rule: Rule, judged: Iterable[_Judged], index: HostIndex) -> list[Effect]:
    found: dict[tuple[image_audit.ImageVerdict, str], list[OnImage]] = {}
    for each in judged:
        had, has = each.before.hosts_in(index), each.after.hosts_in(index)
        verdict = image_audit.verdict_of(each.before, each.after, had, has)
        on_image = OnImage(each.name, had.bit_count(), has.bit_count(), each.after.rejected)
        found.setdefault((verdict, each.request), []).append(on_image)
    order = sorted(found, key=lambda key: list(image_audit.ImageVerdict).index(key[0]))
    effects = [Effect(rule, request, verdict, tuple(found[verdict, request])) for verdict, request in order]
    return effects or [Effect(rule, "", None)]


def _values(condition: rule_conditions.RuleCondition) -> list[str]:
    """Return the values that a request may have to meet the condition."""
    if condition.values:
        return sorted(map(rule_conditions.format_value, condition.values))
    known: list[str] = []
    if condition.place == rule_conditions.EXTRA_SPEC:
        known = [value for prefix, value in _VALUES_OF_NOVA.items() if condition.name.startswith(prefix)]
        known = known or [value for row in table() if row.extra_spec == condition.name for value in row.values]
    return known or [*_ANY_VALUES]


def _request(image: Image, said: Sequence[tuple[rule_conditions.RuleCondition, str]]) -> RequestSpec:
    values: dict[str, dict[str, list[str]]] = {}
    # A list has all its items; a value that is compared as a whole takes their place.
    for condition, value in sorted(said, key=lambda each: (not each[0].values, each[0].in_list)):
        found = values.setdefault(condition.place, {}).setdefault(condition.name, [])
        if not found or condition.place == rule_conditions.HINT or condition.in_list:
            found.append(value)
    exact = {each.key for each, _ in said if each.values and not each.in_list}
    extra_specs: Mapping[str, Any] = {
        name: found[0] if (rule_conditions.EXTRA_SPEC, name) in exact else ",".join(found)
        for name, found in values.get(rule_conditions.EXTRA_SPEC, {}).items()
    }

    def first_of(place: str) -> str | None:
        return next(iter(values.get(place, {}).get("", ())), None)

    return RequestSpec(
        replace(image_audit.ANY_FLAVOR, extra_specs=extra_specs, name=first_of(rule_conditions.FLAVOR)),
        image,
        project_id=first_of(rule_conditions.PROJECT),
        availability_zone=first_of(rule_conditions.ZONE),
        scheduler_hints=values.get(rule_conditions.HINT, {}),
    )
