# SPDX-License-Identifier: Apache-2.0

"""Which compute nodes have reported, by a real Placement: the same as by
looking at each host, in few requests.
"""

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

import pytest

from os_prefilter.adapters.placement.facts import (
    ReadReports,
    placement_facts,
)
from os_prefilter.hosts.marker_traits import REPORTED, keys_in, names_with
from os_prefilter.service.deferral import Unreported
from os_prefilter.service.facts_from_conf import shared
from os_prefilter.service.shared import InheritedStore
from os_prefilter.service.traits_to_report import (
    configured_filters,
    traits_to_create,
    wanted_groups,
)
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.operators.readiness import reports_of
from tests.conftest import conf_with, times
from tests.support.every_trait import EVERY_GROUP, marker_of
from tests.support.placements import Observed, answering, provider, put_traits
from tests.support.reporting_fleets import RECOMMENDED, fleet_of, wanted_by

_HPET, _MACHINES = "CUSTOM_COMPUTE_TIME_HPET", "CUSTOM_COMPUTE_MACHINE_PC"
_GROUPS = tuple(
    group for group in EVERY_GROUP if group.traits & {_HPET, _MACHINES}
)
_ALL, _ONE, _OTHER = (
    marker_of(_HPET, _MACHINES),
    marker_of(_HPET),
    marker_of(_MACHINES),
)
_EVERY_KEY = sorted(key for group in EVERY_GROUP for key in group.keys)
_TRAITS = sorted({trait for group in EVERY_GROUP for trait in group.traits})
_IN_USE = "GET /traits?associated=true"
_NODES = "GET /resource_providers?required=COMPUTE_NODE"


def _random_fleet(seed: int) -> Fleet:
    random = Random(seed)  # noqa: S311 - the same each time
    nodes = []
    for _ in range(random.randint(1, 6)):
        share = random.choice((0.0, 0.05, 0.3))
        traits = {trait for trait in _TRAITS if random.random() < share}
        if random.random() < 0.7:
            keys = random.sample(
                _EVERY_KEY, random.choice((40, 90, 250, len(_EVERY_KEY)))
            )
            traits.update(names_with(REPORTED, keys))
        nodes.append(traits)
    others = provider(
        "neutron",
        "",
        "",
        (
            provider(
                "br0", "NET_BW_EGR_KILOBIT_PER_SEC", "CUSTOM_VNIC_TYPE_NORMAL"
            ),
        ),
    )
    return Fleet((*fleet_of(nodes).hosts, others))


def test_a_part_is_reported_if_and_only_if_every_compute_node_has_reported_it() -> (
    None
):
    """By Placement, by the fleet, and by looking at each host."""
    states = []
    for seed in range(times(6)):
        fleet = _random_fleet(seed)
        with EmbeddedPlacement(fleet) as placement:
            asked = ReadReports(placement.client, EVERY_GROUP)()
        told = reports_of(fleet, EVERY_GROUP)
        assert (asked, asked.in_use) == (told, told.in_use)
        nodes = [host for host in fleet.hosts if "COMPUTE_NODE" in host.traits]
        reported = {
            host.name: host.traits | keys_in(REPORTED, host.traits)
            for host in nodes
        }
        for group in EVERY_GROUP:
            silent = [
                name
                for name, found in reported.items()
                if found.isdisjoint(group.keys | group.implied_by)
            ]
            states.append(bool(silent))
            for trait in group.traits:
                assert asked.unreported[trait] == Unreported.of(silent), group
    assert {False, True} == set(states)


_SENT = [
    # (the traits of the compute nodes, the requests)
    ([{_ALL}, {_ALL}], [_IN_USE, f"{_NODES}%2C%21{_ALL}"]),
    ([], [_IN_USE, _NODES]),
    ([set()] * 3, [_IN_USE, _NODES, _IN_USE]),
    (
        [{_ONE}, {_OTHER}],
        [_IN_USE, f"{_NODES}%2C%21{_ONE}", f"{_NODES}%2C%21{_OTHER}", _IN_USE],
    ),
    (
        [{_HPET}, {_ALL}],
        [
            _IN_USE,
            f"{_NODES}%2C%21{_ALL}",
            f"{_NODES}%2C%21{_HPET}%2C%21{_ALL}",
            _IN_USE,
        ],
    ),
]


