# SPDX-License-Identifier: Apache-2.0

"""vmware: a host can do what Nova's own VMware driver does, compared with that
driver.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from nova import exception, objects
from nova.objects import fields
from nova.virt.vmwareapi import constants, host, images, vm_util, vmops
from nova.virt.vmwareapi import driver as vmware_driver

from os_prefilter.hosts.driver_check import unsupported
from os_prefilter.hosts.drivers.vmware import REPORTER, VmwareFacts, refusal
from os_prefilter.vocabulary import BY_NAME, ROWS
from tests.conftest import spec_of
from tests.support.hosts import declared_by_nova
from tests.support.nova_objects import nova_flavor, nova_spec
from tests.support.tables import cases
from tests.support.zipping import zip_equal

_OWNED = [
    (row, value)
    for row in ROWS
    if row.name in REPORTER.owns
    for value in row.values
]


def _can(row: str) -> set[str]:
    return {
        value
        for value in BY_NAME[row].values
        if not refusal(VmwareFacts(), row, value, "")
    }


def _image(**properties: object) -> object:
    image = {"disk_format": "vmdk", "properties": properties}
    return objects.ImageMeta.from_dict(image)


def _adapter(image: object) -> object:
    """Return the type of the adapter that Nova gives an image."""
    return images.VMwareImage.from_image(None, "id", image).adapter_type


def test_vif_models_are_those_that_nova_converts() -> None:
    found: set[str] = set()
    for model in BY_NAME["vif_model"].values:
        with suppress(exception.Invalid):
            vm_util.convert_vif_model(model)
            found.add(model)
    assert _can("vif_model") == found


def test_disk_buses_are_those_that_change_the_adapter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(images, "get_vsphere_location", lambda *_args: None)
    changed: dict[str, object] = {}
    for bus in BY_NAME["disk_bus"].values:
        model = _adapter(_image(hw_disk_bus=bus, hw_scsi_model="vmpvscsi"))
        if model != constants.DEFAULT_ADAPTER_TYPE:
            changed[bus] = model
    assert changed == {
        "ide": constants.ADAPTER_TYPE_IDE,
        "scsi": constants.ADAPTER_TYPE_PARAVIRTUAL,
    }
    assert _can("disk_bus") == set(changed)


_ADAPTERS = ("lsiLogic", "lsiLogicsas", "busLogic", "paraVirtual")


@pytest.mark.parametrize("named", ["hw_scsi_model", "vmware_adaptertype"])
def test_scsi_disks_are_accepted_with_the_models_that_give_nova_an_adapter(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other model is ignored; without a model vSphere gets an LSI Logic
    controller.
    """
    monkeypatch.setattr(images, "get_vsphere_location", lambda *_args: None)
    for value in (*_ADAPTERS, *fields.SCSIModel.ALL):
        spec = nova_spec({"hw_disk_bus": "scsi", named: value})
        spec.image.disk_format = "vmdk"
        has_one = _adapter(spec.image) in constants.SCSI_ADAPTER_TYPES
        is_accepted = unsupported(spec, VmwareFacts()) == []
        assert is_accepted is has_one, value
    assert unsupported(spec_of({"hw_disk_bus": "scsi"}), VmwareFacts()) == []


def test_firmware_is_what_nova_writes_into_the_virtual_machine() -> None:
    written: dict[str, str] = {}
    flavor = nova_flavor(extra_specs={})
    for value in BY_NAME["firmware_type"].values:
        image = _image(hw_firmware_type=value)
        specs = vmops.VMwareVMOps._get_extra_specs(None, flavor, image)
        written[value] = specs.firmware
    assert written == {"bios": "bios", "uefi": "efi"}
    assert _can("firmware_type") == set(written)


def test_image_types_and_other_capabilities_are_those_that_nova_declares() -> (
    None
):
    declared = declared_by_nova(vmware_driver.VMwareVCDriver)
    ours: dict[tuple[str, str], bool] = {}
    novas: dict[tuple[str, str], bool] = {}
    for row, value in _OWNED:
        trait = row.values[value].trait
        if trait in declared:
            lacks = refusal(VmwareFacts(), row.name, value, "")
            ours[row.name, value] = not lacks
            novas[row.name, value] = declared[trait]
    assert ours == novas
    assert _can("image_type") == {"iso", "vmdk"}


