# SPDX-License-Identifier: Apache-2.0

"""Arguments that name filters and hosts, and what they stand for.

The fleet, the service, and a Placement.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from oslo_config import cfg

from os_prefilter.adapters.osinfo import implied_by
from os_prefilter.common.errors import ConfigurationError
from os_prefilter.common.progress import Progress, no_progress
from os_prefilter.common.quoting import escape_line, pluralize
from os_prefilter.filters.host_aggregates import FACT as AGGREGATES
from os_prefilter.filters.routed_networks import FACT as NETWORKS
from os_prefilter.hosts.marker_traits import REPORTED, TraitGroup
from os_prefilter.pipeline.decision import Decision
from os_prefilter.request.filter_contract import NEEDS
from os_prefilter.request.query import Query
from os_prefilter.service import Service
from os_prefilter.service import conf as service_conf
from os_prefilter.service.deployment_facts import versions_of
from os_prefilter.service.facts_from_conf import DERIVED, RULES, facts_from
from os_prefilter.service.loading import installed_filters, load_filters
from os_prefilter.service.traits_to_report import wanted_groups
from os_prefilter.vocabulary import opt_in_traits
from os_prefilter.vocabulary.options import Options
from os_prefilter_agent.cli.configuration import read_configuration
from os_prefilter_agent.cli.context import (
    CloudCommand,
    Context,
    add_repeatable,
)
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.fleet.reader import example_fleet, load_fleet
from os_prefilter_tools.operators.candidates import (
    CandidatesFound,
    ask_placement,
)
from os_prefilter_tools.operators.property_names import remarks_of_commands
from os_prefilter_tools.operators.readiness import reports_of

if TYPE_CHECKING:
    from os_prefilter.adapters.placement.client import PlacementClient

MOST_CANDIDATES = 1000
"""Most candidates of the embedded Placement: Nova's own limit."""


def add_pipeline_arguments(
    command: CloudCommand,
    parser: argparse.ArgumentParser,
    *,
    filters: bool = True,
) -> None:
    """Add the arguments that name the filters and the hosts.

    :param filters: False where the command names filters by options of its own
    """
    group = parser.add_argument_group("filters and hosts")
    text = (
        "run this request filter (repeatable or comma-separated, in this"
        " order); default: the filters that --config-file enables, else all"
        " filters of the library"
    )
    if filters:
        add_repeatable(group, "--filter", "NAME", text)
    text = (
        "read [prefilter] from this file, such as nova.conf; default: the"
        " library's defaults"
    )
    group.add_argument("--config-file", metavar="FILE", help=text)
    text = (
        "read the hosts from this fleet file; default: the cloud's hosts, else"
        " the bundled example"
    )
    group.add_argument("--hosts", metavar="FILE", help=text)
    command.add_cloud_argument(
        group,
        "read hosts, images, flavors and servers from this cloud in"
        " clouds.yaml",
    )


def names_in(given: Iterable[str]) -> list[str]:
    """Return the names of an option that is repeated or has commas."""
    return [name for names in given for name in names.split(",")]


