# SPDX-License-Identifier: Apache-2.0

"""A real Placement in this process: the client, the loading of fleets, and the
facts the library is built on.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from oslo_config import cfg
from sqlalchemy import text

from os_prefilter.adapters.placement.client import Candidates, PlacementClient
from os_prefilter.common.errors import (
    PlacementRefused,
    PlacementUnavailable,
    UnknownTraits,
)
from os_prefilter_tools.adapters.embedded import (
    EmbeddedPlacement,
    EmbeddedPlacementFailed,
)
from os_prefilter_tools.cli.main import main
from os_prefilter_tools.fleet.model import (
    Fleet,
    Inventory,
    Provider,
    aggregate_uuid,
    provider_uuid,
)
from tests.conftest import times

ROOT = {"VCPU": Inventory(8), "MEMORY_MB": Inventory(8192)}
VGPU = {"VGPU": Inventory(4)}
NOVA = frozenset({"OWNER_NOVA"})
CYBORG = frozenset({"OWNER_CYBORG"})


def provider(
    name: str,
    resources: dict[str, Inventory],
    traits: frozenset[str] = frozenset(),
    children: tuple[Provider, ...] = (),
    aggregates: tuple[str, ...] = (),
) -> Provider:
    return Provider(
        name,
        provider_uuid(name),
        resources,
        traits,
        tuple(map(aggregate_uuid, aggregates)),
        children,
    )


OWNERS = Fleet(
    (
        provider("A", ROOT, NOVA, (provider("A_gpu", VGPU, CYBORG),)),
        provider("B", ROOT, NOVA, (provider("B_gpu", VGPU, NOVA),)),
        provider("C", {**ROOT, **VGPU}, CYBORG),
    )
)


@pytest.fixture(scope="module")
def owners() -> Iterator[EmbeddedPlacement]:
    with EmbeddedPlacement(OWNERS) as placement:
        yield placement


def hosts_of(
    placement: EmbeddedPlacement, resources: str = "VCPU:1"
) -> tuple[str, ...]:
    query = f"resources={resources}"
    return placement.client.allocation_candidates(query).hosts


def test_candidates_name_the_providers_used(owners: EmbeddedPlacement) -> None:
    """For each host all providers that give resources, by name; the count is
    of combinations.
    """
    found = owners.client.allocation_candidates("resources=VCPU:1,VGPU:1")
    assert found == Candidates(
        ("A", "B", "C"),
        {"A": ("A", "A_gpu"), "B": ("B", "B_gpu"), "C": ("C",)},
        3,
    )


def test_provider_that_gives_no_resources_is_not_named(
    owners: EmbeddedPlacement,
) -> None:
    found = owners.client.allocation_candidates("resources=VGPU:1")
    assert found.providers["A"] == ("A_gpu",)


def test_too_large_request_has_no_candidates(
    owners: EmbeddedPlacement,
) -> None:
    found = owners.client.allocation_candidates("resources=VCPU:99")
    assert found == Candidates((), {}, 0)


@pytest.mark.parametrize(
    "part",
    [
        "root_required=CUSTOM_NONE",
        "required=!CUSTOM_NONE",
        "required=in:CUSTOM_NONE,OWNER_NOVA",
    ],
)
def test_unknown_trait_in_query_is_named_in_the_error(
    part: str, owners: EmbeddedPlacement
) -> None:
    with pytest.raises(UnknownTraits) as raised:
        owners.client.allocation_candidates(f"resources=VCPU:1&{part}")
    assert raised.value.traits == ["CUSTOM_NONE"]


def test_a_missing_standard_trait_creates_nothing(
    owners: EmbeddedPlacement,
) -> None:
    """A standard trait cannot be created; then no CUSTOM_ one is either."""
    with pytest.raises(UnknownTraits) as raised:
        owners.client.ensure_traits(["HW_FROM_THE_FUTURE", "CUSTOM_NOT_MADE"])
    assert raised.value.traits == ["HW_FROM_THE_FUTURE"]
    assert "CUSTOM_NOT_MADE" not in owners.client.traits()


def test_second_fleet_adds_hosts_and_is_refused_as_a_whole_if_a_provider_exists() -> (
    None
):
    d = provider("D", ROOT, NOVA, aggregates=("rack",))
    e = provider("E", ROOT, aggregates=("rack",))
    with EmbeddedPlacement(OWNERS) as placement:
        placement.load(Fleet((d,)))
        assert hosts_of(placement) == ("A", "B", "C", "D")
        with pytest.raises(PlacementRefused, match="exists already"):
            placement.load(Fleet((e, d)))
        assert hosts_of(placement) == ("A", "B", "C", "D")


def lone(name: str, *traits: str) -> Fleet:
    return Fleet((provider(name, ROOT, frozenset(traits)),))


def test_embedded_placements_open_at_once_have_separate_data() -> None:
    """Also after another failed to load its fleet, or was closed."""
    with EmbeddedPlacement(lone("x")) as first:
        with EmbeddedPlacement(lone("y")) as second:
            assert hosts_of(first) == ("x",)
            assert hosts_of(second) == ("y",)
        with (
            pytest.raises(UnknownTraits),
            EmbeddedPlacement(lone("z", "NO_SUCH")),
        ):
            pass
        assert hosts_of(first) == ("x",)


def test_new_embedded_placement_has_all_standard_traits() -> None:
    with EmbeddedPlacement() as placement:
        assert "OWNER_NOVA" in placement.client.traits()


def test_closed_embedded_placement_is_unavailable() -> None:
    with EmbeddedPlacement(lone("x")) as placement:
        pass
    with pytest.raises(PlacementUnavailable, match="closed"):
        hosts_of(placement)


def test_embedded_placement_ignores_config_files_and_environment_and_keeps_globals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uses no configuration file, policy file, variable or proxy of the
    machine, and changes neither CONF nor logging.
    """
    directory = tmp_path / ".placement"
    directory.mkdir()
    (directory / "placement.conf").write_text(
        "[api]\nauth_strategy = keystone\n"
    )
    (directory / "policy.yaml").write_text(
        '"placement:allocation_candidates:list": "!"\n'
    )
    database = "mysql+pymysql://nova@127.0.0.1:1/none"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OS_PLACEMENT_CONFIG_DIR", str(directory))
    monkeypatch.setenv("OS_PLACEMENT_DATABASE__CONNECTION", database)
    monkeypatch.setenv("OS_API__AUTH_STRATEGY", "keystone")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    namespace = cfg.CONF._namespace
    arguments = cfg.CONF._args
    with EmbeddedPlacement(OWNERS) as placement:
        assert hosts_of(placement) == ("A", "B", "C")
    assert root.level == level
    assert root.handlers == []
    assert cfg.CONF._namespace == namespace
    assert cfg.CONF._args == arguments


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_fresh_process_keeps_stderr_empty() -> None:
    """Also when Placement refuses."""
    done = run_script("""
import threading
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter.common.errors import UnknownTraits
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider, provider_uuid
with EmbeddedPlacement(Fleet((Provider("A", provider_uuid("A"), {"VCPU": Inventory(1)}),))) as placement:
    try:
        placement.client.allocation_candidates("resources=VCPU:1&required=CUSTOM_NONE")
    except UnknownTraits:
        print(placement.client.allocation_candidates("resources=VCPU:1").hosts)
""")
    assert done.stderr == ""
    assert done.stdout == "('A',)\n"
    assert done.returncode == 0


