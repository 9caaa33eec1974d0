"""What a user gets: the built wheel in an empty environment."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

_PROJECT = Path(__file__).parent.parent


def _run(*command: str | Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    # Nothing of the environment that the tests run in, but for how pip is set up.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "TOX", "COV"))
    }
    return subprocess.run(
        [str(each) for each in command], cwd=cwd, env=kept, capture_output=True, text=True, check=False, timeout=900
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel, through the source distribution as a packager does."""
    folder = tmp_path_factory.mktemp("dist")
    done = _run(sys.executable, "-m", "build", "--outdir", folder, _PROJECT, cwd=folder)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


def _environment(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / "bin"


def test_the_wheel_has_everything_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        str(path.relative_to(_PROJECT / "src"))
        for path in (_PROJECT / "src" / "os_prefilter").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert "os_prefilter/py.typed" in sources
    assert {name for name in names if ".dist-info/" not in name} == sources
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_core_alone_filters_and_says_what_the_command_needs(wheel: Path, tmp_path: Path) -> None:
    bin_folder = _environment(tmp_path / "core")
    done = _run(bin_folder / "pip", "install", "--quiet", wheel, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    code = (
        "import os_prefilter as p; spec = p.RequestSpec(p.Flavor(1, 512), p.Image({'hw_vif_model': 'igb'}));"
        "from oslo_config import cfg; from os_prefilter.conf import register_opts; register_opts(cfg.CONF);"
        "cfg.CONF([], default_config_files=[]);"
        "cfg.CONF.set_override('enabled_filters', ['image_metadata'], 'prefilter');"
        "p.process_reqspec(None, spec); print(p.allocation_candidates_query(spec))"
    )
    done = _run(bin_folder / "python", "-W", "error", "-c", code, cwd=tmp_path)
    assert done.stdout.endswith("root_required=COMPUTE_NET_VIF_MODEL_IGB\n"), done.stderr
    done = _run(bin_folder / "os-prefilter", "demo", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "os-prefilter: the command needs more than the library: pip install 'os-prefilter[cli]'\n"


def test_the_command_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    """End to end: nothing but the wheel, its extra ``cli``, and a real Placement in the process."""
    bin_folder = _environment(tmp_path / "cli")
    done = _run(bin_folder / "pip", "install", "--quiet", f"{wheel}[cli]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = _run(bin_folder / "os-prefilter", "demo", "-f", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {row["Request"]["name"]: row["Hosts that remain"] for row in json.loads(done.stdout)}
    assert rows["nova-vgpu"] == ["gpu-nova-1"]
    assert rows["impossible"] == []
