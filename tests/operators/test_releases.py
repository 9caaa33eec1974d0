# SPDX-License-Identifier: Apache-2.0

"""The table of releases, against the installed os-traits; tests/against_nova
compares it with each Nova.
"""

from __future__ import annotations

from importlib.metadata import version

import os_traits
from packaging.version import Version

from os_prefilter.common.trait_names import ADDED_IN, standard_traits
from os_prefilter.vocabulary import BY_NAME, ROWS
from os_prefilter_tools.operators.releases import (
    ADDED_TO_NOVA,
    release_of_trait,
    release_of_value,
)

_STANDARD = sorted(
    {
        trait
        for row in ROWS
        for trait in row.traits
        if not trait.startswith("CUSTOM_")
    }
)


def test_installed_os_traits_has_exactly_the_traits_of_its_version_and_before() -> (
    None
):
    installed = Version(version("os-traits"))
    expected = {
        each
        for each in _STANDARD
        if each not in ADDED_IN
        or Version(ADDED_IN[each].os_traits) <= installed
    }
    assert {*_STANDARD} & {*os_traits.get_traits()} == expected
    assert {*_STANDARD} <= standard_traits()


def test_tables_of_releases_have_no_name_that_the_vocabulary_lacks() -> None:
    assert set(ADDED_IN) <= set(_STANDARD)
    for name, values in ADDED_TO_NOVA.items():
        assert values.keys() <= {"", *BY_NAME[name].values}


def test_trait_is_there_since_the_release_that_pins_its_os_traits_and_a_value_since_its_property_or_later() -> (
    None
):
    traits = {
        "COMPUTE_NET_VIF_MODEL_E1000": "2023.1",
        "COMPUTE_NET_VIRTIO_PACKED": "2023.2",
        "COMPUTE_SECURITY_TPM_CRB": "2024.2",
        "COMPUTE_NET_VIF_MODEL_IGB": "2025.1",
        "COMPUTE_SOUND_MODEL_VIRTIO": "2025.2",
        "HW_CPU_X86_INTEL_TDX": "2026.2",
        "CUSTOM_COMPUTE_TIME_HPET": "",
        "": "",
    }
    assert {trait: release_of_trait(trait) for trait in traits} == traits
    values = {
        ("vif_model", "igb"): "2025.1",
        ("vif_model", "e1000"): "2023.1",
        ("mem_encryption_model", "amd-sev-es"): "2025.2",
        ("mem_encryption_model", "intel-tdx"): "2026.2",
        ("default_machine", "q35"): "",
    }
    assert {
        (row, value): release_of_value(BY_NAME[row], value)
        for row, value in values
    } == values
