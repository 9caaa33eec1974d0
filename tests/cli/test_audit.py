# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter audit``: output, pages and exit codes."""

from __future__ import annotations

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
        image("a", hw_machine_type="nosuch"),
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
        "Not required: 1: image property hw_machine_type: unknown value"
        " 'nosuch': not required (1 image).\n" in err
    )
    assert "Left out: 1: images[2]: this is a flavor, no image." in err


def volumes(cli: Cli, *entries: dict[str, object]) -> str:
    shown = {"bootable": "true", "size": 1}
    return cli.place("volumes.json", [{**shown, **each} for each in entries])


def test_volumes_are_audited_as_the_images_in_their_metadata(cli: Cli) -> None:
    """But for their format: no host has to read an image."""
    metadata = {"hw_vif_model": "igb", "disk_format": "ploop"}
    unserved = {"trait:CUSTOM_NOBODY": "required"}
    path = volumes(
        cli,
        {"id": "1", "name": "a", "volume_image_metadata": metadata},
        {"id": "2", "name": "", "volume_image_metadata": unserved},
        {"id": "3", "bootable": "false"},
    )
    enable = "--enable=image_metadata,image_type"
    out, err = cli.run("audit", "--volumes", path, enable, "-f", "json")
    document = json.loads(out)
    assert [row["Volumes"] for row in document["lines"]] == [["a"], ["2"]]
    assert [row["After"] for row in document["lines"]] == [5, 0]
    assert document["summary"]["volumes"] == 2
    (not_met,) = document["summary"]["not_met"]
    assert not_met["volumes"] == 1
    assert "2 volumes, in 2 groups, on 11 hosts.\n" in err
    assert "Hosts that served a volume before" in err
    assert "Left out: 1: volumes[2]: this is a volume that is not boot" in err


def test_server_on_a_volume_needs_no_disk_of_its_host(cli: Cli) -> None:
    resources = {"VCPU": 8, "MEMORY_MB": 8192}
    hosts = {"hosts": {"a": {"resources": resources}}}
    fleet = ["--hosts", cli.place("hosts.json", hosts)]
    shown = {"name": "f", "vcpus": 1, "ram": 512, "disk": 9}
    sized = ["--flavor", cli.place("f.json", shown), *fleet]
    (on_volume,) = rows(cli, "--volumes", volumes(cli, {"id": "1"}), *sized)
    (on_disk,) = rows(cli, "--images", images(cli, image("a")), *sized)
    assert on_volume["Before"] == 1
    assert on_disk["Before"] == 0


def test_list_without_a_bootable_volume_is_no_all_clear(cli: Cli) -> None:
    path = volumes(cli, {"id": "1", "bootable": "false"})
    error = cli.error("audit", "--volumes", path)
    assert error.startswith(
        f"{path}: no entry is a bootable volume: volumes[0]: this is a volume"
        " that is not bootable."
    )
    assert "What 'openstack volume list' prints has no properties." in error


def test_name_of_a_volume_is_no_markup_on_the_page(cli: Cli) -> None:
    path = volumes(cli, {"id": "1", "name": "<script>alert(1)</script>"})
    page = cli.folder / "page.html"
    cli.run("audit", "--volumes", path, "--html", str(page))
    text = page.read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)" in text
    assert "<script>alert" not in text
    assert "Audit: 1 volume on 11 hosts" in text
    assert ">Volumes</th>" in text


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
