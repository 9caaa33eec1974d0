"""The vocabulary is closed: what the installed Nova knows has a row, or a reason for having none."""

from fnmatch import fnmatchcase
from itertools import chain

from nova.api.validation.extra_specs import validators
from nova.objects.image_meta import ImageMetaProps

from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.config_templates import PREFIX
from os_prefilter.vocabulary.without_rows import WITHOUT_ROWS, reason_without_row
from tests.against_nova.nova import NOVA

_LISTED = tuple(chain.from_iterable((*each.image_properties, *each.extra_specs) for each in WITHOUT_ROWS))
_SINCE = {
    "hw_ephemeral_encryption_secret_uuid": 29,
    "hw_maxphysaddr_bits": 29,
    "hw:cpu_max_cores": 30,
    "hw:cpu_max_sockets": 30,
    "hw:cpu_max_threads": 30,
}
_UNTIL = {
    "hw:max_cpu_cores": 29,
    "hw:max_cpu_sockets": 29,
    "hw:max_cpu_threads": 29,
    "os:monitors": 27,
    "os:resolution": 27,
    "os:vram": 27,
}
"""Name -> the first, the last release of Nova that knows it, where that is a supported one."""


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
        reasons = [each for each in WITHOUT_ROWS if name in each.image_properties or each.has_extra_spec(name)]
        assert len(reasons) <= 1, name


def test_installed_nova_knows_exactly_the_listed_names_of_its_release() -> None:
    """A property that Nova dropped must leave the list, or be named in ``_UNTIL`` while a supported one has it."""
    expected = {name for name in _LISTED if _SINCE.get(name, NOVA) <= NOVA <= _UNTIL.get(name, NOVA)}
    assert {name for name in _LISTED if any(fnmatchcase(each, name) for each in _known_names())} == expected
