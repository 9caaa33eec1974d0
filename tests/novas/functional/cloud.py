# SPDX-License-Identifier: Apache-2.0

"""A Nova in this process: API, conductor, scheduler, and a nova-compute on
each host, with a real Placement.
"""

from __future__ import annotations

import sysconfig
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import fixtures
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token
from nova import conf, test
from nova.scheduler import request_filter
from nova.tests import fixtures as nova_fixtures
from nova.tests.functional.fixtures import PlacementFixture

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.hosts.reporter import HostFacts
from tests.novas.functional.hosts import (
    ATTEMPTS,
    DRIVERS,
    FACTS,
    MACHINE_TYPES,
    HostDriver,
    report,
    report_host,
)

_NOVA = f"""
[DEFAULT]
compute_driver = fake.HostDriver
[api]
response_validation = ignore
[filter_scheduler]
weight_classes = nova.scheduler.weights.ram.RAMWeigher
[notifications]
notification_format = unversioned
[quota]
instances = -1
cores = -1
ram = -1
[wsgi]
api_paste_config = {Path(sysconfig.get_path("data"), "etc", "nova", "api-paste.ini")}
"""
# All that activates the library.
_ACTIVATION = """
[filter_scheduler]
available_filters = nova.scheduler.filters.all_filters
available_filters = os_prefilter.nova.activate
[prefilter]
enabled_filters = image_metadata,image_type,hpet,owner,deploy_config,compute_status,server_options
reported_traits = *
unknown_values = reject
"""
_WEIGHER = """
[filter_scheduler]
weight_classes = nova.scheduler.weights.ram.RAMWeigher,os_prefilter.nova.PreferredTraits
"""
# Nova's default, and what checks rebuilds.
_REBUILD_FILTER = """
[filter_scheduler]
enabled_filters = \
ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter,\
RebuildFilter
"""
_NOVAS_FILTERS = tuple(request_filter.ALL_REQUEST_FILTERS)
_LIST_OF_FILTERS = "nova.scheduler.request_filter.ALL_REQUEST_FILTERS"
_DEADLINE = 60.0
# Seconds. Each question takes longer to answer than all else that happens
# meanwhile.
_INTERVAL = 0.3


class Server(NamedTuple):
    uuid: str
    status: str
    host: str | None
    attempts: tuple[str, ...]
    """The hosts that tried to start it, in order."""
    machine_types: tuple[str | None, ...]
    """What it got there, each time."""
    fault: str
    """What its user is told about a failure."""


