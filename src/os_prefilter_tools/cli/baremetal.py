# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter baremetal ...``: configure a bare-metal node."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from os_prefilter.common.errors import RequestRejected
from os_prefilter.common.quoting import escape_line, pluralize
from os_prefilter.hosts.driver_check import guest_settings
from os_prefilter.hosts.drivers.ironic_facts import IronicFacts
from os_prefilter.hosts.drivers.ironic_steps import bios_changes, deploy_steps
from os_prefilter.request.filter_contract import NEEDS
from os_prefilter.service import Service
from os_prefilter.service.conf import GROUP, options_from
from os_prefilter.service.facts_from_conf import DERIVED, facts_from
from os_prefilter.service.loading import load_filters
from os_prefilter.vocabulary.config_templates import PREFIX
from os_prefilter_agent.cli.configuration import (
    add_configuration_arguments,
    read_configuration,
)
from os_prefilter_agent.cli.context import values_of
from os_prefilter_agent.cli.deadline import seconds
from os_prefilter_agent.cli.host import (
    NodeArguments,
    add_node_arguments,
    node_of,
)
from os_prefilter_agent.cli.listing import Listing, Rows
from os_prefilter_agent.cli.program import NO_HOST
from os_prefilter_tools.cli.request_arguments import (
    RequestArguments,
    add_request_arguments,
    flavor_named,
)
from os_prefilter_tools.operators.reconfigure import Plan, reconfiguration


