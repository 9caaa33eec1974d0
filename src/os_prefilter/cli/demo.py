"""``os-prefilter demo``: the bundled requests, their requirements and their hosts."""

import argparse
import textwrap
from typing import Any

from cliff.columns import FormattableColumn

from os_prefilter.cli.arguments import Backend, add_pipeline_arguments, backend_from
from os_prefilter.cli.listing import Listing
from os_prefilter.common.quoting import pluralize
from os_prefilter.errors import PlacementRefused, UnknownTraits
from os_prefilter.operators.examples import Example, example_requests
from os_prefilter.operators.explain import Line, lines_of
from os_prefilter.pipeline.decision import Decision
from os_prefilter.request.spec import RequestSpec

_COLUMNS = ("Request", "Required, by whom", "Hosts that remain", "Without filters, also")
_WIDTH = 38
_ANY_WIDTH = 10_000


class Demo(Listing):
    """Show for each bundled request its content, the requirements and their filters, and the hosts that remain."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        add_pipeline_arguments(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        with backend_from(parsed_args) as backend:
            rows = [_row(each, backend) for each in example_requests().values()]
        names = ", ".join(each.name for each in backend.pipeline.filters) or "none"
        where = "The Placement of the cloud"
        if backend.fleet:
            where = f"{pluralize(len(backend.fleet.instance_hosts), 'host')} in a real Placement on SQLite"
        self.tell(f"{where}; filters: {names}.")
        if parsed_args.formatter in ("csv", "value"):
            # These have one line for a row and no structure in a cell.
            return _COLUMNS, [tuple("; ".join(cell.lines(_ANY_WIDTH)) for cell in row) for row in rows]
        return _COLUMNS, rows


class _Cell(FormattableColumn[Any]):
    """A cell of several lines in a table; a list or an object in JSON and YAML."""

    def lines(self, width: int) -> list[str]:
        """Return the lines for people, sentences wrapped at ``width``."""
        raise NotImplementedError

    def human_readable(self) -> str:
        # The empty line separates it from the next request.
        return "\n".join([*self.lines(_WIDTH), ""])


class _Asked(_Cell):
    """A request: its title, properties and extra specs."""

    def lines(self, width: int) -> list[str]:
        example: Example = self._value
        return [*textwrap.wrap(f"{example.name}: {example.title}", width), *(f"  {each}" for each in example.asked())]

    def machine_readable(self) -> dict[str, Any]:
        example: Example = self._value
        return {"name": example.name, "title": example.title, "asked": example.asked()}


class _Required(_Cell):
    """Lines of an explanation."""

    def lines(self, width: int) -> list[str]:
        return [each for line in self._value for each in _format_line(line, width)] or ["nothing"]

    def machine_readable(self) -> list[dict[str, str]]:
        return [line._asdict() for line in self._value]


class _Hosts(_Cell):
    """Names of hosts."""

    def lines(self, width: int) -> list[str]:  # noqa: ARG002 - names are not wrapped
        return list(self._value) or ["none"]

    def machine_readable(self) -> list[str]:
        return list(self._value)


def _row(example: Example, backend: Backend) -> tuple[_Cell, ...]:
    spec = example.request_spec()
    decision = backend.pipeline.apply(spec)
    hosts = _hosts(spec, decision, backend)
    without = _hosts(example.request_spec(), Decision(()), backend)
    spared = [host for host in without if host not in hosts]
    return _Asked(example), _Required(lines_of(decision)), _Hosts(hosts), _Hosts(spared)


def _hosts(spec: RequestSpec, decision: Decision, backend: Backend) -> tuple[str, ...]:
    try:
        hosts: tuple[str, ...] = backend.ask(spec, decision).candidates.hosts
    except (PlacementRefused, UnknownTraits):
        # Another fleet may lack the resource class of a bundled request, or an old cloud a trait.
        return ()
    return hosts


def _format_line(line: Line, width: int) -> list[str]:
    if not line.trait:
        return textwrap.wrap(f"({line.because})", width, subsequent_indent=" ")
    sign = "" if line.rule == "required" else "!"
    scope = "" if line.scope == "root" else f" on {line.scope}"
    return [f"{line.by}: {sign}{line.trait}{scope}"]
