"""noop: the worked example changes nothing."""

from tests.conftest import asked_by, spec_of


def test_noop_requires_nothing_and_leaves_the_request_unchanged() -> None:
    spec = spec_of({"hw_vif_model": "e1000e"}, {"resources:VGPU": "1"})
    assert asked_by("noop", spec) == []
    assert spec == spec_of({"hw_vif_model": "e1000e"}, {"resources:VGPU": "1"})
