# SPDX-License-Identifier: Apache-2.0

"""Each bug of :mod:`tests.against_nova.upstream` is in the installed release
if and only if the list says so: the page that is made from it does not grow
old.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import keystoneauth1.identity
import keystoneauth1.session
import nova.conf
import os_traits
import oslo_messaging as messaging
import pytest
import requests
from nova import exception, objects
from nova.compute import manager as compute_manager
from nova.compute import monitors
from nova.objects import fields
from nova.objects.aggregate import AggregateList
from nova.scheduler import request_filter
from nova.scheduler.utils import ResourceRequest
from nova.virt import fake, hardware
from nova.virt.ironic import driver as ironic
from nova.virt.libvirt import blockinfo, config, driver, host

from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet
from tests.against_nova.differences import AGGREGATE_DIFFERENCES, DIFFERENCES
from tests.against_nova.nova import NOVA, filters_switched_on
from tests.against_nova.test_secure_boot import has_secure_boot
from tests.against_nova.test_usb_controllers import controller_of
from tests.against_nova.upstream import BUGS, IN_SERVICES, Bug
from tests.support.nova_objects import nova_spec
from tests.support.nova_start import ask, starting, user_context
from tests.support.pages import ROOT
from tests.support.placements import Observed, lone_host, provider

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONF = nova.conf.CONF
_SERVER = "3f0c3d8e-55a1-4c3b-9a41-6d0f5c8e7b11"
_HOST = "VCPU MEMORY_MB DISK_GB"

_BY_A_CALL = [
    each
    for each in BUGS
    if not each.other_test and each.project not in IN_SERVICES
]
_REPRODUCERS: dict[str, Callable[[Path], bool]] = {}
"""Name of a bug -> ``(folder) -> whether it is there``."""


def _shows(name: str) -> Callable[[Any], Any]:
    def add(function: Any) -> Any:
        _REPRODUCERS[name] = function
        return function

    return add


@pytest.mark.parametrize("bug", _BY_A_CALL, ids=lambda each: each.name)
def test_bug_is_there(bug: Bug, tmp_path: Path) -> None:
    if bug.project == "Nova" and bug.since > NOVA:
        pytest.skip("This Nova lacks the code.")
    with _configuration():
        is_there = _REPRODUCERS[bug.name](tmp_path)
    bug.check(is_there=is_there)


def test_each_bug_has_a_reproducer() -> None:
    named = [each.name for each in BUGS]
    assert len(set(named)) == len(named)
    assert {each.name for each in _BY_A_CALL} == set(_REPRODUCERS)


@pytest.mark.parametrize(
    "bug",
    [each for each in BUGS if each.other_test],
    ids=lambda each: each.name,
)
def test_other_test_exists(bug: Bug) -> None:
    path, _, part = bug.other_test.partition(" -k ")
    text = (ROOT / path).read_text(encoding="utf-8")
    assert any(
        line.startswith("def test_") and part in line
        for line in text.splitlines()
    )


def test_differences_name_bugs_of_the_list() -> None:
    named = chain.from_iterable(
        each.upstream for each in (*DIFFERENCES, *AGGREGATE_DIFFERENCES)
    )
    assert set(named) <= {each.name for each in BUGS}


@contextmanager
def _configuration() -> Iterator[None]:
    """Switch Nova's filters on, with KVM."""
    CONF.set_override("virt_type", "kvm", "libvirt")
    try:
        with filters_switched_on():
            yield
    finally:
        for option in ("virt_type", "cpu_mode", "cpu_models"):
            CONF.clear_override(option, "libvirt")


def _required_by_image(
    properties: dict[str, str], extra_specs: dict[str, str] | None = None
) -> set[str]:
    """Return the traits that Nova's image prefilter requires."""
    spec = nova_spec(properties, extra_specs)
    request_filter.transform_image_metadata(None, spec)
    return set(spec.root_required)


