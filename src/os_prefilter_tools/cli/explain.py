"""``os-prefilter explain``: the requirements of a request, their filters and sources."""

import argparse
from typing import Any

from os_prefilter.request.requirements import ROOT
from os_prefilter_tools.cli.arguments import reported_from, request_from, service_from
from os_prefilter_tools.cli.listing import RequestListing
from os_prefilter_tools.operators.explain import explain


class Explain(RequestListing):
    """Show what a request requires of a host, which filter requires it, and why."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        spec = request_from(parsed_args)
        service = service_from(parsed_args, reported_from(parsed_args))
        lines = explain(spec, service)
        if not lines:
            self.tell("Nothing is required of a host.")
        elif any((line.rule, line.scope) == ("required", ROOT) for line in lines):
            self.tell_trait_scope(service)
        return ("Trait", "Rule", "On", "By", "Because of"), list(lines)