@dataclass(frozen=True)
class FiltersAndHosts:
    """The filters and hosts of a command; fields are named as options."""

    filter: Sequence[str] = ()
    config_file: str | None = None
    hosts: str | None = None
    availability_zone: str | None = None
    """The zone that a request names.

    Only then is Nova asked for its aggregates by default.
    """

    def asks_live_placement(self, context: Context) -> bool:
        """Return True if the cloud's own Placement can be asked."""
        return context.has_cloud and not self.hosts

    def fleet(
        self,
        context: Context,
        *,
        traits_only: bool = False,
        progress: Progress = no_progress,
    ) -> Fleet:
        """Return the fleet of a file, of the cloud, or the example.

        :param traits_only: read a cloud without inventories: one request for
            each trait, not for each host
        :param progress: called after each of these requests
        :raises DocumentError: if its file is wrong.
        :raises PrefilterError: if the cloud does not respond.
        """
        if self.hosts:
            fleet, where = load_fleet(self.hosts), escape_line(self.hosts)
        elif not context.has_cloud:
            context.note(
                "Hosts: the bundled example. Give --os-cloud NAME or --hosts"
                " FILE for others.",
                warning=True,
            )
            return example_fleet()
        else:
            # Late, as below: the SDK and Placement take seconds to import, and
            # many commands need neither.
            from os_prefilter_tools.adapters.fleet_reader import (  # noqa: PLC0415
                read_fleet,
            )

            placement = context.placement
            aggregates = () if traits_only else _host_aggregates(context)
            fleet = read_fleet(
                placement,
                aggregates,
                inventories=not traits_only,
                progress=progress,
            )
            where = context.cloud
        hosts, providers = (
            len(fleet.instance_hosts),
            sum(1 for _ in fleet.walk()),
        )
        text = (
            f"Hosts: {hosts} ({pluralize(providers, 'resource provider')}) of"
            f" {where}"
        )
        if fleet.taken_at:
            text += f", read at {fleet.taken_at}"
        if fleet.changed_while_read:
            text += (
                f"; {fleet.changed_while_read} changed meanwhile, and their"
                " data may be partly old, partly new"
            )
        context.note(f"{text}.", warning=bool(fleet.changed_while_read))
        return fleet

    def reported(self, context: Context) -> Fleet | PlacementClient:
        """Return the hosts for a service: the fleet, or a cloud's Placement.

        The service asks a Placement two or three questions.

        :raises DocumentError, PrefilterError: as :meth:`fleet`
        """
        if not self.asks_live_placement(context):
            return self.fleet(context)
        context.note(f"Hosts: {context.cloud}.")
        return context.placement

    @contextmanager
    def backend(self, context: Context) -> Iterator[Backend]:
        """Yield the service and a Placement: the cloud's, or an embedded one.

        The cloud's is only read.

        :raises PrefilterError: as :meth:`reported` and :meth:`service`
        """
        hosts = self.reported(context)
        service = self.service(hosts, context)
        if not isinstance(hosts, Fleet):
            yield Backend(
                service,
                partial(ask_placement, placement=context.placement, live=True),
                None,
            )
            return
        from os_prefilter_tools.adapters.embedded import (  # noqa: PLC0415
            EmbeddedPlacement,
        )

        with EmbeddedPlacement(
            hosts, most_candidates=MOST_CANDIDATES
        ) as embedded:
            yield Backend(
                service,
                partial(ask_placement, placement=embedded.client),
                hosts,
            )

    def service(
        self,
        hosts: Fleet | PlacementClient,
        context: Context | None = None,
        had: frozenset[str] = frozenset(),
        *,
        with_shadow: bool = False,
    ) -> Service:
        """Return the service of the filters.

        The deployment facts come from ``hosts``: whether every compute node
        reports the owner trait, whether any provider is nested or shared and,
        unless the configuration file names them, which traits hosts report
        that Nova does not.

        :param context: for hosts of a cloud, whose Nova has the aggregates
        :param had: traits that hosts reported before, and filters still
            require
        :param with_shadow: whether filters in shadow count as enabled
        :raises ConfigurationError: if the configuration cannot be served.
        """
        conf = read_configuration(self.config_file)
        service_conf.warn_of_misspelt_names(conf)
        group = conf[service_conf.GROUP]
        if not self.filter:
            # As nova-scheduler does, before their names are joined.
            load_filters(
                group.shadow_filters,
                None,
                "shadow_filters",
                group.enabled_filters,
            )
        enabled = self._enabled(conf, hosts, with_shadow=with_shadow)
        options = service_conf.options_from(conf, in_nova=True)
        # Once: a fleet looks for them on each of its providers.
        in_use = (
            hosts.traits if isinstance(hosts, Fleet) else hosts.traits_in_use()
        )
        if not options.reported_traits:
            options = replace(
                options,
                reported_traits=tuple(
                    sorted((in_use | had) & opt_in_traits())
                ),
            )
        in_shadow = [] if self.filter or with_shadow else group.shadow_filters
        every = load_filters([*enabled, *in_shadow], provided=None)
        wanted = wanted_groups(every, options)
        facts = _facts_of(hosts, options, wanted, context)
        provided = NEEDS | facts.keys() | DERIVED
        filters = load_filters(enabled, provided)
        shadow = load_filters(in_shadow, provided)
        known = facts_from(conf, options, facts, filters + shadow)
        if shadow:
            # No request waits for facts that only filters in shadow need.
            versions_of([*known.values()])
        is_live = not isinstance(hosts, Fleet) or (
            context and self.asks_live_placement(context)
        )
        if not self.config_file or not (
            is_live or any(trait.startswith(REPORTED) for trait in in_use)
        ):
            # What the filters require once nothing is deferred: the fleet of a
            # file may be without any report.
            options = replace(options, wait_for_reports=False)
        # Without metrics and history: a command's requests are not those of
        # the service.
        return Service(
            filters,
            options,
            known,
            remark=remarks_of_commands,
            implied_by=(implied_by if group.require_implied_devices else None),
            shadow=shadow,
        )

    def _enabled(
        self,
        conf: cfg.ConfigOpts,
        hosts: Fleet | PlacementClient,
        *,
        with_shadow: bool,
    ) -> Sequence[str]:
        """Return the filters of ``--filter``, else of the file, else all ours.

        :raises ConfigurationError: if there is none, or one has no rules to
            apply
        """
        group = conf[service_conf.GROUP]
        in_shadow = group.shadow_filters if with_shadow else []
        enabled: Sequence[str] = names_in(self.filter) or [
            *group.enabled_filters,
            *in_shadow,
        ]
        if not enabled and not self.config_file:
            # Not those of other packages: one that does not load would break
            # every command.
            ours = [
                name
                for name, target in installed_filters().items()
                if target.startswith("os_prefilter.")
            ]
            # Rules exist only in a configuration.
            left_out = (
                {RULES}
                if isinstance(hosts, Fleet) or self.availability_zone
                else {RULES, AGGREGATES}
            )
            filters = load_filters(ours, provided=None)
            enabled = [
                each.name
                for each in filters
                if each.declaration.by_default
                and left_out.isdisjoint(each.facts)
            ]
        if not enabled:
            # Where all are in shadow, the operator tries them.
            options = [f"--filter {name}" for name in group.shadow_filters]
            text = (
                f"{self.config_file}: [prefilter] enabled_filters names no"
                " filter. Add one there, or give"
                f" {' '.join(options) or '--filter'}."
            )
            raise ConfigurationError(
                " ".join((text, *service_conf.misspelt_names(conf)))
            )
        with_rules = [
            each.name
            for each in load_filters(enabled, provided=None)
            if RULES in each.facts
        ]
        if with_rules and not group.rules_dirs:
            advice = "give --config-file with [prefilter] rules_dirs."
            raise ConfigurationError(
                f"The filter {with_rules[0]} has no rules: {advice}"
            )
        return enabled