def _required_by_all(spec: Any) -> set[str]:
    """Return the traits that all request filters of Nova require."""
    request_filter.process_reqspec(None, spec)
    return set(spec.root_required)


def _boot(**given: Any) -> Any:
    values: dict[str, Any] = {
        "availability_zone": None,
        "instance_uuid": _SERVER,
        "is_bfv": False,
        "num_instances": 1,
        "pci_requests": None,
        "project_id": "p",
        "requested_destination": None,
        "requested_networks": objects.NetworkRequestList(objects=[]),
        "requested_resources": [],
        "scheduler_hints": {},
    }
    return nova_spec(**{**values, **given})


def _libvirt_driver(
    buses: dict[str, dict[str, list[str]]] | None = None,
) -> Any:
    """Return Nova's libvirt driver of an x86_64 host.

    :param buses: architecture -> machine type -> buses of disks
    """
    drv = driver.LibvirtDriver.__new__(driver.LibvirtDriver)
    drv._host = mock.Mock(has_hyperthreading=True)
    drv._host.get_capabilities.return_value.host.cpu.arch = "x86_64"
    drv._host.get_domain_capabilities.return_value = {
        arch: {
            machine: SimpleNamespace(
                devices=SimpleNamespace(disk=SimpleNamespace(buses=found))
            )
            for machine, found in machines.items()
        }
        for arch, machines in (buses or {}).items()
    }
    return drv


def _cpu_traits(drv: Any) -> dict[str, bool]:
    with mock.patch.object(drv, "_get_cpu_feature_traits", return_value={}):
        return {**drv._get_cpu_traits()}


@_shows("viommu-trait")
def _viommu_trait(_folder: Path) -> bool:
    models = ("intel", "smmuv3", "virtio")
    for model in models:
        assert hasattr(os_traits, f"COMPUTE_VIOMMU_MODEL_{model.upper()}")
    return not any(
        _required_by_image({"hw_viommu_model": model}) for model in models
    )


@_shows("one-value-drops-all")
def _one_value_drops_all(_folder: Path) -> bool:
    card = {"hw_vif_model": "e1000e"}
    alone = _required_by_image(card)
    assert alone == {"COMPUTE_NET_VIF_MODEL_E1000E"}
    other = {"hw_emulation_architecture": "sparc"}
    return not alone <= _required_by_image({**card, **other})


@_shows("viommu-of-flavor")
def _viommu_of_flavor(_folder: Path) -> bool:
    specs = {"hw:viommu_model": "intel"}
    spec = nova_spec({}, specs)
    guest = mock.Mock(os_mach_type=None)
    model = _libvirt_driver()._get_iommu_model(guest, spec.image, spec.flavor)
    assert model == "intel"
    return not _required_by_image({}, specs)


@_shows("i686-excludes-all")
def _i686_excludes_all(_folder: Path) -> bool:
    required = _required_by_image({"hw_architecture": "i686"})
    reported = _cpu_traits(_libvirt_driver())
    return not all(reported.get(each) for each in required)


@_shows("architecture-not-reported")
def _architecture_not_reported(_folder: Path) -> bool:
    required = _required_by_image({"hw_architecture": "x86_64"})
    assert required == {"HW_ARCH_X86_64"}
    return "HW_ARCH_X86_64" not in _cpu_traits(_libvirt_driver())


@_shows("emulated-architectures")
def _emulated_architectures(_folder: Path) -> bool:
    without = [
        each
        for each in fields.Architecture.ALL
        if not _required_by_image({"hw_emulation_architecture": each})
    ]
    assert "aarch64" not in without
    return len(without) > len(fields.Architecture.ALL) / 2


@_shows("other-drivers-excluded")
def _other_drivers_excluded(_folder: Path) -> bool:
    (trait,) = _required_by_image({"hw_vif_model": "e1000e"})
    assert trait in _libvirt_driver()._get_vif_model_traits()
    reported = [
        kind.__new__(kind).capabilities_as_traits()
        for kind in (fake.FakeDriver, ironic.IronicDriver)
    ]
    return not any(trait in each for each in reported)


