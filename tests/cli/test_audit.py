# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter audit``: output, pages and exit codes."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from os_prefilter_agent.cli.output import progress_on
from tests.support.commands import Cli


def rows(cli: Cli, *argv: str, code: int = 0) -> Any:
    return cli.json("audit", *argv, code=code)["lines"]


def images(cli: Cli, *entries: object) -> str:
    return cli.place("images.json", entries)


def image(
    name: str, disk_format: str = "qcow2", **properties: str
) -> dict[str, object]:
    return {
        "id": name,
        "name": name,
        "disk_format": disk_format,
        "properties": properties,
    }


def flavor(cli: Cli, name: str, **extra_specs: str) -> str:
    shown = {
        "name": name,
        "vcpus": 1,
        "ram": 512,
        "disk": 1,
        "properties": extra_specs,
    }
    return cli.place(f"{name}.json", shown)


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (image("a", "raw"), 0),
        (image("a", hw_vif_model="igb"), 0),
        (image("a", "ploop"), 2),
        (image("a", "raw", **{"trait:CUSTOM_NO": "required"}), 0),
    ],
    ids=["the same", "fewer hosts", "no host", "no host before"],
)
def test_the_exit_code_is_2_if_an_image_becomes_unschedulable(
    entry: dict[str, object], code: int, cli: Cli
) -> None:
    """One that was before is no reason: enabling the filters changes nothing
    for it.
    """
    cli.run("audit", "--images", images(cli, entry), code=code)


# The vSphere cluster runs no raw image.
@pytest.mark.parametrize(
    ("only", "listed"),
    [
        ("changed", [["lost"], ["less"], ["same"]]),
        ("unschedulable", [["lost"]]),
    ],
    ids=["changed", "unschedulable"],
)
def test_only_option_lists_changed_or_unschedulable_images_alone(
    only: str, listed: list[list[str]], cli: Cli
) -> None:
    less = image("less", hw_vif_model="igb")
    path = images(cli, image("lost", "ploop"), less, image("same", "raw"))
    options = ["--only", only, "--enable", "image_metadata,image_type"]
    found = rows(cli, "--images", path, *options, code=2)
    assert [row["Images"] for row in found] == listed


_TWO = "compute_status, image_type"
_FILTERS = {
    "configuration": ("--config-file f", _TWO, "(f). Before: none."),
    "before": (
        "--config-file f --before compute_status",
        _TWO,
        "(f and --before). Before: compute_status.",
    ),
    "configuration and more": (
        "--config-file f --enable hpet",
        f"{_TWO}, hpet",
        f"(f and --enable). Before: {_TWO}.",
    ),
    "option": ("--enable hpet", "hpet", "(--enable). Before: none."),
}


@pytest.mark.parametrize(
    ("options", "after", "origin"), _FILTERS.values(), ids=_FILTERS
)
def test_audit_judges_with_the_filters_of_the_configuration_and_names_them(
    options: str,
    after: str,
    origin: str,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the first line after those about examples, in JSON and on the
    page.
    """
    monkeypatch.chdir(cli.folder)
    cli.place("f", f"[prefilter]\nenabled_filters = {_TWO}\n")
    path = images(cli, image("a", "raw", hw_vif_model="igb"))
    argv = ["--images", path, *options.split(), "--html", "page.html"]
    out, err = cli.run("audit", *argv, "-f", "json")
    document = json.loads(out)
    names = document["filters"]
    lost = {each["by"] for each in document["lines"][0]["Lost to"]}
    page = Path("page.html").read_text()
    assert err.splitlines()[1] == f"Filters: {after} {origin}"
    assert ", ".join(names["after"]) == after
    assert document["summary"]["images"] == 1
    assert lost <= set(names["after"]) - set(names["before"])
    assert "image_metadata" not in page
    assert page.rstrip().endswith("</html>")


def test_each_image_is_judged_with_each_flavor(cli: Cli) -> None:
    argv = ["--images", images(cli, image("a", "raw")), "--enable", "owner"]
    argv += ["--flavor", flavor(cli, "small")]
    argv += ["--flavor", flavor(cli, "gpu", **{"resources:VGPU": "1"})]
    gpu, small = rows(cli, *argv)
    (loss,) = gpu["Lost to"]
    assert gpu["Flavor"] == "gpu"
    assert gpu["Before"] == 2
    assert gpu["After"] == 1
    assert loss["trait"] == "OWNER_NOVA"
    assert loss["on"] == "_owned_VGPU"
    assert loss["hosts_lacking_only_this"] == 1
    assert small["Flavor"] == "small"
    assert small["Before"] == 9
    assert small["After"] == 9


def test_summary_reports_totals_unmet_requirements_ignored_values_and_skipped_entries(
    cli: Cli,
) -> None:
    unserved = {"trait:CUSTOM_NOBODY": "required"}
    path = images(
        cli,
        image("a", hw_vif_model="nosuch"),
        image("b", hw_vif_model="virtio", **unserved),
        {"ram": 1},
    )
    _, err = cli.run("audit", "--images", path)
    assert "2 images, in 2 groups, on 11 hosts.\n" in err
    assert (
        "Become unschedulable: 0. Lose hosts: 1. Were unschedulable before:"
        " 1.\n" in err
    )
    assert (
        "No host meets: 1: required CUSTOM_NOBODY (image property"
        " trait:CUSTOM_NOBODY=required; 1 image).\n" in err
    )
    assert (
        "Not required: 1: image property hw_vif_model: unknown value 'nosuch':"
        " not required (1 image).\n" in err
    )
    assert "Left out: 1: images[2]: this is a flavor, no image." in err


def test_a_warning_about_a_flavor_comes_once(cli: Cli) -> None:
    path = images(cli, *(image(str(number)) for number in range(5)))
    bad = flavor(cli, "bad", **{"resources:VGPU": "many"})
    _, err = cli.run("audit", "--images", path, "--flavor", bad)
    assert err.count("resources:VGPU") == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_only_on_a_terminal() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        with progress_on(stream) as progress:
            progress("images", 7, None)
            progress("groups of images", 2, 5)
    assert "groups of images" in terminal.getvalue()
    assert "2/5" in terminal.getvalue()
    assert file.getvalue() == ""
