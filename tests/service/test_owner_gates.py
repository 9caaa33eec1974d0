# SPDX-License-Identifier: Apache-2.0

"""The gate of the filter owner through a rolling upgrade: nothing changes
until all report it, and then all does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from os_prefilter import allocation_candidates_query
from os_prefilter.adapters.placement.facts import PlacementFacts
from os_prefilter.service import Service
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet, Provider
from tests.conftest import conf_with, spec_of
from tests.support.placements import provider, put_traits

_HOSTS = [f"kvm-{number}" for number in range(3)]
_REQUESTS: tuple[Mapping[str, str], ...] = (
    {},
    {"resources:VGPU": "1"},
    {"resources_gpu:VGPU": "1"},
)


def old_fleet(cyborgs_trait: str = "") -> Fleet:
    """Return hosts before the upgrade, each with a GPU of Nova's and one of
    Cyborg's; no provider says whose it is.
    """

    def host(name: str) -> Provider:
        gpus = (
            provider(f"{name}-nova", "VGPU"),
            provider(f"{name}-cyborg", "VGPU", cyborgs_trait),
        )
        return provider(name, "VCPU DISK_GB", "COMPUTE_NODE", gpus)

    return Fleet(tuple(map(host, _HOSTS)))


def upgrade(placement: EmbeddedPlacement, host: str) -> None:
    """Report what an upgraded nova-compute does: the trait on each of its
    providers, the children first.
    """
    for name in (f"{host}-nova", host):
        put_traits(placement, lambda traits: traits.add("OWNER_NOVA"), name)


@pytest.fixture(
    params=["OWNER_CYBORG", ""], ids=["with Cyborg's trait", "without it"]
)
def placement(request: pytest.FixtureRequest) -> Iterator[EmbeddedPlacement]:
    with EmbeddedPlacement(old_fleet(request.param)) as placement:
        yield placement


def _answers(
    placement: EmbeddedPlacement, pipeline: Service | None
) -> list[dict[str, tuple[str, ...]]]:
    """Return the providers that Placement offers by host, for each request."""
    answers = []
    for extra_specs in _REQUESTS:
        spec = spec_of(extra_specs={"resources:MEMORY_MB": "0", **extra_specs})
        if pipeline:
            pipeline.apply(spec)
        answers.append(
            dict(
                placement.client.allocation_candidates(
                    allocation_candidates_query(spec)
                ).providers
            )
        )
    return answers


def _enforced() -> list[dict[str, tuple[str, ...]]]:
    return [
        {host: (host, f"{host}-nova")[: 1 + bool(each)] for host in _HOSTS}
        for each in _REQUESTS
    ]


def _pipeline(placement: EmbeddedPlacement, **options: Any) -> Service:
    conf = conf_with(enabled_filters=["owner"], facts_interval=0, **options)
    return Service.from_conf(
        conf,
        {"owner_coverage": PlacementFacts(placement.client).owner_is_reported},
    )


def test_a_rolling_upgrade_changes_nothing_until_the_last_host_and_needs_no_restart(
    placement: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
) -> None:
    """Host by host; an old one that joins closes the gate again."""
    caplog.set_level("INFO", "os_prefilter.service.deployment_facts")
    pipeline, without_filter = _pipeline(placement), _answers(placement, None)
    assert without_filter != _enforced()
    for host in _HOSTS:
        assert _answers(placement, pipeline) == without_filter
        upgrade(placement, host)
    assert _answers(placement, pipeline) == _enforced()
    put_traits(
        placement, lambda traits: traits.remove("OWNER_NOVA"), _HOSTS[-1]
    )
    assert _answers(placement, pipeline) == without_filter
    states = ("False (was <unknown>)", "True (was False)", "False (was True)")
    assert [
        each.getMessage()
        for each in caplog.records
        if each.levelname == "INFO"
    ] == [
        f"The deployment fact owner_is_reported is now {state}."
        for state in states
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"wait_for_reports": False},
        {"owner_trait": "OWNER_CYBORG", "owned_resource_classes": ["FPGA"]},
    ],
    ids=str,
)
def test_gate_is_open_at_once_if_the_option_says_so_or_no_host_is_the_owners(
    options: dict[str, Any],
) -> None:
    with EmbeddedPlacement(old_fleet()) as placement:
        pipeline = _pipeline(placement, foreign_owner_traits=[], **options)
        decision = pipeline.apply(
            spec_of(
                extra_specs={"resources_1:FPGA": "1", "resources:VCPU": "1"}
            )
        )
    assert {item.trait for item in decision.requirements} == {
        options.get("owner_trait", "OWNER_NOVA")
    }


_NEUTRON = provider(
    "a:agent", "", "", (provider("a:agent:br0", "NET_BW_EGR_KILOBIT_PER_SEC"),)
)
_OTHERS = (provider("gpu", "VGPU", "OWNER_CYBORG"), _NEUTRON)
_DISK = provider("disk", "DISK_GB", "MISC_SHARES_VIA_AGGREGATE")


def _node(
    name: str, owner: str = "OWNER_NOVA", below: tuple[Provider, ...] = ()
) -> Provider:
    return provider(name, "VCPU", f"COMPUTE_NODE {owner}", below)


_COVERED: dict[str, tuple[tuple[Provider, ...], bool]] = {
    "no provider at all": ((), False),
    "no compute node": ((provider("ironic-1", "VCPU", "OWNER_NOVA"),), False),
    "one of two": ((_node("a"), _node("b", "")), False),
    "a child of a root without it": (
        (_node("a", "", (provider("gpu", "VGPU", "OWNER_NOVA"),)),),
        False,
    ),
    "providers of Neutron and Cyborg, and one that shares a disk": (
        (_node("a", below=_OTHERS), _DISK),
        True,
    ),
}


def test_coverage_is_true_if_there_are_compute_nodes_and_each_has_the_owner_trait() -> (
    None
):
    for what, (providers, covered) in _COVERED.items():
        with EmbeddedPlacement(Fleet(providers)) as placement:
            assert (
                PlacementFacts(placement.client).owner_is_reported() is covered
            ), what


def test_owner_trait_unknown_to_placement_counts_as_not_covered() -> None:
    """Placement answers with a 400: it is an answer, not an outage."""
    with EmbeddedPlacement(
        Fleet((provider("a", "VCPU", "COMPUTE_NODE"),))
    ) as placement:
        coverage = PlacementFacts(
            placement.client, owner_trait="CUSTOM_OWNER_US"
        ).owner_is_reported
        assert coverage() is False
        placement.know(["CUSTOM_OWNER_US"])
        assert coverage() is False
        put_traits(
            placement, lambda traits: traits.add("CUSTOM_OWNER_US"), "a"
        )
        assert coverage() is True
