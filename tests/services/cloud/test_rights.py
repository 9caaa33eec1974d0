# SPDX-License-Identifier: Apache-2.0

"""Which users may run which command, and what a user without the rights
reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest

from os_prefilter.common.errors import ConfigurationError, PlacementRefused
from os_prefilter_agent.adapters import connection as clouds
from os_prefilter_tools.adapters.cloud import resources
from os_prefilter_tools.cli.main import main
from tests.services.cloud.cloud import Cloud
from tests.support.pages import DOCS, files_of
from tests.support.project import our_commands

Capture = pytest.CaptureFixture[str]

_PAGE = DOCS / "fleet.rst"
_REQUEST = ["--property", "hw_time_hpet=yes"]
COMMANDS = {
    "audit": ["--enable", "hpet", "-f", "json"],
    "candidates": [*_REQUEST, "-f", "json"],
    "demo": ["-f", "json"],
    "diagnose": [*_REQUEST, "-f", "json"],
    "explain": [*_REQUEST, "-f", "json"],
    "offer": ["--format", "json"],
    "offer publish": ["-f", "json"],
    "readiness": ["-f", "json"],
    "snapshot": [],
}
"""Command -> its arguments, of those that read a cloud."""
OF_NODES = {
    "baremetal reconfigure": [
        "--node",
        "n",
        "--old-flavor",
        "f",
        "--new-flavor",
        "t",
    ],
    "baremetal steps": ["--node", "n", "--property", "a=b"],
    "capabilities report": ["--driver", "ironic", "--node", "n"],
    "capabilities show": ["--driver", "ironic", "--node", "n"],
}
"""Command -> its arguments, of those that need an Ironic, which this cloud has
not.
"""
OF_A_LOG = {"verdict": ["decisions.log"]}
"""Command -> its arguments, of those that read a log first."""


def test_every_command_with_a_cloud_is_in_the_tables_above(
    capsys: Capture,
) -> None:
    found = set()
    for name in our_commands():
        assert main([*name.split(), "--help"]) == 0
        if "--os-cloud" in capsys.readouterr().out:
            found.add(name)
    assert found == {*COMMANDS, *OF_NODES, *OF_A_LOG}


def _timeless(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d(T[\d:.]+Z)?", "TIME", text)


def _run(
    capsys: Capture, cloud: str, command: str, *argv: str
) -> tuple[int, str, str]:
    code = main([*command.split(), *argv, "--os-cloud", cloud])
    out, err = capsys.readouterr()
    return code, _timeless(out), _timeless(err)


@pytest.fixture(scope="module", autouse=True)
def _public(whole_cloud: Cloud) -> None:
    whole_cloud.image(
        "public", active=True, hw_vif_model="igb", visibility="public"
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_gives_each_user_with_its_rights_the_same(
    cloud: Cloud, command: str, capsys: Capture
) -> None:
    argv, table = COMMANDS[command], _table()
    code, out, err = _run(capsys, "admin", command, *argv)
    assert (bool(out), code in (0, 2)) == (True, True), err
    # It reads the images of the cloud.
    of_images = (
        table["--image"] - {"get_image"} if command == "audit" else set()
    )
    assert _rules_of(cloud) == table[command] | of_images
    assert _run(capsys, "read-only", command, *argv)[:2] == (code, out)
    with _policies_of_the_page(cloud):
        found, printed, err = _run(capsys, "prefilter", command, *argv)
    assert (found, printed) == (code, out) or (
        command == "audit" and found in (0, 2)
    ), err
    assert cloud.written == []


@contextmanager
def _policies_of_the_page(cloud: Cloud) -> Iterator[None]:
    """Give the services the policies on the page, as long as the context
    lasts.
    """
    found = files_of(_PAGE)
    paths = {
        service: cloud.folder / f"{service}-policy.yaml"
        for service in ("placement", "nova")
    }
    for service, path in paths.items():
        path.write_text(found[f"/etc/{service}/policy.yaml"], encoding="utf-8")
    try:
        yield
    finally:
        for path in paths.values():
            # A service goes on with the rules of a file that is gone.
            path.write_text("{}", encoding="utf-8")


def _table() -> dict[str, set[str]]:
    _, _, rest = _PAGE.read_text(encoding="utf-8").partition(
        "* - Command or option\n      - Policy rules"
    )
    table, _, _ = rest.partition("\n\n.. ")
    found = {}
    for row in table.split("    * - ")[1:]:
        first, _, second = row.partition("\n      - ")
        for name in re.findall(r"``([^`]+)``", first):
            found[name] = set(
                re.findall(
                    r"``(\w+:[\w:-]+|get_images?|get_metadef_namespace)``",
                    second,
                )
            )
    return found


def _rules_of(cloud: Cloud) -> set[str]:
    """Return the rules of the page that guard the requests that were sent, as
    the services document them.
    """
    known, found = set.union(*_table().values()), set()
    for name, prefix in (("placement", ""), ("nova", "/v2.1"), ("glance", "")):
        rules = [
            rule
            for rule in import_module(f"{name}.policies").list_rules()
            if hasattr(rule, "operations")
        ]
        patterns = [
            (
                re.sub(
                    r"\\{[^{}]+\\}",
                    "[^/]+",
                    re.escape(operation["path"].rstrip("/")),
                ),
                rule.name,
            )
            for rule in rules
            for operation in rule.operations
            if "GET" in operation["method"]
        ]
        for sent in getattr(cloud, name).sent:
            method, _, target = sent.partition(" ")
            path = target.partition("?")[0].removeprefix(prefix).rstrip("/")
            assert method == "GET"
            if path == "/os-hypervisors/detail":
                # Nova documents the rule for a path that its API has not.
                path = "/os-hypervisors/details"
            if path not in ("", "/v2", "/v2.1"):
                guards = known & {
                    rule
                    for pattern, rule in patterns
                    if re.fullmatch(pattern, path)
                }
                assert guards, sent
                found |= guards
    return found


_OF_PROJECT = (
    "The token must be for a project, not a domain or the system: log in with"
    " project_name."
)
_REFUSALS = [
    ("operator", _OF_PROJECT),
    ("system", _OF_PROJECT),
    ("reader", "role"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_user_without_the_rights_reads_what_was_refused_and_what_to_do(
    cloud: Cloud, command: str, capsys: Capture
) -> None:
    """The operator is the administrator of a domain, "system" one of the whole
    cloud, but of no project in either.
    """
    for user, advice in (
        _REFUSALS if command in ("audit", "explain") else _REFUSALS[-1:]
    ):
        code, out, err = _run(capsys, user, command, *COMMANDS[command])
        assert code == 1
        # A diagnosis says it in its result.
        (line,) = [json.loads(out)["message"]] if out else err.splitlines()
        refused = (
            r"(Placement refused GET /\w+ with|Nova, GET"
            r" /os-aggregates:|Glance, GET /images:) status 403"
        )
        assert re.match(refused, line)
        assert advice in line
    assert cloud.written == []


_OF_SHADOW = {
    "time": "2026-11-03T02:14:11.482Z",
    "worker": 1,
    "request": "req-1",
    "server": "3f0c3d8e-55a1-4c3b-9a41-6d0f5c8e7b11",
    "result": "shadow",
    "reason": None,
    "hosts": [],
    "requirements": [],
    "preferences": [],
    "aggregates": [],
    "notes": [],
    "left_out": 0,
    "shadow": [
        {
            "filter": "hpet",
            "result": "rejected",
            "reason": "no such value",
            "candidates": None,
            "lacking": None,
            "requirements": [],
            "aggregates": [],
        }
    ],
}


def test_verdict_reads_what_the_page_says_and_others_read_what_was_refused(
    cloud: Cloud,
    capsys: Capture,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No action is read of a server that this cloud has not."""
    monkeypatch.chdir(tmp_path)
    argv = OF_A_LOG["verdict"]
    (tmp_path / argv[0]).write_text(json.dumps(_OF_SHADOW), encoding="utf-8")
    code, out, err = _run(capsys, "admin", "verdict", *argv)
    assert code == 1
    assert out.strip() == ""
    assert "none of the 1 servers of the history is there" in err
    named = _table()["verdict"]
    actions = {rule for rule in named if "os-instance-actions" in rule}
    assert len(actions) == 2
    assert named - actions <= _rules_of(cloud)
    code, out, err = _run(capsys, "reader", "verdict", *argv)
    assert (code, out) == (1, "")
    assert "status 403" in err
    assert cloud.written == []


