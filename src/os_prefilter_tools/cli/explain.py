# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter explain``: the requirements of a request, and why."""

from __future__ import annotations

import argparse

from os_prefilter_agent.cli.context import values_of
from os_prefilter_agent.cli.listing import Rows
from os_prefilter_agent.cli.program import ERROR
from os_prefilter_tools.cli.filters_and_hosts import FiltersAndHosts
from os_prefilter_tools.cli.request_arguments import (
    RequestArguments,
    RequestListing,
)
from os_prefilter_tools.operators.explain import explain


class ExplainRequest(RequestListing):
    """Show what a request requires of a host, and which filter requires it."""

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        asked = values_of(FiltersAndHosts, parsed_args)
        spec = values_of(RequestArguments, parsed_args).read(self.context)
        service = asked.service(asked.reported(self.context), self.context)
        lines = explain(spec, service)
        if not lines:
            self.print_line("Nothing is required of a host.")
        if any(line.rule == "refused" for line in lines):
            self.exit_code = ERROR
        return ("Trait", "Rule", "On", "By", "Because of"), list(lines)
