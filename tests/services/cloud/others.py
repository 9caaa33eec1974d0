"""As little of Neutron and Cinder as Nova's API needs to show a server."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from tests.support.loopback import Call, Reply, serving


class Others:
    """What both services know."""

    def __init__(self) -> None:
        self.url = ""
        self.volumes: dict[str, dict[str, Any]] = {}

    def volume(self, **metadata: str) -> str:
        """Make a bootable volume with this image metadata; return its ID."""
        volume = str(uuid4())
        self.volumes[volume] = {
            "id": volume,
            "status": "available",
            "size": 1,
            "bootable": "true",
            "multiattach": False,
            "availability_zone": "nova",
            "attachments": [],
            "metadata": {},
            "created_at": "2026-01-01T00:00:00",
            "name": "volume",
            "description": "",
            "volume_type": "",
            "snapshot_id": None,
            "volume_image_metadata": metadata,
        }
        return volume

    def answer(self, method: str, path: str) -> tuple[int, object]:
        """Return the status and the JSON of an answer."""
        parts = path.partition("?")[0].strip("/").split("/")
        if parts[0] == "v2.0":
            return 200, {parts[-1].replace("-", "_"): []}
        if method == "POST" and parts[-1] == "attachments":
            return 202, {"attachment": {"id": str(uuid4()), "connection_info": {}}}
        if parts[-2:-1] == ["volumes"] and parts[-1] in self.volumes:
            return 200, {"volume": self.volumes[parts[-1]]}
        if parts in ([""], ["v3"]):
            version = {"id": "v3.0", "status": "CURRENT", "version": "3.71", "min_version": "3.0"}
            return 200, {"versions": [{**version, "links": [{"rel": "self", "href": f"{self.url}/v3/"}]}]}
        return 404, {"itemNotFound": {"code": 404, "message": f"no {path}"}}


@contextmanager
def others() -> Iterator[Others]:
    """Answer on a loopback port while the context lasts."""
    state = Others()

    def answer(call: Call) -> Reply:
        status, document = state.answer(call.method, call.path)
        return Reply(status, json.dumps(document).encode(), {"Content-Type": "application/json"})

    with serving(answer) as state.url:
        yield state
