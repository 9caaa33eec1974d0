"""Our comparison of CPUs against that of a real libvirt, on its own definitions and for many random CPUs."""

import random
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import nova.conf
import pytest
from defusedxml.ElementTree import fromstring
from nova import exception
from nova.virt.libvirt import config as nova_config
from nova.virt.libvirt.driver import LibvirtDriver
from nova.virt.libvirt.host import Host as NovaHost
from oslo_serialization import jsonutils

from os_prefilter.adapters.libvirt.cpu_documents import CPU_MAP, definitions_from, guest_cpu_from, host_cpus_from
from os_prefilter.adapters.libvirt.host import LibvirtHost
from os_prefilter.adapters.nova_conf import LibvirtSettings
from os_prefilter.hosts.cpu import Cpu, CpuDefinitions, HostCpu, baseline, compare
from os_prefilter.operators.cpu_groups import common_cpus, fit, group_hosts
from tests.services.libvirt.connection import needs_libvirt, uri
from tests.support.corpus import corpus

pytestmark = needs_libvirt

_GUESTS = 600
_BASELINES = 300
_POLICIES = ("require", "require", "optional", "disable", "force")
_ADAPTED = ("disable", "disable", "disable", "optional", "force")


@pytest.fixture(scope="module")
def libvirt() -> Any:
    module = import_module("libvirt")
    module.registerErrorHandler(lambda _context, _error: None, None)
    return module


@pytest.fixture(scope="module")
def connection(libvirt: Any) -> Iterator[Any]:
    opened = libvirt.open(uri())
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def definitions() -> CpuDefinitions:
    return definitions_from(CPU_MAP)


@pytest.fixture(scope="module", params=["kvm", "qemu"])
def host(request: pytest.FixtureRequest, connection: Any, tmp_path_factory: pytest.TempPathFactory) -> HostCpu:
    """Return the CPU of this host for guests of a domain type that it has."""
    if request.param not in _domain_types(connection):
        pytest.skip("this host has no KVM")
    path = tmp_path_factory.mktemp("host") / f"{request.param}.xml"
    path.write_text(connection.getDomainCapabilities(None, "x86_64", None, request.param))
    (found,) = host_cpus_from([str(path)])
    assert found.cpu
    return found


def _domain_types(connection: Any) -> set[str]:
    """Return the domain types of the host's own guests."""
    root = fromstring(connection.getCapabilities())
    return {each.get("type") or "" for each in root.iterfind("guest/arch[@name='x86_64']/domain")}


def _xml(cpu: Cpu, *, of_host: bool = False) -> str:
    vendor = f"<vendor>{cpu.vendor}</vendor>" if cpu.vendor else ""
    if of_host:
        features = "".join(f"<feature name='{name}'/>" for name in cpu.required)
        return f"<cpu><arch>{cpu.architecture}</arch><model>{cpu.model}</model>{vendor}{features}</cpu>"
    features = "".join(f"<feature policy='{policy}' name='{name}'/>" for name, policy in cpu.features)
    match = "strict" if cpu.strict else "exact"
    return f"<cpu match='{match}'><model>{cpu.model}</model>{vendor}{features}</cpu>"


def _guest(choose: random.Random, host: Cpu, definitions: CpuDefinitions) -> Cpu:
    """Return a random CPU, which often fits: what the host lacks of its model is mostly disabled."""
    available = definitions.all_bits(host)
    model = choose.choice(list(definitions.models.values()))
    missing = definitions.names(model.bits & ~available)
    features = {name: choose.choice(_ADAPTED) for name in missing if choose.random() < 0.97}
    names = definitions.names(available)
    features |= {name: choose.choice(_POLICIES) for name in choose.sample(names, choose.randint(0, 5))}
    if choose.random() < 0.2:
        features[choose.choice(list(definitions.features))] = choose.choice(("require", "forbid"))
    vendor = choose.choice(("", "", host.vendor, "Intel", "AMD"))
    return Cpu("", model.name, vendor, tuple(sorted(features.items())), strict=choose.random() < 0.1)


def test_guests_fit_this_host_exactly_where_libvirt_says_so(
    host: HostCpu, connection: Any, definitions: CpuDefinitions
) -> None:
    choose = random.Random(host.domain_type)  # noqa: S311 - the same guests each time
    fits = 0
    assert host.cpu
    for _ in range(_GUESTS):
        guest = _guest(choose, host.cpu, definitions)
        answer = connection.compareHypervisorCPU(None, "x86_64", None, host.domain_type, _xml(guest), 0)
        assert compare(host.cpu, guest, definitions).fits == (answer > 0), guest
        fits += answer > 0
    assert _GUESTS / 10 < fits < _GUESTS * 9 / 10


def test_a_model_or_a_feature_that_libvirt_does_not_know_is_never_a_fit(
    host: HostCpu, connection: Any, definitions: CpuDefinitions, libvirt: Any
) -> None:
    assert host.cpu
    for guest in (Cpu("", "EPYC-Next"), Cpu("", host.cpu.model, features=(("warp", "require"),))):
        assert not compare(host.cpu, guest, definitions).fits
        with pytest.raises(libvirt.libvirtError, match="Unknown CPU"):
            connection.compareHypervisorCPU(None, "x86_64", None, host.domain_type, _xml(guest), 0)


