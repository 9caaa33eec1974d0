# SPDX-License-Identifier: Apache-2.0

"""What a user gets: the built wheel in an empty environment. What else
packagers get: tests/services/packages.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from tests.services.packages.builds import (
    PROJECT,
    build,
    clean_run,
    empty_environment,
)


def test_wheel_has_exactly_the_sources_and_its_core_filters(
    tmp_path: Path,
) -> None:
    build(PROJECT, tmp_path, "--wheel")
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    tree = PROJECT / "src"
    sources = {
        str(each.relative_to(tree))
        for each in tree.rglob("*")
        if each.is_file() and each.suffix != ".pyc"
    }
    assert "os_prefilter/py.typed" in sources
    assert {name for name in names if ".dist-info/" not in name} == sources
    assert any(name.endswith("licenses/LICENSE") for name in names)

    bin_folder = empty_environment(tmp_path / "core")
    done = clean_run(
        bin_folder / "pip", "install", "--quiet", wheel, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    # Older ones of pip show the names as they are written.
    shown = (
        clean_run(bin_folder / "pip", "show", "os-prefilter", cwd=tmp_path)
        .stdout.lower()
        .replace(".", "-")
    )
    assert (
        "\nrequires: jsonschema, os-resource-classes, os-traits, oslo-config,"
        " oslo-log, pyyaml, stevedore\n" in shown
    )
    # All else that is there is needed by these.
    listed = clean_run(
        bin_folder / "pip",
        "list",
        "--not-required",
        "--format=freeze",
        cwd=tmp_path,
    ).stdout
    assert {line.partition("==")[0] for line in listed.split()} - {
        "pip",
        "setuptools",
    } == {"os-prefilter"}
    code = (
        "import os_prefilter as p; spec = p.RequestSpec(p.Flavor(1, 512),"
        " p.Image({'hw_vif_model': 'igb'}));from oslo_config import cfg; from"
        " os_prefilter.service.conf import register_opts;"
        " register_opts(cfg.CONF);cfg.CONF([],"
        " default_config_files=[]);cfg.CONF.set_override('enabled_filters',"
        " ['image_metadata'], 'prefilter');p.process_reqspec(None, spec);"
        " print(p.allocation_candidates_query(spec))"
    )
    done = clean_run(
        bin_folder / "python", "-W", "error", "-c", code, cwd=tmp_path
    )
    assert done.stdout.endswith("root_required=COMPUTE_NET_VIF_MODEL_IGB\n"), (
        done.stderr
    )
    done = clean_run(bin_folder / "os-prefilter", "demo", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    problem = "os-prefilter: the command needs more than the library"
    assert (
        done.stderr == f"{problem}: pip install '.[cli]' in the repository of"
        " os-prefilter\n"
    )
    # oslo.config came with it: the sample of the options can be had at once.
    done = clean_run(
        bin_folder / "oslo-config-generator",
        "--namespace",
        "os_prefilter",
        cwd=tmp_path,
    )
    assert "\n#enabled_filters =" in done.stdout, done.stderr
