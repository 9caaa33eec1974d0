# SPDX-License-Identifier: Apache-2.0

"""``snapshot``: one file that the other commands take, written whole or not at
all.
"""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from os_prefilter_tools.cli.main import main
from os_prefilter_tools.fleet.reader import example_fleet, load_fleet
from os_prefilter_tools.fleet.snapshot import snapshot

Capture = pytest.CaptureFixture[str]


def test_snapshot_reads_back_as_the_same_fleet(
    capsys: Capture, tmp_path: Path
) -> None:
    """On the standard output or in a file."""
    path = tmp_path / "fleet.json"
    assert main(["snapshot", "-o", str(path)]) == 0
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[1:], load_fleet(path)) == (
        "",
        [],
        example_fleet(),
    )
    assert main(["snapshot"]) == 0
    assert (
        capsys.readouterr().out
        == path.read_text(encoding="utf-8")
        == snapshot(example_fleet())
    )


@pytest.mark.parametrize(
    "argv", ["snapshot -o", "offer -o", "audit --enable hpet --html"]
)
def test_existing_file_is_replaced_only_with_force(
    argv: str, capsys: Capture, tmp_path: Path
) -> None:
    """Its own --hosts file, say."""
    path, before = tmp_path / "fleet.json", snapshot(example_fleet()) + "\n"
    path.write_text(before)
    command = [*argv.split(), str(path), "--hosts", str(path)]
    assert main(command) == 1
    assert (
        capsys.readouterr().err
        == f"{path}: the file exists already. Give another path, or --force to"
        " replace it.\n"
    )
    assert path.read_text() == before
    assert main([*command, "--force"]) in (0, 2)
    assert path.read_text().startswith(
        (
            "# What this cloud offers\n",
            "<!doctype html>",
            snapshot(example_fleet()),
        )
    )
    assert path.read_text() != before
    assert [each.name for each in tmp_path.iterdir()] == ["fleet.json"]


@pytest.mark.parametrize(
    ("argv", "target"),
    [
        ("snapshot --force -o", "theirs"),
        ("offer --force -o", "new"),
        ("audit --force --html", "theirs"),
    ],
)
def test_no_command_writes_through_a_symbolic_link(
    argv: str, target: str, capsys: Capture, tmp_path: Path
) -> None:
    """Followed, it could lead a command of root anywhere; replaced, it could
    be /dev/stdout.
    """
    link, theirs = tmp_path / "link", tmp_path / "theirs"
    theirs.write_text("theirs")
    link.symlink_to(tmp_path / target)
    assert main([*argv.split(), str(link)]) == 1
    says = (
        f"{link}: this is a symbolic link to {tmp_path / target}, and links"
        " are not followed. Give that path.\n"
    )
    assert capsys.readouterr().err == says
    assert link.is_symlink()
    assert theirs.read_text() == "theirs"
    assert not (tmp_path / "new").exists()


def test_link_that_leads_to_itself_is_named(
    capsys: Capture, tmp_path: Path
) -> None:
    """Its own path is no advice."""
    link = tmp_path / "link"
    link.symlink_to(link)
    assert main(["snapshot", "--force", "-o", str(link)]) == 1
    assert (
        capsys.readouterr().err
        == f"{link}: this is a symbolic link that leads to itself. Remove it,"
        " or give another path.\n"
    )


def test_fleet_is_read_from_a_pipe(capsys: Capture) -> None:
    """As a shell makes one of ``--hosts <(os-prefilter snapshot ...)``."""
    printed = []
    reader, writer = os.pipe()
    with (
        os.fdopen(reader),
        ThreadPoolExecutor(1) as thread,
        os.fdopen(writer, "w") as file,
    ):
        thread.submit(
            lambda: (file.write(snapshot(example_fleet())), file.close())  # type: ignore[func-returns-value]
        )
        for hosts in ([], ["--hosts", f"/dev/fd/{reader}"]):
            main(["diagnose", "--example", "impossible", *hosts])
            printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_mode_of_a_new_offer_follows_the_umask(tmp_path: Path) -> None:
    """As what a shell redirects into a file: it is made to be shown, and names
    no host.
    """
    path, before = tmp_path / "offer.md", os.umask(0o027)
    try:
        main(["offer", "-o", str(path)])
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("{tmp}", "this is not a file"),
        ("/dev/null", "this is not a file"),
        ("{tmp}/none/fleet.json", "there is no such directory"),
        ("{tmp}/file/fleet.json", "cannot be written: Not a directory"),
        ("{tmp}/" + "n" * 300, "cannot be written: File name too long"),
        ("a\0b", "cannot be written"),
    ],
)
def test_unwritable_output_path_is_an_error_before_the_fleet_is_read(
    output: str, says: str, capsys: Capture, tmp_path: Path
) -> None:
    """One sentence, exit code 1; a cloud would have been read for nothing."""
    (tmp_path / "file").write_text("")
    assert (
        main(
            [
                "snapshot",
                "--force",
                "--hosts",
                "/no/such/file",
                "-o",
                output.replace("{tmp}", str(tmp_path)),
            ]
        )
        == 1
    )
    err = capsys.readouterr().err
    assert says in err
    assert len(err.splitlines()) == 1