def test_missing_package_error_names_the_extra() -> None:
    done = run_script("""
import sys
sys.modules["placement"] = None
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
EmbeddedPlacement().__enter__()
""")
    extra = "pip install '.[embedded]' in the repository of os-prefilter"
    assert extra in done.stderr
    assert done.stdout == ""
    assert done.returncode != 0


def test_closing_during_requests_raises_placement_unavailable_in_each_thread() -> (
    None
):
    """Else SQLite loses its connection while another thread uses it, and the
    process ends.
    """
    errors: list[Exception] = []

    def ask(client: PlacementClient) -> None:
        try:
            while True:
                client.traits()
        except PlacementUnavailable as error:
            errors.append(error)

    for _ in range(times(2)):
        errors.clear()
        with EmbeddedPlacement() as placement:
            client = placement.client
            threads = [
                threading.Thread(target=ask, args=(client,)) for _ in range(3)
            ]
            for thread in threads:
                thread.start()
            client.traits()
        for thread in threads:
            thread.join(60)
        assert len(errors) == 3
        for error in errors:
            assert "the embedded Placement is closed" in str(error)


@pytest.fixture(scope="module")
def used() -> Iterator[EmbeddedPlacement]:
    """Open a Placement with a host in use, and one without usage."""
    inventories = {
        "VCPU": Inventory(8, allocation_ratio=2.0, used=15),
        "MEMORY_MB": Inventory(8192, used=1024),
    }
    child = provider("busy_gpu", {"VGPU": Inventory(4, used=4)})
    busy = provider("busy", inventories, children=(child,))
    idle = provider("idle", {**ROOT, **VGPU})
    full = provider("full", {"VCPU": Inventory(8, used=8)})
    with EmbeddedPlacement(Fleet((busy,))) as placement:
        placement.load(Fleet((idle, full)))
        yield placement


