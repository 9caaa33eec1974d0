# SPDX-License-Identifier: Apache-2.0

"""``verdict``: planned histories and servers, whose numbers it must give."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from os_prefilter.hosts.marker_traits import (
    REPORTED,
    groups_by_trait,
    names_with,
)
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.operators import boots
from os_prefilter_tools.operators.decisions import decisions_in
from tests.support.commands import Capture, Cli

_TRAIT = "CUSTOM_COMPUTE_TIME_HPET"
_SOURCE = "image property hw_time_hpet=true"
(_MARKER,) = names_with(
    REPORTED, groups_by_trait(Options().templates)[_TRAIT].keys
)
_HOSTS = f"""
hosts:
  timer: {{resources: {{VCPU: 8}}, traits: [COMPUTE_NODE, {_TRAIT}, {_MARKER}]}}
  plain: {{resources: {{VCPU: 8}}, traits: [COMPUTE_NODE, {_MARKER}]}}
  quiet: {{resources: {{VCPU: 8}}, traits: [COMPUTE_NODE]}}
"""
_SERVICES = ("timer", "plain", "quiet", "gone")


def _requirement(name: str, **changes: Any) -> dict[str, Any]:
    of_trait = {"trait": _TRAIT, "required": True, "scope": "root"}
    return {**of_trait, "filter": name, "source": _SOURCE, **changes}


def _shadow(
    name: str = "hpet", lacking: int = 2, **changes: Any
) -> dict[str, Any]:
    """Return what a shadow filter would have changed, of three candidates."""
    return {
        "filter": name,
        "result": "passed",
        "reason": None,
        "candidates": 3,
        "lacking": lacking,
        "requirements": [_requirement(name)],
        "aggregates": [],
        **changes,
    }


class Plan(Cli):
    """Boots as they are planned, in a history and in Nova's rows."""

    def __init__(self, folder: Any, capsys: Capture) -> None:
        super().__init__(folder, capsys)
        self.lines: list[Any] = []
        self.hypervisors = [
            {
                "hypervisor_hostname": name,
                "service": {"host": f"{name}-service"},
            }
            for name in _SERVICES
        ]
        self.servers: list[Any] = []
        self.actions: dict[str, Any] = {}
        self.number = 0
        self.responses: Any = None

    def decide(self, result: str, **fields: Any) -> None:
        """Write a decision about the boot of this number."""
        line = {
            "time": f"2026-11-{self.number // 1440 + 1:02}T00:00:00.000Z",
            "worker": 1,
            "request": self.request,
            "server": self.server,
            "result": result,
            "reason": None,
            "hosts": [],
            "requirements": [],
            "preferences": [],
            "aggregates": [],
            "notes": [],
            "left_out": 0,
        }
        self.lines.append({**line, **fields})

    @property
    def server(self) -> str:
        return str(UUID(int=self.number))

    @property
    def request(self) -> str:
        return f"req-{UUID(int=self.number)}"

    def boot(
        self,
        *tried: str,
        run: bool = True,
        shadow: Sequence[Mapping[str, Any]] = (_shadow(),),
        enabled: Sequence[str] = (),
        action: str = "create",
        **fields: Any,
    ) -> None:
        """Have hosts try to build one more server, which runs on the last.

        :param fields: more fields of the server in Nova's API
        """
        self.number += 1
        required = [_requirement(name) for name in enabled]
        self.decide("passed", requirements=required)
        if shadow:
            self.decide("shadow", shadow=list(shadow))
        server: dict[str, Any] = {
            "id": self.server,
            "status": "ACTIVE" if run else "ERROR",
            "OS-SRV-USG:launched_at": "2026-11-01T00:00:00" if run else None,
        }
        if not run:
            server["fault"] = {"message": "no such device"}
        self.servers.append({**server, **fields})
        events = [
            {
                "event": "compute__do_build_and_run_instance",
                "host": f"{host}-service",
                "result": "Success",
            }
            for host in reversed(tried)
        ]
        of_conductor = {"event": "conductor_schedule_and_build", "host": "c"}
        path = f"/servers/{self.server}/os-instance-actions/{self.request}"
        found = {"action": action, "events": [*events, of_conductor]}
        self.actions[path] = {"instanceAction": found}

    def boots(self, number: int, *tried: str, **options: Any) -> None:
        for _ in range(number):
            self.boot(*tried, **options)

    @property
    def argv(self) -> list[str]:
        lines = [
            each if isinstance(each, str) else json.dumps(each)
            for each in self.lines
        ]
        responses = self.responses
        if responses is None:
            responses = {
                "/os-hypervisors/detail": {"hypervisors": self.hypervisors},
                "/servers/detail": {"servers": self.servers},
                **self.actions,
            }
        return [
            "verdict",
            self.place("decisions.log", "\n".join([*lines, ""])),
            "--servers",
            self.place("servers.json", responses),
            "--hosts",
            self.place("hosts.yaml", _HOSTS),
        ]

    def rows_of(self, *argv: str, code: int = 0) -> dict[str, Any]:
        """Return the row of each filter."""
        found = self.json(*self.argv, *argv, code=code)
        return {row["Filter"]: row for row in found}


