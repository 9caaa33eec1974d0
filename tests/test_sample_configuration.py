"""oslo.config's own commands serve an operator: the sample of all options, and the check of a file."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from oslo_config import cfg

from os_prefilter.conf import GROUP, OPTIONS, options_from, register_opts
from os_prefilter.options import Options

_NAMES = {option.name for option in OPTIONS}


def _run(command: str, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run ``oslo-config-COMMAND``; as a module, so that it is the one beside this library."""
    return subprocess.run(
        [sys.executable, "-m", f"oslo_config.{command}", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def _sample(form: str, *arguments: str) -> str:
    done = _run("generator", "--namespace", "os_prefilter", "--format", form, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def _uncommented(sample: str) -> str:
    """Return the sample as an operator makes it who removes the ``#`` before each option."""
    return re.sub(r"^#(?=\w+ =)", "", sample, flags=re.MULTILINE)


def test_a_sample_has_each_option_with_its_whole_help() -> None:
    """In the form of nova.conf, in which no line of the help is broken anew."""
    sample = _sample("ini")
    for option in OPTIONS:
        help_ = "\n".join(f"# {line}".rstrip() for line in (option.help or "").splitlines())
        assert f"{help_} (" in sample
        assert re.search(rf"^#{option.name} =", sample, re.MULTILINE)
    assert max(len(line) for line in sample.splitlines() if line.startswith("# ")) <= 70


def test_a_sample_that_is_used_as_it_is_changes_nothing(tmp_path: Path) -> None:
    """Every option without its ``#``: the values are the defaults."""
    path = tmp_path / "nova.conf"
    path.write_text(_uncommented(_sample("ini")), encoding="utf-8")
    set_by_file = re.findall(r"^(\w+) =", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(set_by_file) == sorted(_NAMES)
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[str(path)])
    register_opts(conf)
    assert {option.name: conf[GROUP][option.dest] for option in OPTIONS} == {
        option.name: option.default for option in OPTIONS
    }
    assert options_from(conf) == Options()


@pytest.mark.parametrize(("form", "load"), [("yaml", yaml.safe_load), ("json", json.loads)])
def test_a_sample_for_programs_has_defaults_help_and_choices(form: str, load: type) -> None:
    found = {each["name"]: each for each in load(_sample(form))["options"][GROUP]["opts"]}
    assert found.keys() == _NAMES
    for option in OPTIONS:
        each = found[option.name]
        assert (each["default"], each["help"]) == (option.default, option.help)
        choices = getattr(option.type, "choices", None) or {}
        assert dict(each["choices"]) == dict(choices)


def test_a_sample_for_pages_has_each_option() -> None:
    sample = _sample("rst")
    assert set(re.findall(r"^\.\. oslo\.config:option:: (\w+)$", sample, re.MULTILINE)) == _NAMES
    assert sample.count("\n  - Since ") == len(_NAMES)


def test_a_short_sample_has_the_first_lines_of_each_help() -> None:
    """``--summarize``: what an option is, without the list."""
    sample = _sample("ini", "--summarize")
    assert "The request filters to run, in this order." in sample
    assert "Since 0." not in sample


def test_the_check_accepts_a_good_file(tmp_path: Path) -> None:
    path = tmp_path / "nova.conf"
    path.write_text("[prefilter]\nenabled_filters = image_metadata,hpet\nfacts_interval = 30\n", encoding="utf-8")
    done = _run("validator", "--namespace", "os_prefilter", "--input-file", path)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_check_names_an_option_that_does_not_exist(tmp_path: Path) -> None:
    """A service does not notice it: oslo.config reads the options that it knows, and no others."""
    path = tmp_path / "nova.conf"
    path.write_text("[prefilter]\nenabled_filter = hpet\n", encoding="utf-8")
    done = _run("validator", "--namespace", "os_prefilter", "--input-file", path)
    assert done.returncode == 1
    assert "prefilter/enabled_filter is not part of the sample config" in done.stderr
