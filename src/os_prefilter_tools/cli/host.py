"""Arguments that name one host or bare-metal node, and its facts: probed, or read from files."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from os_prefilter.adapters.from_json import read_json
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import quote
from os_prefilter.documents.files import is_file, read_bytes
from os_prefilter.documents.strict_json import parse_json
from os_prefilter.hosts.drivers.fake import FakeFacts
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts, version_text
from os_prefilter.hosts.drivers.nova_releases import NEWEST_NOVA, NOVA_RELEASES, describe_too_old
from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.cli.arguments import add_repeatable
from os_prefilter_tools.cli.cloud import add_cloud_argument, connection_of, has_default_cloud, option_name

if TYPE_CHECKING:
    from os_prefilter.adapters.ironic.node import IronicNode
    from os_prefilter.adapters.nova_conf import LibvirtSettings
    from os_prefilter.hosts.drivers.ironic_facts import IronicFacts

_DRIVERS = ("libvirt", "vmware", "ironic", "fake")
OF_FILES = ("domain_capabilities", "libvirt_version", "qemu_version")
"""The arguments that go with the file of ``--capabilities``."""
_OF_DRIVER = {
    ("libvirt",): ("connect", "capabilities", "nova_release", *OF_FILES),
    ("ironic",): ("node", "bios", "os_cloud"),
    ("libvirt", "ironic"): ("nova_conf",),
}


def add_host_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a host."""
    group = parser.add_argument_group("the host")
    group.add_argument("--driver", choices=_DRIVERS, default="libvirt", help="its virt driver; default: libvirt")
    group.add_argument(
        "--nova-conf",
        metavar="FILE",
        help="its nova.conf; default: Nova's defaults, kvm if it has KVM; for ironic, its [prefilter] config_templates",
    )
    group.add_argument("--connect", metavar="URI", help="its libvirt; default: as nova.conf says, else qemu:///system")
    group.add_argument(
        "--capabilities", metavar="FILE", help="output of 'virsh capabilities'; read files instead of probing libvirt"
    )
    text = "output of 'virsh domcapabilities', for each --machine and --arch that matters (repeatable)"
    add_repeatable(group, ["--domain-capabilities"], "FILE", text)
    group.add_argument("--libvirt-version", metavar="X.Y.Z", help="with files: the version of its libvirt")
    group.add_argument("--qemu-version", metavar="X.Y.Z", help="with files: the version of its QEMU")
    group.add_argument(
        "--nova-release",
        metavar="N",
        type=_release,
        help="the release of its nova-compute, whose driver builds the guests: 34 for 2026.2; default: that of the "
        "installed package nova, else unknown",
    )
    group.add_argument(
        "--alone",
        action="store_true",
        help="no nova-compute runs on the host: its driver builds guests with the settings of os-prefilter; a report "
        "also writes the traits that nova-compute would",
    )
    add_node_arguments(group)


def facts_from(arguments: argparse.Namespace, *, assume: bool = True) -> HostFacts:
    """Return the facts of the host that the arguments name.

    :param assume: whether to assume versions that files do not contain, see :func:`assumptions`; not where traits are
        written, because an assumption must not remove traits
    :raises DocumentError: if a file is wrong, or arguments conflict
    :raises ConfigurationError: if nova.conf is wrong
    :raises ProbeFailed: if libvirt fails
    """
    _check(arguments)
    if arguments.driver == "libvirt":
        return _libvirt(arguments, assume=assume)
    kind = {"vmware": VmwareFacts, "fake": FakeFacts}.get(arguments.driver)
    return kind() if kind else node_facts(arguments)


def assumptions(arguments: argparse.Namespace, facts: HostFacts) -> tuple[str, ...]:
    """Return a sentence for each assumption in the facts."""
    if not isinstance(facts, LibvirtFacts) or not _is_given(arguments, "capabilities"):
        return ()
    found = []
    if not _is_given(arguments, "libvirt_version"):
        found.append(
            f"libvirt {version_text(facts.libvirt_version)} is assumed, the oldest that Nova "
            f"{_known_release(facts.nova_release)} runs on. "
            "Give --libvirt-version X.Y.Z."
        )
    if facts.guests and not _is_given(arguments, "qemu_version"):
        found.append(
            f"QEMU {version_text(facts.hypervisor_version)} is assumed, after the newest machine type. "
            "Give --qemu-version X.Y.Z."
        )
    return tuple(found)


