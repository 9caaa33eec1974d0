"""A line that cannot be parsed may have a password in it: no command shows it, and no traceback."""

import traceback
from pathlib import Path

import pytest

from os_prefilter.adapters.placement_conf import load_conf
from os_prefilter.cli.configuration import read_configuration
from os_prefilter.cli.main import main
from os_prefilter.errors import ConfigurationError

_ASKING = ["--property", "hw_vif_model=igb"]


@pytest.fixture
def broken(tmp_path: Path) -> str:
    """Return the path of a nova.conf in which a = is missing."""
    path = tmp_path / "nova.conf"
    path.write_text("[placement]\nusername = nova\npassword hunter2secret\n")
    return str(path)


@pytest.mark.parametrize(
    "command",
    [["explain", *_ASKING], ["candidates", *_ASKING], ["diagnose", *_ASKING], ["audit"], ["offer"], ["readiness"]],
    ids=lambda command: command[0],
)
def test_no_command_shows_the_broken_line_of_nova_conf(
    command: list[str], broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--config-file", broken]) == 1
    out, error = capsys.readouterr()
    assert "nova.conf:3" in error
    assert "hunter2" not in out + error


@pytest.mark.parametrize("read", [read_configuration, load_conf])
def test_no_traceback_shows_the_broken_line_of_nova_conf(read: object, broken: str) -> None:
    assert callable(read)
    with pytest.raises(ConfigurationError) as raised:
        read(broken)
    assert "hunter2" not in "".join(traceback.format_exception(raised.value))
