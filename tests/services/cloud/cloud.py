"""A cloud on loopback ports: a real Placement, Glance and Nova API, each behind a recorder, and a clouds.yaml."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import requests
import yaml

from os_prefilter.adapters.cloud.connection import connect
from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.fleet.reader import example_fleet
from tests.services.cloud.others import Others, others
from tests.services.cloud.recorder import Recorder, recorded
from tests.services.cloud.services import glance, nova, send
from tests.support.placements import Served, served

_NEWEST = {"OpenStack-API-Version": "compute 2.100"}
_PATIENCE = 120


class Cloud:
    """What runs, and what its users and administrators do."""

    def __init__(self, folder: Path, placement: Served, glance: Recorder, nova: Recorder, others: Others) -> None:
        self.folder = folder
        self.placement = placement
        self.glance = glance
        self.nova = nova
        self.others = others
        self._names = 0
        token = {"auth_type": "admin_token", "region_name": "one", "identity_api_version": "3"}
        urls = {
            "placement_endpoint_override": placement.url,
            "image_endpoint_override": glance.url,
            "compute_endpoint_override": f"{nova.url}/v2.1",
            "block_storage_endpoint_override": others.url,
        }
        clouds: dict[str, dict[str, Any]] = {
            name: {**token, **urls, "auth": {"endpoint": nova.url, "token": name}}
            for name in ("admin", "reader", "nobody")
        }
        clouds["down"] = {**clouds["admin"], "image_endpoint_override": "http://127.0.0.1:1"}
        others.catalog = {"placement": placement.url, "image": glance.url, "compute": f"{nova.url}/v2.1"}
        login = {
            "auth_url": f"{others.url}/v3",
            "username": "operator",
            "password": "secret",
            "project_name": "project",
        }
        domains = {"user_domain_id": "default", "project_domain_id": "default"}
        clouds["login"] = {"auth_type": "password", "region_name": "one", "auth": {**login, **domains}}
        path = folder / "clouds.yaml"
        path.write_text(yaml.safe_dump({"clouds": clouds}), encoding="utf-8")
        self.environment: Mapping[str, str] = {"OS_CLIENT_CONFIG_FILE": str(path)}

    def connection(self, name: str = "admin") -> Any:
        """Return a connection as the user whose token has this name."""
        return connect(name)

    def forget(self) -> None:
        """Undo what a test did to the requests, and forget them."""
        for service in (self.glance, self.nova):
            service.forget()
        self.placement.sent.clear()
        self.placement.answer = lambda _method, _url: None

    @property
    def written(self) -> list[str]:
        """Each request since then that could have changed anything."""
        sent = [*self.glance.sent, *self.nova.sent, *self.placement.sent]
        return [each for each in sent if not each.startswith("GET ")]

    def image(self, name: str, *, active: bool = False, **fields: Any) -> str:
        """Make an image, with data if it is to be active; return its ID."""
        body = {"name": name, "disk_format": "raw", "container_format": "bare", **fields}
        image = str(send("POST", f"{self.glance.real}/v2/images", body)["id"])
        if active:
            headers = {"X-Auth-Token": "admin", "Content-Type": "application/octet-stream"}
            url = f"{self.glance.real}/v2/images/{image}/file"
            with requests.Session() as http:
                http.trust_env = False
                assert http.put(url, data=b"x", headers=headers, timeout=60).ok
        return image

    def delete_image(self, image: str) -> None:
        """Take an image away."""
        send("DELETE", f"{self.glance.real}/v2/images/{image}")

    def flavor(self, name: str, flavor_id: str, extra_specs: Mapping[str, str] | None = None, **fields: Any) -> None:
        """Make a flavor."""
        body = {"name": name, "id": flavor_id, "ram": 512, "vcpus": 1, "disk": 1, **fields}
        url = f"{self.nova.real}/v2.1/flavors"
        send("POST", url, {"flavor": body}, **_NEWEST)
        if extra_specs:
            send("POST", f"{url}/{flavor_id}/os-extra_specs", {"extra_specs": dict(extra_specs)}, **_NEWEST)

    def server(self, flavor_id: str, image: str = "", volume: str = "") -> str:
        """Create a server, which stays unbuilt; return its ID."""
        body: dict[str, Any] = {"name": "server", "imageRef": image, "flavorRef": flavor_id, "networks": "none"}
        if volume:
            root = {"boot_index": 0, "uuid": volume, "source_type": "volume", "destination_type": "volume"}
            body["block_device_mapping_v2"] = [root]
        return str(send("POST", f"{self.nova.real}/v2.1/servers", {"server": body}, **_NEWEST)["server"]["id"])

    def aggregate(self, name: str, zone: str | None = None) -> str:
        """Make a host aggregate; return its UUID."""
        body = {"aggregate": {"name": name, "availability_zone": zone}}
        return str(send("POST", f"{self.nova.real}/v2.1/os-aggregates", body, **_NEWEST)["aggregate"]["uuid"])

    def openstack(self, *argv: str, cloud: str = "admin") -> "subprocess.CompletedProcess[str]":
        """Run the real openstack client as a program."""
        program = str(Path(sys.executable).with_name("openstack"))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
        return subprocess.run(
            [program, *(["--os-cloud", cloud] if cloud else []), *argv],
            env={**environment, **self.environment},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
        )


@contextmanager
def cloud_running(folder: Path) -> Iterator[Cloud]:
    """Run a cloud with the example fleet in its Placement; at the end of the context nothing of it is left."""
    with ExitStack() as ending:
        placement = ending.enter_context(served(ending.enter_context(EmbeddedPlacement(example_fleet()))))
        beside = ending.enter_context(others())
        images = ending.enter_context(glance(folder))
        compute = ending.enter_context(nova(folder, images.url, beside.url))
        recorders = [ending.enter_context(recorded(each.url)) for each in (images, compute)]
        yield Cloud(folder, placement, recorders[0], recorders[1], beside)
