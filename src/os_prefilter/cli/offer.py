"""``os-prefilter offer``: the abilities of a cloud as a document for its customers."""

import argparse

from os_prefilter.cli.arguments import add_pipeline_arguments, fleet_from, pipeline_from
from os_prefilter.cli.cloud import CloudCommand
from os_prefilter.cli.listing import NO_HOST
from os_prefilter.cli.output import add_output_arguments, check_output, write_output
from os_prefilter.cli.snapshot import summary
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import join_names
from os_prefilter.operators.offer.formats import as_html, as_json, as_markdown
from os_prefilter.operators.offer.offer import DEFAULT_ZONE, offer

_FORMATS = {"markdown": as_markdown, "html": as_html, "json": as_json}


class Offer(CloudCommand):
    """Describe for customers which image properties and extra specs this cloud serves, without naming a host."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_pipeline_arguments(parser)
        parser.add_argument("--format", choices=_FORMATS, default="markdown", help="default: markdown")
        parser.add_argument("--by", choices=("zone", "aggregate"), default="", help="describe each of these separately")
        parser.add_argument(
            "--default-zone",
            metavar="NAME",
            default=DEFAULT_ZONE,
            help="the zone of hosts whose aggregates have none; default: %(default)s",
        )
        parser.add_argument("--count", action="store_true", help="also show how many hosts serve a value")
        add_output_arguments(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Write the document; return 2 if there is no enabled host."""
        check_output(parsed_args.output, force=parsed_args.force)
        fleet = fleet_from(parsed_args)
        found = offer(fleet, pipeline_from(parsed_args, fleet), parsed_args.by, parsed_args.default_zone)
        if parsed_args.by and found.hosts and not found.places:
            raise DocumentError(
                f"--by {parsed_args.by}", "no aggregate has a name here. Leave out --by, or name the aggregates."
            )
        text = _FORMATS[parsed_args.format](found, count=parsed_args.count)
        write_output(text, parsed_args.output, self.app.stdout, force=parsed_args.force)
        if fleet.taken_at:
            self.tell(summary(fleet), warning=bool(fleet.changed_while_read))
        if found.waiting:
            names = join_names(found.waiting)
            advice = "Values that they would require are not checked; 'os-prefilter readiness' shows the compute nodes."
            self.tell(f"Filters that wait for compute nodes to report: {names}. {advice}", warning=True)
        if not found.hosts:
            self.tell("No host is an enabled compute node: one with COMPUTE_NODE that is not disabled.", warning=True)
        return 0 if found.hosts else NO_HOST
