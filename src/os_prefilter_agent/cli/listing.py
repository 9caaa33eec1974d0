# SPDX-License-Identifier: Apache-2.0

"""Listings: tables that fit the terminal, and cliff's other formats."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO
from unicodedata import combining, east_asian_width

import yaml
from cliff.columns import FormattableColumn
from cliff.formatters.json_format import JSONFormatter
from cliff.formatters.table import TableFormatter
from cliff.lister import Lister
from cliff.utils import terminal_width

from os_prefilter_agent.cli.context import CloudCommand

if TYPE_CHECKING:
    _Column = FormattableColumn[Any]
else:
    # cliff 4.9 made it generic.
    _Column = FormattableColumn

Rows = tuple[tuple[str, ...], list[Any]]
"""The names of the columns, and the rows."""


class Cell(_Column):
    """A cell with a value for JSON and YAML, and text for other formats.

    :param text: for a table
    :param line: for csv and value, which have one line for a row
    """

    def __init__(self, value: Any, text: str, line: str) -> None:
        super().__init__(value)
        self.value = value
        self.text = text
        self.line = line

    def human_readable(self) -> str:
        return self.text

    def machine_readable(self) -> Any:
        return self.value


class Listing(CloudCommand, Lister):
    """A listing in the formats table, json, yaml, csv and value."""

    about: Mapping[str, Any] | None = None
    """Keys of JSON and YAML next to ``lines``, which has the rows.

    None for a list of the rows alone.
    """

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Any, data: Any
    ) -> int:
        """Print the listing, after the notes; a table fits the terminal."""
        self.context.write_notes()
        name = parsed_args.formatter
        if name == "table":
            self.formatter = Table()
        elif name in ("csv", "value"):
            data = [_cells(row, "line") for row in data]
        elif name in ("json", "yaml") and self.about is not None:
            self.formatter = _Document(self.about)
        return int(
            super().produce_output(parsed_args, column_names, data) or 0
        )


class _Document(JSONFormatter):
    """One object with the rows under ``lines``."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        super().__init__()
        self._about = about

    def emit_list(
        self,
        column_names: Sequence[str],
        data: Iterable[Any],
        stdout: TextIO,
        parsed_args: Any,
    ) -> None:
        """Print the object as JSON or YAML."""
        lines = []
        for row in data:
            cells = _cells(row, "value")
            lines.append(dict(zip(column_names, cells)))
        document = {**self._about, "lines": lines}
        if parsed_args.formatter == "json":
            indent = None if parsed_args.noindent else 2
            stdout.write(f"{json.dumps(document, indent=indent)}\n")
        else:
            stdout.write(
                yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
            )


class Table(TableFormatter):
    """cliff's table; a list of names and values where that is too wide.

    cliff would break words.
    """

    def emit_list(
        self,
        column_names: Sequence[str],
        data: Iterable[Any],
        stdout: TextIO,
        parsed_args: Any,
    ) -> None:
        """Print the rows, no wider than the terminal or ``--max-width``."""
        rows = [_cells(row, "text") for row in data]
        width = parsed_args.max_width
        if width < 1 and (parsed_args.fit_width or sys.stdout.isatty()):
            width = terminal_width() or 0
        # The last border. Each column adds one, and a space on either side.
        full = 1
        for column in zip(column_names, *rows):
            lines = [line for cell in column for line in str(cell).split("\n")]
            full += 3 + max(map(_width, lines))
        if width < 1 or full <= width:
            super().emit_list(column_names, rows, stdout, parsed_args)
            return
        indent = max(map(len, column_names)) + 2
        for number, row in enumerate(rows):
            if number:
                stdout.write("\n")
            for name, cell in zip(column_names, row):
                value = _fold(
                    str(cell).rstrip(), max(width - indent, 1)
                ).replace("\n", "\n" + " " * indent)
                stdout.write(f"{f'{name}:':{indent}}{value}".rstrip() + "\n")


def _cells(row: Iterable[Any], part: str) -> list[Any]:
    """Return one part of each cell that is a :class:`Cell`."""
    return [
        getattr(each, part) if isinstance(each, Cell) else each for each in row
    ]


def _width(text: str) -> int:
    """Return the columns of a terminal that a text takes."""
    width = 0
    for each in text:
        if not combining(each):
            width += 2 if east_asian_width(each) in "WF" else 1
    return width


def _fold(text: str, width: int) -> str:
    """Return a text wrapped between words."""
    lines = []
    for line in text.split("\n"):
        wrapped = textwrap.wrap(
            line, width, break_long_words=False, break_on_hyphens=False
        )
        lines += wrapped or [""]
    return "\n".join(lines)
