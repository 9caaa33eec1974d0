"""``os-prefilter snapshot``: the fleet as one file."""

import argparse

from os_prefilter.common.quoting import quote
from os_prefilter_tools.cli.context import CloudCommand
from os_prefilter_tools.cli.filters_and_hosts import FiltersAndHosts
from os_prefilter_tools.cli.output import add_output_arguments, check_output, write_output
from os_prefilter_tools.fleet.snapshot import anonymous, pseudonyms, snapshot


class WriteSnapshot(CloudCommand):
    """Write the fleet to one file, which the other commands read with --hosts, without access to the cloud."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        text = "read the hosts from this fleet file; default: the cloud's hosts, else the bundled example"
        parser.add_argument("--hosts", metavar="FILE", help=text)
        self.add_cloud_argument(parser, "read the fleet of this cloud in clouds.yaml")
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
        fleet = FiltersAndHosts(hosts=parsed_args.hosts).fleet(self.context)
        text = snapshot(anonymous(fleet) if parsed_args.anonymous else fleet)
        self.context.write_notes()
        write_output(text, parsed_args.output, self.app.stdout, force=parsed_args.force, private=True)
        if parsed_args.anonymous:
            # The request for which the file is sent names them.
            for kind, names in zip(("Availability zone", "Project"), pseudonyms(fleet), strict=True):
                for old, new in names.items():
                    self.tell(f"{kind} {quote(old)} is {new} in the file.")
        return 0
