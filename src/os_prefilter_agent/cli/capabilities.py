# SPDX-License-Identifier: Apache-2.0

"""Commands ``capabilities show`` and ``capabilities report``.

The report goes to Placement, to a node of Ironic or to a provider file.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from logging import Formatter

from oslo_config import cfg
from oslo_log import log as logging

from os_prefilter.adapters.nova_compute import NovaConfiguration
from os_prefilter.adapters.nova_conf import files_read
from os_prefilter.adapters.osinfo import has_libosinfo
from os_prefilter.common.errors import (
    ConfigurationError,
    DocumentError,
    UnknownProvider,
)
from os_prefilter.common.placement_values import is_hyphenated_uuid
from os_prefilter.common.quoting import (
    describe_error,
    escape_line,
    pluralize,
)
from os_prefilter.common.trait_names import CUSTOM_PREFIX
from os_prefilter.hosts.capabilities import unknown_traits
from os_prefilter.hosts.desired_traits import (
    Goal,
    Mode,
    TraitChange,
    goal_of,
    with_traits,
    withdrawn,
)
from os_prefilter.hosts.marker_traits import REPORTED, names_with
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.service.conf import options_from
from os_prefilter_agent import agent
from os_prefilter_agent.capabilities import COLUMNS, capabilities
from os_prefilter_agent.cli.configuration import read_configuration
from os_prefilter_agent.cli.context import Context, needs_packages, values_of
from os_prefilter_agent.cli.deadline import seconds
from os_prefilter_agent.cli.host import (
    FILE_ARGUMENTS,
    HostArguments,
    add_host_arguments,
    builder_of,
    deprecated_of,
    node_of,
    unknown_parts_of,
)
from os_prefilter_agent.cli.listing import Listing, Rows
from os_prefilter_agent.cli.program import PasswordMaskingFormatter

CHANGE_COLUMNS = ("Provider", "Trait", "Change")

# The verbose level of -v; -vv is more.
_VERBOSE = 2


class ShowCapabilities(Listing):
    """Show the capabilities of a host, with the reason for each no.

    They are probed from its libvirt, or read from files.
    """

    extras = "agent,libvirt"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_host_arguments(self, parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        asked = values_of(HostArguments, parsed_args)
        if asked.alone and asked.driver != "libvirt":
            raise DocumentError(
                "--alone", f"it is for --driver libvirt, not {asked.driver}."
            )
        nova = asked.read_nova()
        facts = asked.facts(self.context, nova)
        lines = capabilities(facts)
        counts = Counter(line.answer for line in lines)
        answers = ["yes", "no", "not owned"]
        if counts["not known"]:
            answers.insert(2, "not known")
        summary = ", ".join(f"{counts[answer]} {answer}" for answer in answers)
        self.print_line(f"{facts.host}, reporter {facts.driver}: {summary}.")
        for line in (
            *nova.warnings,
            *asked.assumptions(facts),
            *unknown_parts_of(facts),
        ):
            self.print_line(line, warning=True)
        for line in (*builder_of(facts), *deprecated_of(facts)):
            self.print_line(line)
        return COLUMNS, lines


@dataclass(frozen=True)
class ReportArguments(HostArguments):
    """The report that was asked for, each field as the option of its name."""

    provider: str | None = None
    dry_run: bool = False
    provider_config: str | None = None
    remove: bool = False
    watch: float | None = None
    log_config: str | None = None

    def check(self) -> None:
        """Refuse options that conflict, and a provider without a name.

        :raises DocumentError: for such options
        """
        if self.watch is not None:
            given = self.given("capabilities", *FILE_ARGUMENTS, "node", "bios")
            if self.dry_run:
                given.append("--dry-run")
            if given:
                raise DocumentError(
                    "--watch", f"it cannot go with {given[0]}."
                )
            if self.driver != "libvirt":
                raise DocumentError(
                    "--watch",
                    "it probes a libvirt at an interval; --driver"
                    f" {self.driver} has none.",
                )
        elif self.log_config:
            raise DocumentError(
                "--log-config",
                "it configures the log of --watch. Leave it out.",
            )
        # A file for nova-compute applies to all its nodes, and those of Ironic
        # differ.
        unnamed = self.provider_config and self.driver != "ironic"
        if self.provider is None and not (self.names_host or unnamed):
            raise DocumentError(
                "--provider",
                "give the name or the UUID of the host's resource provider.",
            )
        if self.provider_config and self.alone:
            raise DocumentError(
                "--alone",
                "it is for Placement, and nova-compute reads the file. Leave"
                " one out.",
            )

    @property
    def names_host(self) -> bool:
        """Whether the facts have the name of the host's provider."""
        return self.driver == "libvirt" and not self.capabilities


