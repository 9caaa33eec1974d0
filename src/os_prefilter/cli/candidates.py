"""``os-prefilter candidates``: the hosts that Placement returns for a request."""

import argparse
from typing import Any
from urllib.parse import unquote

from os_prefilter.cli.arguments import (
    asks_live_placement,
    embedded_placement,
    fleet_from,
    pipeline_from,
    reported_from,
    request_from,
)
from os_prefilter.cli.cloud import connection_of
from os_prefilter.cli.listing import NO_HOST, RequestListing
from os_prefilter.common.quoting import escape_line
from os_prefilter.operators.candidates import Found, ask_live_placement, find_candidates
from os_prefilter.request.spec import RequestSpec


class Candidates(RequestListing):
    """Ask Placement, embedded in this process or of a cloud, which hosts remain for a request."""

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the table; return 2 if it is empty."""
        super().run(parsed_args)
        return 0 if self._found else NO_HOST

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return the columns and rows of the table."""
        spec = request_from(parsed_args)
        found, counted = (_ask_cloud if asks_live_placement(parsed_args) else _ask)(spec, parsed_args)
        self._found = found.candidates.hosts
        self.tell(f"GET /allocation_candidates?{unquote(found.query)}")
        for note in found.notes:
            self.tell(escape_line(note), warning=True)
        if found.created:
            self.tell(f"No host of the fleet has {', '.join(found.created)}; created, to be asked for.", warning=True)
        if found.unknown:
            told = f"No host has {', '.join(found.unknown)}, which Placement does not know; it was not asked."
            self.tell(told, warning=True)
        self.tell(counted.format(len(self._found)))
        return ("Host", "Providers"), [(host, ", ".join(found.candidates.providers[host])) for host in self._found]


def _ask(spec: RequestSpec, arguments: argparse.Namespace) -> tuple[Found, str]:
    """Return the answer, and the sentence that says how many remain."""
    fleet = fleet_from(arguments)
    pipeline = pipeline_from(arguments, fleet)
    with embedded_placement(fleet) as placement:
        found = find_candidates(spec, pipeline, placement.client)
        if found.candidates.count == placement.most_candidates:
            count = found.candidates.count
            note = f"Placement was asked for {count} allocation candidates, some of each host: there are more."
            found = found._replace(notes=(*found.notes, note))
        return found, f"{{}} of {len(fleet.instance_hosts)} hosts remain."


def _ask_cloud(spec: RequestSpec, arguments: argparse.Namespace) -> tuple[Found, str]:
    """Ask the Placement of the cloud, and write nothing there."""
    from os_prefilter.adapters.cloud.connection import placement_of  # noqa: PLC0415

    decision = pipeline_from(arguments, reported_from(arguments)).apply(spec)
    return ask_live_placement(
        spec, decision, placement_of(connection_of(arguments))
    ), "Hosts of the cloud that remain: {}."
