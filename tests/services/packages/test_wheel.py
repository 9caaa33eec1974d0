"""What a user gets: the built wheel in an empty environment."""

import json
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.services.packages.builds import PROJECT, build, clean_run, empty_environment


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel, through the source distribution as a packager does."""
    folder = tmp_path_factory.mktemp("dist")
    build(PROJECT, folder)
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_has_everything_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        str(path.relative_to(PROJECT / "src"))
        for path in (PROJECT / "src").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert "os_prefilter/py.typed" in sources
    assert {name for name in names if ".dist-info/" not in name} == sources
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_core_alone_filters_and_says_what_the_command_needs(wheel: Path, tmp_path: Path) -> None:
    bin_folder = empty_environment(tmp_path / "core")
    done = clean_run(bin_folder / "pip", "install", "--quiet", wheel, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    code = (
        "import os_prefilter as p; spec = p.RequestSpec(p.Flavor(1, 512), p.Image({'hw_vif_model': 'igb'}));"
        "from oslo_config import cfg; from os_prefilter.conf import register_opts; register_opts(cfg.CONF);"
        "cfg.CONF([], default_config_files=[]);"
        "cfg.CONF.set_override('enabled_filters', ['image_metadata'], 'prefilter');"
        "p.process_reqspec(None, spec); print(p.allocation_candidates_query(spec))"
    )
    done = clean_run(bin_folder / "python", "-W", "error", "-c", code, cwd=tmp_path)
    assert done.stdout.endswith("root_required=COMPUTE_NET_VIF_MODEL_IGB\n"), done.stderr
    done = clean_run(bin_folder / "os-prefilter", "demo", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "os-prefilter: the command needs more than the library: pip install 'os-prefilter[cli]'\n"
    # oslo.config came with it: the sample of the options can be had at once.
    done = clean_run(bin_folder / "oslo-config-generator", "--namespace", "os_prefilter", cwd=tmp_path)
    assert "\n#enabled_filters =" in done.stdout, done.stderr


def test_the_command_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    """End to end: nothing but the wheel, its extra ``cli``, and a real Placement in the process."""
    bin_folder = empty_environment(tmp_path / "cli")
    done = clean_run(bin_folder / "pip", "install", "--quiet", f"{wheel}[cli]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = clean_run(bin_folder / "os-prefilter", "--version", cwd=tmp_path)
    assert done.stdout == f"os-prefilter {version('os-prefilter')}\n", done.stderr
    done = clean_run(bin_folder / "os-prefilter", "demo", "-f", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {row["Request"]["name"]: row["Hosts that remain"] for row in json.loads(done.stdout)}
    assert rows["nova-vgpu"] == ["gpu-nova-1"]
    assert rows["impossible"] == []