def builder_of(facts: HostFacts) -> tuple[str, ...]:
    """Return sentences on which driver builds the guests of a libvirt host."""
    if not isinstance(facts, LibvirtFacts):
        return ()
    ours = "a driver with the settings of os-prefilter"
    if not facts.built_by_nova:
        found = ["A driver with the settings of os-prefilter builds the guests."]
    elif facts.nova_release:
        found = [
            f"Nova {facts.nova_release} builds the guests. Give --nova-release N for another one, --alone for {ours}."
        ]
    else:
        found = [
            "Nova builds the guests, of an unknown release: a guest that only some releases start counts as yes. "
            f"Give --nova-release N, or --alone for {ours}."
        ]
    if too_old := describe_too_old(facts):
        found.append(too_old)
    return tuple(found)


def _check(arguments: argparse.Namespace) -> None:
    """Refuse arguments that conflict: none is ever ignored."""
    for drivers, names in _OF_DRIVER.items():
        for name in names:
            if _is_given(arguments, name) and arguments.driver not in drivers:
                raise DocumentError(
                    option_name(name), f"it is for --driver {' or '.join(drivers)}, not {arguments.driver}."
                )
    if arguments.driver == "ironic":
        check_node_arguments(arguments)
    if arguments.alone and _is_given(arguments, "nova_release"):
        raise DocumentError(
            "--nova-release", "it cannot go with --alone: either nova-compute builds the guests or not."
        )
    if _is_given(arguments, "capabilities") and _is_given(arguments, "connect"):
        raise DocumentError("--capabilities", "it cannot go with --connect: give files, or a libvirt to ask.")
    for name in OF_FILES:
        if _is_given(arguments, name) and not _is_given(arguments, "capabilities"):
            raise DocumentError(
                option_name(name), "it goes with --capabilities FILE, the output of 'virsh capabilities'."
            )


def _is_given(arguments: argparse.Namespace, name: str) -> bool:
    # An empty text is given, and wrong.
    return getattr(arguments, name) not in (None, [])


def settings_from(arguments: argparse.Namespace) -> "LibvirtSettings":
    """Return the options of a libvirt host, and the release of Nova that builds its guests, if one does.

    :raises DocumentError, ConfigurationError: if nova.conf cannot be read, or is wrong
    """
    # Late, so that commands that ask no host start quickly and need no more than the library.
    from os_prefilter.adapters.nova_conf import installed_nova, libvirt_settings  # noqa: PLC0415

    return replace(
        libvirt_settings(arguments.nova_conf),
        built_by_nova=not arguments.alone,
        nova_release=None if arguments.alone else arguments.nova_release or installed_nova(),
    )


def _release(text: str) -> int:
    from os_prefilter.adapters.nova_conf import nova_release  # noqa: PLC0415 - as above

    release = nova_release(text)
    if release is None:
        raise argparse.ArgumentTypeError(
            f"{quote(text)} is no release of Nova. Give its major version, such as 34 for 2026.2."
        )
    return release


def _libvirt(arguments: argparse.Namespace, *, assume: bool) -> HostFacts:
    settings = settings_from(arguments)
    if _is_given(arguments, "capabilities"):
        return _read(arguments, settings, assume=assume)
    from os_prefilter.adapters.libvirt.host import LibvirtHost  # noqa: PLC0415 - as above

    return LibvirtHost(arguments.connect or "", settings).facts()


