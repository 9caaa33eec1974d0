# SPDX-License-Identifier: Apache-2.0

"""Nova's API and Glance, as programs beside the cloud: what its users and
administrators do.

Keystone is missing: who makes a request is in the headers that
keystonemiddleware would add.
"""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import requests

from tests.services.cloud.services import (
    glance,
    glance_schema,
    program_serving,
)
from tests.services.nova.cloud import DATABASES_CONF, Cloud
from tests.support.programs import until

# Of a Glance that asks for no login.
_GLANCE_POLICY = dict.fromkeys(
    (
        "add_image",
        "get_image",
        "modify_image",
        "publicize_image",
        "upload_image",
    ),
    "@",
)
_LOGIN = (
    "[filter:login]\npaste.filter_factory = tests.services.nova.login:login\n"
)
_USER = {"X-User-Id": "user", "X-Roles": "member,reader"}
_ADMIN = {"X-User-Id": "admin", "X-Roles": "admin,member,reader"}


@dataclass(frozen=True)
class Server:
    """What became of a server."""

    uuid: str
    status: str
    host: str | None
    fault: str
    """What its user reads of a failure."""


class Api:
    """What users and administrators of the cloud can do."""

    def __init__(self, nova: str, glance: str) -> None:
        self._nova = f"{nova}/v2.1"
        self._glance = f"{glance}/v2"
        self._http = requests.Session()
        self._http.trust_env = False
        catalog = [
            {
                "type": "image",
                "name": "glance",
                "endpoints": [{"publicURL": glance}],
            }
        ]
        self._project = {
            "X-Auth-Token": "of-tests",
            "X-Project-Id": "f" * 32,
            "X-Service-Catalog": json.dumps(catalog),
            "OpenStack-API-Version": "compute 2.95",
        }
        self.as_admin = {**self._project, **_ADMIN}
        """The headers of an administrator's request."""
        self.url, self.glance_url = self._nova, glance
        self._flavor = self.flavor()

    def flavor(
        self,
        size: Mapping[str, int] | None = None,
        extra_specs: Mapping[str, str] | None = None,
    ) -> str:
        """Make a small flavor, but for ``size``; return its ID. The cloud
        keeps it, and may have another like it.
        """
        flavor = {
            "name": f"small-{uuid4()}",
            "ram": 64,
            "vcpus": 1,
            "disk": 1,
            **(size or {}),
        }
        made = str(
            self._send("POST", "/flavors", {"flavor": flavor}, _ADMIN)[
                "flavor"
            ]["id"]
        )
        if extra_specs:
            self._send(
                "POST",
                f"/flavors/{made}/os-extra_specs",
                {"extra_specs": dict(extra_specs)},
                _ADMIN,
            )
        return made

    def group(self, policy: str) -> str:
        """Make a server group; return its ID."""
        body = {"server_group": {"name": policy, "policy": policy}}
        return str(
            self._send("POST", "/os-server-groups", body, _USER)[
                "server_group"
            ]["id"]
        )

    def move(
        self, server: Server, action: str, body: object
    ) -> tuple[str, str]:
        """Resize or migrate a server in vain; return its status, and what its
        action says to an administrator.
        """
        self._send(
            "POST", f"/servers/{server.uuid}/action", {action: body}, _ADMIN
        )
        shown = self._wait(server.uuid)
        actions = self._send(
            "GET", f"/servers/{server.uuid}/os-instance-actions", None, _ADMIN
        )["instanceActions"]
        request = next(
            each["request_id"]
            for each in actions
            if each["action"] in ("resize", "migrate", "live-migration")
        )
        path = f"/servers/{server.uuid}/os-instance-actions/{request}"

        # The conductor gives the server back before it ends its event.
        def ended() -> list[dict[str, Any]] | None:
            action = self._send("GET", path, None, _ADMIN)["instanceAction"]
            events: list[dict[str, Any]] = action["events"]
            is_ended = events and all(each["result"] for each in events)
            return events if is_ended else None

        events = until(ended, lambda: f"an event of {request} has no end")
        assert events
        details = [str(each.get("details")) for each in events]
        return shown.status, " ".join(details)

    def rebuild(self, server: str) -> Server:
        """Rebuild a server from another image, and wait for it."""
        # By 2.93 or later, Nova's Ironic driver takes each server for one on a
        # volume.
        who = {**_USER, "OpenStack-API-Version": "compute 2.92"}
        self._send(
            "POST",
            f"/servers/{server}/action",
            {"rebuild": {"imageRef": self.image({})}},
            who,
        )
        return self._wait(server)

    def image(self, properties: Mapping[str, str]) -> str:
        """Make an image; return its ID."""
        body = {
            "name": "image",
            "disk_format": "raw",
            "container_format": "bare",
            "visibility": "public",
            **properties,
        }
        image = self._http.post(f"{self._glance}/images", json=body)
        assert image.ok, image.text
        data = {"Content-Type": "application/octet-stream"}
        assert self._http.put(
            f"{self._glance}/images/{image.json()['id']}/file",
            b"x",
            headers=data,
        ).ok
        return str(image.json()["id"])

    def server(
        self,
        properties: Mapping[str, str] | None = None,
        flavor: str = "",
        number: int = 1,
        hints: Mapping[str, str] | None = None,
    ) -> Server:
        """Create servers from an image with these properties; return the first
        when it is active or has failed.
        """
        image = self.image(properties or {})
        body = {
            "name": "server",
            "imageRef": image,
            "flavorRef": flavor or self._flavor,
            "networks": "none",
        }
        asked = {
            "server": {**body, "min_count": number},
            "os:scheduler_hints": dict(hints or {}),
        }
        return self._wait(
            str(self._send("POST", "/servers", asked, _USER)["server"]["id"])
        )

    def _wait(self, uuid: str) -> Server:
        """Return a server when it is active, or has failed and has a fault,
        and nothing is under way.
        """

        def settled() -> dict[str, Any] | None:
            server: dict[str, Any] = self._send(
                "GET", f"/servers/{uuid}", None, _USER
            )["server"]
            # Nova writes the fault after the status.
            is_settled = (
                server["status"] == "ACTIVE"
                if server["status"] != "ERROR"
                else "fault" in server
            )
            return (
                server
                if is_settled and not server["OS-EXT-STS:task_state"]
                else None
            )

        shown = until(
            settled, lambda: f"{uuid} is still not built, nor has it failed"
        )
        assert shown
        host = self._send("GET", f"/servers/{uuid}", None, _ADMIN)["server"][
            "OS-EXT-SRV-ATTR:host"
        ]
        return Server(
            uuid,
            shown["status"],
            host,
            shown.get("fault", {}).get("message", ""),
        )

    def show(self, server: str) -> Mapping[str, Any]:
        """Return a server as its user sees it."""
        shown: Mapping[str, Any] = self._send(
            "GET", f"/servers/{server}", None, _USER
        )["server"]
        return shown

    def delete_servers(self) -> None:
        """Delete all servers, and wait until they are gone."""

        def there() -> list[Any]:
            servers: list[Any] = self._send("GET", "/servers", None, _USER)[
                "servers"
            ]
            return servers

        for each in there():
            self._send("DELETE", f"/servers/{each['id']}", None, _USER)
        until(lambda: not there(), lambda: f"these are not deleted: {there()}")
        # The next request opens it again.
        self._http.close()

    def set_service(self, host: str, **change: object) -> None:
        """Change the ``status`` of the nova-compute of a host, or say that it
        is ``forced_down``.
        """
        self._send(
            "PUT", f"/os-services/{self._service(host)}", change, _ADMIN
        )

    def delete_host(self, host: str) -> None:
        """Delete the nova-compute of a host, and its resource provider."""
        self._send(
            "DELETE", f"/os-services/{self._service(host)}", None, _ADMIN
        )

    def _service(self, host: str) -> str:
        services = self._send(
            "GET",
            f"/os-services?host={host}&binary=nova-compute",
            None,
            _ADMIN,
        )["services"]
        return str(services[0]["id"])

    def _send(
        self, method: str, path: str, body: object, who: Mapping[str, str]
    ) -> Any:
        response = self._http.request(
            method,
            self._nova + path,
            json=body,
            headers={**self._project, **who},
            timeout=120,
        )
        assert response.ok, response.text
        return response.json() if response.content else None


@contextmanager
def api_running(cloud: Cloud, folder: Path, more: str = "") -> Iterator[Api]:
    """Have Nova's API, with these lines in its nova.conf, and Glance up while
    the context lasts.
    """
    with ExitStack() as ending:
        schema = ending.enter_context(glance_schema(folder, login=""))
        (folder / "glance-policy.yaml").write_text(
            json.dumps(_GLANCE_POLICY), encoding="utf-8"
        )
        schema.succeed()
        images = ending.enter_context(glance(folder))
        conf = cloud.conf("api", DATABASES_CONF, more)
        paste = Path(
            sysconfig.get_path("data"), "etc", "nova", "api-paste.ini"
        ).read_text(encoding="utf-8")
        paste = f"{paste.replace(' authtoken ', ' login ')}\n{_LOGIN}"
        (conf.parent / "api-paste.ini").write_text(paste, encoding="utf-8")
        environment = {"OS_NOVA_CONFIG_DIR": str(conf.parent)}
        nova = ending.enter_context(
            program_serving(
                "nova.wsgi.osapi_compute", folder, "nova-api", environment
            )
        )
        images.wait()
        api = Api(nova.url, images.url)
        yield api
        api.delete_servers()
