"""What each of the operator's rules does to each image: the hosts without the rule, and with it.

A rule may also be about what is no part of an image: a flavor, a project, a hint. Each image is then judged in a
request that says so, on hosts of any size.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from os_prefilter.fleet.capability_index import CapabilityIndex
from os_prefilter.fleet.model import Fleet
from os_prefilter.operators.audit.audit import (
    ANY_FLAVOR,
    Requested,
    Verdict,
    name_of,
    requested_by,
    verdict_of,
)
from os_prefilter.operators.readiness import coverage_of
from os_prefilter.pipeline.pipeline import Pipeline
from os_prefilter.request import demand
from os_prefilter.request.spec import Image, RequestSpec
from os_prefilter.request.view import Request
from os_prefilter.rules.conditions import (
    EXTRA_SPEC,
    FLAVOR,
    HINT,
    IMAGE_PROPERTY,
    PROJECT,
    ZONE,
    Clause,
    Subject,
    describe_clauses,
    format_value,
)
from os_prefilter.rules.model import Rule, RuleSet

_ANY_VALUE = "true"
"""Of an extra spec or a hint that only has to be present."""


class OnImage(NamedTuple):
    """What a rule does to one image."""

    name: str
    before: int
    """How many hosts could serve the image without the rule."""
    after: int
    """How many can with it."""
    reason: str
    """Why the request is rejected, if it is."""


class Effect(NamedTuple):
    """What a rule does to the images to which it does the same."""

    rule: Rule
    request: str
    """What the request says beside the image, in words; empty for nothing."""
    verdict: Verdict | None
    """None if it applies to no image."""
    images: tuple[OnImage, ...] = ()


def rule_effects(rules: Sequence[Rule], images: Iterable[Image], fleet: Fleet, pipeline: Pipeline) -> list[Effect]:
    """Return what each rule alone does to the images, in the order of the rules, the worst effect first.

    :param pipeline: the filters beside the rules; its own rules are left out
    :raises PrefilterError: if a filter fails; a request that is rejected is a result
    """
    # Without a compute node no gate opens.
    enforcing = pipeline.without_waiting() if coverage_of(fleet).compute_nodes else pipeline
    images = list(images)
    queries: dict[str, tuple[demand.Condition, ...]] = {}
    judged = [(rule, _judge(rule, images, enforcing, queries)) for rule in rules]
    index = CapabilityIndex(fleet, {item for found in queries.values() for item in found}, any_size=True)
    return [effect for rule, found in judged for effect in _effects(rule, found, index)]


class _Judged(NamedTuple):
    request: str
    name: str
    before: Requested
    after: Requested


def _judge(
    rule: Rule, images: Iterable[Image], pipeline: Pipeline, queries: dict[str, tuple[demand.Condition, ...]]
) -> list[_Judged]:
    """Return the requests for images that the rule applies to, without it and with it."""
    alone = RuleSet((rule,))
    without, with_rule = pipeline.with_rules(RuleSet()), pipeline.with_rules(alone)
    judged = []
    for clause in rule.when:
        of_image = tuple(each for each in clause if each.place == IMAGE_PROPERTY)
        request = describe_clauses([tuple(each for each in clause if each.place != IMAGE_PROPERTY)])
        for image in images:
            spec = _request(image, clause)
            if not Subject(Request(spec)).meets(of_image):
                continue
            before = requested_by(spec, without, queries, set())
            if alone.match(Request(spec), (*before.from_request, *before.added)):
                after = requested_by(spec, with_rule, queries, set())
                judged.append(_Judged(request, name_of(image), before, after))
    return judged


def _effects(rule: Rule, judged: Iterable[_Judged], index: CapabilityIndex) -> list[Effect]:
    found: dict[tuple[Verdict, str], list[OnImage]] = {}
    for each in judged:
        had, has = (0 if side.rejected else index.find_serving(side.query) for side in (each.before, each.after))
        verdict = verdict_of(each.before, each.after, had, has)
        on_image = OnImage(each.name, had.bit_count(), has.bit_count(), each.after.rejected)
        found.setdefault((verdict, each.request), []).append(on_image)
    urgency = tuple(Verdict)
    order = sorted(found, key=lambda key: urgency.index(key[0]))
    effects = [Effect(rule, request, verdict, tuple(found[verdict, request])) for verdict, request in order]
    return effects or [Effect(rule, "", None)]


def _request(image: Image, clause: Clause) -> RequestSpec:
    """Return a request for an image that says what else the conditions are about.

    What is required already is not added: it comes from the image, or not at all.
    """
    values: dict[str, dict[str, str]] = {}
    for each in clause:
        first = min(map(format_value, each.values), default=_ANY_VALUE)
        values.setdefault(each.place, {})[each.name] = first
    extra_specs: Mapping[str, Any] = values.get(EXTRA_SPEC, {})
    flavor = replace(ANY_FLAVOR, extra_specs=extra_specs, name=values.get(FLAVOR, {}).get(""))
    return RequestSpec(
        flavor,
        image,
        project_id=values.get(PROJECT, {}).get(""),
        availability_zone=values.get(ZONE, {}).get(""),
        scheduler_hints={name: [value] for name, value in values.get(HINT, {}).items()},
    )
