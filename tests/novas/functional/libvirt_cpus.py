# SPDX-License-Identifier: Apache-2.0

"""Which destination Nova tries first in live migrations, if its hosts have
four kinds of CPU, with Nova's own libvirt driver on its fake libvirt.

Nova compares the CPUs (``check_can_live_migrate_destination``); only libvirt's
verdict is replaced: a host has all features of the other one, or lacks some.
This is a program of unittest, which ``test_moves.py`` runs: Nova has one
configuration for a process.
"""

from __future__ import annotations

import logging
import os
import re
import sysconfig
import time
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "true"
os.environ["OS_WSGI__API_PASTE_CONFIG"] = str(
    Path(sysconfig.get_path("data"), "etc", "nova", "api-paste.ini")
)
os.environ["OS_API__RESPONSE_VALIDATION"] = "ignore"


import fixtures
import nova.tests.functional  # noqa: F401
from defusedxml.ElementTree import fromstring
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token
from nova import conf, exception
from nova.tests.fixtures import libvirt as fakelibvirt
from nova.tests.functional.libvirt import base
from nova.virt.libvirt.driver import LibvirtDriver

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.hosts.desired_traits import Mode, goal_of
from os_prefilter.hosts.drivers.libvirt_facts import GuestFacts, LibvirtFacts
from os_prefilter.service.conf import register_opts
from tests.support.every_trait import CUSTOM_TRAITS, EVERY_KEY
from tests.support.hosts import NEW

MOVES = 10
_DEADLINE = 30.0
_HASWELL = frozenset(("sse4.2", "avx2", "hle"))
_BROADWELL = _HASWELL | {"adx"}
_CPUS = {
    "haswell": _HASWELL,
    # Nova has no trait of the feature that it has more.
    "broadwell": _BROADWELL,
    "skylake": _BROADWELL | {"avx512f"},
    # Its traits are those of haswell and one more; it lacks hle.
    "rome": frozenset(("sse4.2", "avx2", "sha-ni")),
}
_HOSTS = (
    "haswell-1",
    "haswell-2",
    "haswell-3",
    "broadwell-1",
    "broadwell-2",
    "skylake-1",
    "skylake-2",
    "rome-1",
)


def _features_of(host: str) -> frozenset[str]:
    return _CPUS[host.partition("-")[0]]


class _Connection(fakelibvirt.Connection):  # type: ignore[misc]
    """Nova's fake libvirt with the CPU of the host's name."""

    def getCapabilities(self) -> str:  # noqa: N802 - libvirt's names
        """Return Nova's fake ones, with the features of this host's CPU."""
        text = re.sub("<feature name='.*'/>", "", super().getCapabilities())
        features = "".join(
            f"<feature name='{name}'/>"
            for name in sorted(_features_of(self.hostname))
        )
        return text.replace("</vendor>", f"</vendor>{features}")

    def baselineCPU(self, cpus: list[str], _flag: int) -> str:  # noqa: N802
        """Return the CPU with its features, which it names already."""
        return cpus[0]

    def compareCPU(self, xml: str, _flags: int) -> int:  # noqa: N802
        needed = {each.get("name") for each in fromstring(xml).iter("feature")}
        if needed <= _features_of(self.hostname):
            return int(fakelibvirt.VIR_CPU_COMPARE_SUPERSET)
        return int(fakelibvirt.VIR_CPU_COMPARE_INCOMPATIBLE)


