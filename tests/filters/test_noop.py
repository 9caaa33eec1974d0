"""noop: the worked example changes nothing."""

from tests.conftest import asked_by, spec_of


def test_nothing_is_asked_and_nothing_changed() -> None:
    spec = spec_of({"hw_vif_model": "e1000e"}, {"resources:VGPU": "1"})
    assert asked_by("noop", spec) == []
    assert spec == spec_of({"hw_vif_model": "e1000e"}, {"resources:VGPU": "1"})
