"""Listings: tables that fit the terminal, and cliff's other formats."""

import argparse
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, TextIO
from unicodedata import combining, east_asian_width

from cliff.columns import FormattableColumn
from cliff.formatters.json_format import JSONFormatter
from cliff.formatters.table import TableFormatter
from cliff.lister import Lister
from cliff.utils import terminal_width

from os_prefilter.common.quoting import shorten
from os_prefilter.service import Service
from os_prefilter_tools.cli.context import CloudCommand
from os_prefilter_tools.cli.filters_and_hosts import add_pipeline_arguments
from os_prefilter_tools.cli.request_arguments import add_request_arguments

_MOST_SHOWN = 10
NO_HOST = 2
"""Exit code of a command that succeeds but finds no host."""


# Generic only since cliff 4.9.
class Cell(FormattableColumn):  # type: ignore[type-arg]
    """A cell that JSON and YAML show as a list or an object, and other formats as text.

    :param text: for a table
    :param line: for csv and value, which have one line for a row
    """

    def __init__(self, value: Any, text: str, line: str) -> None:
        super().__init__(value)
        self.text = text
        self.line = line

    def human_readable(self) -> str:
        return self.text


class Listing(CloudCommand, Lister):
    """A listing in the formats table, json, yaml, csv and value."""

    about: Mapping[str, Any] | None = None
    """What JSON and YAML have beside the rows, which are then below ``lines``; None if they have the rows alone."""

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Any, data: Any) -> int:
        """Print the listing, after the notes; a table fits the terminal."""
        self.context.write_notes()
        if parsed_args.formatter == "table":
            self.formatter = Table()
        elif self.about is not None and parsed_args.formatter in ("json", "yaml"):
            self.formatter = _Document(self.about, self.formatter)
        elif parsed_args.formatter in ("csv", "value"):
            data = [[cell.line if isinstance(cell, Cell) else cell for cell in row] for row in data]
        return int(super().produce_output(parsed_args, column_names, data) or 0)


def first_of(what: str, items: Sequence[str], count: int | None = None) -> Iterator[str]:
    """Yield a line with the number of items and the first ones, if there are any."""
    if items:
        count = len(items) if count is None else count
        first = shorten([item.rstrip(".") for item in items[:_MOST_SHOWN]], _MOST_SHOWN, count)
        yield f"{what}: {count}: {'; '.join(first)}."


def cut(name: str) -> str:
    """Return a name that is no wider than a column of a table should be."""
    return name if len(name) <= 40 else f"{name[:37]}..."  # noqa: PLR2004


def escape_formula(text: str) -> str:
    """Return text that a spreadsheet does not execute as a formula: tenants name images."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


class _Document(JSONFormatter):
    """One object with the rows under ``lines``, as JSON or YAML."""

    def __init__(self, about: Mapping[str, Any], formatter: Any) -> None:
        super().__init__()
        self._about = about
        self._formatter = formatter

    def emit_list(self, column_names: Sequence[str], data: Iterable[Any], stdout: TextIO, parsed_args: Any) -> None:
        rows = (
            [each.machine_readable() if isinstance(each, FormattableColumn) else each for each in row] for row in data
        )
        document = {**self._about, "lines": [dict(zip(column_names, row, strict=True)) for row in rows]}
        self._formatter.emit_one(list(document), list(document.values()), stdout, parsed_args)


class Table(TableFormatter):
    """cliff's table without broken words: if they do not fit, each row becomes a list of names and values.

    Written here, as prettytable imports the widths of all Unicode versions first.
    """

    def emit_list(self, column_names: Sequence[str], data: Iterable[Any], stdout: TextIO, parsed_args: Any) -> None:
        """Print the rows, no wider than the terminal or ``--max-width``."""
        rows = [
            [each.human_readable() if isinstance(each, FormattableColumn) else each for each in row] for row in data
        ]
        if not rows and not parsed_args.print_empty:
            stdout.write("\n")
            return
        columns = list(zip(column_names, *rows, strict=True))
        fits = parsed_args.fit_width or sys.stdout.isatty()
        width = max(parsed_args.max_width, 0) or (fits and terminal_width()) or sys.maxsize
        # A border and a space on either side of each column, and the last border.
        most = width - 3 * len(columns) - 1
        full = [_width(line for cell in column for line in str(cell).split("\n")) for column in columns]
        # The least: a heading is not folded.
        widths = [_width((column[0], *" ".join(map(str, column[1:])).split())) for column in columns]
        if sum(widths) > most:
            _emit_vertically(column_names, rows, stdout, width)
            return
        for _ in range(min(most, sum(full)) - sum(widths)):
            needy = max(range(len(widths)), key=lambda index: full[index] - widths[index])
            widths[needy] += 1
        cells = [list(map(_fold, row, widths)) for row in (column_names, *rows)]
        # A letter of two columns counts as one in a fold.
        widths = [_width(line for lines in column for line in lines) for column in zip(*cells, strict=True)]
        are_numbers = [isinstance(column[-1], int) for column in columns]
        border = "+".join(("", *("-" * (width + 2) for width in widths), "\n"))
        stdout.write(border)
        for number, row in enumerate(cells):
            lines = zip_longest(*row, fillvalue="")
            stdout.writelines("|".join(("", *map(_pad, line, widths, are_numbers), "\n")) for line in lines)
            if not number:
                stdout.write(border)
        stdout.write(border)


def _width(texts: Iterable[str]) -> int:
    """Return how many columns of a terminal the widest of some lines takes."""
    return max(sum(1 + (east_asian_width(each) in "WF") for each in text if not combining(each)) for text in texts)


def _fold(cell: Any, width: int) -> list[str]:
    """Return the lines of a text wrapped between words."""
    wrapper = textwrap.TextWrapper(max(width, 1), break_long_words=False, break_on_hyphens=False)
    return [line for paragraph in str(cell).split("\n") for line in wrapper.wrap(paragraph) or [""]]


def _pad(line: str, width: int, is_number: bool) -> str:  # noqa: FBT001
    space = " " * (width - _width([line]))
    return f" {space}{line} " if is_number else f" {line}{space} "


def _emit_vertically(names: Sequence[str], rows: Sequence[Sequence[Any]], stdout: TextIO, width: int) -> None:
    """Print each row as lines of a name and a value, with an empty line between rows."""
    indent = max(map(len, names)) + 2
    for number, row in enumerate(rows):
        stdout.write("\n" * bool(number))
        for name, cell in zip(names, row, strict=True):
            value = ("\n" + " " * indent).join(_fold(str(cell).rstrip(), width - indent))
            stdout.write(f"{f'{name}:':{indent}}{value}".rstrip() + "\n")


class RequestListing(Listing):
    """A listing about one request."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_request_arguments(parser)
        add_pipeline_arguments(self, parser)

    def tell_trait_scope(self, service: Service) -> None:
        """Print what ``trait_scope = auto`` chose, if it is ``auto``."""
        if text := service.describe_trait_scope():
            self.tell(text)
