"""``os-prefilter capabilities show``: the traits of a host, and why it lacks others."""

import argparse
from typing import Any

from os_prefilter.cli.host import add_host_arguments, assumptions, builder_of, facts_from
from os_prefilter.cli.listing import Listing
from os_prefilter.errors import DocumentError
from os_prefilter.operators.capabilities import COLUMNS, capabilities


class CapabilitiesShow(Listing):
    """Show the capabilities of a host, probed from its libvirt or read from files, with the reason for each no."""

    extras = "cli,libvirt"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_host_arguments(parser)
        parser.add_argument(
            "--all", action="store_true", help="also the traits of guest architectures that the host does not emulate"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return the columns and rows of the table."""
        if parsed_args.alone and parsed_args.driver != "libvirt":
            raise DocumentError("--alone", f"it is for --driver libvirt, not {parsed_args.driver}.")
        facts = facts_from(parsed_args)
        lines = capabilities(facts, every_architecture=parsed_args.all)
        counts = {answer: sum(line.answer == answer for line in lines) for answer in ("yes", "no", "not owned")}
        summary = ", ".join(f"{number} {answer}" for answer, number in counts.items())
        for assumed in assumptions(parsed_args, facts):
            self.tell(assumed, warning=True)
        for line in builder_of(facts):
            self.tell(line)
        self.tell(f"{facts.host}, reporter {facts.driver}: {summary}.")
        return COLUMNS, lines