@pytest.mark.parametrize("vendor", ["AMD", "Intel"])
def test_baseline_has_the_features_of_libvirts_own(vendor: str, libvirt: Any, definitions: CpuDefinitions) -> None:
    """Of libvirt's test driver, which compares any CPUs; it may name another model."""
    connection = libvirt.open("test:///default")
    choose = random.Random(vendor)  # noqa: S311 - the same CPUs each time
    models = [each for each in definitions.models.values() if each.vendor == vendor and each.for_guests]
    # libvirt leaves the first two out where they are named, and not where they belong to a model.
    names = sorted(definitions.features.keys() - {"invtsc", "xsaves"})
    for _ in range(_BASELINES):
        cpus = []
        for model in choose.choices(models, k=choose.randint(1, 4)):
            more = (each for each in choose.sample(names, choose.randint(0, 12)))
            beside = [(each, "require") for each in more if not definitions.features[each] & model.bits]
            cpus.append(Cpu("x86_64", model.name, vendor, tuple(sorted(beside))))
        described = [_xml(each, of_host=True) for each in cpus]
        answer = fromstring(connection.baselineCPU(described, libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES))
        wanted = {each.get("name") for each in answer.iterfind("feature") if each.get("policy") != "disable"}
        found = baseline(cpus, frozenset(definitions.models), definitions)
        assert set(definitions.names(definitions.all_bits(found))) == wanted, cpus
    connection.close()


@pytest.fixture
def driver() -> Iterator[Any]:
    """Return Nova's driver on the real libvirt; its comparison needs nothing else of it."""
    nova.conf.CONF.set_override("virt_type", "kvm", "libvirt")
    created = object.__new__(LibvirtDriver)
    created._host = NovaHost(uri())
    yield created
    nova.conf.CONF.clear_override("virt_type", "libvirt")


def test_nova_refuses_the_live_migrations_of_guests_that_do_not_fit(
    driver: Any, connection: Any, definitions: CpuDefinitions, tmp_path: Path
) -> None:
    """It compares a model with flags, or the CPU of the source host, with what libvirt gives to guests by default."""
    path = tmp_path / "host.xml"
    path.write_text(connection.getDomainCapabilities())
    (host,) = host_cpus_from([str(path)])
    assert host.cpu
    own = nova_config.LibvirtConfigGuestCPU()
    own.model = host.cpu.model
    for name in host.cpu.disabled:
        own.add_feature(nova_config.LibvirtConfigGuestCPUFeature(name, policy="disable"))
    more = nova_config.LibvirtConfigGuestCPU()
    more.model = host.cpu.model
    more.add_feature(nova_config.LibvirtConfigGuestCPUFeature("hle", policy="require"))
    source = driver._get_cpu_info()
    answers = []
    for guest, text in ((own, own.to_xml()), (more, more.to_xml()), (None, connection.getCapabilities())):
        cpu, _ = guest_cpu_from("guest.xml", text.encode())
        found = compare(host.cpu, cpu, definitions).fits
        with nullcontext() if found else pytest.raises(exception.InvalidCPUInfo):
            driver._compare_cpu(guest, jsonutils.dumps({**source, "features": sorted(source["features"])}), None)
        answers.append(found)
    assert answers[0] is True


def test_nova_compute_starts_with_the_baseline_and_not_with_more(driver: Any, definitions: CpuDefinitions) -> None:
    """With what the table shows for nova.conf."""
    found = LibvirtHost(uri(), LibvirtSettings()).cpu()
    (common,) = common_cpus([found], definitions)
    assert common.cpu
    flags = [*common.cpu.required, *(f"-{name}" for name in common.cpu.disabled)]
    driver.cpu_models_mapping = {}
    nova.conf.CONF.set_override("cpu_mode", "custom", "libvirt")
    nova.conf.CONF.set_override("cpu_models", [common.cpu.model], "libvirt")
    try:
        nova.conf.CONF.set_override("cpu_model_extra_flags", flags, "libvirt")
        driver._check_cpu_compatibility()
        nova.conf.CONF.set_override("cpu_model_extra_flags", [*flags, "hle"], "libvirt")
        with pytest.raises(exception.InvalidCPUInfo):
            driver._check_cpu_compatibility()
    finally:
        for name in ("cpu_mode", "cpu_models", "cpu_model_extra_flags"):
            nova.conf.CONF.clear_override(name, "libvirt")


def test_connected_libvirt_answers_as_computed(definitions: CpuDefinitions) -> None:
    """And says that it does not know where it has no definition."""
    found = LibvirtHost(uri(), LibvirtSettings()).cpu()
    assert found.ask
    assert found.cpu
    (group,) = group_hosts([found], definitions)
    own = found.cpu.migratable()
    assert found.ask(own).fits is fit(group, own, definitions).fits is True
    more = replace(own, features=tuple(sorted({*own.features, ("hle", "require")})))
    assert found.ask(more).fits is compare(own, more, definitions).fits is False
    assert "hle" in found.ask(more).reason
    assert found.ask(Cpu("", "EPYC-Next")).fits is None


def test_models_that_fit_are_those_that_libvirt_calls_usable(definitions: CpuDefinitions) -> None:
    """In the documents of other versions as well: of KVM, as emulated CPUs lack what QEMU still calls usable."""
    folder = corpus()
    hosts = host_cpus_from([str(folder / "domaincapabilities")]) if folder else []
    compared = 0
    for host in hosts:
        if host.architecture != "x86_64" or host.domain_type != "kvm" or host.cpu is None:
            continue
        (group,) = group_hosts([host], definitions)
        for model, usable in host.models.items():
            found = fit(group, Cpu("", model), definitions)
            assert (found.fits is True) == usable, (host.where, model, found)
            compared += 1
    assert compared > 100 or not folder