@_shows("sound-models")
def _sound_models(_folder: Path) -> bool:
    drv = _libvirt_driver()
    assert "COMPUTE_SOUND_MODEL_ICH9" in drv._get_sound_model_traits()
    required = _required_by_all(_boot(properties={"hw_sound_model": "ich9"}))
    return not any("SOUND" in each for each in required)


@_shows("request-without-image")
def _request_without_image(_folder: Path) -> bool:
    spec = nova_spec()
    spec.image = None
    try:
        request_filter.transform_image_metadata(None, spec)
    except AttributeError:
        return True
    return False


@_shows("misspelt-encryption")
def _misspelt_encryption(_folder: Path) -> bool:
    properties = {"hw_firmware_type": "uefi", "hw_machine_type": "q35"}

    def encrypted(value: str) -> bool:
        spec = nova_spec(properties, {"hw:mem_encryption": value})
        found = hardware.get_mem_encryption_constraint(spec.flavor, spec.image)
        return bool(found)

    assert encrypted("true")
    with suppress(exception.NovaException, ValueError):
        return not encrypted("ture")
    return False


@_shows("isolated-aggregates")
def _isolated_aggregates(_folder: Path) -> bool:
    spec = _boot()
    spec.root_required.add("HW_CPU_X86_AVX2")
    name = "get_non_matching_by_metadata_keys"
    option = "enable_isolated_aggregate_filtering"
    CONF.set_override(option, True, "scheduler")
    try:
        with mock.patch.object(AggregateList, name, return_value=[]) as find:
            request_filter.isolate_aggregates(None, spec)
    finally:
        CONF.clear_override(option, "scheduler")
    _context, keys, *_ = find.call_args[0]
    return "trait:HW_CPU_X86_AVX2" not in keys


@_shows("traits-not-logged")
def _traits_not_logged(_folder: Path) -> bool:
    spec = nova_spec(is_bfv=False)
    spec.root_required.add("HW_CPU_X86_AVX2")
    request = ResourceRequest.from_request_spec(spec)
    assert "HW_CPU_X86_AVX2" in request.to_querystring()
    return "HW_CPU_X86_AVX2" not in str(request)


@_shows("no-reason")
def _no_reason(folder: Path) -> bool:
    def down(_method: str, url: str) -> tuple[int, object] | None:
        return (503, {}) if "allocation_candidates" in url else None

    unknown = {"trait:CUSTOM_OF_NO_PLACEMENT": "required"}
    reasons = set()
    with (
        EmbeddedPlacement(lone_host()) as placement,
        starting(folder) as start,
    ):
        for extra_specs, hook in (
            ({"resources:VGPU": "1"}, None),
            (unknown, None),
            ({}, down),
        ):
            observed = Observed(placement)
            if hook:
                observed.hook = hook
            ask(observed)
            scheduler = start("")
            with pytest.raises(messaging.ExpectedException) as raised:
                scheduler.select_destinations(
                    user_context(),
                    spec_obj=_boot(extra_specs=extra_specs),
                    instance_uuids=[_SERVER],
                )
            reasons.add(str(raised.value.exc_info[1]))
            assert any(
                "allocation_candidates" in each for each in observed.sent
            )
    return reasons == {"No valid host was found. "}


@_shows("owner-of-gpus")
def _owner_of_gpus(_folder: Path) -> bool:
    spec = nova_spec({}, {"resources:VGPU": "1"}, is_bfv=False)
    spec.flavor.memory_mb = 4
    request_filter.owner_nova_filter(None, spec)
    query = ResourceRequest.from_request_spec(spec).to_querystring()
    gpu = provider("kvm-1_gpu", "VGPU", "OWNER_CYBORG")
    tree = provider("kvm-1", _HOST, "OWNER_NOVA", (gpu,))
    with EmbeddedPlacement(Fleet((tree,))) as placement:
        return bool(placement.client.allocation_candidates(query).hosts)


