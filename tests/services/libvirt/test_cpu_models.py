# SPDX-License-Identifier: Apache-2.0

"""CPU features on a host with several models: Nova's driver reports all of
them, and gives a guest the first model that has what the flavor requires.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any
from unittest import mock

import nova.conf
import pytest
from nova.virt.libvirt import config as nova_config
from nova.virt.libvirt import driver

from os_prefilter import unsupported
from os_prefilter.service import Service
from os_prefilter.vocabulary.filter_rows import SEVERAL_CPU_MODELS
from os_prefilter.vocabulary.options import Options
from tests.services.libvirt.connection import needs_libvirt
from tests.support.hosts import with_cpu_models
from tests.support.nova_objects import nova_spec

pytestmark = needs_libvirt

_OLD, _NEW = "Nehalem", "Haswell-noTSX"
_AVX2 = {"trait:HW_CPU_X86_AVX2": "required"}
_SSE42 = {"trait:HW_CPU_X86_SSE42": "required"}


@pytest.fixture
def novas_driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return Nova's driver; libvirt itself expands the models."""
    libvirt = import_module("libvirt")
    monkeypatch.setattr(driver, "libvirt", libvirt)
    found = driver.LibvirtDriver.__new__(driver.LibvirtDriver)
    found.cpu_models_mapping = {}
    found.cpu_model_flag_mapping = {}
    caps = nova_config.LibvirtConfigCaps()
    caps.host = nova_config.LibvirtConfigCapsHost()
    caps.host.cpu = nova_config.LibvirtConfigCPU()
    caps.host.cpu.arch = "x86_64"
    found._host = mock.Mock()
    found._host.get_capabilities.return_value = caps
    found._host.get_cpu_model_names.return_value = [_OLD, _NEW]
    connection = libvirt.open("test:///default")
    found._host.get_connection.return_value = connection
    conf = nova.conf.CONF
    conf.set_override("virt_type", "kvm", "libvirt")
    conf.set_override("cpu_mode", "custom", "libvirt")
    yield found
    conf.clear_override("virt_type", "libvirt")
    conf.clear_override("cpu_mode", "libvirt")
    conf.clear_override("cpu_models", "libvirt")
    connection.close()


_CASES: dict[str, tuple[list[str], dict[str, str], dict[str, str], str]] = {
    "image alone": ([_OLD, _NEW], _AVX2, {}, _OLD),
    "flavor": ([_OLD, _NEW], {}, _AVX2, _NEW),
    "both": ([_OLD, _NEW], _AVX2, _AVX2, _NEW),
    "another of the flavor": ([_OLD, _NEW], _AVX2, _SSE42, _OLD),
    "group of the flavor": (
        [_OLD, _NEW],
        _AVX2,
        {"resources1:VCPU": "1", "trait1:HW_CPU_X86_AVX2": "required"},
        _NEW,
    ),
    "one model": ([_NEW], _AVX2, {}, _NEW),
}


@pytest.mark.parametrize(
    ("models", "image", "flavor", "guest"), _CASES.values(), ids=_CASES
)
def test_host_is_forbidden_exactly_where_nova_gives_the_guest_another_model(
    models: list[str],
    image: dict[str, str],
    flavor: dict[str, str],
    guest: str,
    novas_driver: Any,
) -> None:
    nova.conf.CONF.set_override("cpu_models", models, "libvirt")
    spec = nova_spec(image, flavor)
    assert novas_driver._get_cpu_feature_traits()["HW_CPU_X86_AVX2"]
    built = novas_driver._get_guest_cpu_model_config(spec.flavor)
    assert built.model == guest
    options = Options(nova_builds_guests=True)
    service = Service.from_names("image_metadata", options=options)
    decision = service.decide(spec)
    forbidden = {
        item.trait for item in decision.requirements if not item.required
    }
    reports_several = len(models) > 1
    excluded = reports_several and SEVERAL_CPU_MODELS in forbidden
    assert excluded == (guest == _OLD)
    assert bool(unsupported(spec, with_cpu_models(*models))) == excluded