@pytest.mark.parametrize(("nodes", "sent"), _SENT)
def test_reading_sends_no_query_for_traits_that_no_provider_has(
    nodes: Sequence[set[str]], sent: list[str]
) -> None:
    """Placement refuses a query with a trait that it does not know."""
    with EmbeddedPlacement(fleet_of(nodes)) as placement:
        observed = Observed(placement)
        ReadReports(observed.client, _GROUPS)()
    assert (observed.sent[0], observed.sent[-1], sorted(observed.sent)) == (
        sent[0],
        sent[-1],
        sorted(sent),
    )


def test_host_whose_marker_changes_between_two_requests_has_reported() -> None:
    """Its new marker is no trait in use yet when the first request is
    answered.
    """
    for before, after in ((_ALL, _ONE), (_OTHER, _ONE)):
        with EmbeddedPlacement(fleet_of([{before}, {_ALL}])) as placement:
            placement.know([_ONE])

            def change(
                _method: str,
                url: str,
                placement: EmbeddedPlacement = placement,
                old: str = before,
            ) -> None:
                if (
                    "resource_providers?" in url
                    and _ONE not in placement.client.traits_in_use()
                ):
                    put_traits(
                        placement,
                        lambda traits: traits.symmetric_difference_update(
                            {old, _ONE}
                        ),
                        "host-0",
                    )

            found = ReadReports(Observed(placement, change).client, _GROUPS)()
        assert (found, found.unreported[_HPET].number) == (
            reports_of(fleet_of([{after}, {_ALL}]), _GROUPS),
            0,
        )


def test_reading_takes_at_most_one_request_for_each_part_and_marker_and_each_fits_any_web_server() -> (
    None
):
    groups = wanted_groups(*configured_filters(conf_with(**RECOMMENDED)))
    every = set(names_with(REPORTED, wanted_by()))
    many = [
        set(
            names_with(REPORTED, {*_GROUPS[1].keys, *_EVERY_KEY[at : at + 40]})
        )
        for at in range(40)
    ]
    for markers, groups_read in (([every], groups), (many, _GROUPS)):
        fleet = fleet_of([*markers, set(_TRAITS), set()] * 3)
        with EmbeddedPlacement(fleet) as placement:
            observed = Observed(placement)
            assert ReadReports(observed.client, groups_read)() == reports_of(
                fleet, groups_read
            )
        assert (
            4
            <= len(observed.sent)
            <= len(groups_read) + sum(map(len, markers)) + 2
        )
        assert max(map(len, observed.sent)) < 4096


def test_what_one_process_has_read_is_the_same_for_another_with_these_options_or_refused() -> (
    None
):
    ours: dict[str, Any] = {"enabled_filters": ["image_metadata"]}
    others = {
        **ours,
        "owner_trait": "CUSTOM_OWNER_US",
        "emulated_architectures": ["aarch64"],
    }
    both, stores = (
        (conf_with(**ours), conf_with(**others)),
        (cache(InheritedStore),),
    )
    with EmbeddedPlacement(
        fleet_of(
            [{"CUSTOM_OWNER_US", *names_with(REPORTED, wanted_by(**others))}]
        )
    ) as placement:
        observed = Observed(placement)
        facts = [placement_facts(conf, observed.client) for conf in both]
        processes = [shared(each, 60, stores) for each in facts * 2]
        values = [
            {name: read(None).value for name, read in each.items()}
            for each in processes[:2]
        ]
        assert [vars(each["reports"]) for each in values] == [
            vars(each["reports"](None)) for each in facts
        ]
        observed.hook = answering((500, {}))
        assert values == [
            {name: read(None).value for name, read in each.items()}
            for each in processes[2:]
        ]
    for conf, each, is_other in zip(both, values, (False, True), strict=True):
        assert each["known_traits"] > traits_to_create(
            *configured_filters(conf)
        )
        assert (
            each["owner_coverage"],
            any(each["reports"].unreported.values()),
        ) == (is_other, not is_other)
    groups = [[0]] * len(wanted_groups(*configured_filters(both[0])))
    wrong: dict[str, list[Any]] = {
        "reports": [
            [[], []],
            [groups, ["a b"]],
            *(
                [[bad, *groups[1:]], []]
                for bad in ([1], [True, "h"], [0, "h"])
            ),
        ],
        "known_traits": [
            None,
            {"COMPUTE_NODE": 1},
            [1],
            ["COMPUTE_NODE", "a b"],
            ["HW_CPU_X86_VMX"],
        ],
        "nested_providers": [None, 1, "true"],
    }
    for name, documents in wrong.items():
        reader: Any = placement_facts(both[0], placement.client)[name]
        for document in documents:
            with pytest.raises((TypeError, ValueError)):
                reader.from_json(document)
