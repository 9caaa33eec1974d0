# SPDX-License-Identifier: Apache-2.0

"""Readiness of a fleet: which row of which filter is enforced, and which hosts
have not reported.
"""

from __future__ import annotations

import pytest

from os_prefilter import Options
from os_prefilter.hosts.marker_traits import REPORTED, names_with
from os_prefilter.service.loading import installed_filters, load_filters
from os_prefilter.vocabulary import HPET, opt_in_traits, rows_required_by
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.operators.readiness import (
    DEFERRED,
    ENFORCED,
    ReadinessLine,
    readiness,
)
from tests.support.every_trait import EVERY_GROUP, marker_of
from tests.support.placements import provider
from tests.support.reporting_fleets import fleet_of

_EVERY = Options(reported_traits=("*",))
_HPET = marker_of(HPET)
_IMAGES = marker_of("COMPUTE_IMAGE_TYPE_RAW")


def _lines(
    nodes: list[set[str]], name: str, options: Options | None = None
) -> list[ReadinessLine]:
    """Return the readiness of one filter.

    :param nodes: the traits of each compute node
    """
    filters = load_filters([name], None)
    return readiness(fleet_of(nodes), filters, options or Options())


_ROWS: dict[str, tuple[list[set[str]], str, str, str, tuple[str, ...]]] = {
    "no report": ([set()], "hpet", "time_hpet", DEFERRED, ("host-0",)),
    "no host": ([], "hpet", "time_hpet", DEFERRED, ()),
    "some reports": (
        [{"COMPUTE_IMAGE_TYPE_RAW"}, {_IMAGES}, set(), {_HPET}],
        "image_type",
        "image_type",
        DEFERRED,
        ("host-2", "host-3"),
    ),
    "reported by Nova": (
        [{"HW_CPU_HYPERTHREADING"}],
        "deploy_config",
        "cpu_thread_policy",
        ENFORCED,
        (),
    ),
    "one host without owner": (
        [{"OWNER_NOVA"}, {_HPET}],
        "owner",
        "owner",
        DEFERRED,
        ("host-1",),
    ),
    "each host has its owner": (
        [{"OWNER_NOVA"}],
        "owner",
        "owner",
        ENFORCED,
        (),
    ),
}


@pytest.mark.parametrize(
    ("nodes", "name", "row", "state", "unreported"),
    _ROWS.values(),
    ids=_ROWS,
)
def test_readiness_shows_the_state_of_a_row_and_the_unreported_hosts(
    nodes: list[set[str]],
    name: str,
    row: str,
    state: str,
    unreported: tuple[str, ...],
) -> None:
    (line,) = _lines(nodes, name)
    assert line.filter == name
    assert line.row == row
    assert line.state == state
    assert line.unreported == unreported
    assert line.traits


@pytest.mark.parametrize("name", ["noop", "compute_status"])
def test_filter_that_needs_no_report_has_no_line(name: str) -> None:
    assert _lines([set()], name) == []


def test_row_is_listed_once_for_each_state_of_its_traits() -> None:
    options = Options(
        reported_traits=("CUSTOM_VM_MODE_HVM", "CUSTOM_VM_MODE_XEN")
    )
    lines = _lines([{"CUSTOM_VM_MODE_HVM"}], "image_metadata", options)
    assert {
        line.traits: line.state for line in lines if "vm_mode" in line.row
    } == {
        ("CUSTOM_VM_MODE_HVM",): ENFORCED,
        ("CUSTOM_VM_MODE_XEN",): DEFERRED,
    }


@pytest.mark.parametrize(
    "name", sorted(installed_filters().keys() - {"deploy_config", "owner"})
)
def test_readiness_lists_every_row_whose_traits_a_filter_requires(
    name: str,
) -> None:
    rows = {row.name for row in rows_required_by(name) if row.traits}
    assert {line.row for line in _lines([set()], name, _EVERY)} == rows


@pytest.mark.parametrize(
    ("patterns", "rows"), [((), set()), (("CUSTOM_VM_MODE_*",), {"vm_mode"})]
)
def test_readiness_omits_traits_outside_reported_traits(
    patterns: tuple[str, ...], rows: set[str]
) -> None:
    options = Options(reported_traits=patterns)
    lines = _lines([set()], "image_metadata", options)
    optional = opt_in_traits()
    listed = {
        line.row for line in lines if not optional.isdisjoint(line.traits)
    }
    assert listed == rows


def test_hpet_needs_no_entry_in_reported_traits() -> None:
    assert _lines([set()], "hpet")


def test_owner_that_owns_no_host_waits_for_no_compute_node() -> None:
    options = Options(
        owner_trait="OWNER_CYBORG",
        foreign_owner_traits=(),
        owned_resource_classes=("FPGA",),
    )
    assert _lines([set()], "owner", options) == []


def test_only_compute_nodes_are_waited_for() -> None:
    child = provider("gpu", "VGPU")
    traits = ["COMPUTE_NODE", "OWNER_NOVA"]
    for group in EVERY_GROUP:
        traits += names_with(REPORTED, group.keys)
    compute = provider("a", traits=" ".join(traits), children=(child,))
    fleet = Fleet((compute, provider("disk", "DISK_GB")))
    filters = load_filters(list(installed_filters()), None)
    lines = readiness(fleet, filters, _EVERY)
    assert {line.state for line in lines} == {ENFORCED}
