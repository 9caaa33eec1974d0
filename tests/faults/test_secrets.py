# SPDX-License-Identifier: Apache-2.0

"""No password, token or URL with one is in anything that is printed or logged,
with every logger at DEBUG.

The commands run with the real client libraries, against a stand-in for
Keystone that accepts or refuses the login, or a port where nothing listens.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.cli.main import Program, main
from tests.support.logins import Logins
from tests.support.loopback import Call, Reply, serving
from tests.support.placements import HOST, lone_host, served

PASSWORD = "pa$$wOrd-of-the-operator"  # noqa: S105 - what must not be seen
# Placement takes it for an administrator's.
TOKEN = "admin:tOken-given-by-keystone"  # noqa: S105 - as above
DATABASE = "dAtabase-password"
SECRETS = (
    PASSWORD,
    PASSWORD.replace("$", "%24"),
    TOKEN.partition(":")[2],
    DATABASE,
)

Run = Callable[..., tuple[int, str]]
LOGINS = ("accepted", "refused", "broken", "unreachable")


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """Return a Keystone of each kind, whose catalogue has a real Placement."""
    logins = Logins()

    def accept(call: Call) -> Reply:
        status, document = logins.answer(call.method, call.path)
        return Reply(
            status,
            json.dumps(document).encode(),
            {"Content-Type": "application/json", "X-Subject-Token": TOKEN},
        )

    def refuse(_call: Call) -> Reply:
        # Also what versions there are: keystoneauth1 by itself would wait for
        # its own lock then.
        body = {
            "error": {
                "code": 401,
                "title": "Unauthorized",
                "message": "The request requires authentication.",
            }
        }
        return Reply(
            401,
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )

    def fail(_call: Call) -> Reply:
        return Reply(
            500, b"<html>broken</html>", {"Content-Type": "text/html"}
        )

    with (
        EmbeddedPlacement(lone_host()) as placement,
        served(placement) as server,
        serving(accept) as accepting,
        serving(refuse) as refusing,
        serving(fail) as failing,
    ):
        logins.url = accepting
        logins.catalog = {
            "placement": server.url,
            "image": accepting,
            "compute": accepting,
        }
        yield {
            "accepted": accepting,
            "refused": refusing,
            "broken": failing,
            "unreachable": "http://127.0.0.1:1",
        }


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch,
    capfd: Any,
    caplog: pytest.LogCaptureFixture,
) -> Run:
    """Return a function: run a command, and check all that it prints and logs
    at DEBUG.
    """
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    configured = Program.configure_logging

    def at_debug(program: Program) -> None:
        configured(program)
        for handler in logging.getLogger().handlers:
            handler.setLevel(logging.DEBUG)
        logging.getLogger().setLevel(logging.DEBUG)

    monkeypatch.setattr(Program, "configure_logging", at_debug)

    def run(*argv: str) -> tuple[int, str]:
        caplog.clear()
        # oslo.log, which another test may have set up, keeps these at WARNING.
        for name in (
            "",
            "keystoneauth",
            "stevedore",
            "urllib3.connectionpool",
        ):
            caplog.set_level(logging.DEBUG, name)
        code, output = main(argv), "".join((*capfd.readouterr(), caplog.text))
        assert any(
            record.levelno == logging.DEBUG for record in caplog.records
        )
        assert [secret for secret in SECRETS if secret in output] == []
        assert "Traceback" not in output
        return code, output

    return run


@pytest.mark.parametrize("login", LOGINS)
def test_clouds_yaml_credentials_never_appear_in_output_or_logs(
    urls: dict[str, str],
    login: str,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    auth = {
        "auth_url": f"{urls[login]}/v3",
        "username": "operator",
        "password": PASSWORD,
        "project_name": "project",
        "user_domain_id": "default",
        "project_domain_id": "default",
    }
    entry = {"auth_type": "password", "region_name": "one", "auth": auth}
    (tmp_path / "clouds.yaml").write_text(
        yaml.safe_dump({"clouds": {"ours": entry}}), encoding="utf-8"
    )
    # Those of the environment are read, too.
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    monkeypatch.setenv("OS_TOKEN", TOKEN)
    monkeypatch.setenv("OS_USER_PASSWORD", PASSWORD)
    code, output = run("-vv", "readiness", "--os-cloud", "ours")
    assert code == int(login != "accepted")
    # The request is logged, without the token.
    assert ("/resource_providers" in output) == (login == "accepted")


@pytest.mark.parametrize("login", LOGINS)
def test_nova_conf_credentials_never_appear_in_output_or_logs(
    urls: dict[str, str], login: str, tmp_path: Path, run: Run
) -> None:
    """What the agent reads: the file has the passwords of Nova's databases and
    of its message bus as well.
    """
    conf = tmp_path / "nova.conf"
    lines = [
        "[DEFAULT]",
        f"transport_url = rabbit://nova:{DATABASE}@127.0.0.1:5672/",
        "[database]",
        f"connection = mysql+pymysql://nova:{DATABASE}@127.0.0.1/nova",
        "[placement]",
        "auth_type = password",
        f"auth_url = {urls[login]}/v3",
        "username = placement",
        f"password = {PASSWORD}",
        "project_name = service",
        "user_domain_name = Default",
        "project_domain_name = Default",
        "region_name = one",
        "valid_interfaces = public",
    ]
    conf.write_text("\n".join(lines).replace("$$", "$$$$"), encoding="utf-8")
    argv = (
        "capabilities",
        "report",
        "--driver",
        "fake",
        "--config-file",
        str(conf),
        "--provider",
        HOST,
    )
    code, output = run("-vv", *argv)
    assert (code == 0) == (login == "accepted"), output
