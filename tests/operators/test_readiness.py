"""Readiness of a fleet: which filter and row is open, and who holds it back."""

from os_prefilter import Options
from os_prefilter.service.loading import installed_filters, load_filters
from os_prefilter.vocabulary import REPORTED, REPORTED_CUSTOM, rows_required_by
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.operators.readiness import CLOSED, OPEN, ReadinessLine, readiness
from tests.support.placements import provider
from tests.support.reporting_fleets import fleet_of

_EVERY = Options(reported_traits=("*",))

_LINES: list[tuple[list[set[str]], str, list[tuple[str, str, str, tuple[str, ...]]]]] = [
    ([set()], "hpet", [("time_hpet", "if reported", CLOSED, ("host-0",))]),
    ([{REPORTED}, {REPORTED_CUSTOM}], "hpet", [("time_hpet", "if reported", OPEN, ())]),
    ([{"CUSTOM_COMPUTE_TIME_HPET"}], "hpet", [("time_hpet", "if reported", CLOSED, ("host-0",))]),
    ([], "hpet", [("time_hpet", "if reported", CLOSED, ())]),
    (
        [{"COMPUTE_IMAGE_TYPE_RAW"}, {REPORTED}, set(), {REPORTED_CUSTOM}],
        "image_type",
        [("image_type", "always", CLOSED, ("host-2", "host-3"))],
    ),
    ([{"COMPUTE_IMAGE_TYPE_RAW"}], "image_type", [("image_type", "always", OPEN, ())]),
    ([{"HW_CPU_HYPERTHREADING"}], "deploy_config", [("cpu_thread_policy", "always", OPEN, ())]),
    ([set()], "noop", []),
    ([{"OWNER_NOVA"}, {REPORTED}], "owner", [("owner", "always", CLOSED, ("host-1",))]),
    ([{"OWNER_NOVA"}], "owner", [("owner", "always", OPEN, ())]),
    ([set()], "compute_status", []),
]


def test_readiness_shows_the_gate_of_each_row_and_the_unreported_hosts() -> None:
    for nodes, name, lines in _LINES:
        assert readiness(fleet_of(nodes), load_filters([name], None), _EVERY) == [
            ReadinessLine(name, *each) for each in lines
        ]


def test_readiness_lists_every_row_whose_traits_a_filter_requires() -> None:
    for name in installed_filters():
        rows = {row.name for row in rows_required_by(name) if row.traits}
        listed = {line.row for line in readiness(fleet_of([set()]), load_filters([name], None), _EVERY)}
        assert listed == rows or name in ("deploy_config", "owner")


def test_readiness_omits_rows_outside_reported_traits_except_for_hpet() -> None:
    """Traits that are not in reported_traits; the filter hpet asks without."""
    fleet = fleet_of([set()])
    assert {line.kind for line in readiness(fleet, load_filters(["image_metadata"], None), Options())} == {"always"}
    some = readiness(fleet, load_filters(["image_metadata"], None), Options(reported_traits=("CUSTOM_VM_MODE_*",)))
    assert [line.row for line in some if line.kind == "if reported"] == ["vm_mode"]
    assert readiness(fleet, load_filters(["hpet"], None), Options())


def test_owner_that_owns_no_host_waits_for_no_compute_node() -> None:
    options = Options(owner_trait="OWNER_CYBORG", foreign_owner_traits=(), owned_resource_classes=("FPGA",))
    assert readiness(fleet_of([set()]), load_filters(["owner"], None), options) == []


def test_only_compute_nodes_are_waited_for() -> None:
    """Not their children, not providers of others."""
    child = provider("gpu", "VGPU")
    compute = provider("a", traits=f"COMPUTE_NODE OWNER_NOVA {REPORTED}", children=(child,))
    fleet = Fleet((compute, provider("disk", "DISK_GB")))
    assert {line.state for line in readiness(fleet, load_filters(list(installed_filters()), None), _EVERY)} == {OPEN}
