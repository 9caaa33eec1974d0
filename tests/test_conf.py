"""The options: harmless by default, documented, and wrong values stop the service."""

from pathlib import Path

import pytest
from oslo_config import cfg

from os_prefilter import Pipeline
from os_prefilter.conf import OPTIONS, list_opts, options_from, register_opts
from os_prefilter.errors import ConfigurationError, InvalidOption
from os_prefilter.options import Options
from tests.conftest import conf_with


def test_defaults_are_those_of_the_plain_options() -> None:
    assert options_from(conf_with()) == Options()


def test_registering_twice_is_harmless() -> None:
    conf = conf_with()
    register_opts(conf)
    assert Pipeline.from_conf(conf).filters == ()


def test_every_option_has_help_that_says_since_when() -> None:
    ((group, options),) = list_opts()
    assert group == "prefilter"
    assert options == OPTIONS
    for option in options:
        assert "Since 0." in (option.help or "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"reported_traits": ["CUSTOM_COMPUTE_TIME_HPT"]},
            "'CUSTOM_COMPUTE_TIME_HPT' matches no trait.*Close to it: .*CUSTOM_COMPUTE_TIME_HPET",
        ),
        ({"reported_traits": ["NOTHING_*"]}, r"'NOTHING_\*' matches no trait.*Close to it: none"),
        ({"facts_interval": float("nan")}, "facts_interval: nan is not a number of seconds"),
        ({"owner_trait": "owner,!x"}, "owner_trait: 'owner,!x' is not a trait name"),
        ({"foreign_owner_traits": [""]}, "foreign_owner_traits: '' is not a trait name"),
        ({"foreign_owner_traits": ["OWNER_NOVA"]}, "the own owner_trait"),
        ({"owned_resource_classes": ["VGPUS"]}, "owned_resource_classes: 'VGPUS' is not a resource class"),
    ],
)
def test_wrong_values_stop_the_service(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        Pipeline.from_conf(conf_with(**options))


def test_what_oslo_config_refuses_is_a_configuration_error(tmp_path: Path) -> None:
    """So that a service can stop on one class."""
    path = tmp_path / "nova.conf"
    path.write_text("[prefilter]\ntrait_scope = both\n")
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[str(path)])
    with pytest.raises(ConfigurationError, match=rf"\[prefilter\] .*trait_scope in {path} is not valid"):
        Pipeline.from_conf(conf)