def test_architecture_hypervisor_type_and_vm_mode_match_the_vmware_driver_of_nova(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As ImagePropertiesFilter compares them."""
    resources = {"cpu": {"vcpus": 1}, "mem": {"total": 1, "free": 1}}
    monkeypatch.setattr(
        host, "_get_ds_capacity_and_freespace", lambda *_args: (0, 0)
    )
    monkeypatch.setattr(
        host.vm_util, "get_stats_from_cluster", lambda *_args: resources
    )
    state = host.VCState(_Session(), "vc", "cluster", None)
    instances = state.get_host_stats()["supported_instances"]
    rows = ("architecture", "hypervisor_type", "vm_mode")
    for row, values in zip_equal(rows, zip_equal(*instances)):
        assert _can(row) == set(values)


class _Session:
    def _call_method(self, *_args: object) -> object:
        return SimpleNamespace(name="VMware vCenter Server", version="8.0.0")


def test_properties_refused_as_ignored_are_never_read_by_the_driver_of_nova() -> (
    None
):
    """And what is not ignored is read."""
    files = Path(vmops.__file__).parent.glob("*.py")
    code = "".join(path.read_text(encoding="utf-8") for path in files)
    ignored: set[str] = set()
    for row, value in _OWNED:
        if "ignores" in refusal(VmwareFacts(), row.name, value, ""):
            ignored.add(row.name)
    assert ignored >= {
        "video_model",
        "time_hpet",
        "secure_boot",
        "tpm_version",
    }
    for name in ignored:
        for written in BY_NAME[name].request_names:
            assert written not in code
    for name in ("vif_model", "disk_bus", "firmware_type"):
        assert str(BY_NAME[name].image_property) in code


_REASONS = cases("""
vif_model           | e1000    |         |
vif_model           | igb      |         | VMware has the VIF models e1000, e1000e, pcnet, sriov, vmxnet, vmxnet3, not igb
disk_bus            | scsi     |         |
disk_bus            | scsi     | i686    |
disk_bus            | scsi     | aarch64 | VMware runs guests of x86_64 only, not of aarch64
disk_bus            | virtio   |         | VMware has the disk buses ide, scsi, not virtio
architecture        | i686     |         |
hypervisor_type     | kvm      |         | VMware has the hypervisor type vmware, not kvm
image_type          | qcow2    |         | VMware has the image types iso, vmdk, not qcow2
tpm_secret_security | user     |         | Nova's VMware driver ignores hw:tpm_secret_security
watchdog            | disabled | aarch64 |
default_machine     | pc       |         | VMware has none of QEMU's machine types
device_profile      | any      |         | Nova's VMware driver attaches no accelerators
""")


@pytest.mark.parametrize(("row", "value", "architecture", "reason"), _REASONS)
def test_each_value_is_accepted_or_refused_with_the_expected_reason(
    row: str, value: str, architecture: str, reason: str
) -> None:
    assert refusal(VmwareFacts(), row, value, architecture) == reason


def test_machine_type_with_a_line_break_is_ignored_as_any() -> None:
    reason = "Nova's VMware driver ignores hw_machine_type"
    found = refusal(VmwareFacts(), "machine_type", "pc-q35-9.1\n", "")
    assert found == reason


def test_reporter_owns_all_rows_but_those_of_processors_and_resources() -> (
    None
):
    """A new row must be put on one side or the other."""
    processors = {
        "cpu_thread_policy",
        "mem_encryption",
        "mem_encryption_model",
    }
    resources = {"cpu_policy", "emulator_threads_policy"}
    left = {row.name for row in ROWS} - REPORTER.owns
    assert left == processors | resources, (
        "answer for the row, or add it above: docs/CONTRIBUTING.rst, 'Add a row'"
    )
