# SPDX-License-Identifier: Apache-2.0

"""A rebuild with a new image stays on its host: the host filter refuses an
image that the host cannot run.
"""

from __future__ import annotations

from typing import Any

from nova import context, objects
from nova.cmd.manage import ImagePropertyCommands

from tests.novas.functional.cloud import Cloud, Server
from tests.novas.functional.hosts import DRIVERS

_HOST = "old"
_IDE = {"img_hv_type": "kvm", "hw_disk_bus": "ide"}
_IGB = {"hw_vif_model": "igb", "hw_sound_model": "virtio"}
_NOVAS_PREFIX = "No valid host was found. "
_REFUSED = (
    f"{_NOVAS_PREFIX}This host does not offer hw_vif_model=igb,"
    " hw_sound_model=virtio."
)


def _rebuild(cloud: Cloud, server: Server, image: str) -> Server:
    return cloud.act(server, {"rebuild": {"imageRef": image}}, "ACTIVE")


def _runs(server: Server) -> bool:
    instance = objects.Instance(uuid=server.uuid)
    return [
        host
        for host, driver in DRIVERS.items()
        if driver.instance_exists(instance)
    ] == [_HOST]


def _stored(server: Server) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the image properties that Nova builds the guest from, and those
    that the next move is scheduled by.
    """
    admin = context.get_admin_context()
    mapping = objects.InstanceMapping.get_by_instance_uuid(admin, server.uuid)
    with context.target_cell(admin, mapping.cell_mapping) as in_cell:
        instance = objects.Instance.get_by_uuid(
            in_cell, server.uuid, expected_attrs=["system_metadata"]
        )
    scheduled = objects.RequestSpec.get_by_instance_uuid(
        admin, server.uuid
    ).image

    def of(image: Any) -> dict[str, Any]:
        properties = image.properties
        return {
            name: getattr(properties, name)
            for name in properties.fields
            if properties.obj_attr_is_set(name)
        }

    return of(instance.image_meta), of(scheduled)


def test_image_that_the_host_cannot_run_is_refused_while_the_guest_runs_on(
    cloud: Cloud,
) -> None:
    """Nova takes the server for broken, and for one of the new image;
    nova-behaviour.rst says how to recover.
    """
    server = cloud.server(_IDE)
    refused = _rebuild(cloud, server, cloud.image(_IGB))
    assert (refused.status, refused.host, refused.attempts) == (
        "ERROR",
        _HOST,
        (_HOST,),
    )
    assert refused.fault == _REFUSED
    assert _runs(server)
    assert _stored(server) == (_IGB, _IGB)

    recovered = cloud.act(
        server, {"os-resetState": {"state": "active"}}, "ACTIVE"
    )
    assert (recovered.status, recovered.host, recovered.attempts) == (
        "ACTIVE",
        _HOST,
        (_HOST,),
    )
    assert _stored(server) == (_IGB, _IGB)

    rebuilt = _rebuild(cloud, server, cloud.image({"hw_vif_model": "e1000e"}))
    assert (rebuilt.status, rebuilt.host, rebuilt.attempts) == (
        "ACTIVE",
        _HOST,
        (_HOST, _HOST),
    )
    built = {"hw_vif_model": "e1000e", "hw_machine_type": "pc"}
    assert _stored(server) == (built, {"hw_vif_model": "e1000e"})


def test_properties_of_a_refused_server_can_be_set_again_without_a_rebuild(
    cloud: Cloud,
) -> None:
    """Its administrator does what docs/nova.rst says, and so Nova builds and
    schedules it as before.
    """
    server = cloud.server(_IDE)
    _rebuild(
        cloud,
        server,
        cloud.image(
            {
                "hw_disk_bus": "virtio",
                "img_hv_type": "kvm",
                "hw_vif_model": "igb",
            }
        ),
    )
    cloud.act(server, {"os-resetState": {"state": "active"}}, "ACTIVE")
    cloud.act(server, {"os-stop": None}, "SHUTOFF")
    ImagePropertyCommands().set(
        server.uuid, ["hw_disk_bus=ide", "hw_vif_model=e1000e"]
    )
    started = cloud.act(server, {"os-start": None}, "ACTIVE")

    assert (started.status, started.host, started.attempts) == (
        "ACTIVE",
        _HOST,
        (_HOST,),
    )
    assert _stored(server) == ({**_IDE, "hw_vif_model": "e1000e"},) * 2


def test_rebuilt_server_gets_the_default_machine_type_that_its_host_has_now(
    cloud: Cloud,
) -> None:
    """It does not keep its own: q35 never has an IDE bus."""
    server = cloud.server(_IDE)
    rebuilt = _rebuild(cloud, server, cloud.image(_IDE))
    assert (rebuilt.status, rebuilt.machine_types) == ("ACTIVE", ("pc", "pc"))
    with cloud.x86_guests(_HOST, default_machine="q35"):
        refused = _rebuild(cloud, server, cloud.image(_IDE))
        assert (refused.status, refused.fault[len(_NOVAS_PREFIX) :]) == (
            "ERROR",
            "This host does not offer hw_disk_bus=ide.",
        )
        assert _runs(server)
