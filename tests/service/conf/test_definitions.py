"""The help of each option: what, which values, the default, since when, and what a wrong value does."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest
from oslo_config import cfg
from packaging.version import Version

import os_prefilter
from os_prefilter.service.conf import GROUP, OPTIONS, list_opts, options_from
from os_prefilter.vocabulary.options import Options
from tests.conftest import conf_with

_SRC = Path(os_prefilter.__file__).parent


def facts_of(option: cfg.Opt) -> dict[str, str]:
    """Return the list at the end of an option's help: each item by its first word, on one line."""
    listed = (option.help or "").partition("\n\n")[2]
    items = [" ".join(item.split()) for item in re.split(r"^- ", listed, flags=re.MULTILINE) if item]
    return {item.partition(" ")[0].rstrip(":"): item for item in items}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_help_says_values_default_release_and_what_a_wrong_value_does(option: cfg.Opt) -> None:
    """``test_wrong_options.py`` proves the last."""
    facts = facts_of(option)
    choices = getattr(option.type, "choices", None)
    # With a meaning beside each choice, which every output of the generator shows.
    assert all(choices.values()) if choices else len(facts["Values"]) > len("Values: .")
    if option.default in ([], ""):
        assert facts["Default"].startswith("Default: empty; ")
    elif isinstance(option.default, list):
        assert facts["Default"] == f"Default: ``{','.join(option.default)}``."
    else:
        assert re.match(rf"Default: (``)?{re.escape(str(option.default))}\b", facts["Default"], re.IGNORECASE)
    since = facts["Since"].removeprefix("Since ").removesuffix(".")
    assert Version(since) <= Version(version("os-prefilter"))
    assert facts["A"].startswith("A wrong value stops the service at its start")


def test_code_reads_each_listed_option() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in _SRC.rglob("*.py"))
    ((group, options),) = list_opts()
    assert group == GROUP
    assert [option.name for option in options if not re.search(rf"\.{option.dest}\b", code)] == []


def test_config_option_defaults_equal_the_defaults_of_options() -> None:
    assert options_from(conf_with()) == Options()
