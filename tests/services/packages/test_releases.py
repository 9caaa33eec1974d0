"""Each supported release of OpenStack: what its upper constraints pin suffices for this package."""

from pathlib import Path

import pytest

from tests.services.packages.builds import PROJECT, clean_run, empty_environment

CONSTRAINTS = PROJECT / "tests" / "constraints"
_RELEASES = sorted(each.stem for each in CONSTRAINTS.glob("*.txt"))
# A set that resolves resolves without some of its members, too.
_EXTRAS = "agent,cli,embedded,libvirt,openstackclient"
# 2023.1 pins an older prometheus-client than the extra needs.
_MORE = {release: ",metrics" for release in _RELEASES if release > "2023.1"}


@pytest.fixture(scope="module")
def pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return pip of an environment in which nothing else is installed."""
    return empty_environment(tmp_path_factory.mktemp("pip")) / "pip"


def _resolve(pip: Path, requirement: str, constraints: Path, cwd: Path) -> tuple[int, str]:
    done = clean_run(pip, "install", "--dry-run", "-c", constraints, requirement, cwd=cwd)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("release", _RELEASES)
def test_every_extra_resolves_with_the_constraints_of_the_release(
    release: str, pip: Path, wheel: Path, tmp_path: Path
) -> None:
    requirement = f"os-prefilter[{_EXTRAS}{_MORE.get(release, '')}] @ {wheel.as_uri()}"
    code, printed = _resolve(pip, requirement, CONSTRAINTS / f"{release}.txt", tmp_path)
    assert code == 0, printed


def test_a_pin_below_a_lower_bound_is_refused_by_pip_with_both_names(pip: Path, wheel: Path, tmp_path: Path) -> None:
    older = tmp_path / "zed.txt"
    older.write_text("os-traits===2.9.0\n")
    code, printed = _resolve(pip, f"os-prefilter @ {wheel.as_uri()}", older, tmp_path)
    assert code == 1
    assert "os-traits>=2.10.0" in printed
    assert "os-traits===2.9.0" in printed
