# SPDX-License-Identifier: Apache-2.0

"""Volumes: Nova reads the same properties in a volume's metadata as we do."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from nova.block_device import get_image_metadata_from_volume
from nova.objects.image_meta import ImageMeta

from os_prefilter.adapters.from_json import image_from

_METADATA = {
    "hw_vif_model": "e1000e",
    "hw_disk_bus": "scsi",
    "trait:HW_CPU_X86_AVX2": "required",
    "os_require_quiesce": "yes",
}
_FIELDS = {
    "image_id": "11111111-2222-4333-8444-555555555555",
    "image_name": "debian",
    "checksum": "c",
    "container_format": "bare",
    "disk_format": "iso",
    "min_disk": "1",
    "min_ram": "512",
    "size": "1024",
}
_OF_CINDER = {"signature_verified": "False"}


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        _METADATA,
        {**_METADATA, **_FIELDS},
        {**_METADATA, **_FIELDS, **_OF_CINDER},
    ],
    ids=["none", "properties", "with fields", "with Cinder's own"],
)
def test_image_of_a_volume_is_the_one_that_nova_reads(
    metadata: dict[str, str],
) -> None:
    volume: dict[str, Any] = {
        "id": "1",
        "bootable": True,
        "size": 40,
        "volume_image_metadata": metadata,
    }
    image = image_from(copy.deepcopy(volume), "volume.json")
    read_by_nova = get_image_metadata_from_volume(volume)
    assert read_by_nova.get("disk_format") == image.disk_format
    # Nova drops the properties that it does not know, Cinder's own as well.
    by_nova = ImageMeta.from_dict(read_by_nova).properties
    ours = ImageMeta.from_dict({"properties": image.properties}).properties
    assert ours.obj_to_primitive() == by_nova.obj_to_primitive()
    assert read_by_nova["properties"].keys() - image.properties.keys() <= (
        _OF_CINDER.keys()
    )
