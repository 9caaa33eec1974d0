# SPDX-License-Identifier: Apache-2.0

"""An unmodified nova-scheduler with the library activated in its nova.conf,
asked over RPC.

With preferences: the host that has a preferred trait comes first. With the
examples of rules of the documentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from tests.against_nova.nova import NOVA
from tests.against_nova.releases import releases
from tests.services.nova.cloud import ACTIVATION, HOSTS, WORKERS, Cloud
from tests.support.pages import DOCS, files_of
from tests.support.programs import Program, needs_services
from tests.support.rule_texts import settle

pytestmark = needs_services

# The weight is more than all other weighers together.
_OPTIONS = """
weight_classes = nova.scheduler.weights.all_weighers,os_prefilter.nova.PreferredTraits
[prefilter]
enabled_filters = image_metadata,hpet,owner,preferences,rules
preferred_properties = hw_video_model
preferred_weight_multiplier = 1000
reported_traits = *
rules_dirs = {}
"""


@pytest.fixture(scope="module", autouse=True)
def scheduler(
    cloud: Cloud, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Program]:
    """Run nova-scheduler with the rules of all examples: each is about traits
    and requests of its own.
    """
    folder = tmp_path_factory.mktemp("rules")
    for name in _EXAMPLES:
        (folder / name).write_text(_FILES[name])
        settle(folder / name)
    with cloud.scheduler(ACTIVATION + _OPTIONS.format(folder)) as program:
        yield program


@pytest.mark.parametrize(
    ("properties", "capable"),
    [
        ({}, set(HOSTS)),
        ({"hw_time_hpet": "true"}, {"timer-host"}),
        ({"hw_vif_model": "e1000e"}, {"e1000e-host"}),
    ],
)
def test_a_request_gets_the_hosts_that_can_serve_it_and_no_other(
    properties: Mapping[str, str], capable: set[str], cloud: Cloud
) -> None:
    """The alternates too, which are for the case that the chosen host
    fails.
    """
    answer = cloud.ask(properties)
    assert answer.error == ""
    assert sorted(answer.hosts) == sorted(capable)


def test_query_requires_the_owner_trait_if_every_compute_node_reports_it(
    cloud: Cloud,
) -> None:
    required = "OWNER_NOVA" in cloud.query_of(cloud.ask())["root_required"][
        0
    ].split(",")
    assert required == (
        "owner_nova_filter" not in releases()[NOVA].request_filters
    )


def test_scheduler_does_not_query_compute_versions_in_cells_on_each_request(
    cloud: Cloud,
) -> None:
    """As they are without the library."""
    requests = 20
    with cloud.databases.general_log():
        for _ in range(requests):
            assert cloud.ask().hosts
        assert cloud.databases.logged("min(services.version)") < requests


_E1000E = "COMPUTE_NET_VIF_MODEL_E1000E"


@pytest.mark.parametrize(
    ("properties", "extra_specs", "host"),
    [
        ({}, {f"trait:{_E1000E}": "preferred"}, "e1000e-host"),
        ({}, {f"preferred_trait:{_E1000E}": "true"}, "e1000e-host"),
        ({"hw_video_model": "cirrus"}, {}, "plain-host"),
    ],
)
def test_host_with_the_preferred_trait_is_chosen_by_every_worker_and_none_is_excluded(
    properties: Mapping[str, str],
    extra_specs: Mapping[str, str],
    host: str,
    cloud: Cloud,
    scheduler: Program,
) -> None:
    for _ in range(3 * WORKERS):
        answer = cloud.ask(properties, extra_specs)
        assert (answer.hosts[:1], set(answer.hosts), answer.error) == (
            (host,),
            set(HOSTS),
            "",
        )
    assert _E1000E not in str(cloud.query_of(answer))
    assert (
        "Only (required, forbidden) traits are supported" not in scheduler.log
    )


_SHOWN = files_of(DOCS / "rules.rst").items()
_FILES = {
    name.removeprefix("examples/"): text
    for name, text in _SHOWN
    if name.startswith("examples/")
}
_PROJECT, _TRUSTED = (
    "9f0c4e5d2b7a4b0f8a3d6c1e5f7a9b2d",
    "4b1d8e6c0a7f4d5e9c2b3a8f6d1e7c50",
)
_TIMER, _CARD, _PLAIN = "timer-host", "e1000e-host", "plain-host"
_ALL = {_TIMER, _CARD, _PLAIN}


class _Example(NamedTuple):
    traits: Mapping[str, str]
    """By host, what it has beside the traits of the cloud."""
    requests: list[tuple[dict[str, Any], set[str]]]
    """Requests, and the hosts that remain for each."""


_EXAMPLES = {
    "licensed.yaml": _Example(
        {_TIMER: "CUSTOM_WINDOWS_LICENSED"},
        [
            ({"properties": {"os_distro": "windows"}}, {_TIMER}),
            ({"properties": {"os_distro": "sles"}}, {_CARD, _PLAIN}),
            ({}, {_CARD, _PLAIN}),
        ],
    ),
    "project.yaml": _Example(
        {_CARD: "CUSTOM_RESEARCH"},
        [
            ({"project": _PROJECT}, {_CARD}),
            ({"project": "b"}, {_TIMER, _PLAIN}),
        ],
    ),
    "disks.yaml": _Example(
        {_PLAIN: "CUSTOM_FAST_DISKS"},
        [
            ({"flavor": "db.huge"}, {_PLAIN}),
            ({"flavor": "db"}, _ALL),
            ({"flavor": "db.huge", "hints": {"slow-disks": "accepted"}}, _ALL),
            (
                {"zone": "north", "properties": {"os_require_quiesce": "yes"}},
                {_PLAIN},
            ),
            ({"properties": {"os_require_quiesce": "yes"}}, _ALL),
        ],
    ),
    "list.yaml": _Example(
        {_TIMER: "CUSTOM_SAP_CERTIFIED"},
        [
            ({"extra_specs": {"acme:apps": "web, sap,mail"}}, {_TIMER}),
            ({"extra_specs": {"acme:apps": "sapling"}}, _ALL),
        ],
    ),
    "hints.yaml": _Example(
        {_TIMER: "CUSTOM_RACK_A", _CARD: "CUSTOM_RACK_B"},
        [
            ({"hints": {"trait:CUSTOM_RACK_A": "required"}}, {_TIMER}),
            (
                {"hints": {"trait:CUSTOM_RACK_B": ["forbidden"]}},
                {_TIMER, _PLAIN},
            ),
            (
                {
                    "hints": {
                        "trait:CUSTOM_WINDOWS_LICENSED": "required",
                        "trait:X\n&in_tree=1": "required",
                    }
                },
                _ALL,
            ),
            ({}, _ALL),
        ],
    ),
    "requirement.yaml": _Example(
        {_CARD: "CUSTOM_OLD_FIRMWARE"},
        [({"properties": {"hw_vif_model": "e1000e"}}, set()), ({}, _ALL)],
    ),
    "ports.yaml": _Example(
        {},
        [
            (
                {
                    "project": "b",
                    "ports": [{"NET_BW_EGR_KILOBIT_PER_SEC": 1000}],
                },
                {_PLAIN},
            ),
            (
                {
                    "project": _TRUSTED,
                    "ports": [{"NET_BW_EGR_KILOBIT_PER_SEC": 1000}],
                },
                {_TIMER, _PLAIN},
            ),
            ({"project": "b"}, _ALL),
        ],
    ),
}


@contextmanager
def _with_traits(cloud: Cloud, traits: Mapping[str, str]) -> Iterator[None]:
    """Give hosts one more trait each while the context lasts."""
    placement = cloud.placement
    placement.ensure_traits(traits.values())
    urls = {}
    for host in traits:
        (provider,) = placement.request(
            "GET", f"/resource_providers?name={host}"
        )["resource_providers"]
        urls[host] = f"/resource_providers/{provider['uuid']}/traits"
    for host, trait in traits.items():
        _set_traits(
            cloud, urls[host], lambda found, trait=trait: {*found, trait}
        )
    yield
    for host, trait in traits.items():
        _set_traits(
            cloud, urls[host], lambda found, trait=trait: {*found} - {trait}
        )


def _set_traits(cloud: Cloud, url: str, change: Any) -> None:
    found = cloud.placement.request("GET", url)
    found["traits"] = sorted(change(found["traits"]))
    cloud.placement.request("PUT", url, found)


@contextmanager
def _with_cards(
    cloud: Cloud, cards: Mapping[str, list[str]]
) -> Iterator[None]:
    """Give hosts a network card with bandwidth, a nested provider with these
    traits, while the context lasts.
    """
    placement, uuids = cloud.placement, []
    for host, traits in cards.items():
        (root,) = placement.request("GET", f"/resource_providers?name={host}")[
            "resource_providers"
        ]
        uuid = str(uuid4())
        body = {
            "name": f"{host}_card",
            "uuid": uuid,
            "parent_provider_uuid": root["uuid"],
        }
        placement.request("POST", "/resource_providers", body)
        uuids.append(uuid)
        url = f"/resource_providers/{uuid}"
        inventories = {"NET_BW_EGR_KILOBIT_PER_SEC": {"total": 100_000}}
        generation = {"resource_provider_generation": 0}
        placement.request(
            "PUT",
            f"{url}/inventories",
            {**generation, "inventories": inventories},
        )
        placement.ensure_traits(traits)
        _set_traits(
            cloud, f"{url}/traits", lambda _found, traits=traits: traits
        )
    yield
    for uuid in uuids:
        for consumer in placement.request(
            "GET", f"/resource_providers/{uuid}/allocations"
        )["allocations"]:
            placement.request("DELETE", f"/allocations/{consumer}")
        placement.request("DELETE", f"/resource_providers/{uuid}")


def test_there_is_a_test_for_each_example_of_the_page() -> None:
    assert _FILES.keys() == _EXAMPLES.keys()
    assert all(len(_FILES[name].splitlines()) <= 10 for name in _EXAMPLES)
    assert set(HOSTS) == _ALL


@pytest.mark.parametrize("name", _EXAMPLES)
def test_rules_of_the_page_leave_these_hosts(name: str, cloud: Cloud) -> None:
    example = _EXAMPLES[name]
    cards = (
        {_PLAIN: ["CUSTOM_TRUSTED_CARD"], _TIMER: []}
        if name == "ports.yaml"
        else {}
    )
    with _with_traits(cloud, example.traits), _with_cards(cloud, cards):
        for request, hosts in example.requests:
            answer = cloud.ask(**request)
            assert set(answer.hosts) == hosts, (request, answer)