@pytest.fixture
def plan(tmp_path: Any, capsys: Capture) -> Plan:
    return Plan(tmp_path, capsys)


def _numbers(row: Mapping[str, Any]) -> dict[str, int]:
    return {
        name: found for name, found in row.items() if found.__class__ is int
    }


def test_numbers_are_those_of_the_plan(plan: Plan) -> None:
    plan.boots(5, "timer", shadow=[_shadow(lacking=0)])
    plan.boots(7, "timer")
    plan.boots(3, "plain", "timer")
    plan.boots(2, "plain", "plain", run=False)
    plan.boots(4, "timer", run=False)
    plan.boots(6, "plain")
    plan.boots(1, "plain", shadow=[_shadow(lacking=3)])
    plan.boots(8, "gone")
    plan.boots(9, "timer", shadow=[])
    row = plan.rows_of(code=2)["hpet"]
    assert _numbers(row) == {
        "Boots": 36,
        "Failed": 9,
        "Changed": 31,
        "Avoided": 5,
        "Not needed": 7,
        "No host": 1,
        "Not known": 8,
    }


def test_filter_that_only_avoids_failures_is_to_be_enabled(plan: Plan) -> None:
    plan.boots(3, "plain", "timer")
    plan.boot("timer", run=False)
    row = plan.rows_of()["hpet"]
    assert row["Verdict"] == "enable it"
    assert row["Why"].startswith("it would have avoided 3 of 4 failures")


def test_details_name_host_trait_property_and_a_failure(plan: Plan) -> None:
    plan.boot("plain")
    plan.boots(2, "plain", run=False)
    (found,) = plan.rows_of(code=2)["hpet"]["Details"]
    assert found == {
        "host": "plain",
        "trait": _TRAIT,
        "source": _SOURCE,
        "is_reported": True,
        "failed": 2,
        "run": 1,
        "server": str(UUID(int=3)),
        "fault": "no such device",
    }


def test_hosts_without_a_report_are_to_report_first(plan: Plan) -> None:
    plan.boots(2, "quiet")
    plan.boots(3, "plain", run=False)
    row = plan.rows_of(code=2)["hpet"]
    assert row["Verdict"] == "report first"
    assert row["Why"] == "2 of 5 servers run on hosts without a report (quiet)"


def test_one_server_on_a_host_that_reports_otherwise_decides(
    plan: Plan,
) -> None:
    plan.boots(2, "quiet")
    plan.boots(9, "plain", run=False)
    plan.boot("plain")
    row = plan.rows_of(code=2)["hpet"]
    assert row["Verdict"] == "do not"
    assert "hosts that report otherwise (plain)" in row["Why"]