class Cloud:
    def __init__(self, case: Any) -> None:
        self._case = case
        self._conf = Path(
            case.useFixture(fixtures.TempDir()).path, "nova.conf"
        )
        self._conf.write_text(_NOVA + _ACTIVATION + _REBUILD_FILTER)
        conf.CONF([], project="nova", default_config_files=[str(self._conf)])
        self._placement, self._glance = _start(case)
        api = case.useFixture(nova_fixtures.OSAPIFixture())
        self._user, self._admin = api.api, api.admin_api
        self._admin.microversion = "latest"
        # The first in which a server may have no network; its answers are
        # short.
        self._user.microversion = "2.37"
        self._flavors: dict[str, str] = {}

    @contextmanager
    def not_activated(self) -> Iterator[None]:
        """Run the scheduler without the library while the context lasts."""
        with (
            fixtures.MonkeyPatch(_LIST_OF_FILTERS, list(_NOVAS_FILTERS)),
            self._scheduler_with(""),
        ):
            yield

    @contextmanager
    def weighing_cpus(
        self, traits: Mapping[str, Collection[str]]
    ) -> Iterator[None]:
        """Report CPU traits of hosts, and run the scheduler with the weigher,
        while the context lasts.
        """
        for host, cpu in traits.items():
            self._change_cpu(host, cpu)
        with self._scheduler_with(_WEIGHER + _ACTIVATION + _REBUILD_FILTER):
            yield
        for host in traits:
            self._change_cpu(host, ())

    def _change_cpu(self, host: str, traits: Collection[str]) -> None:
        uuid = self._placement.provider_named(host).uuid
        generation, before = self._placement.provider_traits(uuid)
        others = {each for each in before if not each.startswith("HW_CPU_")}
        self._placement.set_provider_traits(
            uuid, generation, others.union(traits)
        )

    @contextmanager
    def _scheduler_with(self, activation: str) -> Iterator[None]:
        self._restart_scheduler(activation)
        yield
        self._restart_scheduler(_ACTIVATION + _REBUILD_FILTER)

    def _restart_scheduler(self, activation: str) -> None:
        self._case.scheduler.stop()
        self._conf.write_text(_NOVA + activation)
        conf.CONF.reload_config_files()
        self._case.scheduler = self._case.start_service("scheduler")

    @contextmanager
    def down(self, host: str) -> Iterator[None]:
        """Take the compute service of a host for dead while the context
        lasts.
        """
        computes = self._case.computes
        service = self._service(host)
        computes[host].stop()
        self._admin.put_service(service, {"forced_down": True})
        yield
        # Nova wants it restarted before it is taken for alive.
        computes[host] = self._case.restart_compute_service(computes[host])
        self._admin.put_service(service, {"forced_down": False})

    def _service(self, host: str) -> str:
        return str(
            self._admin.get_services(host=host, binary="nova-compute")[0]["id"]
        )

    @contextmanager
    def x86_guests(self, *hosts: str, **changes: Any) -> Iterator[None]:
        """Change what these hosts can give to x86 guests, and report it, while
        the context lasts.

        :param changes: fields of
            :class:`os_prefilter.hosts.drivers.libvirt_facts.GuestFacts`
        """
        before = {host: DRIVERS[host].facts for host in hosts}
        for facts in before.values():
            assert isinstance(facts, LibvirtFacts)
            self._becomes(
                replace(
                    facts,
                    guests={
                        "x86_64": replace(facts.guests["x86_64"], **changes)
                    },
                )
            )
        try:
            yield
        finally:
            for facts in before.values():
                self._becomes(facts)

    def _becomes(self, facts: HostFacts) -> None:
        DRIVERS[facts.host].facts = facts
        report_host(self._placement, facts)

    def flavor(self, extra_specs: Mapping[str, str] | None = None) -> str:
        name = f"flavor {dict(extra_specs or {})}"
        if name not in self._flavors:
            body = {"name": name, "ram": 64, "vcpus": 1, "disk": 1}
            flavor_id = str(self._admin.post_flavor({"flavor": body})["id"])
            if extra_specs:
                self._admin.post_extra_spec(
                    flavor_id, {"extra_specs": dict(extra_specs)}
                )
            self._flavors[name] = flavor_id
        return self._flavors[name]

    def image(
        self,
        properties: Mapping[str, str] | None = None,
        disk_format: str = "raw",
    ) -> str:
        """Create an image; return its ID."""
        sizes = {
            "container_format": "bare",
            "min_ram": 0,
            "min_disk": 0,
            "properties": dict(properties or {}),
        }
        state = {
            "visibility": "public",
            "protected": False,
            "tags": [],
            "deleted": False,
            "deleted_at": None,
        }
        return str(
            self._glance.create(
                None,
                {
                    "name": "image",
                    "disk_format": disk_format,
                    **sizes,
                    **state,
                },
            )["id"]
        )

    def server(
        self,
        properties: Mapping[str, str] | None = None,
        extra_specs: Mapping[str, str] | None = None,
        disk_format: str = "raw",
        **options: Any,
    ) -> Server:
        """Create an image and a server from it; return the server when it is
        active or has failed.

        :param options: what else is asked of the API; block devices are of the
            image
        """
        image = self.image(properties, disk_format)
        body = self._body(image, self.flavor(extra_specs))
        for device in options.get("block_device_mapping_v2", ()):
            device["uuid"] = image
        # Older microversions refuse most of them.
        api = self._admin if options else self._user
        return self._wait(
            str(api.post_server({"server": body | options})["id"]), "ACTIVE"
        )

    def attach_share(self, server: Server) -> None:
        """Attach a share to a server that is shut off, and wait for it."""
        share = {"share": {"share_id": str(uuid4())}}
        self._admin.post_server_share(server.uuid, share)
        deadline = time.monotonic() + _DEADLINE
        url = f"/servers/{server.uuid}/shares"
        while time.monotonic() < deadline:
            (found,) = self._admin.api_get(url).body["shares"]
            if found["status"] == "inactive":
                return
            time.sleep(_INTERVAL)
        raise TimeoutError(f"the share is not attached: {found}")

    @staticmethod
    def _body(image: str, flavor: str) -> dict[str, str]:
        return {
            "name": "server",
            "imageRef": image,
            "flavorRef": flavor,
            "networks": "none",
        }

    def act(
        self, server: Server, action: Mapping[str, Any], status: str
    ) -> Server:
        """Let the administrator do something with a server; return it when it
        has this status, or has failed.
        """
        self._admin.post_server_action(server.uuid, dict(action))
        # Nova writes that a server was evacuated to another host after it says
        # that it has the status.
        return self._wait(
            server.uuid, status, server.host if "evacuate" in action else None
        )

    def why_nothing_happened(self, server: Server) -> str:
        """Return what ``openstack server event show`` says of the last action,
        which failed and left no fault.
        """
        deadline = time.monotonic() + _DEADLINE
        last = self._admin.get_instance_actions(server.uuid)[0]["request_id"]
        url = f"/servers/{server.uuid}/os-instance-actions/{last}"
        while time.monotonic() < deadline:
            events = self._admin.api_get(url).body["instanceAction"]["events"]
            failed = [
                each["details"] for each in events if each["result"] == "Error"
            ]
            if failed and all(each["result"] for each in events):
                return str(failed[0])
            time.sleep(_INTERVAL)
        raise TimeoutError(f"no event of {url} failed: {events}")

    def _wait(self, uuid: str, status: str, left: str | None = None) -> Server:
        """Return a server when it has this status and nothing is under way, or
        when it has failed.

        :param left: the host that it must have left; None for none
        """
        deadline = time.monotonic() + _DEADLINE
        shown: dict[str, Any] = {}
        while time.monotonic() < deadline:
            time.sleep(_INTERVAL)
            shown = self._user.get_server(uuid)
            host = self._admin.get_server(uuid)["OS-EXT-SRV-ATTR:host"]
            is_done = (
                shown["status"] == status
                and not shown["OS-EXT-STS:task_state"]
            )
            is_there = is_done and (left is None or host != left)
            # Nova writes the fault after the status.
            if is_there or (shown["status"] == "ERROR" and "fault" in shown):
                fault = shown.get("fault", {}).get("message", "")
                attempts, machine_types = (
                    tuple(ATTEMPTS[uuid]),
                    tuple(MACHINE_TYPES[uuid]),
                )
                return Server(
                    uuid, shown["status"], host, attempts, machine_types, fault
                )
        raise TimeoutError(
            f"the server is not {status} after {_DEADLINE} s, tried on"
            f" {ATTEMPTS[uuid]}: {shown}"
        )


