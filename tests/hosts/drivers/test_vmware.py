# SPDX-License-Identifier: Apache-2.0

"""vmware: a host can do what Nova's own VMware driver does, compared with that
driver.
"""

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

_OWNED = [
    (row, value)
    for row in ROWS
    if row.name in REPORTER.owns
    for value in row.values
]
_BUSES = ("disk_bus", "cdrom_bus")


def _can(row: str) -> set[str]:
    return {
        value
        for value in BY_NAME[row].values
        if not refusal(VmwareFacts(), row, value, "")
    }


def _image(**properties: object) -> object:
    return objects.ImageMeta.from_dict(
        {"disk_format": "vmdk", "properties": properties}
    )


def test_vif_models_are_those_that_nova_converts() -> None:
    def converts(model: str) -> bool:
        try:
            vm_util.convert_vif_model(model)
        except exception.Invalid:
            return False
        return True

    assert _can("vif_model") == {
        model for model in BY_NAME["vif_model"].values if converts(model)
    }


def test_disk_buses_are_those_that_change_the_adapter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(images, "get_vsphere_location", lambda *_args: None)

    def adapter(bus: str) -> str | None:
        image = _image(hw_disk_bus=bus, hw_scsi_model="vmpvscsi")
        found: str | None = images.VMwareImage.from_image(
            None, "id", image
        ).adapter_type
        return found

    found = {bus: adapter(bus) for bus in BY_NAME["disk_bus"].values}
    changed = {
        bus: model
        for bus, model in found.items()
        if model != constants.DEFAULT_ADAPTER_TYPE
    }
    assert changed == {
        "ide": constants.ADAPTER_TYPE_IDE,
        "scsi": constants.ADAPTER_TYPE_PARAVIRTUAL,
    }
    assert _can("disk_bus") == set(changed)


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
        adapter = images.VMwareImage.from_image(
            None, "id", spec.image
        ).adapter_type
        assert (unsupported(spec, VmwareFacts()) == []) is (
            adapter in constants.SCSI_ADAPTER_TYPES
        ), value
    assert unsupported(spec_of({"hw_disk_bus": "scsi"}), VmwareFacts()) == []


_ADAPTERS = ("lsiLogic", "lsiLogicsas", "busLogic", "paraVirtual")


def test_firmware_is_what_nova_writes_into_the_virtual_machine() -> None:
    written = {
        value: vmops.VMwareVMOps._get_extra_specs(
            None, nova_flavor(extra_specs={}), _image(hw_firmware_type=value)
        )
        for value in BY_NAME["firmware_type"].values
    }
    assert {value: specs.firmware for value, specs in written.items()} == {
        "bios": "bios",
        "uefi": "efi",
    }
    assert _can("firmware_type") == set(written)


def test_image_types_and_other_capabilities_are_those_that_nova_declares() -> (
    None
):
    declared = declared_by_nova(vmware_driver.VMwareVCDriver)
    compared = {
        (row.name, value): declared[term.trait]
        for row, value in _OWNED
        if (term := row.values[value]).trait in declared
    }
    assert {
        key: not refusal(VmwareFacts(), *key, "") for key in compared
    } == compared
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
    instances = host.VCState(
        _Session(), "vc", "cluster", None
    ).get_host_stats()["supported_instances"]
    for position, row in enumerate(
        ("architecture", "hypervisor_type", "vm_mode")
    ):
        assert _can(row) == {instance[position] for instance in instances}


class _Session:
    def _call_method(self, *_args: object) -> object:
        return SimpleNamespace(name="VMware vCenter Server", version="8.0.0")


def test_properties_refused_as_ignored_are_never_read_by_the_driver_of_nova() -> (
    None
):
    """And what is not ignored is read."""
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in Path(vmops.__file__).parent.glob("*.py")
    )
    ignored = {
        row.name
        for row, value in _OWNED
        if "ignores" in refusal(VmwareFacts(), row.name, value, "")
    }
    assert {
        "video_model",
        "time_hpet",
        "secure_boot",
        "tpm_version",
    } <= ignored
    for name in ignored:
        for prop in (BY_NAME[name].image_property, BY_NAME[name].extra_spec):
            assert prop is None or prop not in code
    for name in ("vif_model", "disk_bus", "firmware_type"):
        assert str(BY_NAME[name].image_property) in code


@pytest.mark.parametrize(
    ("row", "value", "architecture", "reason"),
    [
        ("vif_model", "e1000", "", ""),
        (
            "vif_model",
            "igb",
            "",
            (
                "VMware has the VIF models e1000, e1000e, pcnet, sriov,"
                " vmxnet, vmxnet3, not igb"
            ),
        ),
        ("disk_bus", "scsi", "", ""),
        ("disk_bus", "scsi", "i686", ""),
        (
            "disk_bus",
            "scsi",
            "aarch64",
            "VMware runs guests of x86_64 only, not of aarch64",
        ),
        (
            "disk_bus",
            "virtio",
            "",
            "VMware has the disk buses ide, scsi, not virtio",
        ),
        ("architecture", "i686", "", ""),
        (
            "hypervisor_type",
            "kvm",
            "",
            "VMware has the hypervisor type vmware, not kvm",
        ),
        (
            "image_type",
            "qcow2",
            "",
            "VMware has the image types iso, vmdk, not qcow2",
        ),
        (
            "tpm_secret_security",
            "user",
            "",
            "Nova's VMware driver ignores hw:tpm_secret_security",
        ),
        ("watchdog", "disabled", "aarch64", ""),
        (
            "machine_type",
            "pc-q35-9.1\n",
            "",
            "Nova's VMware driver ignores hw_machine_type",
        ),
        (
            "default_machine",
            "pc",
            "",
            "VMware has none of QEMU's machine types",
        ),
        (
            "device_profile",
            "any",
            "",
            "Nova's VMware driver attaches no accelerators",
        ),
    ],
)
def test_each_value_is_accepted_or_refused_with_the_expected_reason(
    row: str, value: str, architecture: str, reason: str
) -> None:
    assert refusal(VmwareFacts(), row, value, architecture) == reason


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
        "answer for the row, or add it above: docs/contribute.rst, 'Add a row'"
    )
