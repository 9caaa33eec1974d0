# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter candidates``: the hosts of a request in Placement."""

from __future__ import annotations

import argparse
from urllib.parse import unquote

from os_prefilter.common.quoting import escape_line
from os_prefilter.request.query import query_of
from os_prefilter_agent.cli.context import values_of
from os_prefilter_agent.cli.listing import Rows
from os_prefilter_agent.cli.program import NO_HOST
from os_prefilter_tools.cli.filters_and_hosts import (
    MOST_CANDIDATES,
    FiltersAndHosts,
)
from os_prefilter_tools.cli.request_arguments import (
    RequestArguments,
    RequestListing,
)
from os_prefilter_tools.operators.refused_by_nova import (
    other_notes,
    refused_by_nova,
)


class ShowCandidates(RequestListing):
    """Show which hosts Placement returns for a request."""

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        spec = values_of(RequestArguments, parsed_args).read(self.context)
        refused = refused_by_nova(spec)
        # First: a filter may reject the request as well.
        for text in refused:
            self.print_line(escape_line(text), warning=True)
        with values_of(FiltersAndHosts, parsed_args).backend(
            self.context
        ) as backend:
            decision = backend.service.apply(spec)
            found = backend.ask(query_of(spec), decision)
        hosts = found.candidates.hosts
        self.exit_code = 0 if hosts else NO_HOST
        self.print_line(f"GET /allocation_candidates?{unquote(found.query)}")
        for note in other_notes(found.notes, refused):
            self.print_line(escape_line(note), warning=True)
        count = found.candidates.count
        if backend.fleet and count == MOST_CANDIDATES:
            text = (
                f"Placement was asked for {count} allocation candidates, some"
                " of each host: there are more."
            )
            self.print_line(text, warning=True)
        if found.created:
            self.print_line(
                f"No host of the fleet has {', '.join(found.created)}; created"
                " for the query.",
                warning=True,
            )
        if found.unknown:
            text = (
                f"No host has {', '.join(found.unknown)}, which Placement does"
                " not know; it was not asked."
            )
            self.print_line(text, warning=True)
        if backend.fleet:
            self.print_line(
                f"{len(hosts)} of {len(backend.fleet.instance_hosts)} hosts"
                " remain."
            )
        else:
            self.print_line(f"Hosts of the cloud that remain: {len(hosts)}.")
        return ("Host", "Providers"), [
            (host, ", ".join(found.candidates.providers[host]))
            for host in hosts
        ]
