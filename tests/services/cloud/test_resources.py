# SPDX-License-Identifier: Apache-2.0

"""Images, flavors, host aggregates and servers of a real Glance and a real
Nova API: nothing lost, nothing renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.adapters.cloud_service import CloudError
from os_prefilter.common.errors import DocumentError
from os_prefilter_agent.adapters import connection as clouds
from os_prefilter_tools.adapters.cloud import resources
from os_prefilter_tools.adapters.cloud.servers import request_of_server
from os_prefilter_tools.fleet.model import Aggregate
from tests.services.cloud.cloud import Cloud

# What openstacksdk makes attributes of, renames, converts or fails at, and
# what it knows nothing of.
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
    """Return a function that makes an image, which is taken away at the
    end.
    """
    made = []

    def make(name: str, **fields: Any) -> str:
        made.append(cloud.image(name, **fields))
        return made[-1]

    yield make
    cloud.glance.forget()
    for each in made:
        cloud.delete_image(each)


def test_image_keeps_every_property_that_glance_has(
    cloud: Cloud, image: Any
) -> None:
    image_id = image("all", disk_format="qcow2", **_PROPERTIES)
    assert resources.image_named(cloud.connection(), image_id) == Image(
        _PROPERTIES, "qcow2", image_id, "all"
    )
    assert cloud.written == []


_NAMES = (
    "Ubuntu 24.04 (Noble)",
    "образ ☃",
    "a&b=c#d?e/f%20",
    'in:"x",y',
    "in:a,b",
    "<b>bold</b>",
    "n" * 255,
)
_LIKE_AN_ID = "0f2c1c1e-5a5b-4f6d-9a0c-6f5a2f3f7d10"


def test_image_is_found_by_its_name_in_any_script_also_one_like_an_id(
    cloud: Cloud, image: Any
) -> None:
    for name in (*_NAMES, _LIKE_AN_ID):
        made = image(name)
        assert resources.image_named(cloud.connection(), name).id == made
    # An ID takes precedence over an equal name.
    image(made)
    assert resources.image_named(cloud.connection(), made).id == made


def test_ambiguous_or_unknown_image_name_is_refused_with_ids_or_close_names(
    cloud: Cloud, image: Any
) -> None:
    ids = [image("twice"), image("twice", os_hidden=True)]
    with pytest.raises(
        DocumentError, match="2 images have the name 'twice'. Give an ID: "
    ) as caught:
        resources.image_named(cloud.connection(), "twice")
    assert all(each in str(caught.value) for each in ids)
    image("haiku-1.04")
    for name, message in (
        ("haiku-1.4", r"there is no image.*Close names: 'haiku-1\.04'\."),
        (_LIKE_AN_ID.replace("d10", "d11"), "there is no image"),
    ):
        with pytest.raises(DocumentError, match=message):
            resources.image_named(cloud.connection(), name)


def test_every_image_is_listed_page_by_page(cloud: Cloud, image: Any) -> None:
    """Glance gives three at a time here. Private, community and hidden ones
    are among them; none comes twice.
    """
    made = {
        image(f"page-{number}", visibility="private") for number in range(4)
    }
    made |= {
        image("shared by all", visibility="community"),
        image("hidden", os_hidden=True),
    }
    cloud.glance.forget()
    listing = resources.images(cloud.connection(), print)
    next(listing)
    assert sum("/v2/images?" in each for each in cloud.glance.sent) == 1
    rest = [each.id for each in listing]
    assert len(rest) == len(set(rest))
    assert len(made - set(rest)) <= 1
    assert sum("/v2/images?" in each for each in cloud.glance.sent) >= 3
    assert cloud.written == []


def test_broken_image_is_reported_and_does_not_stop_the_listing(
    cloud: Cloud,
) -> None:
    good = {"id": "a", "name": "good", "disk_format": None}
    rows = [
        good,
        None,
        {"name": "no id"},
        {**good, "name": 3},
        {**good, "id": "b", "name": None},
    ]
    cloud.glance.before = lambda _method, path: (
        (200, {"images": rows}) if path.startswith("/v2/images?") else None
    )
    problems: list[str] = []
    found = [
        each.id
        for each in resources.images(cloud.connection(), problems.append)
    ]
    assert found == ["a", "b"] * 2
    assert len(problems) == 6
    assert all("\n" not in each for each in problems)


def test_hanging_or_unreachable_glance_raises_an_error_naming_the_request(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clouds, "TIMEOUT", 0.5)
    cloud.glance.is_hanging = True
    for name in ("admin", "down"):
        with pytest.raises(
            CloudError,
            match=(
                "Glance, GET /images: .* Check that the service runs and is"
                " reachable"
            ),
        ):
            list(resources.images(cloud.connection(name), print))


_FLAVOR_SPECS = {
    "resources:VGPU": "1",
    "trait:CUSTOM_A": "required",
    "hw:cpu_policy": "dedicated",
}


def test_every_bootable_volume_is_listed_page_by_page(cloud: Cloud) -> None:
    """Cinder gives two at a time here; administrators see all projects."""
    cloud.others.volumes.clear()
    made = {
        cloud.others.volume(hw_vif_model="igb", disk_format="raw")
        for _ in range(4)
    }
    data = cloud.others.volume()
    cloud.others.volumes[data] |= {"bootable": "false", "name": "data"}
    cloud.others.sent.clear()
    listing = resources.bootable_volumes(cloud.connection(), print)
    first = next(listing)
    assert first == Image({"hw_vif_model": "igb"}, name="volume")
    pages = [each for each in cloud.others.sent if "/volumes/" in each]
    assert len(pages) == 1
    assert sum(1 for _ in listing) == len(made) - 1
    pages = [each for each in cloud.others.sent if "/volumes/" in each]
    assert len(pages) == 2
    assert all("all_tenants=1&bootable=true" in each for each in pages)


def test_broken_volume_is_reported_and_does_not_stop_the_listing(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = {"id": "a", "bootable": "true", "size": 1}
    others = [None, {"id": "b"}, {**good, "name": 3}]
    others.append({**good, "volume_image_metadata": [1]})
    page = {"volumes": [*others, good]}
    monkeypatch.setattr(
        cloud.others,
        "hook",
        lambda path: (200, page) if "/volumes/" in path else None,
    )
    problems: list[str] = []
    listing = resources.bootable_volumes(cloud.connection(), problems.append)
    assert list(listing) == [Image({}, name="a")]
    assert len(problems) == len(others)
    assert all(each.startswith("Cinder, ") for each in problems)
    assert all("\n" not in each for each in problems)


def test_flavors_are_read_with_all_their_fields_by_name_or_id(
    cloud: Cloud,
) -> None:
    fields = {
        "OS-FLV-EXT-DATA:ephemeral": 3,
        "swap": 64,
        "vcpus": 2,
        "ram": 1024,
        "disk": 20,
    }
    cloud.flavor("gpu ☃", "gpu 1", _FLAVOR_SPECS, **fields)
    cloud.flavor("private", "4", None, **{"os-flavor-access:is_public": False})
    for name in ("4", "flavor-1", "flavor-2"):
        cloud.flavor(name, f"id-of-{name}")
    cloud.forget()
    connection = cloud.connection()
    for name in ("gpu ☃", "gpu 1"):
        assert resources.flavor_named(connection, name) == Flavor(
            2, 1024, 20, 3, 64, _FLAVOR_SPECS, "gpu ☃"
        )
    # An ID takes precedence over an equal name.
    assert resources.flavor_named(connection, "4").name == "private"
    assert sum("/flavors/detail" in each for each in cloud.nova.sent) >= 2
    for name in ("flavor-11", ".", "..", "../servers", "x" * 300, "\x00"):
        with pytest.raises(
            DocumentError, match="there is no flavor"
        ) as caught:
            resources.flavor_named(connection, name)
        assert ("Close names: 'flavor-1'" in str(caught.value)) == (
            name == "flavor-11"
        )
        assert str(caught.value).isprintable()
    assert cloud.written == []


def test_hidden_extra_specs_of_a_flavor_raise_instead_of_reading_as_none(
    cloud: Cloud,
) -> None:
    """As where Nova's policy hides them."""
    row = {"id": "4", "name": "hidden", "ram": 1, "vcpus": 1, "disk": 1}
    cloud.nova.before = lambda _method, path: (
        (200, {"flavor": row}) if "/flavors/4" in path else None
    )
    with pytest.raises(
        CloudError, match="extra specs of the flavor 'hidden' are not shown"
    ):
        resources.flavor_named(cloud.connection(), "4")


