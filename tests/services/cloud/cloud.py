# SPDX-License-Identifier: Apache-2.0

"""A cloud on loopback ports: a real Keystone, Placement, Glance and Nova API,
and a clouds.yaml.

A recorder stands before each service. The service catalogue has the recorders
as public endpoints, and the services themselves as internal ones.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import openstack
import yaml

from os_prefilter_agent.adapters.connection import connect
from tests.services.cloud import services
from tests.services.cloud.others import Others, others
from tests.services.cloud.services import (
    PASSWORD,
    REGION,
    SERVICE_USER,
    Service,
)
from tests.services.recorder import Recorder, recorded
from tests.support.pages import DOCS, blocks, files_of, prints, stripped
from tests.support.zipping import zip_equal

_NEWEST = {"OpenStack-API-Version": "compute 2.100"}
_PATIENCE = 120
EMPTY_REGION = "two"
"""A region whose only service is Keystone."""


class Cloud:
    def __init__(self, folder: Path, identity: Recorder) -> None:
        self.folder = folder
        self.keystone = identity
        self.placement, self.glance, self.nova = (
            Recorder(""),
            Recorder(""),
            Recorder(""),
        )
        self.others = Others()
        path = folder / "clouds.yaml"
        self.environment: Mapping[str, str] = {
            "OS_CLIENT_CONFIG_FILE": str(path)
        }
        self._clouds: dict[str, dict[str, Any]] = {}
        self.add_cloud("admin", self.login("admin", project_name="admin"))
        # The catalogue is still empty.
        override: dict[str, Any] = {
            "identity_endpoint_override": f"{identity.real}/v3",
            "identity_api_version": "3",
        }
        self.admin = openstack.connect(
            load_yaml_config=False,
            load_envvars=False,
            **self._clouds["admin"],
            **override,
        )
        """The administrator's connection to Keystone."""

    def login(
        self, user: str, *, user_domain_id: str = "default", **scope: str
    ) -> dict[str, str]:
        scope = {
            **scope,
            **(
                {"project_domain_id": "default"}
                if "project_name" in scope
                else {}
            ),
        }
        login = {
            "username": user,
            "password": PASSWORD,
            "user_domain_id": user_domain_id,
        }
        return {"auth_url": f"{self.keystone.url}/v3", **login, **scope}

    def add_cloud(
        self,
        name: str,
        auth: Mapping[str, str],
        auth_type: str = "password",
        **options: Any,
    ) -> None:
        self._clouds[name] = {
            "auth_type": auth_type,
            "region_name": REGION,
            "auth": dict(auth),
            **options,
        }
        Path(self.environment["OS_CLIENT_CONFIG_FILE"]).write_text(
            yaml.safe_dump({"clouds": self._clouds}), encoding="utf-8"
        )

    def send(
        self,
        method: str,
        service: Recorder,
        path: str,
        body: object = None,
        **headers: str,
    ) -> Any:
        """Send a request as an administrator to a service itself; return the
        JSON that comes back.
        """
        data = {"data": body} if isinstance(body, bytes) else {"json": body}
        url = service.real + path
        response = self.admin.session.request(
            url, method, headers=headers, raise_exc=False, **data
        )
        assert response.ok, response.text
        return response.json() if response.content else None

    def connection(self, name: str = "admin") -> Any:
        return connect(name)

    @property
    def services(self) -> tuple[Recorder, ...]:
        """Return the recorders of those that a command reads, beside
        Keystone.
        """
        return self.placement, self.glance, self.nova

    def forget(self) -> None:
        for service in (self.keystone, *self.services):
            service.forget()

    @property
    def written(self) -> list[str]:
        """Each request since then that could have changed anything; a login is
        none.
        """
        return [
            each
            for service in (self.keystone, *self.services)
            for each in service.written
        ]

    def image(self, name: str, *, active: bool = False, **fields: Any) -> str:
        """Make an image, with data if it is to be active; return its ID."""
        body = {
            "name": name,
            "disk_format": "raw",
            "container_format": "bare",
            **fields,
        }
        image = str(self.send("POST", self.glance, "/v2/images", body)["id"])
        if active:
            octets = {"Content-Type": "application/octet-stream"}
            self.send(
                "PUT", self.glance, f"/v2/images/{image}/file", b"x", **octets
            )
        return image

    def delete_image(self, image: str) -> None:
        self.send("DELETE", self.glance, f"/v2/images/{image}")

    def flavor(
        self,
        name: str,
        flavor_id: str,
        extra_specs: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> None:
        body = {
            "name": name,
            "id": flavor_id,
            "ram": 512,
            "vcpus": 1,
            "disk": 1,
            **fields,
        }
        self.send(
            "POST", self.nova, "/v2.1/flavors", {"flavor": body}, **_NEWEST
        )
        if extra_specs:
            path = f"/v2.1/flavors/{flavor_id}/os-extra_specs"
            self.send(
                "POST",
                self.nova,
                path,
                {"extra_specs": dict(extra_specs)},
                **_NEWEST,
            )

    def server(self, flavor_id: str, image: str = "", volume: str = "") -> str:
        """Create a server, which stays unbuilt; return its ID."""
        body: dict[str, Any] = {
            "name": "server",
            "imageRef": image,
            "flavorRef": flavor_id,
            "networks": "none",
        }
        if volume:
            root = {
                "boot_index": 0,
                "uuid": volume,
                "source_type": "volume",
                "destination_type": "volume",
            }
            body["block_device_mapping_v2"] = [root]
        return str(
            self.send(
                "POST", self.nova, "/v2.1/servers", {"server": body}, **_NEWEST
            )["server"]["id"]
        )

    def delete_servers(self) -> None:
        """Take all servers away: those of the tests before."""
        while servers := self.send(
            "GET", self.nova, "/v2.1/servers?all_tenants=1", **_NEWEST
        )["servers"]:
            for server in servers:
                self.send(
                    "DELETE",
                    self.nova,
                    f"/v2.1/servers/{server['id']}",
                    **_NEWEST,
                )

    def aggregate(self, name: str, zone: str | None = None) -> str:
        """Make a host aggregate; return its UUID."""
        body = {"aggregate": {"name": name, "availability_zone": zone}}
        return str(
            self.send(
                "POST", self.nova, "/v2.1/os-aggregates", body, **_NEWEST
            )["aggregate"]["uuid"]
        )

    def openstack(
        self, *argv: str, cloud: str = "admin"
    ) -> subprocess.CompletedProcess[str]:
        """Run the real openstack client as a program."""
        program = str(Path(sys.executable).with_name("openstack"))
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("OS_")
        }
        return subprocess.run(
            [program, *(["--os-cloud", cloud] if cloud else []), *argv],
            env={**environment, **self.environment},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
        )

    def check_examples(self, page: Path) -> int:
        """Run the examples of a page with the client, and compare what they
        print; return how many it has.
        """
        text = "".join(
            text for language, _, text in blocks(page) if language == "console"
        )
        parts = re.split(r"^\$ (.*)\n?", text, flags=re.MULTILINE)[1:]
        examples = list(zip_equal(parts[::2], parts[1::2]))
        codes = [
            output.strip() if command == "echo $?" else "0"
            for command, output in examples[1:]
        ]
        ours = [
            each
            for each in zip_equal(examples, [*codes, "0"])
            if each[0][0].startswith("openstack ")
        ]
        for (command, output), code in ours:
            done = self.openstack(*shlex.split(command)[1:])
            found = stripped(done.stderr + done.stdout)
            assert (str(done.returncode), command) == (code, command), found
            assert prints(output, found), found
        return len(ours)


