# SPDX-License-Identifier: Apache-2.0

"""Devices that Nova takes from libosinfo's database.

Nova asks for an image that names its system and not the device.

Nova's libvirt driver asks it for the network card and the disk bus of
``os_distro`` (``nova/virt/osinfo.py``), where the environment of nova-compute
has libosinfo. What is asked here is what is installed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import describe_error
from os_prefilter.vocabulary import BY_NAME

LOG = get_logger(__name__)

_CLASSES = {
    "hw_vif_model": ("vif_model", "net"),
    "hw_disk_bus": ("disk_bus", "block"),
}
DEVICES = tuple(_CLASSES)
"""The image properties that Nova takes from libosinfo where they are not set.
"""
_VIRTIO = frozenset(
    ("virtio-net", "virtio1.0-net", "virtio-block", "virtio1.0-block")
)
_LONGEST_NAME = 255


@cache
def _libosinfo() -> tuple[Any, Any] | None:
    """Return the library and its list of systems; None if not installed.

    The log says so once.
    """
    try:
        import_module("gi").require_version("Libosinfo", "1.0")
        library = import_module("gi.repository.Libosinfo")
        loader = library.Loader()
        loader.process_default_path()
        return library, loader.get_db().get_os_list()
    # gi's own errors are GLib's, which exist only with it.
    except Exception as error:  # noqa: BLE001
        LOG.debug(
            "libosinfo cannot be asked here for the devices of a system: %s",
            describe_error(error),
        )
        return None


def has_libosinfo() -> bool:
    """Return whether libosinfo can be asked here."""
    return _libosinfo() is not None


@lru_cache(maxsize=1024)
def implied_by(distro: str) -> Mapping[str, str]:
    """Return the devices of a system, by image property.

    Empty for an unknown system.

    :param distro: the image's ``os_distro``: a short id, such as ``win2k19``,
        or an id that is a URL
    """
    loaded = _libosinfo()
    if (
        not loaded
        or not 0 < len(distro) <= _LONGEST_NAME
        or not distro.isprintable()
    ):
        return {}
    library, systems = loaded
    named = library.Filter.new()
    named.add_constraint(
        "id" if distro.startswith("http") else "short-id", distro
    )
    found = systems.new_filtered(named)
    return _devices_of(library, found.get_nth(0)) if found.get_length() else {}


def _devices_of(library: Any, system: Any) -> dict[str, str]:
    devices = {}
    for name, (row, device_class) in _CLASSES.items():
        wanted = library.Filter.new()
        wanted.add_constraint("class", device_class)
        listed = system.get_all_devices(wanted)
        model = listed.get_nth(0).get_name() if listed.get_length() else ""
        value = "virtio" if model in _VIRTIO else model
        if value in BY_NAME[row].values:
            devices[name] = value
    return devices