_FLAVOR_ROW = {"id": "i", "name": "a", "extra_specs": {"a": 1}}
_WRONG: list[tuple[str, int, object, str]] = [
    ("images", 500, {"x": 1}, "status 500"),
    ("images", 403, {}, "roles that the documentation lists"),
    ("images", 200, b"<html>", "not that of the service"),
    ("images", 200, [], "not that of the service"),
    ("images", 200, {"images": {}}, "not that of the service"),
    (
        "images",
        200,
        {"images": [{"id": "a"}], "next": "/v2/images?marker=x"},
        "read already",
    ),
    ("flavors", 200, {"flavors": [_FLAVOR_ROW]}, "not that of the service"),
    ("flavors", 200, {"flavors": "a"}, "not that of the service"),
    ("flavors", 406, {}, "newer version"),
    ("flavors", 503, {}, "read the log"),
    ("host_aggregates", 200, {"aggregates": None}, "not that of the service"),
    ("host_aggregates", 200, {"aggregates": [{}]}, "not that of the service"),
    (
        "host_aggregates",
        200,
        {
            "aggregates": [
                {"uuid": "x", "name": "a", "availability_zone": None}
            ]
        },
        "not that of",
    ),
]
_READS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "images": (
        "/v2/images?",
        lambda connection: list(resources.images(connection, print)),
    ),
    "flavors": (
        "/flavors/detail",
        lambda connection: resources.flavor_named(connection, "a"),
    ),
    "host_aggregates": ("os-aggregates", resources.host_aggregates),
}


