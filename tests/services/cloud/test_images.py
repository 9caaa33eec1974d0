"""Images of a real Glance: nothing lost, nothing renamed, found by ID or name, listed page by page."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from os_prefilter.adapters.cloud import connection as clouds
from os_prefilter.adapters.cloud.resources import _IMAGE_FIELDS
from os_prefilter.adapters.cloud.service import CloudError
from os_prefilter.errors import DocumentError
from os_prefilter.request.spec import Image
from tests.services.cloud.cloud import Cloud
from tests.services.cloud.services import send

# What openstacksdk makes attributes of, renames, converts or fails at, and what it knows nothing of.
_PROPERTIES = {
    "architecture": "x86_64",
    "auto_disk_config": "maybe",
    "hw_boot_menu": "yes",
    "hw_cpu_sockets": "two",
    "hw_disk_bus": "scsi",
    "hw_firmware_type": "uefi",
    "hw_time_hpet": "True",
    "hw_vif_model": "e1000e",
    "hw_vif_multiqueue_enabled": "nonsense",
    "hw_video_ram": "abc",
    "hypervisor_type": "qemu",
    "img_config_drive": "mandatory",
    "instance_type_rxtx_factor": "",
    "metadata": "[]",
    "os_secure_boot": "required",
    "properties": "{}",
    "store": "a",
    "trait:HW_CPU_X86_AVX2": "required",
    "url": "b",
    "vm_mode": "hvm",
    "свойство": "значение %s",
}


@pytest.fixture
def image(cloud: Cloud) -> Iterator[Any]:
    """Return a function that makes an image, which is taken away at the end."""
    made = []

    def make(name: str, **fields: Any) -> str:
        made.append(cloud.image(name, **fields))
        return made[-1]

    yield make
    cloud.glance.forget()
    for each in made:
        cloud.delete_image(each)


def test_image_keeps_every_property_that_glance_has(cloud: Cloud, image: Any) -> None:
    image_id = image("all", disk_format="qcow2", **_PROPERTIES)
    assert clouds.image_named(cloud.connection(), image_id) == Image(_PROPERTIES, "qcow2", image_id, "all")
    assert cloud.written == []


def test_base_fields_of_the_glance_schema_are_not_read_as_properties(cloud: Cloud) -> None:
    """Of its own schema, the fields that are its base, and those that depend on its configuration."""
    schema = send("GET", f"{cloud.glance.real}/v2/schemas/image")["properties"]
    assert {name for name, each in schema.items() if each.get("is_base", True)} <= _IMAGE_FIELDS


@pytest.mark.parametrize(
    "name",
    ["plain", "Ubuntu 24.04 (Noble)", "образ ☃", "a&b=c#d?e/f%20", 'in:"x",y', "in:a,b", "<b>bold</b>", "n" * 255],
)
def test_an_image_is_found_by_its_name_in_any_script(cloud: Cloud, image: Any, name: str) -> None:
    image_id = image(name)
    assert clouds.image_named(cloud.connection(), name).id == image_id


def test_image_id_takes_precedence_over_an_equal_name(cloud: Cloud, image: Any) -> None:
    first = image("first")
    image(first)
    assert clouds.image_named(cloud.connection(), first).id == first


def test_a_name_may_look_like_an_id(cloud: Cloud, image: Any) -> None:
    nobody = str(uuid4())
    image_id = image(nobody)
    assert clouds.image_named(cloud.connection(), nobody).id == image_id


def test_unknown_image_id_is_refused(cloud: Cloud) -> None:
    with pytest.raises(DocumentError, match="there is no image"):
        clouds.image_named(cloud.connection(), str(uuid4()))


def test_ambiguous_image_name_is_refused_with_the_matching_ids(cloud: Cloud, image: Any) -> None:
    ids = [image("twice"), image("twice", os_hidden=True)]
    with pytest.raises(DocumentError, match="2 images have the name 'twice'. Give an ID: ") as caught:
        clouds.image_named(cloud.connection(), "twice")
    assert all(each in str(caught.value) for each in ids)


def test_unknown_image_name_is_refused_with_close_names(cloud: Cloud, image: Any) -> None:
    image("ubuntu-24.04")
    with pytest.raises(DocumentError, match=r"there is no image 'ubuntu-24.4'.*Close names: 'ubuntu-24\.04'\."):
        clouds.image_named(cloud.connection(), "ubuntu-24.4")


def test_every_image_is_listed_page_by_page(cloud: Cloud, image: Any) -> None:
    """Glance gives three at a time here. Private, community and hidden ones are among them; none comes twice."""
    made = {image(f"page-{number}", visibility="private") for number in range(4)}
    made |= {image("shared by all", visibility="community"), image("hidden", os_hidden=True)}
    cloud.glance.forget()
    listing = clouds.images(cloud.connection())
    next(listing)
    assert sum("/v2/images?" in each for each in cloud.glance.sent) == 1
    rest = [each.id for each in listing]
    assert len(rest) == len(set(rest))
    assert len(made - set(rest)) <= 1
    assert sum("/v2/images?" in each for each in cloud.glance.sent) >= 3
    assert cloud.written == []


def test_broken_image_is_reported_and_does_not_stop_the_listing(cloud: Cloud) -> None:
    good = {"id": "a", "name": "good", "disk_format": None}
    rows = [good, None, {"name": "no id"}, {**good, "name": 3}, {**good, "id": "b", "name": None}]
    cloud.glance.hook = lambda _method, path: (200, {"images": rows}) if path.startswith("/v2/images?") else None
    told: list[str] = []
    found = [each.id for each in clouds.images(cloud.connection(), told.append)]
    assert found == ["a", "b"] * 2
    assert len(told) == 6
    assert all("\n" not in each for each in told)


def test_broken_image_is_logged_as_a_warning_if_there_is_no_callback(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    cloud.glance.hook = lambda _method, path: (200, {"images": ["50 %s"]}) if path.startswith("/v2/images?") else None
    assert list(clouds.images(cloud.connection())) == []
    assert "'50 %s'" in caplog.text


_WRONG = [
    (500, {"x": 1}, "status 500"),
    (403, {}, "roles that the documentation lists"),
    (200, b"<html>", "not that of the service"),
    (200, [], "not that of the service"),
    (200, {"images": {}}, "not that of the service"),
    (200, {"images": [{"id": "a"}], "next": "/v2/images?marker=x"}, "read already"),
]


@pytest.mark.parametrize(("status", "body", "message"), _WRONG)
def test_bad_image_list_response_raises_a_one_line_cloud_error(
    cloud: Cloud, status: int, body: object, message: str
) -> None:
    cloud.glance.hook = lambda _method, path: (status, body) if path.startswith("/v2/images?") else None
    with pytest.raises(CloudError, match=message) as caught:
        list(clouds.images(cloud.connection()))
    assert str(caught.value).startswith("Glance, GET /images: ")
    assert "\n" not in str(caught.value)


def test_hanging_glance_raises_after_the_timeout(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clouds, "TIMEOUT", 0.5)
    cloud.glance.is_hanging = True
    with pytest.raises(CloudError, match="Check that the service runs and is reachable"):
        list(clouds.images(cloud.connection()))


def test_unreachable_glance_raises_a_cloud_error_naming_the_request(cloud: Cloud) -> None:
    with pytest.raises(CloudError, match="Glance, GET /images: .* Check that the service runs and is reachable"):
        list(clouds.images(cloud.connection("down")))
