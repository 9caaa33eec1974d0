# SPDX-License-Identifier: Apache-2.0

"""No command and no traceback shows a password of a file that it reads; what
it writes is not for everybody.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from os_prefilter_tools.cli.main import main
from tests.support.commands import Cli

_CLOUDS = (
    "clouds:\n  ours:\n    auth:\n      auth_url: http://127.0.0.1:1/v3\n     "
    " password: {}\n"
)
_UNQUOTED = (
    "*hunter2secret",
    "!hunter2secret",
    "%hunter2secret",
    "@hunter2secret",
    "{hunter2secret",
)


_ASK_CLOUD = ["readiness", "--os-cloud", "ours"]
_DEBUG = ["--debug", "-vv"]
_BROKEN = pytest.mark.parametrize(
    "text",
    [
        "clouds:\n  a\n  b: c\n",
        "\x00",
        "\xff",
        *map(_CLOUDS.format, _UNQUOTED),
    ],
)


@pytest.fixture(params=["OS_CLIENT_CONFIG_FILE", "OS_CLIENT_SECURE_FILE"])
def clouds_yaml(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """Return the path of a file that openstacksdk reads clouds from."""
    path = tmp_path / "clouds.yaml"
    monkeypatch.setenv(request.param, str(path))
    return path


@_BROKEN
@pytest.mark.parametrize("options", [[], _DEBUG], ids=["", "debug"])
def test_broken_clouds_yaml_is_named_in_the_error_and_shows_no_password(
    text: str, options: list[str], clouds_yaml: Path, cli: Cli
) -> None:
    clouds_yaml.write_bytes(text.encode("latin-1"))
    out, error = cli.run(*options, *_ASK_CLOUD, code=1)
    assert "hunter2" not in out + error
    assert f"{clouds_yaml}: " in error
    assert "this is not YAML" in error
    if not options:
        assert len(error.splitlines()) == 1


def test_clouds_yaml_in_a_pipe_of_a_shell_is_read(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as file:
        file.write(
            "clouds: {ours: {auth: {auth_url: 'http://127.0.0.1:1/v3',"
            " username: a, password: *hunter2}}}\n"
        )
    with os.fdopen(reader):
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", f"/dev/fd/{reader}")
        assert "hunter2" not in cli.error(*_DEBUG, *_ASK_CLOUD)


def test_clouds_yaml_in_a_named_pipe_is_refused(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "clouds.yaml"
    os.mkfifo(path)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(path))
    assert "this is a named pipe" in cli.error(*_ASK_CLOUD)


@pytest.mark.parametrize("options", [[], _DEBUG], ids=["", "debug"])
@pytest.mark.parametrize(
    "password",
    ["hunter2secret", "hunter2@secret", "hunter2/secret", "hunter2''secret"],
)
def test_password_in_a_url_is_not_shown(
    password: str,
    options: list[str],
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    auth = (
        f"{{auth_url: 'http://me:{password}@127.0.0.1:1/v3', username: a,"
        " password: b, project_name: c}"
    )
    text = f"clouds: {{ours: {{auth: {auth}}}}}\n"
    path = cli.place("clouds.yaml", text)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", path)
    out, error = cli.run(*options, *_ASK_CLOUD, code=1)
    assert "hunter2" not in out + error
    assert "secret@" not in out + error


_REPORT = "capabilities report --provider x --driver"
_SHOW = "capabilities show"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (
            f"{_REPORT} fake",
            (
                "[placement]\nauth_type = password\nauth_url ="
                " http://127.0.0.1:1\nusername = nova\npassword = pa$hunter2\n"
            ),
        ),
        (
            _SHOW,
            (
                "[libvirt]\nconnection_uri ="
                " qemu+tcp://nova:pa$hunter2@127.0.0.1/system\n"
            ),
        ),
        (
            _SHOW,
            (
                "[libvirt]\nvirt_type = qemu\nconnection_uri ="
                " qemu+tcp://nova:hunter2@127.0.0.1:1/system\n"
            ),
        ),
        (f"{_REPORT} libvirt", "[libvirt]\npassword hunter2\n"),
    ],
    ids=["placement", "libvirt", "URI", "line"],
)
def test_debug_traceback_shows_no_password_of_nova_conf(
    command: str, text: str, cli: Cli
) -> None:
    path = cli.place("nova.conf", text)
    argv = [*command.split(), "--config-file", path]
    out, error = cli.run(*_DEBUG, *argv, code=1)
    assert "Traceback" in error
    assert "hunter2" not in out + error


@pytest.mark.parametrize(
    "command",
    [["snapshot", "-o"], ["audit", "--html"]],
    ids=["snapshot", "audit"],
)
def test_file_with_names_of_hosts_is_its_owners_alone(
    command: list[str], tmp_path: Path
) -> None:
    """Whatever the umask, and also where a file is replaced that others can
    read.
    """
    path = tmp_path / "file"
    before = os.umask(0)
    try:
        main([*command, str(path)])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o640)
        main([*command, str(path), "--force"])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)