def test_bad_list_response_raises_a_one_line_cloud_error(cloud: Cloud) -> None:
    answers: list[tuple[str, tuple[int, object]]] = []
    cloud.glance.before = cloud.nova.before = lambda _method, path: next(
        (answer for part, answer in answers[-1:] if part in path), None
    )
    connection = cloud.connection()
    for listing, status, body, message in _WRONG:
        path, read = _READS[listing]
        answers.append((path, (status, body)))
        with pytest.raises(CloudError, match=message) as caught:
            read(connection)
        assert str(caught.value).startswith(
            "Glance, GET /images: " if listing == "images" else "Nova, "
        )
        assert str(caught.value).isprintable()


def test_host_aggregates_have_their_uuids_and_zones(cloud: Cloud) -> None:
    made = [
        Aggregate(
            str(UUID(cloud.aggregate("rack ☃", "zone-1"))), "rack ☃", "zone-1"
        ),
        Aggregate(str(UUID(cloud.aggregate("no zone"))), "no zone", ""),
    ]
    cloud.forget()
    assert [
        each
        for each in resources.host_aggregates(cloud.connection())
        if each in made
    ] == made
    assert cloud.written == []
    with pytest.raises(
        CloudError, match="status 403.*roles that the documentation lists"
    ):
        resources.host_aggregates(cloud.connection("reader"))


_NO_SERVER = "5c8d0f6e-3a51-4f0e-9b0b-1f4f4a8d2c77"
_SERVER_SPECS = {"resources:VGPU": "1"}
_FLAVOR = Flavor(1, 512, 1, 0, 0, _SERVER_SPECS, "of servers")


