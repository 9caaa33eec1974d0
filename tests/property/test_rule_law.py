"""The law of rules: an index finds the same as a look at each rule."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.request.view import Request
from os_prefilter.rules.model import IMAGE_PROPERTY, Condition, Rule, RuleSet
from tests.conftest import times
from tests.documents.values import RULE_VALUES, WORDS, rule_lists


@settings(deadline=None, max_examples=times(25), suppress_health_check=[HealthCheck.too_slow])
@given(rule_lists(), st.dictionaries(WORDS, RULE_VALUES, max_size=4), st.dictionaries(WORDS, WORDS, max_size=4))
def test_a_request_matches_the_rules_whose_conditions_all_hold(
    rules: list[Rule], properties: dict[str, Any], extra_specs: dict[str, str]
) -> None:
    """No trait of a matching rule is missing in the traits of the set."""
    request = Request(RequestSpec(Flavor(1, 512, extra_specs=extra_specs), Image(properties)))
    found = RuleSet(rules)
    met = found.matching(request)
    assert {trait for rule in met for trait in (*rule.require, *rule.forbid)} <= found.traits
    assert met == [rule for rule in rules if all(each.holds(_value(request, each)) for each in rule.when)]


def _value(request: Request, condition: Condition) -> object:
    read = request.image_property if condition.place == IMAGE_PROPERTY else request.extra_spec
    return read(condition.name)
