# SPDX-License-Identifier: Apache-2.0

"""The table of releases is what the installed Nova says, and what README and
pages show.
"""

from __future__ import annotations

import pytest

from os_prefilter.documents.strict_yaml import parse_yaml
from os_prefilter.hosts.drivers.nova_releases import (
    NOVA_RELEASES,
    list_releases,
)
from os_prefilter.vocabulary import BY_NAME, ROWS
from os_prefilter_tools.operators.releases import ADDED_TO_NOVA
from tests.against_nova.nova import NOVA
from tests.against_nova.record import VALUES, record, values
from tests.against_nova.releases import README, page, readme_table, releases


def test_recorded_differences_are_exactly_those_of_the_installed_nova() -> (
    None
):
    """A difference that the table does not name fails, and one that is gone;
    record.py says how to write it anew.
    """
    assert record() == releases()[NOVA]


@pytest.mark.skipif(
    max(NOVA_RELEASES) != NOVA, reason="the record is of the newest Nova"
)
def test_recorded_values_are_exactly_those_that_the_newest_nova_takes() -> (
    None
):
    """record.py writes them anew."""
    assert parse_yaml(VALUES.read_bytes(), VALUES) == values()


def test_every_release_is_recorded_and_has_no_property_or_value_that_is_unknown_here() -> (
    None
):
    assert list(releases()) == list(NOVA_RELEASES)
    assert list_releases().startswith("27 (2023.1), 29 (2024.1), 30 (")
    assert [number for number, _ in page()] == sorted(
        NOVA_RELEASES, reverse=True
    )
    for release in releases().values():
        assert (release.novas_properties, release.novas_values) == ([], {})


def test_vocabulary_knows_since_which_release_nova_has_a_property_or_a_value() -> (
    None
):
    majors = {
        release.openstack: number for number, release in NOVA_RELEASES.items()
    }
    for number, release in releases().items():
        later = [
            (BY_NAME[n], v)
            for n, added in ADDED_TO_NOVA.items()
            for v in added
            if majors[added[v]] > number
        ]
        unknown = [row for row, value in later if not value]
        assert release.properties == sorted(
            str(row.image_property) for row in unknown if row.image_property
        )
        assert release.values == {
            str(row.image_property): [
                value for other, value in later if other is row and value
            ]
            for row, value in later
            if value and row not in unknown
        }
        # Nova reads hw:maxphysaddr_mode, and validates it in no release.
        extra_specs = {
            str(row.extra_spec): set(row.values)
            for row in ROWS
            if row.name != "maxphysaddr_mode"
        }
        refused = {
            name
            for name, values in release.extra_specs.items()
            if extra_specs.get(name) == set(values)
        }
        assert (
            refused
            == {str(row.extra_spec) for row in unknown if row.extra_spec}
            & extra_specs.keys()
        )


def test_readme_has_the_current_table_of_releases_and_pythons() -> None:
    assert readme_table() in README.read_text(encoding="utf-8")
