"""The vocabulary is closed: what the installed Nova knows has a row, or a reason for having none."""

from itertools import chain

from nova.api.validation.extra_specs import validators
from nova.objects.image_meta import ImageMetaProps

from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.config_templates import PREFIX
from os_prefilter_tools.operators.property_names import properties_without_rows, reason_without_row

_LISTED = tuple(chain.from_iterable((*each.image_properties, *each.extra_specs) for each in properties_without_rows()))


def _known_names() -> set[str]:
    validators.load_validators()
    return set(ImageMetaProps.fields) | {name for name in validators.VALIDATORS if not name.startswith(PREFIX)}


def test_every_image_property_and_extra_spec_of_nova_has_a_row_or_a_reason() -> None:
    rows = {name for row in ROWS for name in (row.image_property, row.extra_spec)}
    assert [name for name in sorted(_known_names() - rows) if not reason_without_row(name)] == []


def test_no_property_has_both_a_row_and_a_reason_for_having_none_or_two_reasons() -> None:
    assert len(set(_LISTED)) == len(_LISTED)
    rows = {name for row in ROWS for name in (row.image_property, row.extra_spec) if name}
    assert {name for name in rows if reason_without_row(name)} == set()
    for name in _known_names():
        reasons = [
            each for each in properties_without_rows() if name in each.image_properties or each.has_extra_spec(name)
        ]
        assert len(reasons) <= 1, name
