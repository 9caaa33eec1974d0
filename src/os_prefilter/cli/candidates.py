"""``os-prefilter candidates``: the hosts that a real Placement returns for a request."""

import argparse
from typing import Any
from urllib.parse import unquote

from os_prefilter.cli.arguments import (
    embedded_placement,
    fleet_from,
    pipeline_from,
    request_from,
)
from os_prefilter.cli.listing import RequestListing
from os_prefilter.operators.candidates import find_candidates

NO_HOST = 2
"""The exit code where no host remains."""


class Candidates(RequestListing):
    """Ask a real Placement, embedded in this process, which hosts remain for a request."""

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the table; return 2 if it is empty."""
        super().run(parsed_args)
        return 0 if self._found else NO_HOST

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return the columns and rows of the table."""
        spec, fleet = request_from(parsed_args), fleet_from(parsed_args)
        pipeline = pipeline_from(parsed_args, fleet)
        with embedded_placement(fleet) as placement:
            found = find_candidates(spec, pipeline, placement.client)
        self._found = found.candidates.hosts
        self.app.stderr.write(f"GET /allocation_candidates?{unquote(found.query)}\n")
        if found.created:
            self.app.stderr.write(f"No host of the fleet has {', '.join(found.created)}; created, to be asked for.\n")
        self.app.stderr.write(f"{len(self._found)} of {len(fleet.hosts)} hosts remain.\n")
        return ("Host", "Providers"), [(host, ", ".join(found.candidates.providers[host])) for host in self._found]