@pytest.mark.parametrize("command", [*COMMANDS, *OF_NODES])
def test_service_missing_from_the_catalogue_is_named_with_the_region(
    cloud: Cloud,
    command: str,
    capsys: Capture,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cloud "elsewhere" names a region where only Keystone is; nowhere is
    there an Ironic.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("f", "t"):
        (tmp_path / name).write_text(
            '{"vcpus": 1, "ram": 1}', encoding="utf-8"
        )
    code, out, err = _run(
        capsys, "elsewhere", command, *(COMMANDS | OF_NODES)[command]
    )
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    name, kind = (
        ("Placement", "placement")
        if command in COMMANDS
        else ("Ironic", "baremetal")
    )
    service = (
        f"{name}: the service catalogue has no endpoint of type {kind} for"
        " this user"
    )
    assert f"{service} (region 'two', interface 'public')" in err
    assert "'openstack catalog list' shows" in err


def test_revoked_token_is_replaced_by_a_new_login_if_there_is_one(
    cloud: Cloud,
) -> None:
    """In the middle of a command, where the login is by a password or an
    application credential.
    """

    def revoke(token: str) -> str:
        cloud.admin.identity.delete(
            "/auth/tokens", headers={"X-Subject-Token": token}
        )
        return token

    image = cloud.image("after a new login")
    for name in ("admin", "application-credential"):
        connection = cloud.connection(name)
        revoke(connection.session.get_token())
        assert (
            resources.image_named(connection, image).name
            == "after a new login"
        )
    token = revoke(cloud.connection().session.get_token())
    auth = {
        "auth_url": f"{cloud.keystone.url}/v3",
        "token": token,
        "project_name": "admin",
    }
    cloud.add_cloud(
        "token", {**auth, "project_domain_id": "default"}, "v3token"
    )
    fixed = {"endpoint": cloud.placement.url, "token": token}
    cloud.add_cloud(
        "fixed-token",
        fixed,
        "admin_token",
        placement_endpoint_override=cloud.placement.url,
    )
    with pytest.raises(
        ConfigurationError,
        match=(
            r"'token' cannot be used: Keystone refused the login.*been revoked"
        ),
    ):
        cloud.connection("token")
    with pytest.raises(
        PlacementRefused,
        match=r"GET /traits with status 401.*may have expired or been revoked",
    ):
        clouds.placement_of(cloud.connection("fixed-token")).traits()
