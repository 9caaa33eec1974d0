# SPDX-License-Identifier: Apache-2.0

"""As little of Neutron and Cinder as Nova's API needs to show a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

from tests.support.loopback import Call, Reply, serving

_PAGE = 2


class Others:
    def __init__(self) -> None:
        self.url = ""
        self.volumes: dict[str, dict[str, Any]] = {}
        self.ports: list[dict[str, Any]] = []
        self.sent: list[str] = []
        self.hook: Callable[[str], tuple[int, object] | None] = lambda _path: (
            None
        )
        """Answers a path, or returns None."""

    def volume(self, **metadata: str) -> str:
        """Make a bootable volume with this image metadata; return its ID."""
        volume = str(uuid4())
        empty: dict[str, Any] = dict.fromkeys(
            ("description", "volume_type"), ""
        ) | {"attachments": [], "metadata": {}}
        times = {
            "created_at": "2026-01-01T00:00:00",
            "availability_zone": "nova",
            "snapshot_id": None,
        }
        state = {
            "status": "available",
            "size": 1,
            "bootable": "true",
            "multiattach": False,
            "name": "volume",
        }
        self.volumes[volume] = {
            "id": volume,
            "volume_image_metadata": metadata,
            **empty,
            **times,
            **state,
        }
        return volume

    def answer(self, method: str, path: str) -> tuple[int, object]:
        path, _, query = path.partition("?")
        parts = path.strip("/").split("/")
        if parts[-2:] == ["volumes", "detail"]:
            return 200, self._page(dict(parse_qsl(query)))
        if parts[0] == "v2.0":
            is_of_all = parts[-1] == "ports" and (
                "fields",
                "binding:vnic_type",
            ) in parse_qsl(query)
            marker = dict(parse_qsl(query)).get("marker", "")
            return 200, (
                self._page_of_ports(marker)
                if is_of_all
                else {parts[-1].replace("-", "_"): []}
            )
        if method == "POST" and parts[-1] == "attachments":
            return 202, {
                "attachment": {"id": str(uuid4()), "connection_info": {}}
            }
        if parts[-2:-1] == ["volumes"] and parts[-1] in self.volumes:
            return 200, {"volume": self.volumes[parts[-1]]}
        if parts in ([""], ["v3"]):
            version = {
                "id": "v3.0",
                "status": "CURRENT",
                "version": "3.71",
                "min_version": "3.0",
            }
            return 200, {
                "versions": [
                    {
                        **version,
                        "links": [{"rel": "self", "href": f"{self.url}/v3/"}],
                    }
                ]
            }
        return 404, {"itemNotFound": {"code": 404, "message": f"no {path}"}}

    def _page_of_ports(self, marker: str) -> object:
        after = [port for port in self.ports if port["id"] > marker]
        page: dict[str, object] = {"ports": after[:_PAGE]}
        if after[_PAGE:]:
            href = f"http://elsewhere/v2.0/ports?limit={_PAGE}&marker={after[_PAGE - 1]['id']}"
            page["ports_links"] = [{"rel": "next", "href": href}]
        return page

    def _page(self, query: dict[str, str]) -> object:
        marker = query.get("marker", "")
        names = [
            name
            for name, volume in sorted(self.volumes.items())
            if query.get("bootable", volume["bootable"]) == volume["bootable"]
        ]
        after = [name for name in names if name > marker]
        page: dict[str, object] = {
            "volumes": [self.volumes[name] for name in after[:_PAGE]]
        }
        if after[_PAGE:]:
            href = f"http://elsewhere/v3/p/volumes/detail?limit={_PAGE}&marker={after[_PAGE - 1]}"
            page["volumes_links"] = [{"rel": "next", "href": href}]
        return page


@contextmanager
def others() -> Iterator[Others]:
    state = Others()

    def answer(call: Call) -> Reply:
        state.sent.append(call.path)
        status, document = state.hook(call.path) or state.answer(
            call.method, call.path
        )
        return Reply(
            status,
            json.dumps(document).encode(),
            {"Content-Type": "application/json"},
        )

    with serving(answer) as state.url:
        yield state
