"""Since which release Nova has the properties and values of the vocabulary, against the installed Nova."""

from importlib.metadata import version

import pytest
from nova.api.validation.extra_specs import validators
from nova.network import model as network_model
from nova.objects import fields, image_meta

from os_prefilter.hosts.drivers.nova_releases import NOVA_RELEASES
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.model import Row
from os_prefilter.vocabulary.releases import ADDED_TO_NOVA, OLDEST, release_of_value

_MAJOR = {release.openstack: number for number, release in NOVA_RELEASES.items()}
_INSTALLED = int(version("nova").partition(".")[0])


def _is_there(row: Row, value: str) -> bool:
    return _MAJOR[release_of_value(row, value)] <= _INSTALLED


@pytest.mark.parametrize("row", [row for row in ROWS if row.image_property or row.extra_spec], ids=lambda row: row.name)
def test_installed_nova_has_exactly_the_properties_of_its_release_and_before(row: Row) -> None:
    property_release = ADDED_TO_NOVA.get(row.name, {}).get("", OLDEST)
    expected = _MAJOR[property_release] <= _INSTALLED
    if row.image_property:
        assert (row.image_property in image_meta.ImageMetaProps.fields) == expected
    # Nova reads hw:maxphysaddr_mode, and validates it in no release.
    if row.extra_spec and row.name != "maxphysaddr_mode":
        validators.load_validators()
        names = {name for name in validators.VALIDATORS if not name.startswith("os_prefilter")}
        assert (row.extra_spec in names) == expected


def test_installed_nova_has_exactly_the_values_of_its_release_and_before() -> None:
    # Before Nova 32 there is no such property, and no class for its values.
    models = getattr(fields, "MemEncryptionModel", None)
    found = {"vif_model": network_model.VIF_MODEL_ALL, "mem_encryption_model": models.ALL if models else ()}
    for row in ROWS:
        for value in found.get(row.name, ()):
            assert _is_there(row, value)
        later = {value for value in ADDED_TO_NOVA.get(row.name, {}) if value}
        assert {value for value in later if _is_there(row, value)} == later & set(found.get(row.name, ()))