@_shows("owner-at-second-run")
def _owner_at_second_run(_folder: Path) -> bool:
    def required(*on_root: str) -> set[str]:
        pci = objects.InstancePCIRequest(
            request_id=_SERVER, alias_name="a", count=1, spec=[]
        )
        group = objects.RequestGroup(
            requester_id=f"{_SERVER}-0", resources={"CUSTOM_PCI_1": 1}
        )
        group.obj_set_defaults()
        spec = nova_spec(
            requested_resources=[group],
            pci_requests=objects.InstancePCIRequests(requests=[pci]),
        )
        spec.root_required.update(on_root)
        request_filter.owner_nova_filter(None, spec)
        return set(group.required_traits)

    assert required() == {"OWNER_NOVA"}
    return required("OWNER_NOVA") == set()


@_shows("owner-asks-each-time")
def _owner_asks_each_time(_folder: Path) -> bool:
    name = "get_minimum_version_all_cells"
    with mock.patch.object(
        objects.service, name, return_value=10_000
    ) as lowest:
        for _ in range(3):
            request_filter.owner_nova_filter(None, nova_spec())
    return lowest.call_count == 3


@_shows("equal-usb-ports")
def _equal_usb_ports(_folder: Path) -> bool:
    def ports(image: dict[str, str], flavor: dict[str, str]) -> int:
        spec = nova_spec(image, flavor)
        # It is in the message.
        spec.image.name = "i"
        found = hardware.get_redirected_usb_ports(spec.flavor, spec.image)
        return int(found)

    image, flavor = (
        {f"hw{mark}redirected_usb_ports": "2"} for mark in ("_", ":")
    )
    assert ports(image, {}) == 2
    assert ports({}, flavor) == 2
    try:
        ports(image, flavor)
    except exception.FlavorImageConflict:
        return True
    return False


@_shows("usb-without-controller")
def _usb_without_controller(_folder: Path) -> bool:
    image = {"hw_input_bus": "virtio", "hw_redirected_usb_ports": "1"}
    return controller_of(nova_spec(image), "", []) == "none"


@_shows("secure-boot-without-uefi")
def _secure_boot_without_uefi(_folder: Path) -> bool:
    image = {"os_secure_boot": "required"}
    assert has_secure_boot({**image, "hw_firmware_type": "uefi"}, "x86_64")
    return not has_secure_boot(image, "x86_64")


@_shows("cpu-models")
def _cpu_models(_folder: Path) -> bool:
    features = {"Nehalem": set(), "Haswell": {"avx2"}}
    CONF.set_override("cpu_mode", "custom", "libvirt")
    CONF.set_override("cpu_models", [*features], "libvirt")
    drv = _libvirt_driver()
    drv.cpu_model_flag_mapping = {}
    trait = {"trait:HW_CPU_X86_AVX2": "required"}

    def expanded(xml: str) -> str:
        (model,) = [each for each in features if each in xml]
        names = "".join(
            f"<feature name='{each}'/>" for each in features[model]
        )
        return f"<cpu><model>{model}</model>{names}</cpu>"

    def model_for(spec: Any) -> str:
        # Nova hands over the flavor alone.
        return str(drv._get_guest_cpu_model_config(spec.flavor).model)

    with (
        mock.patch.object(
            drv, "_get_cpu_model_mapping", side_effect=lambda model: model
        ),
        mock.patch.object(
            drv, "_get_guest_baseline_cpu_features", side_effect=expanded
        ),
    ):
        drv._host.get_capabilities.return_value = _capabilities()
        assert drv._get_cpu_feature_traits()["HW_CPU_X86_AVX2"]
        assert model_for(nova_spec({}, trait)) == "Haswell"
        return model_for(nova_spec(trait)) == "Nehalem"