@pytest.mark.parametrize(
    ("resources", "hosts"),
    [
        ("VCPU:1", ("busy", "idle")),
        ("VCPU:2", ("idle",)),
        ("VCPU:1,MEMORY_MB:7168", ("busy", "idle")),
        ("VCPU:1,MEMORY_MB:7169", ("idle",)),
        ("VCPU:1,VGPU:1", ("idle",)),
    ],
)
def test_usage_in_the_fleet_limits_candidates(
    resources: str, hosts: tuple[str, ...], used: EmbeddedPlacement
) -> None:
    assert hosts_of(used, resources) == hosts


def test_usage_in_the_fleet_shows_as_allocations(
    used: EmbeddedPlacement,
) -> None:
    amounts = {"VCPU": 15, "MEMORY_MB": 1024}
    url = f"/resource_providers/{provider_uuid('busy')}"
    request = used.client.request
    assert request("GET", f"{url}/usages")["usages"] == amounts
    allocations = request("GET", f"{url}/allocations")["allocations"]
    ((consumer, allocation),) = allocations.items()
    assert allocation["resources"] == amounts
    written = request("GET", f"/allocations/{consumer}")
    assert written["project_id"] == "os-prefilter"
    assert written["user_id"] == "os-prefilter"


UNKNOWN = Fleet(
    (
        provider(
            "a",
            {
                "NEW_ONE": Inventory(1),
                "CUSTOM_A": Inventory(1),
                "NEW_TWO": Inventory(1),
            },
        ),
    )
)


@pytest.mark.parametrize(
    ("fleet", "problem"),
    [
        # Its hosts would have no resources.
        (
            Fleet((provider("a", {}),), has_inventories=False),
            "without inventories",
        ),
        # Each class is named once, with what to do.
        (UNKNOWN, "NEW_ONE, NEW_TWO; only a newer os-resource-classes has it"),
    ],
    ids=["no inventories", "unknown resource classes"],
)
def test_fleet_that_placement_cannot_hold_is_refused_as_a_whole(
    fleet: Fleet, problem: str
) -> None:
    with EmbeddedPlacement() as placement:
        with pytest.raises(PlacementRefused, match=problem):
            placement.load(fleet)
        providers = placement.client.request("GET", "/resource_providers")
    assert providers["resource_providers"] == []


def test_what_is_no_trait_name_is_refused_and_nothing_is_created() -> None:
    with EmbeddedPlacement() as placement:
        problem = r"no name of a trait: 'CUSTOM_bad name/\\n'"
        with pytest.raises(PlacementRefused, match=problem):
            placement.know(["CUSTOM_GOOD", "CUSTOM_bad name/\n"])
        assert not placement.client.custom_traits()


_FAILING = {
    "GET /allocation_candidates": (
        "placement.objects.allocation_candidate.AllocationCandidates.get_by_requests"
    ),
    "GET /resource_providers": (
        "placement.objects.resource_provider.get_all_by_filters"
    ),
    "its start": "placement.db.sqlalchemy.migration.create_schema",
    "the hosts": "os_prefilter_tools.adapters.embedded._insert",
}


