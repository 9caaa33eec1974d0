# SPDX-License-Identifier: Apache-2.0

"""A bare-metal node of Ironic: its facts, its traits, and steps to run on it.

It works over the ``baremetal`` proxy of an
``openstack.connection.Connection``. How long one response may take is the
connection's ``api_timeout``; how often a locked node is tried, its
``baremetal_status_code_retries``.

Source: Ironic's API reference. Node traits need its API 1.37, BIOS settings
with what may be written into each 1.74, steps of a service 1.87.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from openstack.baremetal.v1.node import Node

from os_prefilter.adapters.cloud_service import proxy_of
from os_prefilter.adapters.ironic.api import (
    bios_settings,
    convert_errors,
    visible,
)
from os_prefilter.adapters.ironic.errors import UnknownNode
from os_prefilter.adapters.ironic.steps import LOCK_TIMEOUT, ServiceStep, Task
from os_prefilter.adapters.ironic.traits import (
    TraitPlan,
    check_trait_limit,
    read_own_traits,
    write,
)
from os_prefilter.common.errors import DocumentError, ProbeFailed
from os_prefilter.common.logs import get_logger
from os_prefilter.hosts.desired_traits import TraitChange, check_traits
from os_prefilter.hosts.drivers.ironic_facts import (
    BiosValue,
    IronicFacts,
    facts_from_node,
)
from os_prefilter.hosts.marker_traits import REPORTED, keys_in
from os_prefilter.vocabulary import HYPERTHREADING
from os_prefilter.vocabulary.config_templates import PREFIX, RECORD

LOG = get_logger(__name__)

# What a node may be called, so that a name never becomes another part of the
# URL: RFC 3986, unreserved.
_NAME = re.compile(r"[A-Za-z0-9._~-]{1,255}", re.ASCII)


class IronicNode:
    """One node of Ironic.

    A name is looked up once; from then on it is the node that had it, even if
    that is renamed.

    :param baremetal: ``Connection.baremetal`` of openstacksdk; :meth:`of` gets
        it, with this library's errors
    :param node: the node's name or UUID
    :param lock_timeout: seconds to wait for the node's lock before steps begin
    """

    def __init__(
        self, baremetal: Any, node: str, *, lock_timeout: float = LOCK_TIMEOUT
    ) -> None:
        self._baremetal = baremetal
        self._name = node
        self._lock_timeout = lock_timeout

    @classmethod
    def of(cls, connection: Any, node: str) -> IronicNode:
        """Return a node of the Ironic that a connection of openstacksdk finds.

        :raises CloudError: the service catalogue has no Ironic
        :raises IronicError: there is no such node, or Ironic does not respond
        """
        with convert_errors("GET /v1", node):
            # Here the SDK queries the service and its versions.
            baremetal = proxy_of(connection, "baremetal")
        return cls(baremetal, node)

    def facts(self) -> IronicFacts:
        """Return what Ironic knows of the node.

        The traits that we have set do not count as an operator's: they follow
        from the rest.

        :raises ProbeFailed: the response is not that of an Ironic, or its API,
            or the client's, is too old for traits
        :raises UnknownNode: there is no such node
        :raises IronicError: Ironic does not respond, or refuses
        """
        node = self._with_traits()
        settings = bios_settings(self._baremetal, node)
        document = node.to_dict(original_names=True, computed=False)
        ours = read_own_traits(node.extra, str(node.id))
        document["traits"] = None
        document["last_error"] = visible(node.last_error)
        traits = frozenset(node.traits) - ours
        try:
            return facts_from_node(document, settings, traits=traits)
        except DocumentError as error:
            raise ProbeFailed(
                "GET /v1/nodes/ID", str(error), "Correct it in Ironic."
            ) from error

    def reported(self) -> frozenset[str]:
        """Return the keys that an earlier report covers.

        See :mod:`os_prefilter.hosts.marker_traits`.
        """
        node = self._with_traits()
        return keys_in(REPORTED, read_own_traits(node.extra, str(node.id)))

    def report(
        self,
        traits: Mapping[str, bool],
        *,
        leave: Iterable[str] = (),
        dry_run: bool = False,
    ) -> list[TraitChange]:
        """Make the traits on the node say what ``traits`` says.

        Traits with True are added. Of those with False, the ones that we have
        set are removed; an operator's stay, with the change ``keep``. Traits
        that we have set and that are no longer reported are removed, with
        ``{}`` all of them; all others stay. Only one process at a time may do
        this to a node.

        :param leave: traits of which nothing is known now
        :param dry_run: only return what would be changed
        :return: what was changed, with the node's UUID, which is the name of
            its resource provider
        :raises NodeNotReady: the traits would not fit on the node, or it stays
            locked
        :raises IronicRefused: Ironic does not take a trait; all others are as
            they should be
        :raises ConfigurationError: one of the names is not that of a trait
        :raises UnknownNode: there is no such node
        :raises IronicError: Ironic does not respond, or refuses; running it
            again goes on from there
        """
        check_traits(traits)
        node = self._with_traits()
        ours = read_own_traits(node.extra, str(node.id))
        # Of a template that was removed or changed: a trait that then stays on
        # the node is its operator's.
        unmanaged = ours - traits.keys() - set(leave)
        plan = TraitPlan(
            frozenset(node.traits),
            ours,
            {**dict.fromkeys(unmanaged, False), **traits},
        )
        check_trait_limit(node, plan)
        if traits.get(HYPERTHREADING) and not str(
            node.bios_interface
        ).startswith("prefilter-"):
            text = (
                "Nova boots servers on the node %s unconfigured: its"
                " bios_interface %s has no steps of os-prefilter."
            )
            LOG.warning(text, node.id, node.bios_interface)
        if not dry_run:
            write(self._baremetal, node, plan)
        return plan.changes(str(node.id))

    def task(
        self,
        steps: Sequence[ServiceStep] = (),
        *,
        timeout: float = LOCK_TIMEOUT,
        instance: str | None = None,
        settings: Mapping[str, BiosValue] | None = None,
    ) -> Task:
        """Read the node, and return steps to run on it, which stays deployed.

        :param steps: each with ``interface``, ``step`` and ``args``; they run
            in this order
        :param timeout: seconds until they should have ended
        :param instance: the UUID of the instance that must be on the node;
            None if any may be
        :param settings: BIOS settings that the node must have at the end,
            besides the settings that the steps change
        :raises UnknownNode: there is no such node
        :raises IronicError: Ironic does not respond, or refuses
        """
        return Task(
            self._baremetal,
            self._read(),
            tuple(steps),
            timeout,
            instance,
            settings or {},
            self._lock_timeout,
        )

    def record(
        self, before: Mapping[str, str], after: Mapping[str, str]
    ) -> str | None:
        """Record on the node how its instance is configured.

        A rebuild keeps it; deleting the instance ends the record.

        :param before: extra specs of its flavor, of which
            ``deploy-config:TYPE`` count, and an earlier note counts more
        :param after: those of the change, which count most
        :return: the UUID of the instance; None if the node has none
        :raises IronicError: Ironic does not respond, or refuses
        """
        node = self._read()
        noted = (node.instance_info or {}).get(RECORD) or {}
        value = {
            **_configurations(before),
            **{name: str(each) for name, each in noted.items()},
            **_configurations(after),
        }
        # A rebuild keeps instance_info, and a deletion empties it.
        path = f"/instance_info/{RECORD}"
        with convert_errors("PATCH /v1/nodes/ID", str(node.id)):
            patch = [{"op": "add", "path": path, "value": value}]
            self._baremetal.patch_node(node, patch)
        return str(node.instance_id) if node.instance_id else None

    def _read(self) -> Node:
        if not _NAME.fullmatch(self._name) or set(self._name) == {"."}:
            raise UnknownNode(self._name)
        with convert_errors("GET /v1/nodes/ID", self._name):
            node: Node = self._baremetal.get_node(self._name)
        # What was learned of this node must not be written to another one that
        # gets its name.
        self._name = str(node.id)
        return node

    def _with_traits(self) -> Node:
        node = self._read()
        if node.traits is None:
            advice = (
                "Check which service responds as Ironic, and that its API, or"
                " the client's, is not pinned below 1.37."
            )
            raise ProbeFailed(
                "GET /v1/nodes/ID", "the response has no traits", advice
            )
        return node


def _configurations(extra_specs: Mapping[str, str]) -> dict[str, str]:
    """Return the types of configuration in extra specs, with their values."""
    return {
        name.removeprefix(PREFIX): str(value)
        for name, value in extra_specs.items()
        if name.startswith(PREFIX)
    }
