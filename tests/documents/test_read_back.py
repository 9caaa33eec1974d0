"""Read-back: a well-formed value that is written reads as it was."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from os_prefilter.rules.model import RuleSet
from tests.conftest import times
from tests.documents.laws import Document, value_of
from tests.documents.table import DOCUMENTS
from tests.documents.values import FLAVORS, IMAGES, REQUEST_SPECS, fleets, rule_lists, templates_of

_VALUES: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], object]]] = {
    "fleet": (fleets(), lambda fleet: any(host.providers for host in fleet.hosts) and fleet.aggregates),
    "rules": (rule_lists(), bool),
    "templates": (templates_of(), lambda templates: any(each.variants for each in templates)),
    "request_spec": (REQUEST_SPECS, lambda spec: spec.requested_resources),
    "stored_request_spec": (REQUEST_SPECS, lambda spec: spec.requested_resources),
    "image": (IMAGES, lambda image: image.properties),
    "flavor": (FLAVORS, lambda flavor: flavor.extra_specs),
}
"""Values of each document that has a writer, and whether one is rich."""


@pytest.mark.parametrize("document", [each for each in DOCUMENTS if each.write], ids=str)
@settings(
    deadline=None,
    max_examples=times(12),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
@given(st.data())
def test_a_written_value_reads_back_as_it_was(document: Document, data: st.DataObject) -> None:
    """Also text that YAML takes for numbers, dates, null or its own signs; at least every second value is rich."""
    values, is_rich = _VALUES[document.name]
    for value in (data.draw(values), data.draw(values.filter(is_rich))):
        assert document.write
        again = value_of(document, document.write(value))
        assert again == value
        if document.name == "rules":
            assert RuleSet(again).checksum == RuleSet(value).checksum
