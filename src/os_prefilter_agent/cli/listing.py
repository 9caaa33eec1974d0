# SPDX-License-Identifier: Apache-2.0

"""Listings: tables that fit the terminal, and cliff's other formats."""

import argparse
import json
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
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


class Cell(_Column):
    """A cell that JSON and YAML show as a list or an object, and other formats
    as text.

    :param text: for a table
    :param line: for csv and value, which have one line for a row
    """

    def __init__(self, value: Any, text: str, line: str) -> None:
        super().__init__(value)
        self.text = text
        self.line = line

    def human_readable(self) -> str:
        return self.text

    def machine_readable(self) -> Any:
        return self._value


class Listing(CloudCommand, Lister):
    """A listing in the formats table, json, yaml, csv and value."""

    about: Mapping[str, Any] | None = None
    """Keys of JSON and YAML beside ``lines``, which has the rows; None for a
    list of the rows alone.
    """

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Any, data: Any
    ) -> int:
        """Print the listing, after the notes; a table fits the terminal."""
        self.context.write_notes()
        if parsed_args.formatter == "table":
            self.formatter = Table()
        elif self.about is not None and parsed_args.formatter in (
            "json",
            "yaml",
        ):
            self.formatter = _Document(self.about)
        elif parsed_args.formatter in ("csv", "value"):
            data = [
                [cell.line if isinstance(cell, Cell) else cell for cell in row]
                for row in data
            ]
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
        rows = (
            [
                (
                    each.machine_readable()
                    if isinstance(each, FormattableColumn)
                    else each
                )
                for each in row
            ]
            for row in data
        )
        document = {
            **self._about,
            "lines": [
                dict(zip(column_names, row, strict=True)) for row in rows
            ],
        }
        if parsed_args.formatter == "json":
            indent = None if parsed_args.noindent else 2
            stdout.write(f"{json.dumps(document, indent=indent)}\n")
        else:
            stdout.write(
                yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
            )


class Table(TableFormatter):
    """cliff's table; where it is wider than the terminal, a list of names and
    values: cliff would break words.
    """

    def emit_list(
        self,
        column_names: Sequence[str],
        data: Iterable[Any],
        stdout: TextIO,
        parsed_args: Any,
    ) -> None:
        """Print the rows, no wider than the terminal or ``--max-width``."""
        rows = [
            [
                (
                    each.human_readable()
                    if isinstance(each, FormattableColumn)
                    else each
                )
                for each in row
            ]
            for row in data
        ]
        width = parsed_args.max_width
        if width < 1:
            width = (
                (terminal_width() or 0)
                if parsed_args.fit_width or sys.stdout.isatty()
                else 0
            )
        columns = zip(column_names, *rows, strict=True)
        # A border and a space on either side of each column, and the last
        # border.
        full = 1 + sum(
            3
            + max(
                _width(line)
                for cell in column
                for line in str(cell).split("\n")
            )
            for column in columns
        )
        if not width or full <= width:
            super().emit_list(column_names, rows, stdout, parsed_args)
            return
        indent = max(map(len, column_names)) + 2
        for number, row in enumerate(rows):
            stdout.write("\n" * bool(number))
            for name, cell in zip(column_names, row, strict=True):
                value = _fold(
                    str(cell).rstrip(), max(width - indent, 1)
                ).replace("\n", "\n" + " " * indent)
                stdout.write(f"{f'{name}:':{indent}}{value}".rstrip() + "\n")


def _width(text: str) -> int:
    return sum(
        1 + (east_asian_width(each) in "WF")
        for each in text
        if not combining(each)
    )


def _fold(text: str, width: int) -> str:
    """Return a text wrapped between words."""
    lines = (
        textwrap.wrap(
            line, width, break_long_words=False, break_on_hyphens=False
        )
        for line in text.split("\n")
    )
    return "\n".join(chain.from_iterable(each or [""] for each in lines))
