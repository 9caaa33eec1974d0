# SPDX-License-Identifier: Apache-2.0

"""What nova-conductor does to have a server scheduled, as a program: a JSON
line in, a JSON line out.

In: ``{"properties": {...}, "extra_specs": {...}}``, of the image and the
flavor, and perhaps ``flavor``, ``project``, ``zone``, ``hints``, and
``ports``, the resources that each port requests. Out: the hosts, first the
chosen one, then its alternates; or the error as the user is shown it; and the
id of the request, which is in the logs. It runs by itself, because Nova has
one configuration for a process.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from uuid import uuid4

from nova import config, context, objects
from nova.exception import NovaException
from nova.scheduler.rpcapi import SchedulerAPI
from oslo_messaging import MessagingTimeout


def request_spec(asked: dict[str, Any], request_context: Any) -> Any:
    """Return the request for one server, as nova-conductor makes it."""
    image = {
        "id": str(uuid4()),
        "name": "image",
        "status": "active",
        "min_ram": 0,
        "min_disk": 0,
    }
    image |= {
        "disk_format": "raw",
        "container_format": "bare",
        "properties": asked["properties"],
    }
    sizes = {
        "vcpus": 1,
        "memory_mb": 512,
        "root_gb": 1,
        "ephemeral_gb": 0,
        "swap": 0,
    }
    names = {
        "id": 1,
        "flavorid": "small",
        "name": asked.get("flavor", "small"),
        "disabled": False,
        "is_public": True,
    }
    flavor = objects.Flavor(extra_specs=asked["extra_specs"], **names, **sizes)
    pci_requests = objects.InstancePCIRequests(requests=[])
    return objects.RequestSpec.from_components(
        request_context,
        str(uuid4()),
        objects.ImageMeta.from_dict(image),
        flavor,
        None,
        pci_requests,
        {"scheduler_hints": asked.get("hints", {})},
        None,
        asked.get("zone"),
        port_resource_requests=[
            objects.RequestGroup(
                use_same_provider=True,
                requester_id=str(uuid4()),
                resources=resources,
            )
            for resources in asked.get("ports", ())
        ],
    )


def answer(scheduler: SchedulerAPI, asked: dict[str, Any]) -> dict[str, Any]:
    """Have the server scheduled."""
    request_context = context.RequestContext(
        user_id="user",
        project_id=asked.get("project", "project"),
        is_admin=True,
    )
    spec = request_spec(asked, request_context)
    said: dict[str, Any] = {
        "request": request_context.request_id,
        "hosts": [],
        "error": "",
    }
    try:
        selections = scheduler.select_destinations(
            request_context,
            spec,
            [spec.instance_uuid],
            return_objects=True,
            return_alternates=True,
        )
        said["hosts"] = [selection.service_host for selection in selections[0]]
    except NovaException as error:
        said["error"] = error.format_message()
    except MessagingTimeout:
        said["error"] = "no answer"
    return said


def main() -> None:
    """Answer until nothing comes any more."""
    # Else it talks on the wrong exchange.
    config.parse_args(sys.argv)
    objects.register_all()
    scheduler = SchedulerAPI()
    for line in sys.stdin:
        print(json.dumps(answer(scheduler, json.loads(line))), flush=True)  # noqa: T201 - it is what it is for


if __name__ == "__main__":
    main()
