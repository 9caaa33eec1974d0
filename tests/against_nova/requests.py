# SPDX-License-Identifier: Apache-2.0

"""Requests as Nova's own objects, generated: image properties, extra specs,
groups, volumes, and fields left unset.

Properties that matter together are drawn together, by theme; drawn from all at
once, they would hardly ever meet.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from nova import objects
from nova.objects.image_meta import ImageMetaProps

from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.model import Row

objects.register_all()

_BOOLEANS = ("true", "false", "yes", "0")
_MASKS = (
    "0",
    "1",
    "0-1",
    "^0",
    "^0-1,3",
    "0-3,^2",
    "2-1",
    "9",
    "x",
    "",
    " 1 , 2 ",
    "0,,1",
    "^",
    "0-3",
)
_AMOUNTS = ("0", "1", "7", "-1", "one", " 3 ", "+1", "1_0", f"{'1':>70}")
_TRAITS = (
    "HW_CPU_X86_AVX2",
    "OWNER_NOVA",
    "OWNER_CYBORG",
    "CUSTOM_RAID",
    "HW_CPU_HYPERTHREADING",
)
_CLASSES = (
    *("VCPU", "PCPU", "MEMORY_MB", "DISK_GB", "VGPU"),
    *("CUSTOM_IRON", "CUSTOM_IRON2", "CUSTOM_PCI_1", "NO_SUCH_CLASS"),
)
_SUFFIXES = ("", "1", "_gpu")
IMAGE = "55555555-5555-4555-8555-555555555555"
PCI_REQUEST = "11111111-1111-4111-8111-111111111111"
PORT = "22222222-2222-4222-8222-222222222222"
_GROUPS = (
    f"{PCI_REQUEST}-0",
    f"{PCI_REQUEST}-1",
    "device_profile_0",
    f"device_profile_0{PORT}",
    PORT,
)
_AGGREGATES = (
    "33333333-3333-4333-8333-333333333333",
    "44444444-4444-4444-8444-444444444444",
)

_NOT_ENUMERATED: dict[str, tuple[str, ...]] = {
    "hw_machine_type": (
        "q35",
        "pc",
        "pc-q35-9.1",
        "pc-i440fx-7.2",
        "virt",
        "isapc",
        "pc-1.0",
        "raspi3b",
        "",
    ),
    "hw_cpu_realtime_mask": _MASKS,
    "hw_redirected_usb_ports": ("0", "2", "15"),
    "os_distro": ("debian",),
}
_EXTRA_SPECS: dict[str, tuple[str, ...]] = {
    "hw:cpu_realtime": _BOOLEANS,
    "hw:cpu_realtime_mask": _MASKS,
    "hw:cpu_dedicated_mask": _MASKS,
    "hw:emulator_threads_policy": ("share", "isolate", "odd"),
    "hw:pmem": ("4GB", "4GB, 4GB,16gb", " ,", "ssd-1.fast"),
    "hw:cpu_cores": ("2",),
    "accel:device_profile": ("gpu", ""),
    "group_policy": ("none", "isolate", "other"),
}
_THEMES: tuple[tuple[str, ...], ...] = (
    (
        "cpu_policy",
        "cpu_thread_policy",
        "cpu_realtime",
        "cpu_realtime_mask",
        "cpu_dedicated_mask",
        "emulator_threads",
    ),
    ("mem_encryption", "firmware", "machine_type", "video_model"),
    ("tpm", "firmware", "secure_boot"),
    ("ephemeral_encryption", "virtio_packed", "sound", "accel", "pmem"),
    (
        "vif_model",
        "video_model",
        "disk_bus",
        "cdrom_bus",
        "scsi",
        "viommu",
        "sound",
        "usb_model",
        "machine_type",
    ),
    (
        "architecture",
        "hv_type",
        "vm_mode",
        "machine_type",
        "viommu",
        "disk_bus",
        "time_hpet",
    ),
    ("",),
)
"""Parts of names; the last is of all."""


def _properties() -> dict[str, tuple[str, ...]]:
    """Return the image properties of the vocabulary with every value that
    Nova's objects take.
    """
    found = dict(_NOT_ENUMERATED)
    for row in ROWS:
        field = ImageMetaProps.fields.get(row.image_property)
        if field is not None and row.image_property not in found:
            found[str(row.image_property)] = (
                _BOOLEANS if row.boolean else tuple(field.AUTO_TYPE.ALL)
            )
    return found


def _known(row: Row) -> tuple[str, ...]:
    """Return the values of a flavor's row; where Nova enumerates it, those
    that this version of Nova knows.
    """
    enumerated = getattr(
        getattr(
            ImageMetaProps.fields.get(row.image_property), "AUTO_TYPE", None
        ),
        "ALL",
        row.values,
    )
    return tuple(
        value for value in row.values if row.boolean or value in enumerated
    )


PROPERTIES = _properties()
EXTRA_SPECS = {
    str(row.extra_spec): (*_known(row), "", "maybe" if row.boolean else "odd")
    for row in ROWS
    if row.extra_spec
} | _EXTRA_SPECS


_BOTH = tuple(
    (str(row.image_property), str(row.extra_spec))
    for row in ROWS
    if row.image_property in PROPERTIES and row.extra_spec in EXTRA_SPECS
)
"""The names in image and flavor of what both may say."""


def _of_theme(
    some: dict[str, tuple[str, ...]], theme: tuple[str, ...]
) -> st.SearchStrategy[dict[str, str]]:
    names = [name for name in some if any(part in name for part in theme)]
    keys = (
        st.sets(st.sampled_from(names), max_size=6)
        if names
        else st.just(set())
    )
    return keys.flatmap(
        lambda chosen: st.fixed_dictionaries(
            {each: st.sampled_from(some[each]) for each in sorted(chosen)}
        )
    )


def _of_both(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, str]]:
    """Return an image property and the extra spec for the same, which often
    differ.
    """
    if draw(st.booleans()):
        return {}, {}
    in_image, in_flavor = draw(st.sampled_from(_BOTH))
    values = (
        draw(st.sampled_from(PROPERTIES[in_image])),
        draw(st.sampled_from(EXTRA_SPECS[in_flavor])),
    )
    return {in_image: values[0]}, {in_flavor: values[1]}


@st.composite
def images(
    draw: st.DrawFn, theme: tuple[str, ...], more: dict[str, str]
) -> Any:
    """Return an image with properties of a theme, and traits.

    :param more: properties that it has in any case
    """
    properties = draw(_of_theme(PROPERTIES, theme)) | more
    properties |= {
        f"trait:{each}": "required"
        for each in draw(st.sets(st.sampled_from(_TRAITS), max_size=2))
    }
    disk_format = draw(
        st.sampled_from(
            ["qcow2", "QCOW2", "raw", "iso", "vmdk", "ami", "vhdx", "ploop"]
        )
    )
    return objects.ImageMeta.from_dict(
        {
            "id": IMAGE,
            "name": "i",
            "disk_format": disk_format,
            "properties": properties,
        }
    )


@st.composite
def flavors(
    draw: st.DrawFn, theme: tuple[str, ...], more: dict[str, str]
) -> Any:
    """Return a flavor with extra specs of a theme, resources and traits by
    suffix; or with none set.

    :param more: extra specs that it has unless none are set
    """
    sizes = {
        name: draw(st.integers(0, 5000))
        for name in ("memory_mb", "root_gb", "ephemeral_gb", "swap")
    }
    flavor = objects.Flavor(name="f", vcpus=draw(st.integers(1, 5)), **sizes)
    if draw(st.integers(0, 9)) == 0:
        return flavor
    specs = draw(_of_theme(EXTRA_SPECS, theme)) | more
    pairs = st.tuples(st.sampled_from(_SUFFIXES), st.sampled_from(_CLASSES))
    for suffix, name in sorted(draw(st.sets(pairs, max_size=3))):
        specs[f"resources{suffix}:{name}"] = draw(st.sampled_from(_AMOUNTS))
    for suffix, name in sorted(
        draw(
            st.sets(
                st.tuples(
                    st.sampled_from(_SUFFIXES), st.sampled_from(_TRAITS)
                ),
                max_size=3,
            )
        )
    ):
        specs[f"trait{suffix}:{name}"] = draw(
            st.sampled_from(["required", "forbidden", "wanted"])
        )
    specs |= draw(
        st.sampled_from(
            [{}, {}, {"traitor:x": "odd", "traits:no name": "wanted"}]
        )
    )
    flavor.extra_specs = specs
    return flavor


@st.composite
def groups(draw: st.DrawFn) -> Any:
    """Return a request group as PCI devices, device profiles and ports bring
    them.
    """
    group = objects.RequestGroup(
        requester_id=draw(st.sampled_from(_GROUPS)),
        resources=draw(
            st.dictionaries(
                st.sampled_from(["VGPU", "FPGA", "CUSTOM_PCI_1"]),
                st.integers(0, 3),
                max_size=2,
            )
        ),
    )
    group.obj_set_defaults()
    group.required_traits |= draw(
        st.sets(st.sampled_from(_TRAITS), max_size=2)
    )
    group.forbidden_traits |= (
        draw(st.sets(st.sampled_from(_TRAITS), max_size=1))
        - group.required_traits
    )
    group.aggregates = draw(
        st.lists(
            st.lists(st.sampled_from(_AGGREGATES), min_size=1, max_size=2),
            max_size=1,
        )
    )
    return group


def _pci_requests() -> Any:
    own = objects.InstancePCIRequest(
        request_id=PCI_REQUEST, alias_name="a", count=1, spec=[]
    )
    of_port = objects.InstancePCIRequest(request_id=PORT, count=1, spec=[])
    return objects.InstancePCIRequests(requests=[own, of_port])


@st.composite
def request_specs(draw: st.DrawFn) -> Any:
    """Return a request spec of Nova's."""
    theme = draw(st.sampled_from(_THEMES))
    in_image, in_flavor = _of_both(draw)
    spec = objects.RequestSpec(flavor=draw(flavors(theme, in_flavor)))
    if draw(st.integers(0, 9)):
        spec.image = (
            draw(images(theme, in_image)) if draw(st.integers(0, 9)) else None
        )
    if draw(st.booleans()):
        spec.is_bfv = draw(st.booleans())
    if draw(st.booleans()):
        found = draw(st.lists(groups(), max_size=3))
        spec.requested_resources = list(
            {each.requester_id: each for each in found}.values()
        )
        spec.pci_requests = draw(st.sampled_from([None, _pci_requests()]))
    if draw(st.booleans()):
        spec.request_level_params = objects.RequestLevelParams(
            root_required=draw(st.sets(st.sampled_from(_TRAITS[:2]))),
            root_forbidden=draw(
                st.sets(st.sampled_from(["COMPUTE_STATUS_DISABLED"]))
            ),
            same_subtree=draw(
                st.lists(
                    st.lists(st.sampled_from(_GROUPS), max_size=2), max_size=1
                )
            ),
        )
    if draw(st.integers(0, 4)) == 0:
        destination = objects.Destination()
        destination.require_aggregates(
            draw(
                st.lists(st.sampled_from(_AGGREGATES), min_size=1, max_size=2)
            )
        )
        destination.append_forbidden_aggregates(
            draw(st.sets(st.sampled_from(_AGGREGATES), max_size=1))
        )
        spec.requested_destination = destination
    return spec
