"""Arguments that name a bare-metal node, and its facts from Ironic or from files."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from os_prefilter.cli.cloud import add_cloud_argument, connection_of, has_default_cloud
from os_prefilter.documents.files import is_file, read_bytes
from os_prefilter.documents.strict_json import parse_json
from os_prefilter.errors import DocumentError
from os_prefilter.request.from_json import read_json

if TYPE_CHECKING:
    from os_prefilter.adapters.ironic.node import IronicNode
    from os_prefilter.hosts.drivers.ironic_facts import IronicFacts
    from os_prefilter.vocabulary.config_templates import Templates


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
    templates = _templates(arguments.nova_conf)
    facts = node_of(arguments).facts() if asks_ironic(arguments) else _facts_of_files(arguments)
    return replace(facts, templates=templates)


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


def _templates(nova_conf: str | None) -> "Templates | None":
    if not nova_conf:
        return None
    from os_prefilter.adapters.nova_conf import load_conf, prefilter_options  # noqa: PLC0415

    return prefilter_options(load_conf(nova_conf)).templates
