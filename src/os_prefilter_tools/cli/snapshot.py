# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter snapshot``: the fleet as one file."""

from __future__ import annotations

import argparse

from os_prefilter_agent.cli.context import CloudCommand
from os_prefilter_agent.cli.output import (
    add_output_arguments,
    check_output,
    write_output,
)
from os_prefilter_tools.cli.filters_and_hosts import FiltersAndHosts
from os_prefilter_tools.fleet.snapshot import snapshot


class WriteSnapshot(CloudCommand):
    """Write the hosts to a file for --hosts, to work without the cloud."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        text = (
            "read the hosts from this fleet file; default: the cloud's hosts,"
            " else the bundled example"
        )
        parser.add_argument("--hosts", metavar="FILE", help=text)
        self.add_cloud_argument(
            parser, "read the fleet of this cloud in clouds.yaml"
        )
        add_output_arguments(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Write the file; return 0."""
        check_output(parsed_args.output, force=parsed_args.force)
        fleet = FiltersAndHosts(hosts=parsed_args.hosts).fleet(self.context)
        text = snapshot(fleet)
        self.context.write_notes()
        write_output(
            text,
            parsed_args.output,
            self.app.stdout,
            force=parsed_args.force,
            private=True,
        )
        return 0
