# SPDX-License-Identifier: Apache-2.0

"""Readiness of a fleet: which row of which filter is enforced, and which hosts
have not reported.
"""

from os_prefilter import Options
from os_prefilter.hosts.marker_traits import REPORTED, names_with
from os_prefilter.service.loading import installed_filters, load_filters
from os_prefilter.vocabulary import HPET, opt_in_traits, rows_required_by
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.operators.readiness import (
    DEFERRED,
    ENFORCED,
    readiness,
)
from tests.support.every_trait import EVERY_GROUP, marker_of
from tests.support.hosts import EVERY_ARCHITECTURE
from tests.support.placements import provider
from tests.support.reporting_fleets import fleet_of

_EVERY = Options(
    reported_traits=("*",), emulated_architectures=EVERY_ARCHITECTURE
)
_HPET, _IMAGES = marker_of(HPET), marker_of("COMPUTE_IMAGE_TYPE_RAW")

_LINES: list[
    tuple[list[set[str]], str, list[tuple[str, str, tuple[str, ...]]]]
] = [
    ([set()], "hpet", [("time_hpet", DEFERRED, ("host-0",))]),
    ([], "hpet", [("time_hpet", DEFERRED, ())]),
    (
        [{"COMPUTE_IMAGE_TYPE_RAW"}, {_IMAGES}, set(), {_HPET}],
        "image_type",
        [("image_type", DEFERRED, ("host-2", "host-3"))],
    ),
    (
        [{"HW_CPU_HYPERTHREADING"}],
        "deploy_config",
        [("cpu_thread_policy", ENFORCED, ())],
    ),
    ([set()], "noop", []),
    ([{"OWNER_NOVA"}, {_HPET}], "owner", [("owner", DEFERRED, ("host-1",))]),
    ([{"OWNER_NOVA"}], "owner", [("owner", ENFORCED, ())]),
    ([set()], "compute_status", []),
]


def test_readiness_shows_the_state_of_each_row_and_the_unreported_hosts() -> (
    None
):
    for nodes, name, expected in _LINES:
        lines = readiness(
            fleet_of(nodes), load_filters([name], None), Options()
        )
        assert [(x.filter, x.row, x.state, x.unreported) for x in lines] == [
            (name, *each) for each in expected
        ]
        assert all(line.traits for line in lines)


def test_row_is_listed_once_for_each_state_of_its_traits() -> None:
    fleet = fleet_of([{"CUSTOM_VM_MODE_HVM"}])
    options = Options(
        reported_traits=("CUSTOM_VM_MODE_HVM", "CUSTOM_VM_MODE_XEN")
    )
    lines = [
        line
        for line in readiness(
            fleet, load_filters(["image_metadata"], None), options
        )
        if "vm_mode" in line.row
    ]
    assert {line.traits: line.state for line in lines} == {
        ("CUSTOM_VM_MODE_HVM",): ENFORCED,
        ("CUSTOM_VM_MODE_XEN",): DEFERRED,
    }


def test_readiness_lists_every_row_whose_traits_a_filter_requires() -> None:
    for name in installed_filters():
        rows = {row.name for row in rows_required_by(name) if row.traits}
        listed = {
            line.row
            for line in readiness(
                fleet_of([set()]), load_filters([name], None), _EVERY
            )
        }
        assert listed == rows or name in ("deploy_config", "owner"), name


def test_readiness_omits_traits_outside_reported_traits_except_for_hpet() -> (
    None
):
    fleet, optional = fleet_of([set()]), opt_in_traits()
    for patterns, rows in (((), set()), (("CUSTOM_VM_MODE_*",), {"vm_mode"})):
        lines = readiness(
            fleet,
            load_filters(["image_metadata"], None),
            Options(reported_traits=patterns),
        )
        assert {
            line.row for line in lines if optional.intersection(line.traits)
        } == rows
    assert readiness(fleet, load_filters(["hpet"], None), Options())


def test_owner_that_owns_no_host_waits_for_no_compute_node() -> None:
    options = Options(
        owner_trait="OWNER_CYBORG",
        foreign_owner_traits=(),
        owned_resource_classes=("FPGA",),
    )
    assert (
        readiness(fleet_of([set()]), load_filters(["owner"], None), options)
        == []
    )


def test_only_compute_nodes_are_waited_for() -> None:
    child = provider("gpu", "VGPU")
    every = [
        name
        for group in EVERY_GROUP
        for name in names_with(REPORTED, group.keys)
    ]
    compute = provider(
        "a",
        traits=" ".join(("COMPUTE_NODE OWNER_NOVA", *every)),
        children=(child,),
    )
    fleet = Fleet((compute, provider("disk", "DISK_GB")))
    lines = readiness(
        fleet, load_filters(list(installed_filters()), None), _EVERY
    )
    assert {line.state for line in lines} == {ENFORCED}
