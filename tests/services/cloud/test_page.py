"""What docs/fleet.rst says of a live cloud is true."""

import doctest
import re
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from os_prefilter.cli.main import main
from tests.services.cloud.cloud import Cloud
from tests.support.pages import DOCS, blocks, files_of, stripped

_PAGE = DOCS / "fleet.rst"
_TEXT = _PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def names(whole_cloud: Cloud) -> dict[str, str]:
    """Make the image and the flavor of the page; return what commands can name."""
    properties = {"hw_vif_model": "igb", "hw_time_hpet": "yes"}
    image = whole_cloud.image("ubuntu-24.04", active=True, **properties)
    whole_cloud.flavor("gpu.small", "of-the-page", {"resources:VGPU": "1"})
    server = whole_cloud.server("of-the-page", image)
    return {"image": image, "server": server}


def _examples() -> list[tuple[str, str, str]]:
    """Return the examples with the client: the command, what it prints, its exit code."""
    found = []
    for language, _, text in blocks(_PAGE):
        if language == "console":
            parts = re.split(r"^\$ (.*)\n?", text, flags=re.MULTILINE)[1:]
            pairs = list(zip(parts[::2], parts[1::2], strict=True))
            for index, (command, output) in enumerate(pairs):
                following = pairs[index + 1] if index + 1 < len(pairs) else ("", "")
                code = following[1].strip() if following[0] == "echo $?" else "0"
                if command.startswith("openstack "):
                    found.append((command, output, code))
    return found


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(("command", "output", "code"), _examples())
def test_live_cloud_page_examples_print_what_the_page_shows(cloud: Cloud, command: str, output: str, code: str) -> None:
    done = cloud.openstack(*shlex.split(command)[1:])
    assert str(done.returncode) == code
    found = stripped(done.stderr + done.stdout)
    assert doctest.OutputChecker().check_output(stripped(output), found, doctest.ELLIPSIS), found
    assert cloud.written == []


def test_live_cloud_page_has_at_least_four_client_examples() -> None:
    assert len(_examples()) >= 4


@pytest.mark.usefixtures("names")
def test_commands_of_the_page_enable_safely_run_on_the_cloud_as_written(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They need no file but nova.conf, and judge the cloud's own images on its own hosts."""
    monkeypatch.chdir(tmp_path)
    page = DOCS / "enable-safely.rst"
    (tmp_path / "nova.conf").write_text(files_of(page)["nova.conf"])
    commands = re.findall(
        r"^    os-prefilter (.*--os-cloud mycloud.*)$", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [command.split()[0] for command in commands] == ["snapshot", "audit", "readiness", "audit", "explain"]
    for command in commands:
        words = command.replace("mycloud", "admin").replace("/etc/nova/", "")
        assert main(shlex.split(words)) in (0, 2)
        out, err = capsys.readouterr()
        assert "on 11 hosts." in err or not command.startswith("audit")
        assert "ubuntu-24.04" in out or not command.startswith("audit")
    assert cloud.written == []


def test_policy_rules_named_on_the_live_cloud_page_exist() -> None:
    named = set(re.findall(r"``((?:placement|os_compute_api):[\w:-]+|get_images?|get_metadef_namespace)``", _TEXT))
    rules: set[str] = set()
    for service in ("glance", "nova", "placement"):
        rules |= {rule.name for rule in import_module(f"{service}.policies").list_rules()}
    assert len(named) > 8
    assert named <= rules


_REQUESTS = [
    # The command, requests to Placement, to Glance, to Nova.
    (["explain", "--property", "a=b"], (6, 0, 0)),
    (["candidates", "--property", "a=b"], (8, 0, 0)),
    (["candidates", "--property", "hw_time_hpet=yes"], (9, 0, 0)),
    (["explain", "--image", "{image}"], (6, 1, 0)),
    (["explain", "--image", "ubuntu-24.04"], (6, 2, 0)),
    (["explain", "--flavor", "of-the-page"], (6, 0, 1)),
    (["explain", "--server", "{server}"], (6, 1, 1)),
]


@pytest.mark.parametrize(("argv", "expected"), _REQUESTS)
def test_each_command_sends_the_expected_number_of_requests(
    cloud: Cloud, names: dict[str, str], argv: list[str], expected: tuple[int, ...], capsys: Any
) -> None:
    assert main([*(each.format_map(names) for each in argv), "--os-cloud", "admin"]) == 0
    capsys.readouterr()
    sent = (cloud.placement.sent, cloud.glance.sent, cloud.nova.sent)
    versions = re.compile(r"GET (/|/v2/?|/v2\.1/?)$")
    assert tuple(len([each for each in of if not versions.match(each)]) for of in sent) == expected, sent