def _capabilities() -> Any:
    caps = config.LibvirtConfigCaps()
    caps.host = config.LibvirtConfigCapsHost()
    caps.host.cpu = config.LibvirtConfigCPU()
    caps.host.cpu.arch = "x86_64"
    return caps


@_shows("buses-added-up")
def _buses_added_up(_folder: Path) -> bool:
    drv = _libvirt_driver(
        {"x86_64": {"pc": ["ide", "scsi"], "q35": ["sata", "scsi"]}}
    )
    return bool(drv._get_storage_bus_traits()["COMPUTE_STORAGE_BUS_IDE"])


@_shows("failed-capabilities")
def _failed_capabilities(_folder: Path) -> bool:
    class LibvirtError(Exception):
        def get_error_code(self) -> int:
            return 38

    guest = mock.Mock(arch="x86_64", domains={})
    guest.default_domain.aliases = {"pc": {}}
    real = host.Host.__new__(host.Host)
    real._domain_caps = None
    drv = _libvirt_driver()
    drv._host = real
    with (
        mock.patch.object(
            host, "libvirt", mock.Mock(libvirtError=LibvirtError)
        ),
        mock.patch.object(
            real, "get_capabilities", return_value=mock.Mock(guests=[guest])
        ),
        mock.patch.object(
            real,
            "_get_domain_capabilities",
            side_effect=LibvirtError("the socket is closed"),
        ),
    ):
        try:
            traits = drv._get_storage_bus_traits()
        except LibvirtError:
            return False
    return set(traits.values()) == {False}


@_shows("traits-never-removed")
def _traits_never_removed(_folder: Path) -> bool:
    both = _cpu_traits(_libvirt_driver({"x86_64": {}, "aarch64": {}}))
    assert both["COMPUTE_ARCH_AARCH64"]
    later = _cpu_traits(_libvirt_driver({"x86_64": {}}))
    return "COMPUTE_ARCH_AARCH64" not in later


@_shows("hpet-with-qemu")
def _hpet_with_qemu(_folder: Path) -> bool:
    def timers(virt_type: str) -> dict[str, Any]:
        CONF.set_override("virt_type", virt_type, "libvirt")
        guest = mock.Mock()
        image = nova_spec({"hw_time_hpet": "true"}).image
        drv = _libvirt_driver()
        with mock.patch.object(
            drv, "_check_emulation_arch", return_value="x86_64"
        ):
            drv._set_clock(guest, "linux", image)
        (clock,) = guest.set_clock.call_args[0]
        return {each.name: each.present for each in clock.timers}

    assert timers("kvm")["hpet"] is True
    return "hpet" not in timers("qemu")


@_shows("iso-on-aarch64")
def _iso_on_aarch64(_folder: Path) -> bool:
    image = {
        "hw_emulation_architecture": "aarch64",
        "hw_machine_type": "virt",
        "hw_firmware_type": "uefi",
    }
    spec = nova_spec(image, disk_format="iso")
    instance = objects.Instance(
        flavor=spec.flavor,
        ephemeral_gb=0,
        system_metadata={},
        image_ref="",
        config_drive="",
        launched_at=None,
    )
    found = blockinfo.get_disk_info("qemu", instance, spec.image)
    return {
        each["bus"]
        for each in found["mapping"].values()
        if each["type"] == "cdrom"
    } == {"ide"}


def _aborts(name: str, *given: Any) -> bool:
    """Return whether nova-compute aborts a build on a host without the
    capability.
    """
    manager = compute_manager.ComputeManager.__new__(
        compute_manager.ComputeManager
    )
    manager.driver = mock.Mock(capabilities={})
    try:
        getattr(manager, name)(*given)
    except exception.BuildAbortException:
        return True
    return False


@_shows("tags-not-required")
def _tags_not_required(_folder: Path) -> bool:
    network = objects.NetworkRequest(network_id=_SERVER, tag="uplink")
    networks = objects.NetworkRequestList(objects=[network])
    assert _aborts("_check_device_tagging", networks, [])
    required = _required_by_all(_boot(requested_networks=networks))
    return "COMPUTE_DEVICE_TAGGING" not in required