class Moves(base.ServersTestBase):  # type: ignore[misc]
    """Servers that leave hosts by chance, and where Nova tries to send them
    first.
    """

    microversion = "latest"
    ADMIN_API = True
    CAST_AS_CALL = False
    scheduler: Any

    def setUp(self) -> None:
        # Nova logs at this level whatever its configuration says.
        logging.disable(logging.DEBUG)
        super().setUp()
        self.flags(instances=-1, cores=-1, ram=-1, group="quota")
        # As in cloud.py: hundreds of idle threads would wake up every 10 ms.
        idle = "futurist._thread.ThreadWorker.MAX_IDLE_FOR"
        self.useFixture(fixtures.MonkeyPatch(idle, 1.0))
        self.tried: list[tuple[str, bool]] = []
        compare = LibvirtDriver._compare_cpu

        def comparing(driver: Any, *given: Any) -> None:
            host = driver._host.get_connection().hostname
            try:
                compare(driver, *given)
            except exception.InvalidCPUInfo:
                self.tried.append((host, False))
                raise
            self.tried.append((host, True))

        def migrate(
            domain: Any, destination: str, params: Any, flags: int
        ) -> None:
            """Start the guest on the other host, as libvirt does."""
            host = urlsplit(destination).hostname
            there = self.computes[host].driver._host.get_connection()
            there.createXML(params["destination_xml"], flags)
            domain.complete_job()

        for target, name, replacement in (
            (fakelibvirt, "Connection", _Connection),
            (fakelibvirt.Domain, "migrateToURI3", migrate),
            (LibvirtDriver, "_compare_cpu", comparing),
        ):
            self.enterContext(mock.patch.object(target, name, replacement))
        for host in _HOSTS:
            cpus = fakelibvirt.HostInfo(cpu_cores=7, cpu_threads=2)
            self.start_compute(host, host_info=cpus)
        self.flavor = self._create_flavor(
            memory_mb=64, vcpu=1, disk=1, ephemeral=0
        )

    def activate(self) -> None:
        """Run the scheduler with the library and its weigher."""
        self.scheduler.stop()
        register_opts(conf.CONF)
        self.flags(
            available_filters=[
                "nova.scheduler.filters.all_filters",
                "os_prefilter.nova.activate",
            ],
            weight_classes=[
                "nova.scheduler.weights.all_weighers",
                "os_prefilter.nova.PreferredTraits",
            ],
            group="filter_scheduler",
        )
        self.flags(enabled_filters=["noop"], group="prefilter")
        self.scheduler = self.start_service("scheduler")

    def report_groups(self) -> None:
        """Write to Placement what the hosts' agents report of their CPUs."""
        endpoint = self.placement_fixture.endpoint
        session = Session(auth=Token(endpoint, "admin"))
        adapter = Adapter(session, service_type="placement")
        placement = PlacementClient(adapter)
        placement.ensure_traits(CUSTOM_TRAITS)
        for host in _HOSTS:
            cpu = " ".join(sorted(_features_of(host)))
            facts = LibvirtFacts(
                host=host,
                architecture="x86_64",
                virt_type="kvm",
                libvirt_version=NEW[0],
                guests={"x86_64": GuestFacts(host_model=cpu)},
            )
            goal = goal_of(facts, EVERY_KEY, Mode.BESIDE)
            ProviderTraits(placement, host).sync(goal)

    def move(self, source: str) -> bool:
        """Move a new server of this host live; return whether the first
        destination passed Nova's comparison.
        """
        server = self._create_server(
            networks="none", host=source, flavor_id=self.flavor
        )
        self.tried.clear()
        self.api.post_server_action(
            server["id"],
            {"os-migrateLive": {"host": None, "block_migration": "auto"}},
        )
        self._wait_for_the_end(server["id"])
        host = self.api.get_server(server["id"])["OS-EXT-SRV-ATTR:host"]
        fitting = {
            other
            for other in _HOSTS
            if other != source and _features_of(source) <= _features_of(other)
        }
        # No host is excluded: without one that fits, all others are tried.
        if fitting:
            assert host in fitting
        else:
            assert host == source
            assert {each for each, _ in self.tried} == {*_HOSTS} - {source}
        return self.tried[0][1]

    def _wait_for_the_end(self, uuid: str) -> None:
        deadline = time.monotonic() + _DEADLINE
        while time.monotonic() < deadline:
            server = self.api.get_server(uuid)
            url = f"/os-migrations?instance_uuid={uuid}"
            moves = self.api.api_get(url).body["migrations"]
            # There is none until the conductor has begun.
            statuses = [each["status"] for each in moves]
            has_ended = statuses in (["completed"], ["error"])
            if has_ended and server["OS-EXT-STS:task_state"] is None:
                return
            time.sleep(0.1)
        raise TimeoutError(f"the server still moves: {statuses}, {server}")

    def count(self) -> tuple[int, int]:
        """Return the moves for which a host fits, and those in which the first
        one did.
        """
        chance = Random(56)  # noqa: S311 - no secret
        possible = first = 0
        for _ in range(MOVES):
            source = chance.choice(_HOSTS)
            possible += source != "rome-1"
            first += self.move(source)
        return possible, first

    def test_first_destination_passes_novas_comparison_where_one_does(
        self,
    ) -> None:
        """Without the library 99 of 176 did; which of ten do is chance."""
        self.activate()
        self.report_groups()
        possible, first = self.count()
        assert first == possible
