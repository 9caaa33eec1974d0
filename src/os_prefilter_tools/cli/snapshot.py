"""``os-prefilter snapshot``: the fleet as one file."""

import argparse

from os_prefilter.common.quoting import pluralize, quote
from os_prefilter_tools.cli.arguments import fleet_from
from os_prefilter_tools.cli.cloud import CloudCommand, add_cloud_argument
from os_prefilter_tools.cli.output import add_output_arguments, check_output, write_output
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.fleet.snapshot import anonymous, pseudonyms, snapshot


class Snapshot(CloudCommand):
    """Write the fleet to one file, which the other commands read with --hosts, without access to the cloud."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--hosts", metavar="FILE", help="a fleet file; default: the cloud's hosts, else the bundled example"
        )
        add_cloud_argument(parser, "the cloud in clouds.yaml whose fleet to read")
        parser.add_argument(
            "--anonymous",
            action="store_true",
            help="replace the names of hosts, providers, aggregates, zones and projects, and all UUIDs; the names of "
            "traits and resource classes, including custom ones, stay",
        )
        add_output_arguments(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Write the file; return 0."""
        check_output(parsed_args.output, force=parsed_args.force)
        fleet = fleet_from(parsed_args)
        text = snapshot(anonymous(fleet) if parsed_args.anonymous else fleet)
        write_output(text, parsed_args.output, self.app.stdout, force=parsed_args.force, private=True)
        self.tell(summary(fleet), warning=bool(fleet.changed_while_read))
        if parsed_args.anonymous:
            # The request for which the file is sent names them.
            for kind, names in zip(("Availability zone", "Project"), pseudonyms(fleet), strict=True):
                for old, new in names.items():
                    self.tell(f"{kind} {quote(old)} is {new} in the file.")
        return 0


def summary(fleet: Fleet) -> str:
    """Return the size of a fleet, and whether it changed while it was read."""
    providers = sum(1 for _ in fleet.walk())
    text = f"{pluralize(len(fleet.instance_hosts), 'host')}, {pluralize(providers, 'resource provider')}"
    if fleet.taken_at:
        text += f", read at {fleet.taken_at}"
    if fleet.changed_while_read:
        text += f"; {fleet.changed_while_read} changed meanwhile, and their data may be partly old, partly new"
    return f"{text}."