def _register(cloud: Cloud, identity: Service) -> None:
    """Register the services in Keystone's catalogue, and the user as whom they
    log in.
    """
    catalogue = {
        "identity": (f"{cloud.keystone.url}/v3", f"{identity.url}/v3"),
        "placement": (cloud.placement.url, cloud.placement.real),
        "image": (cloud.glance.url, cloud.glance.real),
        "compute": (f"{cloud.nova.url}/v2.1", f"{cloud.nova.real}/v2.1"),
        "block-storage": (f"{cloud.others.url}/v3",) * 2,
        "network": (f"{cloud.others.url}/v2.0",) * 2,
    }
    api: Any = cloud.admin.identity
    api.create_region(id=EMPTY_REGION)
    # The identity service itself is there: keystone-manage bootstrap makes it.
    made = {each.type: each for each in api.services()}
    for kind, urls in catalogue.items():
        service = made.get(kind) or api.create_service(type=kind, name=kind)
        for region in (
            (REGION, EMPTY_REGION) if kind == "identity" else (REGION,)
        ):
            for interface, url in zip_equal(("public", "internal"), urls):
                api.create_endpoint(
                    service_id=service.id,
                    interface=interface,
                    url=url,
                    region_id=region,
                )
    _create_user(
        cloud,
        SERVICE_USER,
        "service",
        project=api.create_project(name=SERVICE_USER, domain_id="default"),
    )