class ShowSteps(Listing):
    """Show the steps that configure a node for a request.

    'openstack baremetal node deploy --deploy-steps' takes the -f json output.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_request_arguments(parser)
        add_node_arguments(self, parser.add_argument_group("the node"))
        text = (
            "read [prefilter] config_templates from this file of Nova's"
            " configuration (repeatable); default: the bundled templates"
        )
        add_configuration_arguments(parser, text)
        text = (
            "show the steps of a runbook: in their order, without priorities"
        )
        parser.add_argument("--runbook", action="store_true", help=text)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        spec = values_of(RequestArguments, parsed_args).read(self.context)
        asked = values_of(NodeArguments, parsed_args)
        asked.check_node(self.context)
        facts = asked.node_facts(self.context)
        steps = deploy_steps(guest_settings(spec, facts), facts)
        self.print_line(
            f"{facts.host}: {pluralize(len(steps), 'deploy step')}."
        )
        columns = (
            "interface",
            "step",
            "args",
            "order" if parsed_args.runbook else "priority",
        )
        rows = []
        for number, step in enumerate(steps, 1):
            numbered = {**step, "order": number}
            rows.append(tuple(numbered[name] for name in columns))
        return columns, rows


class ReconfigureNode(Listing):
    """Plan a bare-metal reconfiguration in place; --apply executes it."""

    arguments = " --node NAME --old-flavor FILE --new-flavor FILE"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        self.add_cloud_argument(
            parser,
            "ask the Ironic of this cloud in clouds.yaml",
            required=True,
        )
        parser.add_argument(
            "--node",
            metavar="NAME",
            required=True,
            help="name or UUID of the node",
        )
        for which in ("old", "new"):
            name = f"--{which}-flavor"
            text = (
                f"{which} flavor of the instance: output of 'openstack flavor"
                " show -f json'"
            )
            parser.add_argument(name, metavar="FILE", required=True, help=text)
        text = (
            "read [prefilter] from this file; default: the filter"
            " deploy_config alone"
        )
        parser.add_argument("--config-file", metavar="FILE", help=text)
        text = "refuse if another instance is on the node; default: any may be"
        parser.add_argument("--instance", metavar="UUID", help=text)
        parser.add_argument(
            "--apply",
            action="store_true",
            help="run the steps; default: only show them",
        )
        text = "wait at most this long for the steps; default: %(default)s"
        parser.add_argument(
            "--timeout",
            metavar="SECONDS",
            type=seconds,
            default=3600,
            help=text,
        )

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the plan; return 2 if the node cannot do it."""
        try:
            return int(super().run(parsed_args))
        except RequestRejected as error:
            self.app.stderr.write(f"{error}\n")
            return NO_HOST

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        old, new = (
            flavor_named(each, self.context)
            for each in (parsed_args.old_flavor, parsed_args.new_flavor)
        )
        service = _filters_in(parsed_args.config_file)
        node = node_of(self.context, parsed_args.node)
        if not parsed_args.apply:
            # Before it is read: the state of a node that is being changed may
            # be outdated in a moment.
            node.task(instance=parsed_args.instance).check_ready()
        facts = replace(node.facts(), templates=service.options.templates)
        plan = reconfiguration(old, new, facts, service)
        plan.check(
            facts.host,
            lambda query: bool(self.context.placement.providers(query)),
        )
        if facts.bios_may_differ and plan.settings:
            self.print_line(
                f"{facts.host}: Ironic's last operation on the node ended with"
                " an error (last_error), so the machine may have other BIOS"
                " settings than Ironic shows: the steps set all of the new"
                " flavor and may reboot it."
            )
        if parsed_args.apply or not plan.steps:
            # Nothing is left to do only if the node has the settings now, and
            # is not being changed.
            instance, timeout = parsed_args.instance, parsed_args.timeout
            node.task(
                plan.steps,
                settings=plan.settings,
                instance=instance,
                timeout=timeout,
            ).run()
        if parsed_args.apply:
            after = {
                name: str(value)
                for name, value in new.extra_specs.items()
                if name.startswith(PREFIX)
            }
            if server := node.record(old.extra_specs, new.extra_specs):
                self._tell_nova(server, after)
        result = "Done" if parsed_args.apply else "Nothing was changed"
        if not plan.steps:
            result = "Nothing is left to do"
        self.print_line(f"{facts.host}: {result}.")
        return ("What", "Name", "Before", "After"), list(_lines(plan, facts))

    def _tell_nova(
        self, server: str, configuration: Mapping[str, str]
    ) -> None:
        """Have Nova show the new flavor of a reconfigured server.

        Only a resize changes the flavor of a server, and bare metal has none.
        """
        # Late: the SDK takes long to load.
        from os_prefilter.adapters.cloud_service import (  # noqa: PLC0415
            CloudError,
        )
        from os_prefilter_tools.adapters.cloud.service import (  # noqa: PLC0415
            CloudService,
        )

        try:
            body = {"metadata": configuration}
            CloudService(self.context.connection, "compute").send(
                "POST", f"/servers/{server}/metadata", body
            )
        except CloudError as error:
            self.print_line(
                f"{server}: Nova does not show the change. {error}",
                warning=True,
            )
        else:
            self.print_line(
                f"{server}: Nova shows the old flavor, and in the metadata of"
                " the server what the node has."
            )


def _lines(plan: Plan, facts: IronicFacts) -> Iterator[tuple[str, ...]]:
    yield from (
        ("configuration", *map(escape_line, each))
        for each in plan.configurations
    )
    for step in plan.steps:
        changes = bios_changes([step])
        for name, value in changes.items():
            yield (
                "BIOS setting",
                escape_line(name),
                escape_line(str(facts.bios[name].current)),
                str(value),
            )
        if not changes:
            yield (
                "step",
                f"{step['interface']}.{step['step']}",
                "",
                json.dumps(step["args"], sort_keys=True),
            )


def _filters_in(path: str | None) -> Service:
    conf = read_configuration(path)
    filters = load_filters(
        conf[GROUP].enabled_filters if path else ["deploy_config"],
        provided=None,
    )
    enabled = [each.name for each in filters if not each.declaration.only_new]
    filters, options = (
        load_filters(enabled, NEEDS | DERIVED),
        options_from(conf),
    )
    return Service(filters, options, facts_from(conf, options, {}, filters))
