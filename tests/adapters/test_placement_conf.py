"""The limits in a placement.conf are read as Placement reads them, and what is wrong is named."""

from pathlib import Path

import pytest
from oslo_config import cfg
from placement.conf import placement as service

from os_prefilter.common.errors import PrefilterError
from os_prefilter_tools.adapters.placement_conf import candidate_limits

_OURS = ("max_allocation_candidates", "allocation_candidates_generation_strategy")


def _limits(tmp_path: Path, text: str) -> tuple[int, str]:
    path = tmp_path / "placement.conf"
    path.write_text(text)
    return candidate_limits(path)


def _of_placement(path: Path) -> tuple[object, ...]:
    conf = cfg.ConfigOpts()
    service.register_opts(conf)
    conf([], default_config_files=[str(path)], default_config_dirs=[], use_env=False)
    return tuple(conf.placement[name] for name in _OURS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[placement]\nmax_allocation_candidates = 100000\n",
        "[placement]\nmax_allocation_candidates = 0\nallocation_candidates_generation_strategy = breadth-first\n",
        "[DEFAULT]\ndebug = yes\n[placement]\nallocation_candidates_generation_strategy = depth-first\n",
    ],
)
def test_limits_are_those_that_placement_reads(text: str, tmp_path: Path) -> None:
    assert _limits(tmp_path, text) == _of_placement(tmp_path / "placement.conf")


_WRONG = [
    ("max_allocation_candidates\n", "cannot be read as a placement.conf"),
    ("[placement]\nmax_allocation_candidates = many\n", "[placement] max_allocation_candidates: invalid literal"),
    (
        "[placement]\nallocation_candidates_generation_strategy = wide\n",
        "[placement] allocation_candidates_generation_strategy: Valid values are [depth-first, breadth-first]",
    ),
    ("[placement]\nauth_type = password\npassword = hunter2\n", "Give the placement.conf of the service."),
    ("[placement]\nauth_section = keystone\n", "[placement] auth_section"),
]


@pytest.mark.parametrize(("text", "message"), _WRONG)
def test_wrong_file_is_named_with_the_option(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PrefilterError) as raised:
        _limits(tmp_path, text)
    assert str(raised.value).startswith(f"{tmp_path}/placement.conf: ")
    assert message in str(raised.value)
    assert "hunter2" not in str(raised.value)
    with pytest.raises(PrefilterError, match="there is no such file"):
        candidate_limits(tmp_path / "none.conf")