def _fail(*_args: object, **_options: object) -> None:
    raise RuntimeError("a table\nis missing.")


def with_traceback(
    caplog: pytest.LogCaptureFixture,
) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("where", _FAILING)
def test_fault_inside_the_embedded_placement_is_one_line_and_says_what_to_do(
    where: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its traceback, of 50 lines and more, is for ``-vv``."""
    monkeypatch.setattr(_FAILING[where], _fail)
    assert main(["candidates", "--property", "x=y"]) == 1
    assert capsys.readouterr().err == (
        f"The Placement inside this process failed at {where}:"
        " RuntimeError: a table is missing. Ask that of a cloud with"
        " --os-cloud, or install another release of openstack-placement;"
        " the option -vv prints where it failed, for a report.\n"
    )
    assert with_traceback(caplog) == []
    assert main(["-vv", "candidates", "--property", "x=y"]) == 1
    (record,) = with_traceback(caplog)
    assert record.message == f"Placement failed at {where}."


def test_error_of_its_database_is_logged_by_no_library(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """oslo.db and Placement log each one with its traceback."""
    caplog.set_level(logging.DEBUG, "os_prefilter_tools")
    failed = "failed at GET /allocation_candidates"
    with EmbeddedPlacement() as placement:
        problem = f"{failed}: OverflowError: "
        with pytest.raises(EmbeddedPlacementFailed, match=problem):
            hosts_of(placement, f"VCPU:{10**30}")
        with placement._engine.begin() as connection:
            connection.execute(text("DROP TABLE inventories"))
        problem = f"{failed}: DBNonExistentTable: "
        with pytest.raises(EmbeddedPlacementFailed, match=problem):
            hosts_of(placement)
    levels = {record.levelno for record in with_traceback(caplog)}
    assert levels == {logging.DEBUG}


def test_diagnosis_says_that_placement_did_not_confirm_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its records of requirements and hosts are computed from the fleet
    then.
    """
    monkeypatch.setattr(_FAILING["GET /allocation_candidates"], _fail)
    assert main(["diagnose", "--property", "x=y"]) == 1
    out = capsys.readouterr().out
    assert out.startswith(
        "Stage: no-answer. The Placement inside this process failed at GET"
        " /allocation_candidates: "
    )
    assert (
        "Placement has not confirmed what is said of requirements and hosts:"
        " os-prefilter computed it" in out
    )


class Claims:
    """Claims of the only candidate of a host with two CPUs."""

    def __init__(self, client: PlacementClient) -> None:
        self.client = client
        self.found = client.candidates("resources=VCPU:1")
        (self.candidate,) = self.found.allocation_requests

    def claim(self, server: str) -> bool:
        return self.client.claim(
            server, self.candidate, project_id="p", user_id="u"
        )


@pytest.fixture
def claims() -> Iterator[Claims]:
    host = provider("kvm", {"VCPU": Inventory(2)})
    with EmbeddedPlacement(Fleet((host,))) as placement:
        yield Claims(placement.client)


def test_candidates_are_found_by_host(claims: Claims) -> None:
    uuid = provider_uuid("kvm")
    assert claims.found.by_host == {uuid: (claims.candidate,)}
    assert claims.found.provider_summaries.keys() == {uuid}


def test_claim_takes_what_is_there_once(claims: Claims) -> None:
    assert claims.claim(str(uuid4()))
    assert claims.claim(str(uuid4()))
    assert not claims.claim(str(uuid4()))
    assert not claims.client.candidates("resources=VCPU:1").by_host


def test_claim_for_a_server_that_has_resources_is_refused(
    claims: Claims,
) -> None:
    server = str(uuid4())
    claims.claim(server)
    with pytest.raises(PlacementRefused, match="consumer generation conflict"):
        claims.claim(server)


@pytest.mark.parametrize("server", ["../traits", "abc"])
def test_claim_for_what_is_no_uuid_is_refused(
    server: str, claims: Claims
) -> None:
    with pytest.raises(PlacementRefused):
        claims.claim(server)
