# SPDX-License-Identifier: Apache-2.0

"""Booleans and trait names are what Nova and Placement take for them."""

from __future__ import annotations

from importlib import import_module
from runpy import run_path
from typing import Any

import pytest

from os_prefilter.common.trait_names import Trait, is_trait_name, trait_named
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.config_templates import Template, Templates
from os_prefilter.vocabulary.model import Row, as_boolean, terms


def test_boolean_is_spelled_as_in_oslo() -> None:
    spellings: dict[str | None, list[object]] = {
        "true": [
            True,
            1,
            "1",
            "t",
            "true",
            "True",
            "on",
            "ON",
            "y",
            "yes",
            " YES ",
        ],
        "false": [False, 0, "0", "f", "false", "off", "n", "No"],
        None: [None, 2, 1.5, "", "maybe", [], {}, "yes" * 100_000],
    }
    for expected, values in spellings.items():
        assert [BY_NAME["time_hpet"].canonical(value) for value in values] == [
            expected
        ] * len(values)
        assert all(
            as_boolean(value)
            is {"true": True, "false": False}.get(str(expected))
            for value in values
        )
    assert (
        Row("mine", terms("CUSTOM_MINE", "1 2"), extra_spec="x").canonical(
            "02"
        )
        == "2"
    )


def test_name_that_placement_would_refuse_is_not_a_trait_name() -> None:
    names: list[Any] = [None, 1, "", "A,B", "A!", "a", "A" * 256, "A B", "Ä"]
    for name in names:
        assert not is_trait_name(name)
        with pytest.raises(ValueError, match="is not the name of a trait"):
            trait_named(name)


@pytest.mark.parametrize(
    "name",
    [
        "config_templates",
        "filter_rows",
        "machine_types",
        "nova_rows",
    ],
)
def test_a_second_import_makes_the_same_tables(name: str) -> None:
    """Tests of mutants change the functions that make them after the first
    one.
    """
    module = import_module(f"os_prefilter.vocabulary.{name}")
    again = run_path(str(module.__file__), run_name=module.__name__)
    for key, first in vars(module).items():
        if key.isupper():
            assert repr(getattr(again[key], "__dict__", again[key])) == repr(
                getattr(first, "__dict__", first)
            )


def test_templates_are_equal_to_no_list() -> None:
    templates = Templates([Template("A", "on", (Trait("CUSTOM_A"),))])
    assert templates != list(templates)
