# SPDX-License-Identifier: Apache-2.0

"""Real objects of Nova."""

from __future__ import annotations

from typing import Any

from nova import objects

objects.register_all()


def nova_flavor(**fields: Any) -> Any:
    """Return a flavor of Nova's; ``extra_specs`` stays unset unless given."""
    return objects.Flavor(
        vcpus=1,
        memory_mb=512,
        root_gb=1,
        ephemeral_gb=0,
        swap=0,
        name="small",
        **fields,
    )


def nova_spec(
    properties: dict[str, Any] | None = None,
    extra_specs: dict[str, str] | None = None,
    disk_format: str = "qcow2",
    **fields: Any,
) -> Any:
    """Return a request spec of Nova's."""
    image = objects.ImageMeta.from_dict(
        {"disk_format": disk_format, "properties": properties or {}}
    )
    return objects.RequestSpec(
        flavor=nova_flavor(extra_specs=extra_specs or {}),
        image=image,
        **fields,
    )


def boot_spec(
    properties: dict[str, Any] | None = None,
    extra_specs: dict[str, str] | None = None,
    **fields: Any,
) -> Any:
    """Return the request spec of a new server, with what nova-scheduler reads
    of it set.
    """
    given: dict[str, Any] = {
        "project_id": "project",
        "availability_zone": None,
        "is_bfv": False,
        "num_instances": 1,
        "pci_requests": None,
        "requested_destination": None,
        "requested_networks": objects.NetworkRequestList(objects=[]),
        "requested_resources": [],
        "scheduler_hints": {},
    }
    return nova_spec(properties, extra_specs, **{**given, **fields})