def _read(arguments: argparse.Namespace, settings: "LibvirtSettings", *, assume: bool) -> HostFacts:
    from os_prefilter.adapters.libvirt.documents import facts_from_xml, parse_version  # noqa: PLC0415

    given = {
        name: parse_version(option_name(name), text)
        for name in ("libvirt_version", "qemu_version")
        if (text := getattr(arguments, name)) is not None
    }
    facts = facts_from_xml(
        read_bytes(arguments.capabilities),
        [(path, read_bytes(path)) for path in arguments.domain_capabilities],
        settings=settings,
        libvirt_version=given.get("libvirt_version") or NOVA_RELEASES[_known_release(settings.nova_release)].libvirt,
        qemu_version=given.get("qemu_version"),
        where=arguments.capabilities,
    )
    missing = assumptions(arguments, facts)
    if missing and not assume:
        raise DocumentError(arguments.capabilities, f"{missing[0]} Traits are not written by assumptions.")
    return facts


def _known_release(release: int | None) -> int:
    return release if release is not None and release in NOVA_RELEASES else NEWEST_NOVA


# -- bare-metal nodes --------------------------------------------------------------------------------------------------


def add_node_arguments(group: Any) -> None:
    """Add the arguments that name a node to a group of a parser."""
    group.add_argument(
        "--node",
        metavar="FILE",
        help="ironic: output of 'openstack baremetal node show -f json'; with --os-cloud, the node's name or UUID",
    )
    group.add_argument(
        "--bios", metavar="FILE", help="ironic: output of 'openstack baremetal node bios setting list --long -f json'"
    )
    add_cloud_argument(group, "ironic: ask the Ironic of this cloud in clouds.yaml")


def check_node_arguments(arguments: argparse.Namespace) -> None:
    """Check that the arguments name a node.

    :raises DocumentError: they do not
    """
    if not arguments.node:
        advice = (
            "give --node FILE, output of 'openstack baremetal node show -f json', or --os-cloud and the node's name."
        )
        raise DocumentError("no node", advice)
    if arguments.bios is not None and asks_ironic(arguments):
        raise DocumentError("--bios", "it cannot go with --os-cloud: give files, or a cloud to ask.")


def asks_ironic(arguments: argparse.Namespace) -> bool:
    """Whether to ask a cloud's Ironic for the node; a file wins over a cloud that the command does not name."""
    if arguments.os_cloud is not None or not has_default_cloud(arguments) or not arguments.node:
        return arguments.os_cloud is not None
    return getattr(arguments, "driver", "ironic") == "ironic" and not is_file(arguments.node)


def node_facts(arguments: argparse.Namespace) -> "IronicFacts":
    """Return the facts of the node that the arguments name, with the templates of ``--nova-conf``.

    :raises DocumentError: if a file is wrong
    :raises ConfigurationError: if the cloud or nova.conf cannot be used
    :raises ProbeFailed: if Ironic's answer cannot be used
    :raises IronicError: if Ironic does not answer, or refuses
    """
    options = options_in(arguments.nova_conf)
    facts = node_of(arguments).facts() if asks_ironic(arguments) else _facts_of_files(arguments)
    return replace(facts, templates=options.templates)


def node_of(arguments: argparse.Namespace, node: str = "") -> "IronicNode":
    """Return the node in the Ironic of the cloud that the arguments name.

    :param node: its name or UUID; empty: that of ``--node``
    :raises ConfigurationError: if the cloud cannot be used
    :raises IronicError: if its Ironic does not answer
    """
    # Late: the SDK takes a second to import.
    from os_prefilter.adapters.ironic.node import IronicNode  # noqa: PLC0415

    return IronicNode.of(connection_of(arguments), node or arguments.node)


def _facts_of_files(arguments: argparse.Namespace) -> "IronicFacts":
    from os_prefilter.hosts.drivers.ironic_facts import facts_from_node  # noqa: PLC0415

    bios: Any = parse_json(read_bytes(arguments.bios), arguments.bios) if arguments.bios is not None else ()
    paths = {"path": arguments.node, "bios_path": arguments.bios or ""}
    return facts_from_node(read_json(arguments.node), bios, **paths)


def options_in(nova_conf: str | None) -> Options:
    """Return the options of [prefilter] in a nova.conf; the defaults without one.

    :raises DocumentError, ConfigurationError: if nova.conf cannot be read, or is wrong
    """
    if not nova_conf:
        return Options()
    from os_prefilter.adapters.nova_conf import load_conf, prefilter_options  # noqa: PLC0415

    return prefilter_options(load_conf(nova_conf))
