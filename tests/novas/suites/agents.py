# SPDX-License-Identifier: Apache-2.0

"""The agent beside each nova-compute of Nova's own tests: it reports, with the
library's reporters and its code that writes, what the virt driver there can do.

A real agent reports each minute. This one reports when nova-compute has
updated its providers in Placement, so that no test waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from tempfile import NamedTemporaryFile
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

from os_prefilter.adapters.libvirt import host as libvirt_hosts
from os_prefilter.adapters.nova_conf import (
    LibvirtSettings,
    installed_nova,
    libvirt_settings,
    load_conf,
)
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.hosts.desired_traits import Goal, Mode, goal_of
from os_prefilter.hosts.drivers.fake import FakeFacts
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.vocabulary import table
from os_prefilter.vocabulary.options import Options
from tests.support.every_trait import EVERY_KEY

# Nova's fake driver reads nothing of an image, so a host with it can do every
# value of our filters' rows; but not what Nova asks for or checks itself, by
# traits that the driver has only where its capabilities say so.
_BY_NOVA = frozenset(
    ("query", "ephemeral_encryption", "accelerators", "tpm_secret_security")
)

# Section and name of each option that the libvirt reporter reads.
_LIBVIRT_OPTIONS = (
    ("DEFAULT", "force_raw_images"),
    ("libvirt", "cpu_mode"),
    ("libvirt", "cpu_models"),
    ("libvirt", "hw_machine_type"),
    ("libvirt", "images_type"),
    ("libvirt", "supported_tpm_secret_security"),
    ("libvirt", "swtpm_enabled"),
    ("libvirt", "virt_type"),
    ("spice", "enabled"),
)

_RELEASE = installed_nova()

# Not one of this machine, whose KVM and QEMU the probe would ask.
_URI = "qemu+ssh://elsewhere/system"

REPORTS = "reports"
FAILURES = "failed reports"


class Agents:
    """The agents of all hosts in this process.

    :param count: called with REPORTS or FAILURES for each report that changes
        traits or fails
    """

    def __init__(self, count: Callable[[str], None]) -> None:
        self.enabled = False
        """Whether the hosts of the running test have an agent."""
        self._count = count
        # Of each resource tracker: a nova-compute, and the agent beside it,
        # may be restarted with another configuration.
        self._of_trackers: WeakKeyDictionary[
            Any, dict[str, tuple[ProviderTraits, Goal]]
        ] = WeakKeyDictionary()

    def start(self) -> None:
        """Report whenever a nova-compute has updated its providers."""
        from nova.compute.resource_tracker import (  # noqa: PLC0415 - nova.tests.unit comes first
            ResourceTracker,
        )

        update = ResourceTracker._update_to_placement

        @wraps(update)
        def update_and_report(
            tracker: Any, context: Any, node: Any, startup: bool
        ) -> None:
            update(tracker, context, node, startup)
            if not self.enabled:
                return
            try:
                self._report(tracker, node.hypervisor_hostname)
            except Exception:
                # nova-compute only logs what is raised here.
                self._count(FAILURES)
                raise

        ResourceTracker._update_to_placement = update_and_report

    def _report(self, tracker: Any, node: str) -> None:
        of_nodes = self._of_trackers.setdefault(tracker, {})
        if node not in of_nodes:
            goal = _goal_of(tracker.driver)
            adapter: Any = _Adapter(tracker.reportclient)
            provider = ProviderTraits(PlacementClient(adapter), node)
            of_nodes[node] = provider, goal
        provider, goal = of_nodes[node]
        if provider.sync(goal):
            self._count(REPORTS)


class _Adapter:
    """Nova's client of Placement, which its fixture replaces, with the method
    of a keystoneauth adapter.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def request(
        self,
        url: str,
        method: str,
        *,
        microversion: str,
        json: object,
        **_options: object,
    ) -> Any:
        if method == "GET":
            return self._client.get(url, version=microversion)
        assert method == "PUT", method
        return self._client.put(url, json, version=microversion)


def _goal_of(driver: Any) -> Goal:
    from nova.virt import fake  # noqa: PLC0415 - as above

    if isinstance(driver, fake.FakeDriver):
        # Its capabilities name few traits of images, and Nova leaves the
        # others as they are.
        return goal_of(
            _facts_of_fake(driver), EVERY_KEY, Mode.ALONE, Options()
        )
    return goal_of(_facts_of_libvirt(driver), EVERY_KEY, Mode.BESIDE)


def _facts_of_fake(driver: Any) -> FakeFacts:
    answers = driver.capabilities_as_traits()
    can = {}
    for row in table():
        accepts_all = bool(row.required_by) and _BY_NOVA.isdisjoint(
            row.required_by
        )
        can[row.name] = frozenset(
            value
            for value, term in row.values.items()
            if term.trait and answers.get(term.trait, accepts_all)
        )
    return FakeFacts(can=can)


def _facts_of_libvirt(driver: Any) -> LibvirtFacts:
    """Probe Nova's fake libvirt as if it were one at a URI."""
    connection = driver._host.get_connection()
    binding = _Binding(connection)
    with mock.patch.object(
        libvirt_hosts, "import_module", return_value=binding
    ):
        host = libvirt_hosts.LibvirtHost(_URI, _settings())
    return host.facts()


class _Binding:
    """libvirt's Python binding, with the connection of Nova's fake libvirt."""

    VIR_ERR_OPERATION_DENIED = object()
    VIR_ERR_ACCESS_DENIED = object()

    def __init__(self, connection: Any) -> None:
        from nova.tests.fixtures import libvirt  # noqa: PLC0415 - as above

        self.libvirtError = libvirt.libvirtError
        self._connection = connection

    def registerErrorHandler(self, *_arguments: object) -> None:  # noqa: N802 - as libvirt names it
        """Nova's has none."""

    def open(self, _uri: str) -> _Binding:
        return self

    def close(self) -> None:
        """Nova's driver keeps the connection."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def getDomainCapabilities(  # noqa: N802 - likewise
        self, emulator: None, architecture: str, machine: str | None, kind: str
    ) -> Any:
        if architecture == "x86_64":
            return self._connection.getDomainCapabilities(
                emulator, architecture, machine or "pc", kind, 0
            )
        # It has one document for each other architecture, with one machine
        # type, and of KVM.
        document = self._connection.getDomainCapabilities(
            emulator, architecture, None, kind, 0
        )
        return document.replace(
            "<domain>kvm</domain>", f"<domain>{kind}</domain>"
        )


def _settings() -> LibvirtSettings:
    """Read the options of the running test as those of a nova.conf."""
    from nova.conf import CONF  # noqa: PLC0415 - as above

    lines = []
    for group, option in _LIBVIRT_OPTIONS:
        value = CONF[group][option] if group != "DEFAULT" else CONF[option]
        if isinstance(value, (list, tuple)):
            value = ",".join(value)
        if value is not None:
            lines.append(f"[{group}]\n{option} = {value}\n")
    with NamedTemporaryFile("w", suffix=".conf") as file:
        file.write("".join(lines))
        file.flush()
        found = libvirt_settings(load_conf(file.name))
    return replace(found, built_by_nova=True, nova_release=_RELEASE)
