"""The table of releases is what the installed Nova says, and what README and pages show."""

from os_prefilter.hosts.drivers.nova_releases import NOVA_RELEASES
from tests.against_nova.nova import NOVA
from tests.against_nova.record import record
from tests.against_nova.releases import README, page, releases, with_table


def test_recorded_differences_are_exactly_those_of_the_installed_nova() -> None:
    """A difference that the table does not name fails, and one that is gone; record.py says how to write it anew."""
    assert record() == releases()[NOVA]


def test_every_release_is_recorded_and_shown() -> None:
    assert list(releases()) == list(NOVA_RELEASES)
    assert [number for number, _ in page()] == sorted(NOVA_RELEASES, reverse=True)


def test_no_release_has_an_image_property_or_a_value_that_is_unknown_here() -> None:
    for release in releases().values():
        assert release.novas_properties == []
        assert release.novas_values == {}


def test_readme_has_the_current_table_of_releases_and_pythons() -> None:
    """``python -m tests.against_nova.releases`` writes it."""
    text = README.read_text(encoding="utf-8")
    assert text == with_table(text)
