"""What the lists say of Nova's image properties is what its class does."""

from typing import Any

import pytest
from nova.objects import fields
from nova.objects.image_meta import ImageMetaProps

from os_prefilter.image_properties import BOOLEANS, KEPT_BY_NOVA, LEGACY_NAMES, LOWER_CASED
from os_prefilter.request import Request
from os_prefilter.rules import IMAGE_PROPERTY, as_nova_spells, readings
from os_prefilter.vocabulary import ROWS
from tests.conftest import spec_of
from tests.support.nova_objects import nova_spec

_LISTS = {"hw_numa_cpus", "hw_numa_mem", "img_block_device_mapping", "img_mappings", "traits_required"}


def test_the_properties_that_nova_keeps_are_its_fields_but_for_lists() -> None:
    assert set(ImageMetaProps.fields) - _LISTS == KEPT_BY_NOVA


def test_the_booleans_are_novas() -> None:
    assert {name for name, each in ImageMetaProps.fields.items() if isinstance(each, fields.FlexibleBooleanField)} == (
        BOOLEANS
    )


def test_the_old_names_are_novas() -> None:
    assert ImageMetaProps._legacy_property_map == LEGACY_NAMES
    for row in ROWS:
        assert {LEGACY_NAMES[name] for name in row.legacy_names} <= {row.image_property}


def _valid_values(name: str) -> list[str]:
    kind: Any = ImageMetaProps.fields[name]
    kind = getattr(kind, "AUTO_TYPE", None) or kind._type
    return [str(value) for value in getattr(kind, "_valid_values", None) or ()]


@pytest.mark.parametrize("name", sorted(name for name in KEPT_BY_NOVA if _valid_values(name)))
def test_a_value_is_spelt_as_nova_spells_it(name: str) -> None:
    """Each value of each enumeration, in capitals and not; what Nova refuses cannot be in a request."""
    for value in _valid_values(name):
        for spelling in (value, value.upper(), value.lower()):
            try:
                kept = ImageMetaProps.from_dict({name: spelling}).get(name)
            except ValueError:
                continue
            assert as_nova_spells(name, spelling) == kept
    if name in LOWER_CASED:
        assert ImageMetaProps.from_dict({name: _valid_values(name)[0].upper()}).get(name) == _valid_values(name)[0]


@pytest.mark.parametrize(
    ("name", "value", "seen"),
    [
        # A free text stays as it is, a boolean becomes one, a number becomes a number.
        ("os_distro", "Windows", ["Windows"]),
        ("os_type", "Windows", ["windows"]),
        ("os_require_quiesce", "yes", [True]),
        ("hw_cpu_cores", "4", ["4"]),
        ("hw_cpu_cores", "1", ["1", True]),
        ("hw_vif_model", "VirtualE1000", ["e1000"]),
        # Gone.
        ("licence", "windows", []),
        ("os_version", "11", []),
    ],
)
def test_what_a_filter_within_nova_can_compare(name: str, value: str, seen: list[object]) -> None:
    """The same as of the image that Glance has, if Nova keeps the property at all."""
    inside = Request(nova_spec({name: value})).image_property(name)
    assert readings(IMAGE_PROPERTY, name, inside) == seen
    outside = Request(spec_of({name: value})).image_property(name)
    if seen:
        found = readings(IMAGE_PROPERTY, name, outside)
        assert [each for each in found if each in seen] == seen
    assert bool(seen) == (name in KEPT_BY_NOVA)


@pytest.mark.parametrize("old", sorted(LEGACY_NAMES))
def test_old_names_count_as_current_ones(old: str) -> None:
    """In an image as Glance has it; a current name that is there as well wins."""
    current = LEGACY_NAMES[old]
    assert Request(spec_of({old: "a"})).image_property(current) == "a"
    assert Request(spec_of({old: "a", current: "b"})).image_property(current) == "b"


@pytest.mark.parametrize("adapter", ["ide", "lsiLogic"])
def test_the_adapter_of_vmware_is_two_properties(adapter: str) -> None:
    names = ("hw_disk_bus", "hw_scsi_model")
    inside, outside = (
        Request(nova_spec({"vmware_adaptertype": adapter})),
        Request(spec_of({"vmware_adaptertype": adapter})),
    )
    for name in names:
        assert readings(IMAGE_PROPERTY, name, inside.image_property(name)) == readings(
            IMAGE_PROPERTY, name, outside.image_property(name)
        )
