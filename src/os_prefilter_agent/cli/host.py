# SPDX-License-Identifier: Apache-2.0

"""Arguments that name a host or a bare-metal node, and its facts.

The facts are probed, or read from files.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from os_prefilter.adapters.from_json import read_json
from os_prefilter.adapters.nova_compute import NovaConfiguration
from os_prefilter.adapters.nova_conf import (
    LibvirtSettings,
    libvirt_settings,
    nova_release,
    release_of_compute,
)
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import join_names, quote
from os_prefilter.documents.files import is_file, read_bytes
from os_prefilter.documents.strict_json import parse_json
from os_prefilter.hosts.drivers.fake import FakeFacts
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts, version_text
from os_prefilter.hosts.drivers.nova_releases import NEWEST_NOVA, NOVA_RELEASES
from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.service.conf import options_from
from os_prefilter_agent.cli.configuration import add_configuration_arguments
from os_prefilter_agent.cli.context import (
    CloudCommand,
    Context,
    add_repeatable,
    needs_packages,
    option_name,
)

if TYPE_CHECKING:
    from os_prefilter.adapters.ironic.node import IronicNode
    from os_prefilter.hosts.drivers.ironic_facts import IronicFacts

_DRIVERS = ("libvirt", "vmware", "ironic", "fake")
FILE_ARGUMENTS = (
    "domain_capabilities",
    "qemu_devices",
    "libvirt_version",
    "qemu_version",
)
"""The arguments that go with the file of ``--capabilities``."""
_DRIVER_ARGUMENTS = {
    ("libvirt",): ("connect", "capabilities", "nova_release", *FILE_ARGUMENTS),
    ("ironic",): ("node", "bios"),
    ("libvirt", "ironic"): ("configuration",),
}


def add_host_arguments(
    command: CloudCommand, parser: argparse.ArgumentParser
) -> None:
    """Add the arguments that name a host."""
    group = parser.add_argument_group("the host")
    text = "virt driver of the host; default: %(default)s"
    group.add_argument(
        "--driver", choices=_DRIVERS, default="libvirt", help=text
    )
    text = (
        "a file of Nova's configuration, as nova-compute has the option"
        " (repeatable); default: what the running nova-compute was started"
        " with, else the files that it reads by default, else Nova's"
        " defaults, with virt_type kvm if the host has KVM; with"
        " --capabilities or --driver ironic, no other files"
    )
    add_configuration_arguments(group, text)
    where = group.add_mutually_exclusive_group()
    text = (
        "probe the libvirt at this URI; default: nova.conf's, else"
        " qemu:///system"
    )
    where.add_argument("--connect", metavar="URI", help=text)
    text = (
        "read this output of 'virsh capabilities' instead of probing libvirt"
    )
    where.add_argument("--capabilities", metavar="FILE", help=text)
    text = (
        "with --capabilities: output of 'virsh domcapabilities', for each"
        " machine type and architecture (repeatable)"
    )
    add_repeatable(group, "--domain-capabilities", "FILE", text)
    text = (
        "with --capabilities: output of 'QEMU -machine none -device help', of"
        " the QEMU that the domain capabilities name in <path> (repeatable,"
        " for another one of i686); without it devices are not known"
    )
    add_repeatable(group, "--qemu-devices", "FILE", text)
    for name in ("libvirt", "QEMU"):
        text = (
            f"with --capabilities: version of the host's {name}; default for"
            " 'show': the oldest that Nova supports"
        )
        group.add_argument(
            f"--{name.lower()}-version", metavar="X.Y.Z", help=text
        )
    builder = group.add_mutually_exclusive_group()
    text = (
        "release of the nova-compute that builds the guests, such as 34 for"
        " 2026.2; default: that of the installed package nova or of the"
        " command nova-compute, else unknown"
    )
    builder.add_argument(
        "--nova-release", metavar="N", type=_release, help=text
    )
    text = (
        "expect no nova-compute on the host, but a driver that builds guests"
        " with the settings of os-prefilter; a report also writes the traits"
        " that nova-compute would"
    )
    builder.add_argument("--alone", action="store_true", help=text)
    add_node_arguments(command, group)


def add_node_arguments(command: CloudCommand, group: Any) -> None:
    """Add the arguments that name a node to a group of a parser."""
    text = (
        "a bare-metal node: output of 'openstack baremetal node show -f"
        " json'; with --os-cloud, its name or UUID"
    )
    group.add_argument("--node", metavar="FILE", help=text)
    text = (
        "its BIOS settings: output of 'openstack baremetal node bios setting"
        " list --long -f json'"
    )
    group.add_argument("--bios", metavar="FILE", help=text)
    command.add_cloud_argument(
        group, "ask the Ironic of this cloud in clouds.yaml about the node"
    )


@dataclass(frozen=True)
class NodeArguments:
    """A bare-metal node, each field as the option of its name."""

    node: str | None = None
    bios: str | None = None
    configuration: Sequence[str] = ()
    """--config-file and --config-dir, each followed by its path."""
    driver: str = "ironic"

    def check_node(self, context: Context) -> None:
        """Check that the arguments name a node.

        :raises DocumentError: they do not
        """
        if not self.node:
            advice = (
                "give --node FILE, output of 'openstack baremetal node show -f"
                " json', or --os-cloud and the node's name."
            )
            raise DocumentError("no node", advice)
        if self.bios is not None and self.asks_ironic(context):
            raise DocumentError(
                "--bios",
                "it cannot go with --os-cloud: give files, or a cloud to ask.",
            )

    def asks_ironic(self, context: Context) -> bool:
        """Return True to ask a cloud's Ironic for the node.

        A file wins over a cloud that the command line does not name.
        """
        if context.names_cloud or not (context.has_cloud and self.node):
            return context.names_cloud
        return self.driver == "ironic" and not is_file(self.node)

    def node_facts(self, context: Context) -> IronicFacts:
        """Return the facts of the node, with the given files' templates.

        :raises DocumentError: if a file is wrong
        :raises ConfigurationError: if the cloud or nova.conf cannot be used
        :raises ProbeFailed: if Ironic's response cannot be used
        :raises IronicError: if Ironic does not respond, or refuses
        """
        nova = NovaConfiguration(self.configuration, only_given=True)
        options = options_from(nova.conf)
        if self.asks_ironic(context):
            facts = node_of(context, str(self.node)).facts()
        else:
            from os_prefilter.hosts.drivers.ironic_facts import (  # noqa: PLC0415
                facts_from_node,
            )

            bios: Any = ()
            if self.bios is not None:
                bios = parse_json(read_bytes(self.bios), self.bios)
            path = str(self.node)
            facts = facts_from_node(
                read_json(path), bios, path=path, bios_path=self.bios or ""
            )
        return replace(facts, templates=options.templates)


def node_of(context: Context, node: str) -> IronicNode:
    """Return the node of a name or UUID in the Ironic of the cloud.

    :raises ConfigurationError: if the cloud cannot be used
    :raises IronicError: if its Ironic does not respond
    """
    # The extra of the SDK, which a report on a host does without.
    with needs_packages("cli"):
        # Late: the SDK takes a second to import.
        from os_prefilter.adapters.ironic.node import (  # noqa: PLC0415
            IronicNode,
        )

        return IronicNode.of(context.connection, node)


@dataclass(frozen=True)
class HostArguments(NodeArguments):
    """A host, each field as the option of its name."""

    driver: str = "libvirt"
    connect: str | None = None
    capabilities: str | None = None
    domain_capabilities: Sequence[str] = ()
    qemu_devices: Sequence[str] = ()
    libvirt_version: str | None = None
    qemu_version: str | None = None
    nova_release: int | None = None
    alone: bool = False

    def read_nova(self) -> NovaConfiguration:
        """Read Nova's configuration; of another host the given files.

        :raises DocumentError, ConfigurationError: if it cannot be read
        """
        is_elsewhere = self.capabilities is not None or self.driver == "ironic"
        return NovaConfiguration(self.configuration, only_given=is_elsewhere)

    def facts(
        self,
        context: Context,
        nova: NovaConfiguration,
        *,
        assume: bool = True,
    ) -> HostFacts:
        """Return the facts of the host.

        :param nova: its configuration
        :param assume: assume versions that files do not contain, see
            :meth:`assumptions`; not where traits are written, because an
            assumption must not remove traits
        :raises DocumentError: if a file is wrong, or arguments conflict
        :raises ConfigurationError: if nova.conf is wrong
        :raises ProbeFailed: if libvirt fails
        """
        self._check(context)
        if self.driver == "vmware":
            return VmwareFacts()
        if self.driver == "fake":
            return FakeFacts()
        if self.driver == "ironic":
            return self.node_facts(context)
        settings = self.settings(nova)
        if self.capabilities is None:
            from os_prefilter.adapters.libvirt.host import (  # noqa: PLC0415
                LibvirtHost,
            )

            return LibvirtHost(self.connect or "", settings).facts()
        from os_prefilter.adapters.libvirt.documents import (  # noqa: PLC0415
            facts_from_xml,
            parse_version,
        )
        from os_prefilter.adapters.libvirt.qemu import (  # noqa: PLC0415
            SavedLists,
        )

        oldest = NOVA_RELEASES[_known_release(settings.nova_release)]
        libvirt, qemu = oldest.libvirt, oldest.qemu
        if self.libvirt_version is not None:
            libvirt = parse_version("--libvirt-version", self.libvirt_version)
        if self.qemu_version is not None:
            qemu = parse_version("--qemu-version", self.qemu_version)
        host = read_bytes(self.capabilities)
        domains = [
            (path, read_bytes(path)) for path in self.domain_capabilities
        ]
        lists = SavedLists(
            (path, read_bytes(path)) for path in self.qemu_devices
        )
        facts = facts_from_xml(
            host,
            domains,
            settings=settings,
            libvirt_version=libvirt,
            qemu_version=qemu,
            where=self.capabilities,
            ask_devices=lists.devices_of,
        )
        missing = self.assumptions(facts)
        if missing and not assume:
            raise DocumentError(
                self.capabilities,
                f"{missing[0]} Traits are not written by assumptions.",
            )
        return facts

    def settings(self, nova: NovaConfiguration) -> LibvirtSettings:
        """Return the options of a libvirt host, and its release of Nova.

        None for the release if another driver builds its guests, or it is not
        found.

        :raises ConfigurationError: if the configuration is wrong
        """
        release = None
        if not self.alone:
            release = self.nova_release or release_of_compute()
        settings = LibvirtSettings(configuration_unknown=nova.unknown)
        if not nova.unknown:
            settings = libvirt_settings(nova.conf)
        return replace(
            settings,
            built_by_nova=not self.alone,
            nova_release=release,
        )

    def assumptions(self, facts: HostFacts) -> tuple[str, ...]:
        """Return a sentence for each assumption in the facts."""
        if not isinstance(facts, LibvirtFacts) or self.capabilities is None:
            return ()
        assumed = []
        if self.libvirt_version is None:
            assumed.append(("libvirt", facts.libvirt_version))
        if facts.guests and self.qemu_version is None:
            assumed.append(("QEMU", facts.hypervisor_version))
        oldest = (
            f"the oldest that Nova {_known_release(facts.nova_release)}"
            " runs on"
        )
        return tuple(
            f"{what} {version_text(version)} is assumed, {oldest}. Give"
            f" --{what.lower()}-version X.Y.Z."
            for what, version in assumed
        )

    def given(self, *names: str) -> list[str]:
        """Return the options that are given; an empty text is, and wrong."""
        found = []
        for name in names:
            value = getattr(self, name)
            if value in (None, [], ()):
                continue
            option = option_name(name)
            if name == "configuration":
                option = value[0]
            found.append(option)
        return found

    def _check(self, context: Context) -> None:
        """Refuse arguments that conflict: none is ever ignored."""
        for drivers, names in _DRIVER_ARGUMENTS.items():
            if self.driver in drivers:
                continue
            given = self.given(*names)
            if context.names_cloud and "node" in names:
                given.append("--os-cloud")
            if given:
                raise DocumentError(
                    given[0],
                    f"it is for --driver {' or '.join(drivers)}, not"
                    f" {self.driver}.",
                )
        if self.driver == "ironic":
            self.check_node(context)
        given = self.given(*FILE_ARGUMENTS)
        if given and self.capabilities is None:
            raise DocumentError(
                given[0],
                "it goes with --capabilities FILE, the output of 'virsh"
                " capabilities'.",
            )


def builder_of(facts: HostFacts) -> tuple[str, ...]:
    """Return sentences about the driver that builds a libvirt host's guests.

    None for a host of another driver.
    """
    if not isinstance(facts, LibvirtFacts):
        return ()
    ours = "a driver with the settings of os-prefilter"
    if not facts.built_by_nova:
        found = "A driver with the settings of os-prefilter builds the guests."
    elif facts.nova_release:
        found = (
            f"Nova {facts.nova_release} builds the guests. Give --nova-release"
            f" N for another one, --alone for {ours}."
        )
    else:
        found = (
            "Nova builds the guests, of an unknown release: a guest that only"
            " some releases start counts as yes. Give --nova-release N, or"
            f" --alone for {ours}."
        )
    if not facts.built_by_nova:
        return (found,)
    models = _several_cpu_models(facts)
    needs = NOVA_RELEASES.get(facts.nova_release or 0)
    if needs is None:
        return (found, *models)
    too_old = [
        f"{what} {version} is older than {oldest}"
        for what, version, oldest in facts.list_older(
            needs.libvirt, needs.qemu
        )
    ]
    if not too_old:
        return (found, *models)
    problem = (
        f"{' and '.join(too_old)}: nova-compute of Nova {facts.nova_release}"
        " does not start here."
    )
    return found, problem, *models


def unknown_parts_of(facts: HostFacts) -> tuple[str, ...]:
    """Return a sentence for each part of a host that is not known.

    Its configuration, or the devices of a QEMU that does not list them.
    """
    if not isinstance(facts, LibvirtFacts):
        return ()
    if facts.configuration_unknown:
        return (
            "What nova-compute is configured to do is not known:"
            f" {facts.configuration_unknown}. What depends on it is not"
            " reported, and what was reported stays. Give its files with"
            " --config-file and --config-dir.",
        )
    return tuple(
        f"Which devices QEMU has for guests of {architecture} is not known:"
        f" {guest.devices_unknown}. They are not reported, and what was"
        " reported of them stays. Run this command where libvirt's QEMU is, or"
        " give the saved documents with --qemu-devices."
        for architecture, guest in facts.guests.items()
        if guest.devices is None
    )


def _several_cpu_models(facts: LibvirtFacts) -> tuple[str, ...]:
    """Return a sentence where CPU features are reported of several models."""
    models = tuple(dict.fromkeys(facts.cpu_models))
    if facts.cpu_mode != "custom" or len(models) < 2:  # noqa: PLR2004 - a union
        return ()
    # Nova gives a guest the first model with the features that it requires,
    # and reports those of every model.
    names = ", ".join(map(quote, models))
    return (
        f"[libvirt] cpu_models has {len(models)} models: {names}."
        " The CPU features that Nova reports of this host are their union: one"
        " guest, which has one model, may not have all of them.",
    )


class _Deprecated(NamedTuple):
    """Machine types or CPU models of guests, by the marks of libvirt."""

    what: str
    marked: frozenset[str] | None
    in_use: frozenset[str]
    """Those of them that Nova gives guests by default."""
    option: str
    """The option of nova.conf that decides it."""


def deprecated_of(facts: HostFacts) -> tuple[str, ...]:
    """Return sentences about what libvirt marks as deprecated."""
    if not isinstance(facts, LibvirtFacts):
        return ()
    models: tuple[str, ...] = ()
    if facts.cpu_mode == "custom":
        models = facts.cpu_models
    # x86_64 hosts mostly have the same ones for i686: one sentence for both.
    architectures: dict[_Deprecated, list[str]] = {}
    for architecture, guest in facts.guests.items():
        machines = guest.deprecated_machines
        cpus = guest.deprecated_cpu_models
        default = (guest.default_machine,)
        for each in (
            _Deprecated(
                "machine types",
                machines,
                (machines or frozenset()).intersection(default),
                "hw_machine_type",
            ),
            _Deprecated(
                "CPU models",
                cpus,
                (cpus or frozenset()).intersection(models),
                "cpu_models",
            ),
        ):
            architectures.setdefault(each, []).append(architecture)
    return tuple(
        _describe_deprecated(each, names, version_text(facts.libvirt_version))
        for each, names in architectures.items()
        if each.marked != frozenset()
    )


def _describe_deprecated(
    found: _Deprecated, architectures: Sequence[str], libvirt: str
) -> str:
    of_guests = f"{found.what} of {' and '.join(architectures)} guests"
    if found.marked is None:
        return (
            f"Which {of_guests} are deprecated is not known: libvirt"
            f" {libvirt} lists none, or is too old to mark them."
        )
    text = (
        f"libvirt marks these {of_guests} as deprecated:"
        f" {join_names(found.marked)}. A later QEMU may not have them."
    )
    if found.in_use:
        text += (
            f" Guests get {join_names(found.in_use)} by default: change"
            f" [libvirt] {found.option}."
        )
    return text


def _release(text: str) -> int:
    release = nova_release(text)
    if release is None:
        raise argparse.ArgumentTypeError(
            f"{quote(text)} is no release of Nova. Give its major version,"
            " such as 34 for 2026.2."
        )
    return release


def _known_release(release: int | None) -> int:
    """Return the release, or the newest for one without known versions."""
    if release is not None and release in NOVA_RELEASES:
        return release
    return NEWEST_NOVA