class ReportCapabilities(Listing):
    """Write the traits of a host to Placement, or to a file for nova-compute.

    In Placement, the traits that others write stay.
    """

    extras = "agent,libvirt"
    is_remote = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_host_arguments(self, parser)
        group = parser.add_argument_group("the report")
        text = (
            "the resource provider, by name or UUID; default: the host's name"
        )
        group.add_argument("--provider", metavar="NAME", help=text)
        group.add_argument(
            "--dry-run",
            action="store_true",
            help="print the changes without making them",
        )
        modes = group.add_mutually_exclusive_group()
        text = (
            "write this file instead of Placement; nova-compute reads it, and"
            " reports the traits"
        )
        modes.add_argument("--provider-config", metavar="FILE", help=text)
        text = (
            "remove from the provider the traits that reports have set;"
            " without --alone, standard traits that the host has stay"
        )
        modes.add_argument("--remove", action="store_true", help=text)
        text = "run as a service that reports at this interval"
        modes.add_argument(
            "--watch", metavar="SECONDS", type=seconds, help=text
        )
        text = (
            "with --watch: a configuration file with oslo.log's options in"
            " [DEFAULT]; default: log to stderr"
        )
        group.add_argument("--log-config", metavar="FILE", help=text)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the table, or watch until a signal.

        SIGTERM and SIGINT end the watch; SIGHUP reloads the configuration.
        """
        if parsed_args.watch is None:
            return int(super().run(parsed_args))
        if parsed_args.os_cloud is not None:
            raise DocumentError("--watch", "it cannot go with --os-cloud.")
        with needs_packages(self.extras):
            self._watch(values_of(ReportArguments, parsed_args))
        return 0

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        asked = values_of(ReportArguments, parsed_args)
        if asked.asks_ironic(self.context):
            changes = _report_on_node(asked, self.context)
        else:
            changes = self._report_on_host(asked)
        self._print_summary(changes, dry_run=asked.dry_run)
        return CHANGE_COLUMNS, changes

    def _report_on_host(self, asked: ReportArguments) -> list[TraitChange]:
        """Reconcile the traits of a host in Placement, or write its file."""
        asked.check()
        # Before the probe, which may take a minute: it reports a wrong
        # configuration.
        nova = asked.read_nova()
        placement = PlacementReport(asked, nova)
        # With other drivers, nova.conf describes Placement only.
        if asked.driver not in ("libvirt", "ironic"):
            asked = replace(asked, configuration=())
        facts = asked.facts(self.context, nova, assume=False)
        for line in builder_of(facts):
            self.print_line(line)
        for line in (*nova.warnings, *unknown_parts_of(facts)):
            self.print_line(line, warning=True)
        if asked.provider_config:
            return placement.write_file(facts)
        return placement.report(facts)

    def _print_summary(
        self, changes: list[TraitChange], *, dry_run: bool
    ) -> None:
        made = [each for each in changes if each.change != "keep"]
        done = "to make" if dry_run else "made"
        self.print_line(f"{pluralize(len(made), 'change')} {done}.")
        if len(made) < len(changes):
            self.print_line(
                "A kept trait should not be there, but os-prefilter did not"
                " set it. Remove it by hand if nothing else needs it.",
                warning=True,
            )

    def _watch(self, asked: ReportArguments) -> None:
        from os_prefilter.adapters.libvirt.host import (  # noqa: PLC0415
            LibvirtHost,
        )

        asked.check()
        logged: set[str] = set()
        nova = asked.read_nova()
        placement = PlacementReport(asked, nova)

        def report(facts: HostFacts) -> str:
            found = "has" if has_libosinfo() else "does not have"
            libosinfo = (
                f"This Python {found} libosinfo, by which Nova chooses devices"
                " where nova-compute has it."
            )
            lines = list(builder_of(facts))
            if facts.built_by_nova:
                lines.append(libosinfo)
            for line in lines:
                if line not in logged:
                    agent.LOG.info("%s", line)
                logged.add(line)
            for line in (*nova.warnings, *unknown_parts_of(facts)):
                if line not in logged:
                    agent.LOG.warning("%s", escape_line(line))
                logged.add(line)
            return _format_changes(placement.report(facts))

        def host() -> agent.ReportingHost:
            return LibvirtHost(asked.connect or "", asked.settings(nova))

        def configure() -> tuple[agent.ReportingHost, agent.Report]:
            _set_up_logging(asked.log_config, self.app.options)
            nova.read()
            found = host()
            placement.configure()
            return found, report

        watch = agent.Watch(
            host(),
            report,
            asked.watch or 0,
            give_up=placement.forget,
            configure=configure,
            must_reload=nova.has_changed,
        )
        placement.sleep = watch.wait
        _set_up_logging(asked.log_config, self.app.options)
        agent.run_until_signal(watch)


class PlacementReport:
    """The report to the Placement of a nova.conf, about one host."""

    def __init__(
        self, asked: ReportArguments, nova: NovaConfiguration
    ) -> None:
        self._asked = asked
        self._nova = nova
        self.sleep: Callable[[float], None] = time.sleep
        self.configure()

    def configure(self) -> None:
        """Connect by Nova's configuration; an error leaves all as it was.

        :raises DocumentError, ConfigurationError: if it is wrong, or there is
            none
        """
        from os_prefilter.adapters.placement.from_conf import (  # noqa: PLC0415
            client_from,
        )
        from os_prefilter.adapters.placement.trait_sync import (  # noqa: PLC0415
            ProviderTraits,
        )

        where = files_read(self._nova.conf)
        if not where:
            raise DocumentError(
                self._nova.unknown or "no Placement",
                "give --config-file FILE, whose section [placement]"
                " describes it.",
            )
        # Each client has a login of its own.
        new_client = partial(client_from, self._nova.conf, where)
        options = options_from(self._nova.conf)
        client = new_client()
        # Only now, when nothing can fail any more.
        self._new_client = new_client
        self._client = client
        self._options = options
        self._traits_of = ProviderTraits
        self._name = ""
        self._provider: ProviderTraits | None = None

    def report(self, facts: HostFacts) -> list[TraitChange]:
        """Reconcile the traits in Placement; return the changes."""
        name = self._asked.provider or facts.host
        if self._provider is None or name != self._name:
            self._provider = self._traits_of(
                self._client, name, sleep=self.sleep
            )
            self._name = name
        sync = self._provider.sync
        if self._asked.watch is None:
            # There is no next round, in which it would look again.
            sync = self._provider.sync_once
        return sync(self._goal(facts), dry_run=self._asked.dry_run)

    def write_file(self, facts: HostFacts) -> list[TraitChange]:
        """Write the traits to a file, with which nova-compute reports them."""
        from os_prefilter_agent.adapters.provider_config import (  # noqa: PLC0415
            COMPUTE_NODE,
            write_document,
        )

        if self._nova.unknown:
            # The file would have none of the traits that it has now.
            raise ConfigurationError(
                f"{self._asked.provider_config} is not written:"
                f" {unknown_parts_of(facts)[0]}"
            )
        goal = goal_of(facts, self._client.wanted(), Mode.BESIDE)
        # The file takes custom traits alone: a group of which the host has
        # another one is not reported.
        groups = {}
        for key, traits in goal.groups.items():
            had = [trait for trait in traits if goal.traits[trait]]
            if all(trait.startswith(CUSTOM_PREFIX) for trait in had):
                groups[key] = traits
        reported = with_traits(frozenset(), replace(goal, groups=groups))
        asked = self._asked
        name = asked.provider
        if name is None and asked.names_host:
            name = facts.host
        return write_document(
            str(asked.provider_config),
            dict.fromkeys(reported, True),
            asked.provider or COMPUTE_NODE,
            names=self._names_of(name),
            dry_run=asked.dry_run,
        )

    def _names_of(self, provider: str | None) -> set[str]:
        """Return the name and the UUID of a provider, as far as known."""
        if provider is None:
            return set()
        if is_hyphenated_uuid(provider):
            uuid = provider.lower()
            return {uuid, *self._client.names_of([uuid]).values()}
        # nova-compute creates it when it first starts.
        with suppress(UnknownProvider):
            return {provider, self._client.provider_named(provider).uuid}
        return {provider}

    def forget(self) -> None:
        """Give the next report a new login and new connections.

        The old ones may still be in use.
        """
        self._client = self._new_client()
        self._provider = None

    def _goal(self, facts: HostFacts) -> Goal:
        mode = Mode.ALONE if self._asked.alone else Mode.BESIDE
        if mode is Mode.BESIDE and facts.driver == "ironic":
            raise ConfigurationError(
                "nova-compute replaces the traits of a bare-metal node's"
                " provider by those of the node. Give --os-cloud, which sets"
                " them there, or --provider-config or, without Nova, --alone."
            )
        wanted: frozenset[str] = frozenset()
        if not self._asked.remove:
            wanted = self._client.wanted()
        # Which provider is the owner's is a matter of the configuration, too.
        owner = None if self._nova.unknown else self._options
        goal = goal_of(facts, wanted, mode, owner)
        return withdrawn(goal, mode) if self._asked.remove else goal


def _report_on_node(
    asked: ReportArguments, context: Context
) -> list[TraitChange]:
    """Reconcile the traits of a node in Ironic; Nova takes them from there."""
    given = asked.given("provider", "provider_config")
    if asked.alone:
        given.append("--alone")
    if given:
        raise DocumentError(
            "--os-cloud", f"it writes to the node: leave out {given[0]}."
        )
    if asked.remove:
        asked.check_node(context)
        return node_of(context, str(asked.node)).report(
            {}, dry_run=asked.dry_run
        )
    facts = asked.facts(context, asked.read_nova())
    # By its UUID: its name may be that of another node by now.
    node = node_of(context, facts.host)
    goal = goal_of(
        facts, context.placement.wanted() | node.reported(), Mode.BESIDE
    )
    keys = (goal.wanted or frozenset()) & goal.groups.keys()
    traits: dict[str, bool] = dict.fromkeys(names_with(REPORTED, keys), True)
    for key in keys:
        for trait in goal.groups[key]:
            traits[trait] = goal.traits[trait]
    return node.report(
        traits,
        leave=frozenset(unknown_traits(facts)),
        dry_run=asked.dry_run,
    )


def _format_changes(changes: Sequence[TraitChange]) -> str:
    """Return changes as a line for the log."""
    words = {"create": "created", "add": "added", "remove": "removed"}
    order = list(words)
    traits: dict[tuple[str, str], list[str]] = {}
    for each in sorted(changes, key=lambda it: order.index(it.change)):
        key = each.provider or "Placement", words[each.change]
        traits.setdefault(key, []).append(each.trait)
    return "; ".join(
        f"{provider}: {word} {', '.join(names)}"
        for (provider, word), names in traits.items()
    )


def _set_up_logging(
    log_config: str | None, options: argparse.Namespace
) -> None:
    """Log as oslo.log's options in a file say, by default to stderr.

    :param options: the program's: ``-q``, ``-vv`` and ``--log-file`` win over
        the file
    :raises ConfigurationError: if the log cannot be written as configured
    """
    conf = read_configuration(log_config, logging.register_options)
    conf.set_default("use_stderr", True)
    if options.log_file:
        conf.set_override("log_file", options.log_file)
    if options.verbose_level > _VERBOSE:
        conf.set_override("debug", True)
    root = logging.getLogger(None).logger
    handlers = list(root.handlers)
    try:
        logging.setup(conf, "os-prefilter")
    except (
        cfg.Error,
        logging.LogConfigError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        # oslo.log begins by removing them, and the error of a reload is to be
        # logged.
        root.handlers[:] = handlers
        raise ConfigurationError(
            f"The log cannot be set up: {describe_error(error)}. Correct"
            f" oslo.log's options in {log_config}."
        ) from error
    for handler in root.handlers:
        handler.setFormatter(
            PasswordMaskingFormatter(handler.formatter or Formatter())
        )
    if not options.verbose_level:
        root.setLevel(logging.WARNING)