@pytest.fixture(scope="module")
def server_flavor(whole_cloud: Cloud) -> str:
    whole_cloud.flavor("of servers", "server-flavor", _SERVER_SPECS)
    return "server-flavor"


def _shown(cloud: Cloud, **fields: Any) -> str:
    """Have Nova show a server like this; return its ID."""
    server = str(uuid4())
    flavor = {
        "vcpus": 1,
        "ram": 512,
        "disk": 1,
        "ephemeral": 0,
        "swap": 0,
        "original_name": "of servers",
    }
    body = {
        "server": {
            "id": server,
            "image": "",
            "flavor": {**flavor, "extra_specs": _SERVER_SPECS},
            **fields,
        }
    }
    cloud.nova.before = lambda _method, path: (
        (200, body) if path.endswith(server) else None
    )
    return server


def test_request_of_a_server_has_its_image_and_flavor(
    cloud: Cloud, server_flavor: str, caplog: pytest.LogCaptureFixture
) -> None:
    properties = {"hw_vif_model": "igb", "trait:HW_CPU_X86_AVX2": "required"}
    image = cloud.image("of a server", active=True, **properties)
    server = cloud.server(server_flavor, image)
    cloud.nova.forget()
    spec = request_of_server(cloud.connection(), server)
    assert spec == RequestSpec(
        _FLAVOR,
        Image(properties, "raw", image, "of a server"),
        project_id=spec.project_id,
    )
    assert (
        "What ports, device profiles or a chosen host require" in caplog.text
    )
    assert cloud.written == []


def test_image_properties_at_boot_take_precedence_over_current_ones(
    cloud: Cloud,
) -> None:
    image = cloud.image("changed", hw_vif_model="igb", hw_disk_bus="scsi")
    server = _shown(
        cloud, image={"id": image, "properties": {"hw_vif_model": "e1000e"}}
    )
    spec = request_of_server(cloud.connection(), server)
    assert spec.image == Image(
        {"hw_vif_model": "e1000e", "hw_disk_bus": "scsi"},
        "raw",
        image,
        "changed",
    )


def test_volume_backed_server_uses_the_image_of_its_root_volume(
    cloud: Cloud,
) -> None:
    other = cloud.others.volume(hw_vif_model="e1000e")
    root = cloud.others.volume(
        hw_vif_model="igb",
        disk_format="qcow2",
        image_name="old",
        image_id="x",
        min_ram="0",
        size="1",
    )
    for volume, device in ((other, "/dev/vdb"), (root, "/dev/vda")):
        cloud.others.volumes[volume]["attachments"] = [{"device": device}]
    attached = {
        "os-extended-volumes:volumes_attached": [{"id": other}, {"id": root}]
    }
    server = _shown(
        cloud, **attached, **{"OS-EXT-SRV-ATTR:root_device_name": "/dev/vda"}
    )
    spec = request_of_server(cloud.connection(), server)
    assert spec == RequestSpec(
        _FLAVOR,
        Image({"hw_vif_model": "igb"}, "qcow2", name="old"),
        is_bfv=True,
    )


def test_invalid_or_unknown_server_or_malformed_document_is_refused(
    cloud: Cloud,
) -> None:
    connection = cloud.connection()
    for server, message in (
        ("a name", "is no ID"),
        ("", "is no ID"),
        (_NO_SERVER, "there is no"),
    ):
        with pytest.raises(DocumentError, match=message):
            request_of_server(connection, server)
    malformed: list[dict[str, Any]] = [
        {"flavor": None},
        {"flavor": {"id": "4"}},
    ]
    malformed += [{"image": "x"}, {"image": {"id": "../../flavors"}}]
    for fields in malformed:
        with pytest.raises(CloudError, match="Nova") as caught:
            request_of_server(connection, _shown(cloud, **fields))
        assert str(caught.value).isprintable()
