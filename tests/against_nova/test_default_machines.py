# SPDX-License-Identifier: Apache-2.0

"""The machine type of a guest whose image names none is the one that Nova's
own ``get_machine_type`` gives it.

By enumeration over the architecture that the image names, the one that it has
emulated, the host's, and ``[libvirt] hw_machine_type``. Nova's code decides
which machine type that is; filters, traits, late check and guest settings must
say what follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from types import MappingProxyType
from typing import Any
from unittest import mock

import pytest
from nova import conf as nova_conf
from nova import exception
from nova.objects import fields
from nova.virt.libvirt import driver, utils

from os_prefilter.adapters.nova_conf import LibvirtSettings
from os_prefilter.common.errors import RequestRejected
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.driver_check import guest_settings, unsupported
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.service import Service
from os_prefilter.vocabulary.machine_types import family_of
from tests.conftest import pipeline_of
from tests.support.hosts import with_every_device
from tests.support.libvirt_xml import (
    ARM_MACHINES,
    X86_MACHINES,
    capabilities,
    domain_capabilities,
)
from tests.support.libvirt_xml import facts as facts_of
from tests.support.nova_objects import nova_spec

_POWER = MappingProxyType({"pseries-7.2": "", "pseries": "pseries-7.2"})
_S390 = MappingProxyType(
    {"s390-ccw-virtio-7.2": "", "s390-ccw-virtio": "s390-ccw-virtio-7.2"}
)
_MACHINES = {
    "x86_64": X86_MACHINES,
    "i686": X86_MACHINES,
    "aarch64": ARM_MACHINES,
    "armv7l": ARM_MACHINES,
    "ppc64le": _POWER,
    "s390x": _S390,
}
_HOSTS = tuple(name for name in _MACHINES if name != "i686")
_SETTINGS = (
    (),
    ("x86_64=q35",),
    ("i686=q35",),
    ("x86_64=q35", "i686=pc-q35-7.2"),
    ("x86_64=microvm", "i686=isapc", "aarch64=virt-7.2"),
    ("armv7l=virt", "ppc64le=pseries-7.2", "s390x=s390-ccw-virtio-7.2"),
)
# The first names none; i386 is an older name for i686.
_ARCHITECTURES = ("", "i386", *_MACHINES)
_DEVICES: tuple[dict[str, str], ...] = (
    {},
    {"hw_disk_bus": "ide"},
    {"hw_viommu_model": "intel"},
)


@pytest.fixture(autouse=True)
def _machine_types() -> Iterator[None]:
    yield
    nova_conf.CONF.clear_override("hw_machine_type", "libvirt")


def _host(architecture: str, settings: tuple[str, ...]) -> LibvirtFacts:
    """Return a host that emulates all other architectures."""
    kinds = {
        name: "qemu kvm" if name == architecture else "qemu"
        for name in _MACHINES
    }
    documents = [
        domain_capabilities(
            name,
            kinds[name].split()[-1],
            exact,
            buses="ide" if family_of(exact) == "pc" else "scsi",
        )
        for name, machines in _MACHINES.items()
        for exact in sorted(
            {exact or each for each, exact in machines.items()}
        )
    ]
    configured = LibvirtSettings(
        virt_type="kvm",
        hw_machine_type=dict(each.split("=") for each in settings),
    )
    offered = capabilities(architecture, kinds, _MACHINES)
    # With a newer libvirt than was tried: what else Nova's guests fail at,
    # real guests show.
    return replace(
        with_every_device(facts_of(offered, *documents, settings=configured)),
        built_by_nova=True,
        nova_release=34,
        libvirt_version=(12, 0, 0),
    )


def _images() -> Iterator[dict[str, str]]:
    for named, device in product(_ARCHITECTURES, _DEVICES):
        said = {"hw_architecture": named, **device}
        yield {name: value for name, value in said.items() if value}


class _Nova:
    """Nova's libvirt driver on a host."""

    def __init__(self, architecture: str) -> None:
        self._architecture = architecture
        self._driver = driver.LibvirtDriver.__new__(driver.LibvirtDriver)
        self._driver._host = mock.Mock()

    def machine_type(self, image: Any) -> str:
        return str(utils.get_machine_type(image))

    def starts(self, image: Any, flavor: Any) -> bool:
        """Whether a guest starts as Nova builds it: QEMU for its architecture
        has the machine type and the devices.
        """
        named = image.properties.get("hw_architecture")
        if (
            named
            and {"i686": "x86_64"}.get(named, named) != self._architecture
        ):
            # The architecture of hosts, for its trait.
            return False
        machine = self.machine_type(image)
        if machine not in _MACHINES[self._driver._check_emulation_arch(image)]:
            return False
        if (
            image.properties.get("hw_disk_bus") == "ide"
            and family_of(machine) != "pc"
        ):
            return False
        try:
            model = self._driver._get_iommu_model(
                mock.Mock(os_mach_type=machine), image, flavor
            )
        except (
            exception.InvalidVIOMMUMachineType,
            exception.InvalidVIOMMUArchitecture,
        ):
            return False
        # libvirt refuses it on any other (difference 2 of the page "What a
        # libvirt host reports").
        return model is None or self._driver._is_x86_guest(image)


def _is_selected(
    pipeline: Service, spec: Any, traits: dict[str, bool]
) -> bool:
    try:
        decision = pipeline.apply(spec)
    except RequestRejected:
        return False
    return all(
        traits.get(item.trait, False) is item.required
        for item in decision.requirements
    )


def _accepts(spec: Any, facts: LibvirtFacts) -> bool:
    try:
        return unsupported(spec, facts) == []
    except RequestRejected:
        return False


@pytest.mark.parametrize("architecture", _HOSTS)
def test_default_machine_type_is_the_one_that_nova_gives_the_guest(
    architecture: str,
) -> None:
    nova, conf = _Nova(architecture), nova_conf.CONF
    pipeline = pipeline_of("image_metadata")
    for configured in _SETTINGS:
        facts = _host(architecture, configured)
        traits: dict[str, bool] = {
            str(trait): has for trait, has in capability_traits(facts).items()
        }
        conf.set_override("hw_machine_type", list(configured), "libvirt")
        started = 0
        with mock.patch.object(
            fields.Architecture, "from_host", return_value=architecture
        ):
            for properties in _images():
                spec = nova_spec(properties)
                starts = nova.starts(spec.image, spec.flavor)
                assert _accepts(spec, facts) is starts, (
                    configured,
                    properties,
                )
                assert (
                    _is_selected(pipeline, nova_spec(properties), traits)
                    is starts
                ), (configured, properties)
                if starts:
                    assert guest_settings(spec, facts).family == family_of(
                        nova.machine_type(spec.image)
                    ), properties
                    started += 1
        assert started
