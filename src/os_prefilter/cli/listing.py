"""What the commands have in common."""

import argparse

from cliff.lister import Lister

from os_prefilter.cli.arguments import add_pipeline_arguments, add_request_arguments
from os_prefilter.cli.cloud import CloudCommand

NO_HOST = 2
"""The exit code where no host remains, and nothing is wrong with the command."""


class Listing(CloudCommand, Lister):
    """A listing in the formats table, json, yaml, csv and value, which starts quickly."""


class RequestListing(Listing):
    """A listing about one request."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        add_request_arguments(parser)
        add_pipeline_arguments(parser)
        return parser
