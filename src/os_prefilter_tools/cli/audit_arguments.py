# SPDX-License-Identifier: Apache-2.0

"""Arguments of ``os-prefilter audit``, and what they name.

Images, volumes, flavors, servers and filters.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from oslo_config import cfg

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import escape_line
from os_prefilter.request.spec import Flavor, Image
from os_prefilter.service import Service
from os_prefilter.service.conf import GROUP
from os_prefilter_agent.cli.configuration import read_configuration
from os_prefilter_agent.cli.context import (
    CloudCommand,
    Context,
    add_repeatable,
    option_name,
)
from os_prefilter_agent.cli.deadline import TIMEOUT, seconds
from os_prefilter_tools.cli import filters_and_hosts
from os_prefilter_tools.cli.request_arguments import (
    flavor_named,
)
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.fleet.server import Server
from os_prefilter_tools.operators.audit.entry_list import (
    Broken,
    read_images,
    read_volumes,
)
from os_prefilter_tools.operators.audit.host_filters import JUDGED
from os_prefilter_tools.operators.audit.image_audit import FilterChange
from os_prefilter_tools.operators.audit.rehearsal import (
    Rehearsal,
    become,
    read_canaries,
    rehearse,
)
from os_prefilter_tools.operators.audit.server_list import read_servers
from os_prefilter_tools.operators.examples import example_requests


def add_audit_arguments(
    command: CloudCommand, parser: argparse.ArgumentParser
) -> None:
    """Add the arguments of an audit, of images, volumes or servers."""
    filters_and_hosts.add_pipeline_arguments(command, parser, filters=False)
    group = parser.add_argument_group("the audit")
    text = (
        "read the images from this file: a JSON array of outputs of 'openstack"
        " image show -f json', a response of GET /v2/images, or JSON lines;"
        " default: the images of the cloud, else the bundled examples"
    )
    group.add_argument("--images", metavar="FILE", help=text)
    text = (
        "audit bootable volumes instead of images: a JSON array of outputs of"
        " 'openstack volume show -f json', a response of GET"
        " /v3/volumes/detail, or JSON lines; default: the volumes of the cloud"
    )
    group.add_argument(
        "--volumes", metavar="FILE", nargs="?", const=False, help=text
    )
    text = (
        "audit each image with this flavor (repeatable): output of 'openstack"
        " flavor show -f json', or with a cloud its name or ID; default: each"
        " image alone, on hosts of any size"
    )
    add_repeatable(group, "--flavor", "FILE", text)
    text = (
        "count this filter as enabled before (repeatable or comma-separated);"
        " default: with --enable the filters of --config-file, else none"
    )
    add_repeatable(group, "--before", "NAME", text)
    text = (
        "enable this filter in addition (repeatable or comma-separated);"
        " default: the filters that --config-file enables, else all filters of"
        " the library"
    )
    add_repeatable(group, "--enable", "NAME", text)
    text = (
        "list only images or volumes that lose hosts, or lose all their"
        " hosts; default: list all"
    )
    text = (
        "rehearse an upgrade: audit the hosts that match the pattern as if"
        " they reported what another host does, or FILE, an output of"
        " 'os-prefilter capabilities show -f json' (repeatable)"
    )
    add_repeatable(group, "--becoming", "PATTERN=HOST", text)
    group.add_argument(
        "--only", choices=("changed", "unschedulable"), help=text
    )
    group.add_argument(
        "--html",
        metavar="FILE",
        help="also write the audit to this file, as a self-contained web page",
    )
    group.add_argument(
        "--force",
        action="store_true",
        help="with --html: replace an existing file",
    )
    group = parser.add_argument_group("servers instead of images")
    text = (
        "audit which hosts could take each server; FILE has the servers with"
        " their hosts and request specs in JSON; default: all servers of the"
        " cloud"
    )
    group.add_argument(
        "--servers", metavar="FILE", nargs="?", const=False, help=text
    )
    text = (
        "with --servers: also count the destinations if this host is drained"
        " (repeatable or comma-separated)"
    )
    add_repeatable(group, "--without", "HOST", text)
    text = (
        "with --servers and --becoming: find an order to upgrade the hosts in,"
        " at most N at the same time, in which servers keep destinations"
    )
    group.add_argument("--waves", metavar="N", type=int, help=text)
    text = (
        "end the command after this time; with --servers, judge those read"
        f" until then; default: {TIMEOUT:g}"
    )
    group.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        dest="read_timeout",
        help=text,
    )


@dataclass(frozen=True)
class AuditArguments(filters_and_hosts.FiltersAndHosts):
    """Parsed arguments of an audit, each field as the option of its name."""

    images: str | None = None
    volumes: str | bool | None = None
    """A file; False: the volumes of the cloud; None: an audit of others."""
    flavor: Sequence[str] = ()
    before: Sequence[str] = ()
    enable: Sequence[str] = ()
    becoming: Sequence[str] = ()
    only: str | None = None
    html: str | None = None
    force: bool = False
    servers: str | bool | None = None
    """A file; False: the servers of the cloud; None: an audit of images."""
    without: Sequence[str] = ()
    waves: int | None = None

    def check(self, context: Context) -> None:
        """Refuse options that do not go together.

        :raises DocumentError: for such options
        """
        for option, source in (
            ("--volumes", self.volumes),
            ("--servers", self.servers),
        ):
            if source is False and not context.has_cloud:
                raise DocumentError(
                    option,
                    "it needs a cloud to ask, or a file. Give --os-cloud NAME"
                    f" or {option} FILE.",
                )
        if self.volumes is not None and self.images:
            raise DocumentError(
                "--images", "it cannot go with --volumes. Give one of the two."
            )
        self._check_waves()
        if self.servers is None:
            if self.without:
                raise DocumentError(
                    "--without", "it is about servers. Give --servers as well."
                )
            return
        for name, value in (
            ("--images", self.images),
            ("--volumes", self.volumes is not None),
            ("--flavor", self.flavor),
        ):
            if value:
                raise DocumentError(
                    name, "it cannot go with --servers. Give one of the two."
                )
        if self.only == "changed":
            raise DocumentError(
                "--only",
                "changed is about images. With --servers, give unschedulable.",
            )

    def _check_waves(self) -> None:
        if self.waves is None:
            return
        if self.waves < 1:
            problem = f"{self.waves} is no number of hosts. Give 1 or more."
            raise DocumentError("--waves", problem)
        if self.servers is None or not self.becoming:
            raise DocumentError(
                "--waves",
                "it is about an upgrade of hosts with servers. Give --servers"
                " and --becoming as well.",
            )

    def change(
        self,
        fleet: Fleet,
        context: Context,
        had: frozenset[str] = frozenset(),
    ) -> FilterChange:
        """Return the services before and after the filters are enabled.

        :param had: traits that hosts reported before, see :meth:`service`
        """

        def service(names: Sequence[str]) -> Service:
            asked = replace(self, filter=names)
            return asked.service(fleet, context, had)

        before, enable = (
            filters_and_hosts.names_in(self.before),
            filters_and_hosts.names_in(self.enable),
        )
        if enable:
            before = (
                before
                or read_configuration(self.config_file)[GROUP].enabled_filters
            )
        else:
            enable = [each.name for each in service(()).filters]
        after = [*before, *(name for name in enable if name not in before)]
        return FilterChange(
            service(before) if before else Service(), service(after)
        )

    def rehearse(
        self, fleet: Fleet, now: Service, context: Context
    ) -> Rehearsal | None:
        """Return the upgrade of the fleet; None if it is to stay as it is.

        :param now: the filters as they act on the fleet
        :raises DocumentError: if an option or its file is wrong
        """
        if not self.becoming:
            return None
        upgraded = read_canaries(self.becoming, fleet)
        after = become(fleet, upgraded)
        then = self.change(after, context, fleet.traits).after
        return rehearse(fleet, after, FilterChange(now, then), upgraded)

    def source_of_filters(self) -> str:
        """Return the options from which the names of the filters come."""
        named = [escape_line(self.config_file)] if self.config_file else []
        named += [
            option_name(name)
            for name in ("before", "enable")
            if getattr(self, name)
        ]
        return (
            " and ".join(named)
            or "all of the library; --config-file FILE names the enabled ones"
        )

    def read_images(self, context: Context, broken: Broken) -> Iterable[Image]:
        """Return the images of the file, the cloud, or the examples."""
        if self.images:
            return read_images(self.images, broken)
        if context.has_cloud:
            from os_prefilter_tools.adapters.cloud.resources import (  # noqa: PLC0415
                images,
            )

            return images(context.connection, broken)
        context.note(
            "Images: the bundled examples. Give --os-cloud NAME or --images"
            " FILE for others.",
            warning=True,
        )
        return example_images()

    def read_volumes(
        self, context: Context, broken: Broken
    ) -> Iterable[Image]:
        """Return the images of the volumes of the file, or of the cloud."""
        if self.volumes:
            return read_volumes(str(self.volumes), broken)
        from os_prefilter_tools.adapters.cloud.resources import (  # noqa: PLC0415
            bootable_volumes,
        )

        return bootable_volumes(context.connection, broken)

    def flavors(self, context: Context) -> list[Flavor]:
        """Return the flavors, each with a name of its own.

        :raises DocumentError: if a file is wrong, or two have one name
        """
        flavors: list[Flavor] = []
        for path in self.flavor:
            flavor = flavor_named(path, context)
            flavor.name = flavor.name or path
            if any(each.name == flavor.name for each in flavors):
                raise DocumentError(
                    path,
                    "another --flavor has the same name. Give each a name of"
                    " its own.",
                )
            flavors.append(flavor)
        return flavors

    def host_filters_not_judged(self) -> list[str]:
        """Return the enabled host filters that an audit cannot judge.

        :raises PrefilterError: if the configuration is wrong
        """

        def register(conf: cfg.ConfigOpts) -> None:
            conf.register_opt(
                cfg.ListOpt("enabled_filters", default=[]), "filter_scheduler"
            )

        conf = read_configuration(self.config_file, register)
        return [
            escape_line(name)
            for name in conf.filter_scheduler.enabled_filters
            if name not in JUDGED
        ]

    def read_servers(
        self, context: Context, broken: Broken
    ) -> Iterable[Server]:
        """Return the servers of the file, or of the cloud.

        :raises DocumentError: if their file is wrong
        :raises PrefilterError: if the cloud does not respond
        """
        if self.servers:
            return read_servers(str(self.servers), broken)
        from os_prefilter_tools.adapters.cloud.servers import (  # noqa: PLC0415
            servers,
        )

        return servers(context.connection, broken)


def example_images() -> Iterator[Image]:
    """Yield the images of the bundled requests."""
    for example in example_requests().values():
        image = example.request_spec().image
        if image:
            image.name = example.name
            yield image
