# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter audit``: what it prints, writes and returns, for right and
wrong input.
"""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from os_prefilter_agent.cli.output import progress_on
from os_prefilter_tools.cli.main import main
from tests.support.commands import Capture, json_of, placed


def rows(capsys: Capture, *argv: str, code: int = 0) -> Any:
    return json_of(capsys, "audit", *argv, code=code)["lines"]


def images(tmp_path: Path, *entries: object) -> str:
    return placed(tmp_path / "images.json", entries)


def image(
    name: str, disk_format: str = "qcow2", **properties: str
) -> dict[str, object]:
    return {
        "id": name,
        "name": name,
        "disk_format": disk_format,
        "properties": properties,
    }


def flavor(tmp_path: Path, name: str, **extra_specs: str) -> str:
    shown = {
        "name": name,
        "vcpus": 1,
        "ram": 512,
        "disk": 1,
        "properties": extra_specs,
    }
    return placed(tmp_path / f"{name}.json", shown)


def test_the_exit_code_is_2_if_an_image_becomes_unschedulable(
    tmp_path: Path,
) -> None:
    """One that was before is no reason: enabling the filters changes nothing
    for it.
    """
    for each, code in (
        (image("a", "raw"), 0),
        (image("a", hw_vif_model="igb"), 0),
        (image("a", "ploop"), 2),
        (image("a", "raw", **{"trait:CUSTOM_NO": "required"}), 0),
    ):
        assert main(["audit", "--images", images(tmp_path, each)]) == code


@pytest.mark.parametrize("only", ["changed", "unschedulable"])
def test_only_option_lists_changed_or_unschedulable_images_alone(
    only: str, capsys: Capture, tmp_path: Path
) -> None:
    path = images(
        tmp_path,
        image("lost", "ploop"),
        image("less", hw_vif_model="igb"),
        image("same", "raw"),
    )
    found = rows(
        capsys,
        "--images",
        path,
        "--only",
        only,
        "--enable",
        "image_metadata,image_type",
        code=2,
    )
    wanted = {
        "changed": [["lost"], ["less"], ["same"]],
        "unschedulable": [["lost"]],
    }[only]
    # The vSphere cluster runs no raw image.
    assert [row["Images"] for row in found] == wanted


_ENABLED = "Filters: compute_status, image_type ({}). Before: {}."


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--config-file", "f"], _ENABLED.format("f", "none")),
        (
            ["--config-file", "f", "--before", "compute_status"],
            _ENABLED.format("f and --before", "compute_status"),
        ),
        (
            ["--config-file", "f", "--enable", "hpet"],
            (
                "Filters: compute_status, image_type, hpet (f and --enable)."
                " Before: compute_status, image_type."
            ),
        ),
        (["--enable", "hpet"], "Filters: hpet (--enable). Before: none."),
    ],
)
def test_audit_judges_with_the_filters_of_the_configuration_and_names_them(
    argv: list[str],
    line: str,
    capsys: Capture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the first line after those about examples, in JSON and on the
    page.
    """
    monkeypatch.chdir(tmp_path)
    Path("f").write_text(
        "[prefilter]\nenabled_filters = compute_status, image_type\n"
    )
    path = images(tmp_path, image("a", "raw", hw_vif_model="igb"))
    assert (
        main(
            [
                "audit",
                "--images",
                path,
                *argv,
                "--html",
                "page.html",
                "-f",
                "json",
            ]
        )
        == 0
    )
    out, err = capsys.readouterr()
    assert err.splitlines()[1] == line
    document = json.loads(out)
    assert ", ".join(document["filters"]["after"]) == line.partition(" (")[
        0
    ].removeprefix("Filters: ")
    assert document["summary"]["images"] == 1
    lost = {each["by"] for each in document["lines"][0]["Lost to"]}
    assert lost <= set(document["filters"]["after"]) - set(
        document["filters"]["before"]
    )
    page = Path("page.html").read_text()
    assert "image_metadata" not in page
    assert page.rstrip().endswith("</html>")


def test_each_image_is_judged_with_each_flavor(
    capsys: Capture, tmp_path: Path
) -> None:
    path = images(tmp_path, image("a", "raw"))
    small, gpu = (
        flavor(tmp_path, "small"),
        flavor(tmp_path, "gpu", **{"resources:VGPU": "1"}),
    )
    found = rows(
        capsys,
        "--images",
        path,
        "--flavor",
        small,
        "--flavor",
        gpu,
        "--enable",
        "owner",
    )
    assert [(row["Flavor"], row["Before"], row["After"]) for row in found] == [
        ("gpu", 2, 1),
        ("small", 9, 9),
    ]
    (loss,) = found[0]["Lost to"]
    assert (loss["trait"], loss["on"], loss["hosts_lacking_only_this"]) == (
        "OWNER_NOVA",
        "_owned_VGPU",
        1,
    )


def test_summary_reports_totals_unmet_requirements_ignored_values_and_skipped_entries(
    capsys: Capture, tmp_path: Path
) -> None:
    path = images(
        tmp_path,
        image("a", hw_vif_model="nosuch"),
        image(
            "b", hw_vif_model="virtio", **{"trait:CUSTOM_NOBODY": "required"}
        ),
        {"ram": 1},
    )
    assert main(["audit", "--images", path]) == 0
    err = capsys.readouterr().err
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


def test_a_warning_about_a_flavor_comes_once(
    capsys: Capture, tmp_path: Path
) -> None:
    path = images(tmp_path, *(image(str(number)) for number in range(5)))
    assert (
        main(
            [
                "audit",
                "--images",
                path,
                "--flavor",
                flavor(tmp_path, "bad", **{"resources:VGPU": "many"}),
            ]
        )
        == 0
    )
    assert capsys.readouterr().err.count("resources:VGPU") == 1


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
