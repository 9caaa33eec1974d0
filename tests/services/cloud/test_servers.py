"""What a server of a real Nova API asks for."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from os_prefilter import Flavor, Image
from os_prefilter.adapters.cloud import connection as clouds
from os_prefilter.adapters.cloud.service import CloudError
from os_prefilter.errors import DocumentError
from os_prefilter.request.spec import RequestSpec
from tests.services.cloud.cloud import Cloud

_NOBODY = "5c8d0f6e-3a51-4f0e-9b0b-1f4f4a8d2c77"
_SPECS = {"resources:VGPU": "1"}
_FLAVOR = Flavor(1, 512, 1, 0, 0, _SPECS, "of servers")


@pytest.fixture(scope="session")
def flavor(whole_cloud: Cloud) -> str:
    whole_cloud.flavor("of servers", "server-flavor", _SPECS)
    return "server-flavor"


def _shown(cloud: Cloud, **fields: Any) -> str:
    """Have Nova show a server like this; return its ID."""
    server = str(uuid4())
    flavor = {"vcpus": 1, "ram": 512, "disk": 1, "ephemeral": 0, "swap": 0, "original_name": "of servers"}
    body = {"server": {"id": server, "image": "", "flavor": {**flavor, "extra_specs": _SPECS}, **fields}}
    cloud.nova.hook = lambda _method, path: (200, body) if path.endswith(server) else None
    return server


def test_request_of_a_server_has_its_image_and_flavor(
    cloud: Cloud, flavor: str, caplog: pytest.LogCaptureFixture
) -> None:
    properties = {"hw_vif_model": "igb", "trait:HW_CPU_X86_AVX2": "required"}
    image = cloud.image("of a server", active=True, **properties)
    server = cloud.server(flavor, image)
    cloud.nova.forget()
    spec = clouds.request_of_server(cloud.connection(), server)
    assert spec == RequestSpec(_FLAVOR, Image(properties, "raw", image, "of a server"))
    assert "ports, device profiles, hints" in caplog.text
    assert cloud.written == []


def test_image_properties_at_boot_take_precedence_over_current_ones(cloud: Cloud) -> None:
    image = cloud.image("changed", hw_vif_model="igb", hw_disk_bus="scsi")
    server = _shown(cloud, image={"id": image, "properties": {"hw_vif_model": "e1000e"}})
    spec = clouds.request_of_server(cloud.connection(), server)
    assert spec.image == Image({"hw_vif_model": "e1000e", "hw_disk_bus": "scsi"}, "raw", image, "changed")


def test_properties_of_a_deleted_image_come_from_nova(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    gone = str(uuid4())
    server = _shown(cloud, image={"id": gone, "properties": {"hw_vif_model": "igb"}})
    assert clouds.request_of_server(cloud.connection(), server).image == Image({"hw_vif_model": "igb"}, id=gone)
    assert f"The image {gone} is gone from Glance" in caplog.text


def test_volume_backed_server_uses_the_image_of_its_root_volume(cloud: Cloud) -> None:
    other = cloud.others.volume(hw_vif_model="e1000e")
    root = cloud.others.volume(
        hw_vif_model="igb", disk_format="qcow2", image_name="old", image_id="x", min_ram="0", size="1"
    )
    for volume, device in ((other, "/dev/vdb"), (root, "/dev/vda")):
        cloud.others.volumes[volume]["attachments"] = [{"device": device}]
    attached = {"os-extended-volumes:volumes_attached": [{"id": other}, {"id": root}]}
    server = _shown(cloud, **attached, **{"OS-EXT-SRV-ATTR:root_device_name": "/dev/vda"})
    spec = clouds.request_of_server(cloud.connection(), server)
    assert spec == RequestSpec(_FLAVOR, Image({"hw_vif_model": "igb"}, "qcow2", name="old"), is_bfv=True)


_UNKNOWN_VOLUMES: list[Mapping[str, Any]] = [
    {},
    {"os-extended-volumes:volumes_attached": [{"id": "no-such-volume"}]},
    {"os-extended-volumes:volumes_attached": ["x"]},
    {"os-extended-volumes:volumes_attached": [{}]},
]


@pytest.mark.parametrize("fields", _UNKNOWN_VOLUMES)
def test_unknown_root_volume_gives_a_request_without_image_and_a_warning(
    cloud: Cloud, fields: Mapping[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    spec = clouds.request_of_server(cloud.connection(), _shown(cloud, **fields))
    assert spec == RequestSpec(_FLAVOR, None, is_bfv=True)
    assert "not known" in caplog.text


def test_volume_backed_server_still_building_gives_a_request_without_image(cloud: Cloud, flavor: str) -> None:
    """While it is being built, as here for ever."""
    server = cloud.server(flavor, volume=cloud.others.volume(hw_vif_model="igb"))
    assert clouds.request_of_server(cloud.connection(), server) == RequestSpec(_FLAVOR, None, is_bfv=True)


@pytest.mark.parametrize(("server", "message"), [("a name", "is no ID"), ("", "is no ID"), (_NOBODY, "there is no")])
def test_invalid_or_unknown_server_id_is_refused(cloud: Cloud, server: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        clouds.request_of_server(cloud.connection(), server)


@pytest.mark.parametrize(
    "fields", [{"flavor": None}, {"flavor": {"id": "4"}}, {"image": "x"}, {"image": {"id": "../../flavors"}}]
)
def test_malformed_server_document_raises_a_printable_cloud_error(cloud: Cloud, fields: Mapping[str, Any]) -> None:
    with pytest.raises(CloudError, match="Nova") as caught:
        clouds.request_of_server(cloud.connection(), _shown(cloud, **fields))
    assert str(caught.value).isprintable()
