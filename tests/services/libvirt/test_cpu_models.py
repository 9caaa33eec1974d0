# SPDX-License-Identifier: Apache-2.0

"""CPU features on a host with several models: Nova's driver reports all of
them, and gives a guest the first model that has what the flavor requires.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from shutil import which
from subprocess import run
from typing import Any
from unittest import mock

import nova.conf
import pytest
from nova.virt.libvirt import config as nova_config
from nova.virt.libvirt import driver

from os_prefilter import unsupported
from os_prefilter.request.view import Request
from os_prefilter.rules.filter import rules
from os_prefilter.rules.reader import guest_systems
from os_prefilter.service import Service
from os_prefilter.vocabulary.filter_rows import SEVERAL_CPU_MODELS
from os_prefilter.vocabulary.options import Options
from tests.services.libvirt.connection import needs_libvirt, uri
from tests.support.hosts import with_cpu_models
from tests.support.nova_objects import nova_spec

pytestmark = needs_libvirt
needs_qemu_user = pytest.mark.skipif(
    not which("qemu-x86_64") and not os.environ.get("CI"),
    reason="it needs qemu-x86_64 of Debian's package qemu-user",
)
_LOADER = "/lib64/ld-linux-x86-64.so.2"

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
    conf.clear_override("cpu_model_extra_flags", "libvirt")
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


_SYSTEMS = {"x86-64-v2": "rhel9", "x86-64-v3": "rhel10"}
_NO_MODEL = "unable to find CPU model"
_ONLY_32_BIT = "does not support 64 bit mode"


def _required() -> dict[str, set[str]]:
    """Return the traits that the rules require for each level."""
    required = {}
    for level, distro in _SYSTEMS.items():
        request = Request(nova_spec({"os_distro": distro}))
        found = rules(request, rules=guest_systems(), options=Options())
        required[level] = {str(item.trait) for item in found.requirements}
    return required


def _levels_taken(novas_driver: Any, model: str) -> set[str]:
    """Return the levels for which the rules take a host with this model."""
    nova.conf.CONF.set_override("cpu_models", [model], "libvirt")
    reported = novas_driver._get_cpu_feature_traits()
    has = {trait for trait, is_reported in reported.items() if is_reported}
    return {level for level, traits in _required().items() if traits <= has}


def _levels_of(model: str) -> set[str] | None:
    """Return the levels that glibc finds on QEMU's CPU model, emulated.

    None if QEMU does not have the model.
    """
    program = ["qemu-x86_64", "-cpu", model, _LOADER, "--help"]
    found = run(program, capture_output=True, text=True, check=False)
    if _NO_MODEL in found.stderr:
        return None
    assert found.returncode == 0 or _ONLY_32_BIT in found.stderr
    return {
        level for level in _SYSTEMS if f"{level} (supported" in found.stdout
    }


@needs_qemu_user
def test_host_of_each_model_is_taken_exactly_if_the_system_starts_there(
    novas_driver: Any,
) -> None:
    """Nova reports a model's features as libvirt has them, which are fewer
    than the guest's for Haswell and Broadwell.
    """
    takes: dict[str, set[str]] = {}
    starts: dict[str, set[str]] = {}
    models = novas_driver._host.get_connection().getCPUModelNames("x86_64")
    novas_driver._host.get_cpu_model_names.return_value = models
    for model in models:
        levels = _levels_of(model)
        if levels is None:
            continue
        starts[model] = levels
        takes[model] = _levels_taken(novas_driver, model)
    assert takes == starts
    assert len(starts) > 50


_V2 = {"cx16", "lahf-lm", "popcnt", "sse4.1", "sse4.2", "ssse3"}
_V3 = {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
_FEATURES = {"x86-64-v2": _V2, "x86-64-v3": _V2 | _V3}
_GUEST = """
<domain type='qemu'>
  <name>{name}</name>
  <memory unit='MiB'>64</memory>
  <os><type arch='x86_64' machine='pc'>hvm</type></os>
  <cpu mode='custom' match='exact'><model>{model}</model></cpu>
  <devices>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
  </devices>
</domain>
"""


def _levels_of_guest(model: str) -> set[str]:
    """Return the levels whose features an emulated guest of libvirt has."""
    libvirt = import_module("libvirt")
    monitor = import_module("libvirt_qemu").qemuMonitorCommand
    flags = (
        libvirt.VIR_DOMAIN_START_PAUSED | libvirt.VIR_DOMAIN_START_AUTODESTROY
    )
    name = f"os-prefilter-cpu-{os.getpid()}"
    with closing(libvirt.open(uri())) as connection:
        xml = _GUEST.format(name=name, model=model)
        domain = connection.createXML(xml, flags)

        def ask(command: str, **arguments: str) -> Any:
            asked = {"execute": command, "arguments": arguments}
            return json.loads(monitor(domain, json.dumps(asked), 0))["return"]

        (cpu,) = ask("query-cpus-fast")
        has = {
            feature
            for feature in _V2 | _V3
            if ask("qom-get", path=cpu["qom-path"], property=feature)
        }
        domain.destroy()
    return {level for level, needed in _FEATURES.items() if needed <= has}


# The newest without a level and the oldest with it, of Intel and AMD.
@pytest.mark.parametrize(
    "model",
    ["Penryn", "Nehalem", "IvyBridge", "Opteron_G5", "Haswell", "EPYC"],
)
def test_guest_that_libvirt_starts_has_the_level_for_which_its_host_is_taken(
    model: str, novas_driver: Any
) -> None:
    novas_driver._host.get_cpu_model_names.return_value = [model]
    assert _levels_of_guest(model) == _levels_taken(novas_driver, model)


_FLAGS = ["ssse3", "sse4.1", "sse4.2", "avx", "avx2", "bmi1", "bmi2", "fma"]


@pytest.mark.parametrize(
    ("flags", "reports"),
    [([], False), (_FLAGS, True)],
    ids=["unknown", "named in nova.conf"],
)
def test_host_with_an_unknown_cpu_starts_no_system_until_its_features_are_named(
    flags: list[str], reports: bool, novas_driver: Any
) -> None:
    conf = nova.conf.CONF
    conf.set_override("cpu_mode", "host-passthrough", "libvirt")
    conf.set_override("cpu_model_extra_flags", flags, "libvirt")
    traits = novas_driver._get_cpu_feature_traits()
    for level, required in _required().items():
        assert {traits[trait] for trait in required} == {reports}, level


def test_nova_reports_a_feature_that_nova_conf_takes_from_guests(
    novas_driver: Any,
) -> None:
    """So that the rules take such a host, and the system does not start."""
    conf = nova.conf.CONF
    conf.set_override("cpu_mode", "host-model", "libvirt")
    conf.set_override("cpu_model_extra_flags", ["-avx2"], "libvirt")
    built = novas_driver._get_guest_cpu_model_config()
    (feature,) = built.features
    assert (feature.name, feature.policy) == ("avx2", "disable")
    assert novas_driver._get_cpu_feature_traits()["HW_CPU_X86_AVX2"]
