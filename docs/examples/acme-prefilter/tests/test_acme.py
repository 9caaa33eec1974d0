"""All tests come with os-prefilter but these: what Acme means."""

from __future__ import annotations

from acme_prefilter.reporter import CloudHypervisorFacts

from os_prefilter import capability_traits
from os_prefilter_tools.operators.candidates import find_candidates
from os_prefilter_tools.testing import (
    filter_conformance,
    reporter_conformance,
    request_of,
)

HOSTS = [
    CloudHypervisorFacts(host="ch-new", architecture="x86_64", has_uefi=True),
    CloudHypervisorFacts(
        host="ch-arm", architecture="aarch64", has_uefi=False
    ),
]
FLEET = {
    "hosts": {
        "ordinary": {
            "resources": {"VCPU": 64, "MEMORY_MB": 1_048_576, "DISK_GB": 100}
        },
        "large": {
            "resources": {"VCPU": 64, "MEMORY_MB": 1_048_576, "DISK_GB": 100},
            "traits": ["CUSTOM_ACME_LARGE_GUESTS"],
        },
    }
}

TestLargeGuests = filter_conformance(
    "large_guests", asks=[request_of(memory_mb=262_144), request_of()]
)
TestCloudHypervisor = reporter_conformance("cloud_hypervisor", facts=HOSTS)


def test_large_guests_and_small_ones_do_not_meet(
    prefilter_request, prefilter_pipeline, prefilter_placement
):
    placement = prefilter_placement(FLEET)
    for memory, host in ((262_143, "ordinary"), (262_144, "large")):
        found = find_candidates(
            prefilter_request(memory_mb=memory),
            prefilter_pipeline("large_guests"),
            placement,
        )
        assert found.candidates.hosts == (host,)


def test_gpu_sharing_is_reported():
    traits = capability_traits(HOSTS[0])
    assert traits["CUSTOM_ACME_GPU_SHARING_PARTITIONS"]
    assert not traits["CUSTOM_ACME_GPU_SHARING_TIME_SLICES"]
