# SPDX-License-Identifier: Apache-2.0

"""The help of each option: its meaning and its values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from oslo_config import cfg

import os_prefilter
from os_prefilter.service.conf import GROUP, list_opts, options_from
from os_prefilter.service.option_definitions import OPTIONS
from os_prefilter.vocabulary.options import Options
from tests.conftest import conf_with

_SRC = Path(os_prefilter.__file__).parent


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_help_says_values_where_the_type_does_not(option: cfg.Opt) -> None:
    """oslo.config's own outputs show defaults, limits and types."""
    meaning, _, values = str(option.help).partition("\n\n")
    choices = getattr(option.type, "choices", None)
    assert meaning.endswith(".")
    # With a meaning beside each choice, which every output of the generator
    # shows.
    assert (
        all(choices.values())
        if choices
        else values or not isinstance(option, (cfg.StrOpt, cfg.ListOpt))
    )


def test_code_reads_each_listed_option() -> None:
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in _SRC.rglob("*.py")
        if path.name != "definitions.py"
    )
    ((group, options),) = list_opts()
    assert group == GROUP
    assert [
        option.name
        for option in options
        if not re.search(rf"[.\"]{option.dest}\b", code)
    ] == []


def test_config_option_defaults_equal_the_defaults_of_options() -> None:
    assert options_from(conf_with()) == Options()
