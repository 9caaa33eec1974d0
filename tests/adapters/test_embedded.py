# SPDX-License-Identifier: Apache-2.0

"""A real Placement in this process: the client, the loading of fleets, and the
facts the library is built on.
"""

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
NOVA, CYBORG = frozenset({"OWNER_NOVA"}), frozenset({"OWNER_CYBORG"})


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
    assert owners.client.allocation_candidates("resources=VGPU:1").providers[
        "A"
    ] == ("A_gpu",)
    assert owners.client.allocation_candidates(
        "resources=VCPU:99"
    ) == Candidates((), {}, 0)


def test_unknown_trait_in_query_is_named_in_the_error(
    owners: EmbeddedPlacement,
) -> None:
    for part in (
        "root_required=CUSTOM_NONE",
        "required=!CUSTOM_NONE",
        "required=in:CUSTOM_NONE,OWNER_NOVA",
    ):
        with pytest.raises(UnknownTraits) as raised:
            owners.client.allocation_candidates(f"resources=VCPU:1&{part}")
        assert raised.value.traits == ["CUSTOM_NONE"]


def test_a_missing_standard_trait_creates_nothing(
    owners: EmbeddedPlacement,
) -> None:
    """A standard trait cannot be created; the CUSTOM_ ones beside it are not
    created either.
    """
    with pytest.raises(UnknownTraits) as raised:
        owners.client.ensure_traits(["HW_FROM_THE_FUTURE", "CUSTOM_NOT_MADE"])
    assert raised.value.traits == ["HW_FROM_THE_FUTURE"]
    assert "CUSTOM_NOT_MADE" not in owners.client.traits()


def test_second_fleet_adds_hosts_and_is_refused_as_a_whole_if_a_provider_exists() -> (
    None
):
    more = provider("D", ROOT, NOVA, aggregates=("rack",))
    with EmbeddedPlacement(OWNERS) as placement:
        placement.load(Fleet((more,)))
        assert placement.client.allocation_candidates(
            "resources=VCPU:1"
        ).hosts == ("A", "B", "C", "D")
        with pytest.raises(PlacementRefused, match="exists already"):
            placement.load(
                Fleet((provider("E", ROOT, aggregates=("rack",)), more))
            )
        assert placement.client.allocation_candidates(
            "resources=VCPU:1"
        ).hosts == ("A", "B", "C", "D")


def test_embedded_placements_open_at_once_have_separate_data() -> None:
    """Also after another was opened, failed to load its fleet, or was closed.
    A new one has all standard traits.
    """
    query = "resources=VCPU:1"
    with EmbeddedPlacement(Fleet((provider("x", ROOT),))) as first:
        with EmbeddedPlacement(Fleet((provider("y", ROOT),))) as second:
            assert first.client.allocation_candidates(query).hosts == ("x",)
            assert second.client.allocation_candidates(query).hosts == ("y",)
        with (
            pytest.raises(UnknownTraits),
            EmbeddedPlacement(
                Fleet((provider("z", ROOT, frozenset({"NO_SUCH"})),))
            ),
        ):
            pass
        assert first.client.allocation_candidates(query).hosts == ("x",)
        assert "OWNER_NOVA" in first.client.traits()
    for closed in (first, second):
        with pytest.raises(PlacementUnavailable, match="closed"):
            closed.client.allocation_candidates(query)