def test_rejected_request_whose_server_runs_decides(plan: Plan) -> None:
    reason = "image property hw_vif_model has the unknown value 'virtoi'."
    changes: dict[str, Any] = {
        "result": "rejected",
        "requirements": [],
        "candidates": None,
    }
    rejected = _shadow("image_metadata", 0, reason=reason, **changes)
    plan.boot("gone", shadow=[rejected])
    row = plan.rows_of(code=2)["image_metadata"]
    assert row["Verdict"] == "do not"
    assert row["No host"] == 1
    assert row["Details"][0]["source"] == reason


def test_error_of_a_filter_decides(plan: Plan) -> None:
    failed = _shadow(result="failed", reason="KeyError: 'x'", lacking=0)
    plan.boots(3, "plain", run=False)
    plan.boot("timer", shadow=[failed])
    row = plan.rows_of(code=2)["hpet"]
    assert row["Verdict"] == "do not"
    assert row["Why"] == "it failed: KeyError: 'x'"


def test_filter_that_is_deferred_waits_for_reports(plan: Plan) -> None:
    deferred = _shadow(result="deferred", reason="x: later", lacking=0)
    plan.boot("timer", shadow=[{**deferred, "requirements": []}])
    row = plan.rows_of(code=2)["hpet"]
    assert row["Verdict"] == "report first"
    assert row["Why"] == "it is deferred: x: later"


_OF_GROUP = {"scope": "of_port"}
_FORBIDDEN = {"required": False}


@pytest.mark.parametrize(
    ("changes", "tried", "avoided"),
    [
        (_FORBIDDEN, "timer", 1),
        (_FORBIDDEN, "plain", 0),
        (_OF_GROUP, "plain", 1),
        (_OF_GROUP, "timer", 0),
    ],
    ids=["forbidden", "not there", "group lacks it", "group has it"],
)
def test_requirement_is_judged_by_the_traits_of_the_host(
    changes: dict[str, Any], tried: str, avoided: int, plan: Plan
) -> None:
    part = _shadow(requirements=[_requirement("hpet", **changes)])
    plan.boot(tried, run=False, shadow=[part])
    assert plan.rows_of()["hpet"]["Avoided"] == avoided


def test_failures_that_an_enabled_filter_leaves_are_counted_by_property(
    plan: Plan,
) -> None:
    plan.boots(3, "timer", shadow=[], enabled=["image_metadata"])
    plan.boots(2, "plain", "timer", shadow=[], enabled=["image_metadata"])
    plan.boot(run=False, shadow=[], enabled=["image_metadata"])
    plan.boot("timer")
    row = plan.rows_of()["image_metadata"]
    assert (row["List"], row["Boots"], row["Failed"]) == ("enabled", 6, 2)
    (found,) = row["Details"]
    assert (found["source"], found["failed"]) == (_SOURCE, 2)


def test_filter_that_left_no_failure_has_no_details(plan: Plan) -> None:
    plan.boot("timer", enabled=["image_metadata"])
    assert plan.rows_of()["image_metadata"]["Details"] == []


def test_trait_that_is_required_in_two_scopes_counts_once(plan: Plan) -> None:
    twice = [
        _requirement("hpet", scope=scope) for scope in ("root", "unsuffixed")
    ]
    plan.boot("plain", run=False, shadow=[_shadow(requirements=twice)])
    (found,) = plan.rows_of()["hpet"]["Details"]
    assert found["failed"] == 1


_UNKNOWN = {
    "it is being built": {"run": False, "status": "BUILD", "fault": None},
    "deleted while built": {
        "run": False,
        "status": "DELETED",
        "fault": None,
        "OS-EXT-SRV-ATTR:host": "plain-service",
    },
    "deleted, its host hidden": {
        "run": False,
        "status": "DELETED",
        "fault": None,
    },
}


@pytest.mark.parametrize("options", _UNKNOWN.values(), ids=_UNKNOWN)
def test_boot_that_is_not_over_is_not_known_and_gives_no_verdict(
    options: dict[str, Any], plan: Plan
) -> None:
    plan.boots(2, "plain", **options)
    plan.boot("plain", run=False)
    row = plan.rows_of(code=1)["hpet"]
    assert row["Not known"] == 2
    assert row["Verdict"] == "no verdict"


