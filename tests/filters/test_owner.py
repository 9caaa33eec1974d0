"""owner: Nova's requests stay on Nova's providers, and other people's groups stay alone."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from oslo_config import cfg

from os_prefilter import Pipeline, RequestGroup
from os_prefilter.errors import MissingFact
from tests.conftest import asked_by, conf_with, pipeline_of, spec_of

_ROOT = ("OWNER_NOVA", True, "root")
_KEPT_OUT = ("OWNER_CYBORG", False, "unsuffixed")


@pytest.mark.parametrize(
    ("extra_specs", "expected"),
    [
        ({}, []),
        ({"resources:VCPU": "2"}, []),
        ({"resources:DISK_GB": "0"}, []),
        ({"resources:VGPU": "1"}, [_KEPT_OUT]),
        ({"resources:VGPU": "1", "trait:OWNER_CYBORG": "required"}, []),
        ({"resources1:VGPU": "1"}, [("OWNER_NOVA", True, "1")]),
        ({"resources_gpu:VGPU": "1", "trait_gpu:OWNER_CYBORG": "required"}, []),
        ({"resources1:FPGA": "1"}, []),
        ({"resources1:CUSTOM_PCI_8086_1563": "1"}, [("OWNER_NOVA", True, "1")]),
        ({"resources1:MEM_ENCRYPTION_CONTEXT": "1"}, [("OWNER_NOVA", True, "1")]),
        ({"resources:VGPU": "1", "resources1:VGPU": "1"}, [_KEPT_OUT, ("OWNER_NOVA", True, "1")]),
        ({"accel:device_profile": "gpu"}, []),
    ],
)
def test_flavor_groups(extra_specs: dict[str, str], expected: list[object]) -> None:
    assert asked_by("owner", spec_of(extra_specs=extra_specs)) == [_ROOT, *expected]


def test_pci_groups_are_ours_and_those_of_ports_and_profiles_are_not() -> None:
    spec = spec_of(
        requested_resources=[
            RequestGroup("pci-request-0", {"CUSTOM_PCI_8086_1563": 1}),
            RequestGroup("pci-request-1", {"CUSTOM_PCI_8086_1563": 1}),
            RequestGroup("device_profile_0", {"FPGA": 1}),
            RequestGroup("0f1c1f6c-32e0-4e2c-9c2e-4f1d9b5f5a11", {"NET_BW_EGR_KILOBIT_PER_SEC": 1}),
        ],
        pci_request_ids=frozenset(("pci-request",)),
    )
    assert asked_by("owner", spec) == [
        _ROOT,
        ("OWNER_NOVA", True, "pci-request-0"),
        ("OWNER_NOVA", True, "pci-request-1"),
    ]
    assert [group.required_traits for group in spec.requested_resources] == [
        {"OWNER_NOVA"},
        {"OWNER_NOVA"},
        set(),
        set(),
    ]


def test_the_flavor_is_cloned_not_changed() -> None:
    """A scheduler may store the flavor: it must stay what the user chose."""
    spec = spec_of(extra_specs={"resources:VGPU": "1"})
    chosen = spec.flavor
    pipeline_of("owner").apply(spec)
    assert chosen.extra_specs == {"resources:VGPU": "1"}
    assert spec.flavor.extra_specs == {"resources:VGPU": "1", "trait:OWNER_CYBORG": "forbidden"}


def test_nova_gets_novas_gpu_and_never_cyborgs(hosts: Callable[..., tuple[str, ...]]) -> None:
    for extra_specs in ({"resources:VGPU": "1"}, {"resources_a:VGPU": "1"}):
        assert hosts(spec_of(extra_specs=extra_specs)) == ("gpu-cyborg-1", "gpu-nova-1")
        assert hosts(spec_of(extra_specs=extra_specs), "owner") == ("gpu-nova-1",)


def test_a_device_profile_still_gets_cyborgs(hosts: Callable[..., tuple[str, ...]]) -> None:
    profile = RequestGroup("device_profile_0", {"VGPU": 1}, required_traits={"OWNER_CYBORG"})
    assert hosts(spec_of(requested_resources=[profile]), "owner") == ("gpu-cyborg-1",)


def test_another_service_uses_its_own_trait() -> None:
    spec = spec_of(extra_specs={"resources:VGPU": "1"})
    found = asked_by("owner", spec, owner_trait="CUSTOM_OWNER_US", foreign_owner_traits=["OWNER_NOVA", "OWNER_CYBORG"])
    assert found == [
        ("CUSTOM_OWNER_US", True, "root"),
        ("OWNER_NOVA", False, "unsuffixed"),
        ("OWNER_CYBORG", False, "unsuffixed"),
    ]


def test_a_flavor_that_forbids_the_owner_on_a_group_means_it() -> None:
    spec = spec_of(extra_specs={"resources1:VGPU": "1", "trait1:OWNER_NOVA": "forbidden"})
    assert asked_by("owner", spec) == [_ROOT]


def _gated(conf: cfg.ConfigOpts, versions: list[int]) -> tuple[Pipeline, list[object]]:
    asked: list[object] = []

    def minimum(context: object) -> int:
        asked.append(context)
        return versions[min(len(asked), len(versions)) - 1]

    return Pipeline.from_conf(conf, {"minimum_compute_version": minimum}), asked


def test_nothing_changes_until_every_compute_reports(caplog: pytest.LogCaptureFixture) -> None:
    """With an interval of 0 every request asks; one log line when the gate opens, none before."""
    caplog.set_level("INFO")
    pipeline, asked = _gated(conf_with(enabled_filters=["owner"], facts_interval=0), [66, 72, 73, 74])
    contexts = list("abcd")
    found = [pipeline.apply(spec_of(), context).requirements for context in contexts]
    assert [len(each) for each in found] == [0, 0, 1, 1]
    assert asked == contexts
    assert [record.getMessage() for record in caplog.records if record.name == "os_prefilter.facts"] == [
        "The deployment fact owner_is_reported is now True (was False)."
    ]


def test_the_version_is_asked_for_once_per_interval() -> None:
    pipeline, asked = _gated(conf_with(enabled_filters=["owner"], facts_interval=3600), [66])
    decisions = [pipeline.apply(spec_of()) for _ in range(50)]
    assert len(asked) == 1
    assert decisions[-1].notes[0].source == "not every compute service reports OWNER_NOVA yet"


def test_without_the_fact_the_service_does_not_start() -> None:
    with pytest.raises(MissingFact, match="minimum_compute_version.*owner_gate = always"):
        Pipeline.from_conf(conf_with(enabled_filters=["owner"]))


def test_the_first_answer_is_waited_for_by_all_threads() -> None:
    """Else requests would pass unfiltered while it is on its way."""
    asked = []

    def slow(_context: object) -> int:
        asked.append(1)
        time.sleep(0.2)
        return 99

    pipeline = Pipeline.from_conf(conf_with(enabled_filters=["owner"]), {"minimum_compute_version": slow})
    with ThreadPoolExecutor(8) as pool:
        decisions = list(pool.map(lambda _: pipeline.apply(spec_of()), range(24)))
    assert len(asked) == 1
    assert all(len(each.requirements) == 1 for each in decisions)