@contextmanager
def cloud() -> Iterator[Cloud]:
    """Run a cloud; one at a time, for Nova keeps much in globals."""
    case = test.TestCase()
    try:
        case.setUp()
        running = Cloud(case)
        # Nova's tests let idle threads wake up every 10 ms, and there are
        # hundreds of them here.
        with fixtures.MonkeyPatch(
            "futurist._thread.ThreadWorker.MAX_IDLE_FOR", 1.0
        ):
            yield running
    finally:
        is_clean = case.doCleanups()
    assert is_clean, "Nova's services did not end well"


def _start(case: Any) -> tuple[PlacementClient, Any]:
    """Start everything but the API; return Placement and the fake Glance."""
    # A scheduler that ends takes its list of filters with it.
    case.useFixture(
        fixtures.MonkeyPatch(_LIST_OF_FILTERS, list(_NOVAS_FILTERS))
    )
    # Nova loads virt drivers from nowhere else.
    case.useFixture(
        fixtures.MonkeyPatch("nova.virt.fake.HostDriver", HostDriver)
    )
    endpoint = case.useFixture(PlacementFixture()).endpoint
    case.useFixture(nova_fixtures.NeutronFixture(case))
    case.useFixture(nova_fixtures.CinderFixture(case))
    case.useFixture(nova_fixtures.ManilaFixture())
    case.useFixture(nova_fixtures.RealPolicyFixture())
    case.start_service("conductor")
    case.scheduler = case.start_service("scheduler")
    for host in FACTS:
        case._start_compute(host)
    placement = PlacementClient(
        Adapter(
            Session(auth=Token(endpoint, "admin")), service_type="placement"
        )
    )
    report(placement)
    return placement, case.useFixture(nova_fixtures.GlanceFixture(case))