def _create_user(
    cloud: Cloud,
    name: str,
    *roles: str,
    project: Any = None,
    domain: Any = None,
) -> None:
    """Create a user with roles on a project of the domain "default", or on a
    domain that is the user's own as well.
    """
    api: Any = cloud.admin.identity
    user = api.create_user(
        name=name,
        password=PASSWORD,
        domain_id=domain.id if domain else "default",
    )
    for role in roles:
        found = api.find_role(role) or api.create_role(name=role)
        if domain:
            api.assign_domain_role_to_user(domain, user, found)
        else:
            api.assign_project_role_to_user(project, user, found)


def _create_users(cloud: Cloud) -> None:
    """Create the users of the tests, with a cloud of the same name for each in
    clouds.yaml.
    """
    api: Any = cloud.admin.identity
    domain = api.create_domain(name="customers")
    tenant = api.create_project(name="tenant", domain_id="default")
    _create_user(cloud, "operator", "admin", domain=domain)
    cloud.add_cloud(
        "operator",
        cloud.login(
            "operator", user_domain_id=domain.id, domain_name="customers"
        ),
    )
    _create_user(cloud, "reader", "reader", project=tenant)
    cloud.add_cloud("reader", cloud.login("reader", project_name="tenant"))
    _create_user(
        cloud, "prefilter", "reader", "prefilter_reader", project=tenant
    )
    cloud.add_cloud(
        "prefilter", cloud.login("prefilter", project_name="tenant")
    )
    cloud.add_cloud("system", cloud.login("admin", system_scope="all"))
    cloud.add_cloud(
        "wrong-password",
        {**cloud.login("admin", project_name="admin"), "password": "wrong"},
    )
    admin = cloud.login("admin", project_name="admin")
    cloud.add_cloud("elsewhere", admin, region_name=EMPTY_REGION)
    cloud.add_cloud(
        "down", admin, image_endpoint_override="http://127.0.0.1:1"
    )
    add_application_credential(cloud, "application-credential")
    rules = json.loads(files_of(DOCS / "fleet.rst")["access-rules.json"])
    add_application_credential(cloud, "read-only", access_rules=rules)


def add_application_credential(cloud: Cloud, name: str, **fields: Any) -> None:
    """Create an application credential of the administrator, with a cloud of
    the same name in clouds.yaml.
    """
    user = cloud.admin.session.get_user_id()
    api: Any = cloud.admin.identity
    made = api.create_application_credential(user, name, **fields)
    secret = {
        "application_credential_id": made.id,
        "application_credential_secret": made.secret,
    }
    cloud.add_cloud(
        name,
        {"auth_url": f"{cloud.keystone.url}/v3", **secret},
        "v3applicationcredential",
    )


@contextmanager
def cloud_running(folder: Path) -> Iterator[Cloud]:
    """Run a cloud with the example fleet in its Placement; at the end of the
    context nothing of it is left.
    """
    with ExitStack() as ending:
        databases = ending.enter_context(services.schemas(folder))
        identity = ending.enter_context(services.keystone(folder))
        cloud = Cloud(folder, ending.enter_context(recorded(identity.url)))
        ending.callback(cloud.admin.close)
        cloud.others = ending.enter_context(others())
        for database in databases:
            database.succeed()
        started = [
            ending.enter_context(services.placement(folder, identity.url)),
            ending.enter_context(services.glance(folder, identity.url)),
            ending.enter_context(
                services.nova(folder, identity.url, cloud.others.url)
            ),
        ]
        cloud.placement, cloud.glance, cloud.nova = (
            ending.enter_context(recorded(each.url)) for each in started
        )
        _register(cloud, identity)
        _create_users(cloud)
        for service in started:
            service.wait()
        cloud.forget()
        yield cloud
