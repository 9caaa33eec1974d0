# SPDX-License-Identifier: Apache-2.0

"""oslo.config's own commands serve an operator: the sample of all options, and
the check of a file.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from oslo_config import cfg, generator, validator

from os_prefilter.service.conf import GROUP, options_from, register_opts
from os_prefilter.service.option_definitions import OPTIONS
from os_prefilter.vocabulary.options import Options

Sample = Callable[[str], str]

_NAMES = {option.name for option in OPTIONS}


@pytest.fixture
def sample(tmp_path: Path) -> Callable[[str], str]:
    """Return a function: what ``oslo-config-generator`` writes in a format."""

    def write(form: str) -> str:
        path = tmp_path / f"sample.{form}"
        generator.main(
            [
                "--namespace",
                "os_prefilter",
                "--format",
                form,
                "--output-file",
                str(path),
            ]
        )
        return path.read_text(encoding="utf-8")

    return write


def test_ini_sample_has_every_option_with_its_full_help(
    sample: Sample,
) -> None:
    """In the form of nova.conf, in which no line of the help is broken
    anew.
    """
    written = sample("ini")
    for option in OPTIONS:
        assert (
            "\n".join(
                f"# {line}".rstrip()
                for line in (option.help or "").splitlines()
            )
            in written
        )
        assert re.search(rf"^#{option.name} =", written, re.MULTILINE)
    assert (
        max(
            len(line) for line in written.splitlines() if line.startswith("# ")
        )
        <= 70
    )


def test_uncommented_ini_sample_equals_the_defaults(
    sample: Sample, tmp_path: Path
) -> None:
    """Every option without its ``#``: the values are the defaults."""
    path = tmp_path / "nova.conf"
    path.write_text(
        re.sub(r"^#(?=\w+ =)", "", sample("ini"), flags=re.MULTILINE),
        encoding="utf-8",
    )
    assert sorted(
        re.findall(r"^(\w+) =", path.read_text(encoding="utf-8"), re.MULTILINE)
    ) == sorted(_NAMES)
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[str(path)])
    register_opts(conf)
    assert {each.name: conf[GROUP][each.dest] for each in OPTIONS} == {
        each.name: each.default for each in OPTIONS
    }
    assert options_from(conf) == Options()


def test_oslo_config_validator_names_an_unknown_option_and_accepts_a_valid_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A service does not notice it: oslo.config reads the options that it
    knows, and no others.
    """
    path = tmp_path / "nova.conf"
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "validator",
            "--namespace",
            "os_prefilter",
            "--input-file",
            str(path),
        ],
    )
    path.write_text(
        "[prefilter]\nenabled_filters = image_metadata,hpet\nfacts_interval ="
        " 30\n",
        encoding="utf-8",
    )
    assert (validator.main(), caplog.text) == (0, "")
    path.write_text("[prefilter]\nenabled_filter = hpet\n", encoding="utf-8")
    assert validator.main() == 1
    assert (
        "prefilter/enabled_filter is not part of the sample config"
        in caplog.text
    )
