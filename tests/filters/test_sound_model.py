"""sound_model: all models, from flavor or image, not virtio alone."""

from collections.abc import Callable

import pytest

from os_prefilter.vocabulary import BY_NAME
from tests.conftest import asked_by, device_asked_by, spec_of


@pytest.mark.parametrize("model", BY_NAME["sound_model"].values)
def test_each_sound_model_requires_its_trait(model: str) -> None:
    expected = [(f"COMPUTE_SOUND_MODEL_{model.upper()}", True, "root")]
    assert device_asked_by("sound_model", spec_of({"hw_sound_model": model})) == expected
    assert device_asked_by("sound_model", spec_of(extra_specs={"hw:sound_model": model})) == expected


def test_request_without_a_sound_model_requires_nothing() -> None:
    assert asked_by("sound_model", spec_of({"hw_vif_model": "e1000"})) == []


def test_only_hosts_with_the_sound_model_remain(hosts: Callable[..., tuple[str, ...]]) -> None:
    found = hosts(spec_of({"hw_sound_model": "virtio"}), "sound_model")
    assert "kvm-new-1" in found
    assert not {"kvm-old-1", "vmware-1"} & set(found)
