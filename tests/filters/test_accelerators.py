"""accelerators: a device profile needs a compute service that can attach its devices."""

from collections.abc import Callable

import pytest

from tests.conftest import asked_by, pipeline_of, spec_of


@pytest.mark.parametrize("extra_specs", [{}, {"accel:device_profile": ""}, {"accel:other": "x"}])
def test_request_without_a_device_profile_requires_nothing(extra_specs: dict[str, str]) -> None:
    assert asked_by("accelerators", spec_of(extra_specs=extra_specs)) == []


def test_device_profile_requires_the_trait_and_its_name_stays_out_of_the_source() -> None:
    spec = spec_of(extra_specs={"accel:device_profile": "x\ny"})
    (item,) = pipeline_of("accelerators").apply(spec).requirements
    assert (item.trait, item.source) == ("COMPUTE_ACCELERATORS", "flavor extra spec accel:device_profile=any")


def test_only_hosts_that_attach_accelerators_remain(hosts: Callable[..., tuple[str, ...]]) -> None:
    found = hosts(spec_of(extra_specs={"accel:device_profile": "gpu"}), "accelerators")
    assert "gpu-cyborg-1" in found
    assert "vmware-1" not in found