class Backend(NamedTuple):
    """The filters and the Placement that a command was asked about."""

    service: Service
    ask: Callable[[Query, Decision], CandidatesFound]
    """Asks Placement for a request to which the service was applied."""
    fleet: Fleet | None
    """None for the Placement of a cloud."""


def _host_aggregates(context: Context) -> Any:
    from os_prefilter_tools.adapters.cloud.resources import (  # noqa: PLC0415
        host_aggregates,
    )

    return host_aggregates(context.connection)


def _facts_of(
    hosts: Fleet | PlacementClient,
    options: Options,
    wanted: Iterable[TraitGroup],
    context: Context | None,
) -> dict[str, Callable[[Any], Any]]:
    """Return the deployment facts of hosts."""
    # Neither a fleet file nor Placement tells which networks have which
    # segments.
    facts: dict[str, Callable[[Any], Any]] = {NETWORKS: lambda _context: {}}
    if isinstance(hosts, Fleet):
        return facts | {
            "owner_coverage": lambda _context: hosts.every_compute_has(
                options.owner_trait
            ),
            "nested_providers": lambda _context: hosts.has_nested_providers,
            "reports": lambda _context: reports_of(hosts, wanted),
            AGGREGATES: lambda _context: hosts.aggregates.values(),
        }
    from os_prefilter.adapters.placement.facts import (  # noqa: PLC0415
        PlacementFacts,
    )

    placement = PlacementFacts(
        hosts, groups=wanted, owner_trait=options.owner_trait
    )
    # At once: a cloud that does not respond is an error of the command.
    owned = placement.owner_is_reported()
    if context:
        facts[AGGREGATES] = lambda _context: _host_aggregates(context)
    return facts | {
        "owner_coverage": lambda _context: owned,
        "nested_providers": placement.nested_providers,
        "reports": placement.reports,
        # Hosts have yet to create the vocabulary's CUSTOM_ ones.
        "known_traits": lambda _context: hosts.traits() | opt_in_traits(),
    }