@_shows("certificates-not-required")
def _certificates_not_required(_folder: Path) -> bool:
    certificates = objects.TrustedCerts(ids=["c"])
    instance = objects.Instance(trusted_certs=certificates)
    assert _aborts("_check_trusted_certs", instance)
    return not any("cert" in each for each in objects.RequestSpec.fields)


def _query(properties: dict[str, str]) -> str:
    spec = nova_spec(properties, is_bfv=False)
    request = ResourceRequest.from_request_spec(spec)
    return str(request.to_querystring())


@_shows("tpm-model")
def _tpm_model(_folder: Path) -> bool:
    query = _query({"hw_tpm_version": "2.0", "hw_tpm_model": "tpm-crb"})
    assert "COMPUTE_SECURITY_TPM_2_0" in query
    return "COMPUTE_SECURITY_TPM_CRB" not in query


@_shows("stateless-without-uefi")
def _stateless_without_uefi(_folder: Path) -> bool:
    assert _query({})
    try:
        _query({"hw_firmware_stateless": "true"})
    except exception.NovaException:
        return True
    return False


@_shows("foreign-monitors")
def _foreign_monitors(_folder: Path) -> bool:
    def load(module: str) -> bool:
        handler = monitors.MonitorHandler.__new__(monitors.MonitorHandler)
        (namespace,) = handler.NAMESPACES
        handler.type_monitor_loaded = {namespace: False}
        extension = SimpleNamespace(
            name="m", entry_point_target=f"{module}:Monitor"
        )
        return bool(handler.check_enabled_monitor(extension))

    CONF.set_override("compute_monitors", ["cpu.m"])
    try:
        assert load("nova.compute.monitors.cpu.m")
        load("acme.monitors")
    except KeyError:
        return True
    finally:
        CONF.clear_override("compute_monitors")
    return False


@_shows("amounts-of-two-groups")
def _amounts_of_two_groups(_folder: Path) -> bool:
    cards = tuple(provider(name, "VGPU") for name in ("a", "b"))
    tree = provider("kvm-1", _HOST, "", cards)
    query = "resources=VGPU:1&resources1=VGPU:2"
    with EmbeddedPlacement(Fleet((tree,))) as placement:
        found = Observed(placement).request(
            f"/allocation_candidates?{query}", "GET", microversion="1.36"
        )
    amounts = {
        sum(
            each["resources"]["VGPU"]
            for each in request["allocations"].values()
        )
        for request in found.json()["allocation_requests"]
    }
    assert 3 in amounts
    return amounts != {3}


class _TakenTwiceError(Exception):
    pass


class _Lock:
    """Says what a lock would hang at."""

    held = False

    def __enter__(self) -> None:
        if self.held:
            raise _TakenTwiceError
        self.held = True

    def __exit__(self, *_error: object) -> None:
        self.held = False


class _Unauthorized(requests.adapters.BaseAdapter):
    def send(self, request: Any, *_given: Any, **_named: Any) -> Any:
        response = requests.Response()
        response.status_code = 401
        response.request = request
        response.url = request.url
        response._content = b""
        return response

    def close(self) -> None:
        pass


@_shows("unauthorized-discovery")
def _unauthorized_discovery(_folder: Path) -> bool:
    login = keystoneauth1.identity.Password(
        "http://keystone.example.org",
        username="u",
        password="p",  # noqa: S106 - no password
        user_domain_id="default",
        project_name="p",
        project_domain_id="default",
    )
    lock: Any = _Lock()
    login._lock = lock
    requests_session = requests.Session()
    requests_session.mount("http://", _Unauthorized())
    session = keystoneauth1.session.Session(login, session=requests_session)
    try:
        session.get_token()
    except _TakenTwiceError:
        return True
    except keystoneauth1.exceptions.ClientException:
        pass
    return False