def test_server_that_is_gone_is_not_known(plan: Plan) -> None:
    plan.boots(3, "plain", run=False)
    del plan.servers[0]
    plan.actions.popitem()
    row = plan.rows_of(code=1)["hpet"]
    assert row["Not known"] == 2
    _, err = plan.run(*plan.argv, code=1)
    assert "Not known: what became of 2 boots." in err


def test_server_that_was_deleted_after_it_ran_has_run(plan: Plan) -> None:
    plan.boot("quiet", status="DELETED")
    assert plan.rows_of(code=2)["hpet"]["Not needed"] == 1


def test_server_that_runs_without_an_event_of_a_host_is_not_known(
    plan: Plan,
) -> None:
    plan.boot()
    row = plan.rows_of(code=1)["hpet"]
    assert row["Not known"] == 1
    assert row["Verdict"] == "no verdict"


def test_server_that_was_deleted_after_it_failed_has_failed(
    plan: Plan,
) -> None:
    gone: dict[str, Any] = {
        "status": "DELETED",
        "OS-EXT-SRV-ATTR:host": None,
        "fault": None,
    }
    plan.boot("plain", run=False, **gone)
    assert plan.rows_of()["hpet"]["Avoided"] == 1


def test_move_of_a_server_is_no_boot(plan: Plan) -> None:
    plan.boot("plain", action="resize")
    plan.boot("plain", run=False)
    row = plan.rows_of()["hpet"]
    assert row["Boots"] == 1


def test_nodes_of_one_compute_service_are_not_guessed(plan: Plan) -> None:
    other = {
        "hypervisor_hostname": "other",
        "service": {"host": "plain-service"},
    }
    plan.hypervisors.append(other)
    plan.boot("plain", run=False)
    assert plan.rows_of(code=1)["hpet"]["Not known"] == 1


def test_boots_that_would_have_changed_are_asked_about_first(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boots, "_MOST_BOOTS", 1)
    plan.boot("plain", shadow=[_shadow(lacking=0)], enabled=["owner"])
    plan.boot("plain", run=False)
    found = plan.rows_of()
    assert (found["hpet"]["Boots"], found["hpet"]["Avoided"]) == (1, 1)
    assert (found["owner"]["Boots"], found["owner"]["Not known"]) == (0, 0)


def test_boots_beyond_the_most_are_in_no_number(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boots, "_MOST_BOOTS", 10)
    plan.boots(50, "plain", run=False)
    row = plan.rows_of()["hpet"]
    assert row["Verdict"] == "enable it"
    assert (row["Boots"], row["Changed"], row["Not known"]) == (10, 10, 0)
    _, err = plan.run(*plan.argv)
    assert "Judged: 10 of 50 boots" in err
    assert "Not known" not in err


def test_judged_boots_are_spread_over_the_history(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boots, "_MOST_BOOTS", 5)
    plan.boots(10, "plain", run=False)
    plan.boots(10, "plain")
    (place,) = plan.rows_of(code=2)["hpet"]["Details"]
    assert (place["failed"], place["run"]) == (3, 2)