def test_embedded_placement_ignores_config_files_and_environment_and_keeps_globals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No configuration file, policy file, variable or proxy of the machine is
    used; CONF and logging stay alone.
    """
    directory = tmp_path / ".placement"
    directory.mkdir()
    (directory / "placement.conf").write_text(
        "[api]\nauth_strategy = keystone\n"
    )
    (directory / "policy.yaml").write_text(
        '"placement:allocation_candidates:list": "!"\n'
    )
    for name, value in {
        "HOME": str(tmp_path),
        "OS_PLACEMENT_CONFIG_DIR": str(directory),
        "OS_PLACEMENT_DATABASE__CONNECTION": (
            "mysql+pymysql://nobody@127.0.0.1:1/none"
        ),
        "OS_API__AUTH_STRATEGY": "keystone",
        "HTTP_PROXY": "http://127.0.0.1:1",
        "http_proxy": "http://127.0.0.1:1",
    }.items():
        monkeypatch.setenv(name, value)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    before = (root.level, cfg.CONF._namespace, cfg.CONF._args)
    with EmbeddedPlacement(OWNERS) as placement:
        assert placement.client.allocation_candidates(
            "resources=VCPU:1"
        ).hosts == ("A", "B", "C")
    assert (
        root.level,
        cfg.CONF._namespace,
        cfg.CONF._args,
        root.handlers,
    ) == (*before, [])


@pytest.mark.parametrize(
    ("before", "out", "err"),
    [
        ("", "('A',)", ""),
        (
            "sys.modules['placement'] = None",
            "",
            "pip install '.[embedded]' in the repository of os-prefilter",
        ),
    ],
)
def test_fresh_process_keeps_stderr_empty_and_a_missing_package_error_names_the_extra(
    before: str, out: str, err: str
) -> None:
    """Also when Placement refuses."""
    script = f"""
import sys
import threading
{before}
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter.common.errors import UnknownTraits
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider, provider_uuid
with EmbeddedPlacement(Fleet((Provider("A", provider_uuid("A"), {{"VCPU": Inventory(1)}}),))) as placement:
    try:
        placement.client.allocation_candidates("resources=VCPU:1&required=CUSTOM_NONE")
    except UnknownTraits:
        print(placement.client.allocation_candidates("resources=VCPU:1").hosts)
