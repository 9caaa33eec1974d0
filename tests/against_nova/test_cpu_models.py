# SPDX-License-Identifier: Apache-2.0

"""The CPU features by which Nova's driver chooses a guest's model."""

from __future__ import annotations

import pytest
from nova.virt.libvirt.utils import TRAITS_CPU_MAPPING

from os_prefilter.service import Service
from os_prefilter.vocabulary.filter_rows import SEVERAL_CPU_MODELS
from os_prefilter.vocabulary.options import Options
from tests.support.nova_objects import nova_spec


@pytest.mark.parametrize("trait", sorted(TRAITS_CPU_MAPPING))
def test_every_feature_by_which_nova_chooses_a_model_is_one_here(
    trait: str,
) -> None:
    options = Options(nova_builds_guests=True)
    service = Service.from_names("image_metadata", options=options)
    decision = service.decide(nova_spec({f"trait:{trait}": "required"}))
    (item,) = decision.requirements
    assert item.trait == SEVERAL_CPU_MODELS
    assert item.source == (
        f"image property trait:{trait}=required without"
        f" trait:{trait}=required in the flavor"
    )