def test_rare_filter_is_judged_by_each_boot_it_would_have_changed(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One server that runs decides on it."""
    monkeypatch.setattr(boots, "_MOST_BOOTS", 6)
    plan.boots(20, "plain", run=False, shadow=[_shadow("rules")])
    plan.boots(2, "plain", shadow=[_shadow("rules"), _shadow()])
    found = plan.rows_of(code=2)
    assert found["hpet"]["Not needed"] == 2
    assert found["rules"]["Boots"] == 6


def test_error_of_a_filter_decides_beyond_the_judged_boots(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boots, "_MOST_BOOTS", 1)
    failed = _shadow(result="failed", reason="KeyError: 'x'", lacking=0)
    plan.boot("timer", shadow=[failed])
    plan.boot("plain", run=False)
    assert plan.rows_of(code=2)["hpet"]["Why"] == "it failed: KeyError: 'x'"


def test_purged_boots_have_their_share_of_the_judged(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boots, "_MOST_BOOTS", 10)
    plan.boots(20, "plain", run=False)
    del plan.servers[:4]
    row = plan.rows_of()["hpet"]
    assert (row["Boots"], row["Not known"]) == (10, 2)


def test_decision_without_server_or_request_is_no_boot(plan: Plan) -> None:
    plan.boot("plain", run=False)
    plan.decide("shadow", server=None, shadow=[_shadow()])
    plan.decide("shadow", request=None, shadow=[_shadow()])
    plan.decide("shadow", server="../../x", shadow=[_shadow()])
    assert plan.rows_of()["hpet"]["Boots"] == 1


def test_history_without_servers_says_whose_log_has_them(plan: Plan) -> None:
    plan.decide("passed")
    plan.decide("shadow", server=None, shadow=[_shadow()])
    error = plan.error(*plan.argv)
    assert error.startswith(
        "no boot: decisions without a server or request: 1"
    )
    assert "nova-scheduler" in error


def test_lines_of_other_releases_are_read(plan: Plan) -> None:
    """Fewer keys for decisions before shadow filters, more for later ones."""
    later = {**_shadow(), "of_a_later_release": {"x": 1}}
    plan.boot("plain", run=False, shadow=[later])
    plan.lines[-1]["of_a_later_release"] = [1]
    assert plan.rows_of()["hpet"]["Avoided"] == 1


def test_damaged_line_is_named_and_the_others_count(plan: Plan) -> None:
    plan.boots(2, "plain", run=False)
    plan.lines[-1] = json.dumps(plan.lines[-1])[:-20]
    assert plan.rows_of()["hpet"]["Avoided"] == 1
    _, err = plan.run(*plan.argv)
    assert "decisions.log:4: left out 1 damaged decision" in err


@pytest.mark.parametrize(
    "broken",
    [
        {"candidates": "many"},
        {"requirements": [{"trait": _TRAIT}]},
        {"aggregates": None},
    ],
    ids=["number", "requirement", "aggregates"],
)
def test_broken_part_of_a_shadow_filter_is_damage(
    broken: dict[str, Any], plan: Plan
) -> None:
    plan.boot("plain", run=False)
    plan.decide("shadow", shadow=[_shadow(**broken)])
    _, err = plan.run(*plan.argv)
    assert "left out 1 damaged decision" in err


def test_history_without_a_shadow_filter_says_what_to_configure(
    plan: Plan,
) -> None:
    plan.boot("timer", shadow=[], enabled=["image_metadata"])
    out, err = plan.run(*plan.argv, code=1)
    assert "image_metadata" in out
    assert "[prefilter] shadow_filters" in err


def test_empty_history_is_an_error(plan: Plan) -> None:
    error = plan.error(*plan.argv)
    assert error.startswith("no boot: none has required anything")
    assert "decision_history" in error


def test_history_of_another_cloud_is_an_error(plan: Plan) -> None:
    plan.boots(2, "timer")
    plan.servers = []
    assert "none of the 2 servers" in plan.error(*plan.argv)


def test_neither_cloud_nor_file_is_an_error(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OS_CLOUD", raising=False)
    plan.boot("timer")
    argv = plan.argv
    assert "--servers: it needs a cloud" in plan.error(*argv[:2], *argv[4:])


_HYPERVISORS: dict[str, Any] = {"/os-hypervisors/detail": {"hypervisors": []}}
_SERVER = {
    "id": str(UUID(int=1)),
    "status": "ERROR",
    "OS-SRV-USG:launched_at": None,
}
_NO_EVENTS = {"instanceAction": {"action": "create"}}
_ACTION = f"/servers/{UUID(int=1)}/os-instance-actions/req-{UUID(int=1)}"
_NOT_NOVA: Iterable[tuple[str, Any, str]] = (
    ("a list", [], ": expected a JSON object with Nova's response"),
    ("no servers", _HYPERVISORS, ": there is no '/servers/detail'"),
    (
        "no list",
        {**_HYPERVISORS, "/servers/detail": {"servers": 1}},
        ": /servers/detail: a value is of another type",
    ),
    (
        "a text",
        {**_HYPERVISORS, "/servers/detail": {"servers": ["x"]}},
        "Nova's API returns a list 'servers', each with id, status",
    ),
    (
        "no field",
        {"/os-hypervisors/detail": {"hypervisors": [{}]}},
        ": /os-hypervisors/detail: there is no 'service'",
    ),
    (
        "no events",
        {
            **_HYPERVISORS,
            "/servers/detail": {"servers": [_SERVER]},
            _ACTION: _NO_EVENTS,
        },
        f": {_ACTION}: there is no 'events'",
    ),
)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [each[1:] for each in _NOT_NOVA],
    ids=[each[0] for each in _NOT_NOVA],
)
def test_file_that_is_not_of_nova_is_an_error(
    rows: Any, expected: str, plan: Plan
) -> None:
    plan.boot("timer")
    plan.responses = rows
    error = plan.error(*plan.argv)
    assert error.startswith(str(plan.folder / "servers.json"))
    assert expected in error


def test_history_is_read_from_the_standard_input(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan.boot("plain", run=False)
    argv = plan.argv
    data = (plan.folder / "decisions.log").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    argv[1] = "-"
    assert plan.json(*argv)[0]["Avoided"] == 1


def test_text_of_tenants_is_escaped(plan: Plan) -> None:
    text = "[red]x\x1b[31m\n=1+1"
    requirement = _requirement("hpet", source=f"image property a={text}")
    plan.boot(
        "plain",
        run=False,
        shadow=[_shadow(requirements=[requirement])],
        fault={"message": text},
    )
    for form in ("table", "csv", "value"):
        out, _ = plan.run(*plan.argv, "-f", form)
        assert "\x1b" not in out
        assert "[red]x" in out


def test_decisions_shows_what_shadow_filters_would_have_changed(
    plan: Plan,
) -> None:
    plan.boot("timer")
    log = plan.argv[1]
    out, _ = plan.run("decisions", log)
    assert "shadow: hpet would exclude 2 of 3 candidates" in out
    out, _ = plan.run("decisions", log, "--request-id", plan.request)
    assert _TRAIT in out
    assert plan.json("decisions", log, "--rejected") == []
    assert plan.json("decisions", log)[1]["shadow"] == [_shadow()]


def test_decisions_shows_what_a_shadow_filter_would_have_rejected(
    plan: Plan,
) -> None:
    plan.boot("timer", shadow=[_shadow(result="rejected", reason="no")])
    out, _ = plan.run("decisions", plan.argv[1])
    assert "shadow: hpet would reject: no" in out


def test_log_that_is_named_twice_is_read_and_shown_once(plan: Plan) -> None:
    plan.boot("plain", run=False)
    command, log, *others = plan.argv
    out, err = plan.run(command, log, log, *others)
    assert (out + err).count("decisions.log") == 1
    out, err = plan.run("decisions", log, log)
    assert (out + err).count("decisions.log") == 1


def test_cloud_is_asked_for_servers_since_the_first_hour_and_each_action(
    plan: Plan,
) -> None:
    plan.boots(2, "plain", run=False)
    plan.actions.popitem()
    asked: list[str] = []

    class Nova(boots.NovaFile):
        def rows(self, path: str, *given: str) -> Any:
            asked.append(path)
            return super().rows(path, *given)

        def find(self, path: str, *given: str) -> Any:
            asked.append(path)
            return super().find(path, *given)

    _, log, _, servers, *_ = plan.argv
    history = boots.read_boots(decisions_in([log], print))
    outcomes = boots.read_outcomes(history, Nova(servers), servers)
    assert [each is None for each in outcomes.values()] == [False, True]
    assert len(asked) == 4
    assert "changes-since=2026-11-01T00:00:00Z" in asked[1]


def test_hosts_that_nova_does_not_show_are_not_known(plan: Plan) -> None:
    plan.boot("plain", run=False)
    for found in plan.actions.values():
        for event in found["instanceAction"]["events"]:
            del event["host"]
    assert plan.rows_of(code=1)["hpet"]["Not known"] == 1