"""
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (run.stdout.strip(), run.returncode == 0) == (out, not err)
    assert err in run.stderr if err else run.stderr == ""


def test_closing_during_requests_raises_placement_unavailable_in_each_thread() -> (
    None
):
    """Else SQLite loses its connection while another thread uses it, and the
    process ends.
    """

    def ask(client: PlacementClient, errors: list[Exception]) -> None:
        try:
            while True:
                client.traits()
        except PlacementUnavailable as error:
            errors.append(error)

    for _ in range(times(2)):
        errors: list[Exception] = []
        with EmbeddedPlacement() as placement:
            threads = [
                threading.Thread(target=ask, args=(placement.client, errors))
                for _ in range(3)
            ]
            for thread in threads:
                thread.start()
            placement.client.traits()
        for thread in threads:
            thread.join(60)
        assert len(errors) == 3
        assert all(
            "the embedded Placement is closed" in str(each) for each in errors
        )


def test_usage_in_the_fleet_limits_candidates_and_shows_as_allocations() -> (
    None
):
    busy = {
        "VCPU": Inventory(8, allocation_ratio=2.0, used=15),
        "MEMORY_MB": Inventory(8192, used=1024),
    }
    child = provider("busy_gpu", {"VGPU": Inventory(4, used=4)})
    with EmbeddedPlacement(
        Fleet((provider("busy", busy, children=(child,)),))
    ) as placement:
        placement.load(
            Fleet(
                (
                    provider("idle", {**ROOT, **VGPU}),
                    provider("full", {"VCPU": Inventory(8, used=8)}),
                )
            )
        )
        hosts = {
            query: (
                placement.client.allocation_candidates(
                    f"resources={query}"
                ).hosts
            )
            for query in (
                "VCPU:1",
                "VCPU:2",
                "VCPU:1,MEMORY_MB:7168",
                "VCPU:1,MEMORY_MB:7169",
                "VCPU:1,VGPU:1",
            )
        }
        usages = placement.client.request(
            "GET", f"/resource_providers/{provider_uuid('busy')}/usages"
        )["usages"]
        url = f"/resource_providers/{provider_uuid('busy')}/allocations"
        (consumer,) = placement.client.request("GET", url)[
            "allocations"
        ].items()
        written = placement.client.request(
            "GET", f"/allocations/{consumer[0]}"
        )
    both = ("busy", "idle")
    assert list(hosts.values()) == [
        both,
        ("idle",),
        both,
        ("idle",),
        ("idle",),
    ]
    assert (
        usages == consumer[1]["resources"] == {"VCPU": 15, "MEMORY_MB": 1024}
    )
    assert (written["project_id"], written["user_id"]) == (
        "os-prefilter",
        "os-prefilter",
    )


def test_fleet_without_inventories_or_with_unknown_resource_classes_is_refused_as_a_whole() -> (
    None
):
    """Its hosts would have no resources. Each unknown class is named once,
    with what to do.
    """
    fleet = Fleet(
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
    with EmbeddedPlacement() as placement:
        with pytest.raises(PlacementRefused, match="without inventories"):
            placement.load(Fleet((provider("a", {}),), has_inventories=False))
        with pytest.raises(
            PlacementRefused,
            match="NEW_ONE, NEW_TWO; only a newer os-resource-classes has it",
        ):
            placement.load(fleet)
        assert (
            placement.client.request("GET", "/resource_providers")[
                "resource_providers"
            ]
            == []
        )


def test_what_is_no_trait_name_is_refused_and_nothing_is_created() -> None:
    with EmbeddedPlacement() as placement:
        with pytest.raises(
            PlacementRefused,
            match=r"no name of a trait: 'CUSTOM_bad name/\\n'",
        ):
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
    assert (
        capsys.readouterr().err
        == f"The Placement inside this process failed at {where}:"
        " RuntimeError: a table is missing. Ask that of a cloud with"
        " --os-cloud, or install another release of openstack-placement;"
        " the option -vv prints where it failed, for a report.\n"
    )
    assert not [record for record in caplog.records if record.exc_info]
    assert main(["-vv", "candidates", "--property", "x=y"]) == 1
    assert [
        record.message for record in caplog.records if record.exc_info
    ] == [f"Placement failed at {where}."]


def test_error_of_its_database_is_logged_by_no_library(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """oslo.db and Placement log each one with its traceback."""
    with (
        EmbeddedPlacement() as placement,
        caplog.at_level(logging.DEBUG, "os_prefilter_tools"),
    ):
        for query, why in (
            (f"resources=VCPU:{10**30}", "OverflowError"),
            ("resources=VCPU:1", "DBNonExistentTable"),
        ):
            with pytest.raises(
                EmbeddedPlacementFailed,
                match=f"failed at GET /allocation_candidates: {why}: ",
            ):
                placement.client.allocation_candidates(query)
            with placement._engine.begin() as connection:
                connection.execute(text("DROP TABLE IF EXISTS inventories"))
    assert {
        record.levelno for record in caplog.records if record.exc_info
    } == {logging.DEBUG}


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


def test_claim_takes_what_is_there_once_and_refuses_a_server_that_has_resources() -> (
    None
):
    servers = [str(uuid4()) for _ in range(3)]
    with EmbeddedPlacement(
        Fleet((provider("kvm", {"VCPU": Inventory(2)}),))
    ) as placement:
        client = placement.client
        found = client.candidates("resources=VCPU:1")
        assert list(found.by_host) == [provider_uuid("kvm")]
        (candidate,) = found.allocation_requests
        assert found.by_host[provider_uuid("kvm")] == (candidate,)
        assert found.provider_summaries.keys() == found.by_host.keys()
        claimed = [
            client.claim(server, candidate, project_id="p", user_id="u")
            for server in servers
        ]
        assert claimed == [True, True, False]
        assert not client.candidates("resources=VCPU:1").by_host
        with pytest.raises(
            PlacementRefused, match="consumer generation conflict"
        ):
            client.claim(servers[0], candidate, project_id="p", user_id="u")
        for server in ("../traits", "abc"):
            with pytest.raises(PlacementRefused):
                client.claim(server, candidate, project_id="p", user_id="u")
