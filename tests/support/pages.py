# SPDX-License-Identifier: Apache-2.0

"""The pages of the documentation: the files and the commands that they
show.
"""

from __future__ import annotations

import doctest
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.project import our_entry_points
from tests.support.zipping import zip_equal

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DROP_IN = DOCS / "examples" / "nova" / "os-prefilter.conf"
PAGES = sorted(
    page for page in DOCS.rglob("*.rst") if "_build" not in page.parts
)

_BLOCK = re.compile(
    r"^(?P<indent> *)\.\. code-block::"
    r" (?P<language>\w+)\n(?P<options>(?:(?P=indent) +:.*\n)*)\n"
    r"(?P<body>(?:(?P=indent) +\S.*\n|[ ]*\n)+)",
    re.MULTILINE,
)
INCLUDE = re.compile(
    r"^\.\. literalinclude:: (examples/nova/\S+)\n((?: +:.*\n)*)", re.MULTILINE
)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n?", re.MULTILINE)


class Command(NamedTuple):
    """A command in the documentation, and what the page says that it
    prints.
    """

    page: Path
    text: str
    output: str
    exit_code: str | None
    """What ``echo $?`` after it says; None if nothing does."""


def blocks(page: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the language, the options and the text of each code block of a
    page.
    """
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8") + "\n"):
        yield (
            match["language"],
            match["options"],
            textwrap.dedent(match["body"]).strip("\n") + "\n",
        )


def files_of(page: Path) -> dict[str, str]:
    """Return the files that a page shows: its code blocks whose caption is the
    name of one.
    """
    found = [(options, text) for _, options, text in blocks(page)]
    for match in INCLUDE.finditer(page.read_text(encoding="utf-8")):
        start = re.search(r":start-at: (.*)", match[2])
        text = (page.parent / match[1]).read_text(encoding="utf-8")
        found.append(
            (match[2], text[text.index(start[1]) :] if start else text)
        )
    captions = (
        (re.compile(r":caption: (\S+)$", re.MULTILINE).search(options), text)
        for options, text in found
    )
    return {caption[1]: text for caption, text in captions if caption}


def commands_of(page: Path) -> Iterator[Command]:
    for language, _, text in blocks(page):
        parts = _COMMAND.split(text)[1:] if language == "console" else []
        shown = [*zip_equal(parts[::2], parts[1::2]), ("", "")]
        for (command, output), (following, code) in zip(shown, shown[1:]):
            if command.startswith(("os-prefilter ", "python ")):
                yield Command(
                    page,
                    command,
                    output,
                    code.strip() if following == "echo $?" else None,
                )


def stripped(text: str) -> str:
    """Return the text without spaces at the ends of its lines."""
    return (
        "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"
    )


def prints(output: str, printed: str) -> bool:
    """Return whether a command prints what a page shows (``...``:
    anything).
    """
    if "Hosts: " not in output:
        # The line that says which hosts a command looked at is on one page,
        # not in each example.
        printed = re.sub(
            r"^Hosts: (\d|those|the cloud ).*\n",
            "",
            printed,
            flags=re.MULTILINE,
        )
    return doctest.OutputChecker().check_output(
        stripped(output), stripped(printed), doctest.ELLIPSIS
    )


def installed_by_us(group: str) -> list[str]:
    """Return the names of the package's own entry points in a group."""
    return sorted(point.name for point in our_entry_points(group))
