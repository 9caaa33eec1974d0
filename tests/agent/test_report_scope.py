# SPDX-License-Identifier: Apache-2.0

"""What a report to Placement sets, by what schedulers want."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from os_prefilter.hosts.marker_traits import (
    NOT_CONFIGURED,
    ON_PROVIDERS,
    REPORTED,
    WANTED,
    keys_in,
    marker_key,
    names_with,
    noted_among,
)
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.cli.main import main
from tests.support.hosts import EVERY_DEVICE
from tests.support.libvirt_xml import capabilities, domain_capabilities
from tests.support.placements import (
    HOST,
    UUID,
    Served,
    lone_host,
    nova_conf,
    put_traits,
    served,
    traits_of,
)
from tests.support.qemu import device_list
from tests.support.reporting_fleets import SECTIONS, wanted_by

Capture = pytest.CaptureFixture[str]
Report = Callable[..., frozenset[str]]

# Nova's, Neutron's, Cyborg's and an operator's, and a name of a later table.
OTHERS = frozenset(
    (
        "COMPUTE_NODE",
        "HW_ARCH_X86_64",
        "COMPUTE_STORAGE_BUS_IDE",
        "COMPUTE_NET_VIF_MODEL_E1000",
        "HW_CPU_X86_AVX2",
        "OWNER_NOVA",
        "CUSTOM_PHYSNET_PUBLIC",
        "CUSTOM_OF_AN_OPERATOR",
        "CUSTOM_COMPUTE_MACHINE_OF_MINE",
    )
)
MACHINES = {
    "pc-i440fx-8.2": "",
    "pc": "pc-i440fx-8.2",
    "pc-q35-8.2": "",
    "q35": "pc-q35-8.2",
}
_device_models = partial(
    domain_capabilities, video="vga virtio qxl bochs", firmware="efi"
)

BARE, RECOMMENDED, EVERY_PATTERN = (
    wanted_by(**SECTIONS[name])
    for name in ("bare", "recommended", "every-pattern")
)

OF_THE_FILTERS = {"CUSTOM_COMPUTE_TIME_HPET"}
OF_MACHINE_TYPES = {
    "CUSTOM_COMPUTE_DEFAULT_MACHINE_PC",
    "CUSTOM_COMPUTE_MACHINE_PC",
    "CUSTOM_COMPUTE_MACHINE_Q35",
}
OF_HYPERVISOR_TYPES = {
    "CUSTOM_HYPERVISOR_TYPE_KVM",
    "CUSTOM_HYPERVISOR_TYPE_QEMU",
    "CUSTOM_VM_MODE_HVM",
}
OF_DEVICES_FIRMWARE_AND_I686 = {
    "COMPUTE_FIRMWARE_BIOS",
    "COMPUTE_FIRMWARE_UEFI",
    "COMPUTE_USB_MODEL_NEC_XHCI",
    "COMPUTE_USB_MODEL_QEMU_XHCI",
    "CUSTOM_COMPUTE_INPUT_BUS_USB",
    "CUSTOM_COMPUTE_INPUT_BUS_VIRTIO",
    "CUSTOM_COMPUTE_SCSI_MODEL_LSILOGIC",
    "CUSTOM_COMPUTE_SCSI_MODEL_LSISAS1068",
    "CUSTOM_COMPUTE_SCSI_MODEL_LSISAS1078",
    "CUSTOM_COMPUTE_SCSI_MODEL_VIRTIO_SCSI",
    "CUSTOM_COMPUTE_SCSI_MODEL_VMPVSCSI",
    "CUSTOM_COMPUTE_USB_REDIRECTION",
    "CUSTOM_COMPUTE_WATCHDOG",
    "CUSTOM_I686_COMPUTE_DEFAULT_MACHINE_PC",
    "CUSTOM_I686_COMPUTE_VIOMMU_MODEL_INTEL",
}
LEAN = OF_THE_FILTERS | OF_MACHINE_TYPES | OF_HYPERVISOR_TYPES
# They may be an operator's, whatever wrote them.
STANDARD = {
    trait
    for trait in OF_DEVICES_FIRMWARE_AND_I686
    if not trait.startswith("CUSTOM_")
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with (
        EmbeddedPlacement(lone_host(" ".join(OTHERS))) as placement,
        served(placement) as state,
    ):
        yield state


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the command for a host with KVM and the types pc and q35.

    It has no QEMU of another architecture.
    """
    monkeypatch.chdir(tmp_path)
    files = {
        "capabilities.xml": capabilities(
            guests={"x86_64": "qemu kvm", "i686": "qemu kvm"},
            machines={"x86_64": MACHINES, "i686": MACHINES},
        ),
        "i686.xml": domain_capabilities(
            "i686", "qemu", machine="pc-i440fx-8.2"
        ),
        "pc.xml": _device_models(
            machine="pc-i440fx-8.2", buses="ide fdc scsi virtio usb sata"
        ),
        "q35.xml": _device_models(
            machine="pc-q35-8.2", buses="fdc scsi virtio usb sata"
        ),
    }
    files["devices.txt"] = device_list(*sorted(EVERY_DEVICE)).encode()
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    command = (
        "capabilities report --capabilities capabilities.xml"
        " --domain-capabilities pc.xml --domain-capabilities q35.xml"
        " --domain-capabilities i686.xml --qemu-devices devices.txt"
        " --libvirt-version 10.4.0 --qemu-version 8.2.0"
    )
    return command.split()


@pytest.fixture
def report(server: Served, host: list[str], tmp_path: Path) -> Report:
    """Return a function that reports what is wanted.

    It returns the host's traits without others', markers and the note.
    """
    conf = tmp_path / "nova.conf"
    # For its graphics.
    conf.write_text(f"{nova_conf(server.url)}[spice]\nenabled = yes\n")

    def run(wanted: frozenset[str], *argv: str) -> frozenset[str]:
        client = server.placement.client
        for name in client.custom_traits():
            if name.startswith(WANTED):
                client.delete_trait(name)
        server.placement.know(names_with(WANTED, wanted))
        where = ("--config-file", str(conf), "--provider", HOST)
        assert main([*host, *where, *argv]) == 0
        traits = traits_of(server.placement)
        assert traits >= OTHERS
        return frozenset(
            trait
            for trait in traits - OTHERS
            if not trait.startswith(ON_PROVIDERS)
        )

    return run


@pytest.mark.parametrize(
    ("wanted", "expected", "markers"),
    [
        pytest.param(BARE, OF_THE_FILTERS, 1, id="filters alone: the HPET"),
        pytest.param(
            RECOMMENDED,
            LEAN,
            2,
            id="recommended: machine types, hypervisor types and vm modes",
        ),
        pytest.param(
            EVERY_PATTERN,
            LEAN | OF_DEVICES_FIRMWARE_AND_I686,
            7,
            id="*: devices, firmware and i686",
        ),
    ],
)
def test_plain_kvm_host_gets_only_the_wanted_traits_that_it_has(
    wanted: frozenset[str],
    expected: frozenset[str],
    markers: int,
    server: Served,
    report: Report,
) -> None:
    """With the report markers; ``OWNER_NOVA`` is Nova's own.

    No other name is created.
    """
    before = server.placement.client.traits()
    assert report(wanted) == expected
    traits = traits_of(server.placement)
    assert keys_in(REPORTED, traits) == wanted - {NOT_CONFIGURED}
    assert noted_among(traits) == expected
    found = [trait for trait in traits if trait.startswith(ON_PROVIDERS)]
    # The note, and the deprecated machine types.
    assert len(found) <= markers + 2
    created = server.placement.client.traits() - before
    custom = {trait for trait in expected if trait.startswith("CUSTOM_")}
    assert created - set(names_with(WANTED, wanted)) == custom.union(found)


def test_removal_takes_what_reports_have_set_and_leaves_standard_traits_and_names(
    server: Served, report: Report
) -> None:
    report(EVERY_PATTERN)
    names = server.placement.client.traits()
    assert report(RECOMMENDED, "--remove") == STANDARD
    for trait in traits_of(server.placement):
        assert not trait.startswith(ON_PROVIDERS)
    # Other hosts, flavors and schedulers may use them.
    others = {name for name in names if not name.startswith(WANTED)}
    assert others <= server.placement.client.traits()


@pytest.mark.parametrize(
    "mode", [(), ("--alone",)], ids=["with nova-compute", "alone"]
)
def test_traits_that_an_operator_set_survive_each_report(
    mode: tuple[str, ...], server: Served, report: Report
) -> None:
    """A flavor may require them, wanted by schedulers or not.

    trait:COMPUTE_FIRMWARE_UEFI=required does.
    """
    by_hand = {*STANDARD, "CUSTOM_VM_MODE_HVM", "CUSTOM_VM_MODE_XEN"}
    server.placement.know(by_hand)
    put_traits(server.placement, lambda traits: traits.update(by_hand))
    for wanted in (BARE, BARE, frozenset[str]()):
        assert report(wanted, *mode) >= by_hand | OF_THE_FILTERS
    # An agent that is alone removes all that it has reported, whatever set it
    # before.
    if not mode:
        assert report(BARE, "--remove") == by_hand


def test_provider_config_has_what_placement_says_is_wanted_and_needs_a_nova_conf(
    report: Report, host: list[str], tmp_path: Path, capsys: Capture
) -> None:
    """It takes no standard traits: those of the host are not reported."""
    path = tmp_path / "os-prefilter.yaml"
    assert report(EVERY_PATTERN, "--provider-config", str(path)) == frozenset()
    (provider,) = yaml.safe_load(path.read_text())["providers"]
    found = set(provider["traits"]["additional"])
    assert {
        trait for trait in found if not trait.startswith(ON_PROVIDERS)
    } == (LEAN | OF_DEVICES_FIRMWARE_AND_I686 - STANDARD)
    missing = {NOT_CONFIGURED, *(marker_key((trait,)) for trait in STANDARD)}
    assert EVERY_PATTERN - keys_in(REPORTED, found) == EVERY_PATTERN & missing
    assert main([*host, "--provider-config", str(path)]) == 1
    assert "no Placement: give --config-file FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(HOST, UUID), (UUID, HOST)],
    ids=["by name", "by UUID"],
)
def test_provider_config_next_to_another_entry_of_the_host_is_refused_with_both_as_one(  # noqa: PLR0913, PLR0917
    ours: str,
    theirs: str,
    report: Report,
    host: list[str],
    tmp_path: Path,
    capsys: Capture,
) -> None:
    """Placement says which name and which UUID are one provider."""
    report(BARE)
    path = tmp_path / "os-prefilter.yaml"
    other = {
        "identification": {"uuid" if theirs == UUID else "name": theirs},
        "traits": {"additional": ["CUSTOM_OF_AN_OPERATOR"]},
    }
    document = {"meta": {"schema_version": "1.0"}, "providers": [other]}
    (tmp_path / "operator.yaml").write_text(yaml.safe_dump(document))
    where = ("--config-file", str(tmp_path / "nova.conf"), "--provider", ours)
    assert main([*host, *where, "--provider-config", str(path)]) == 1
    error, _, text = capsys.readouterr().err.partition("\n\n")
    assert f"operator.yaml: it names the provider '{theirs}' too" in error
    (merged,) = yaml.safe_load(text)["providers"]
    assert ours in merged["identification"].values()
    found = set(merged["traits"]["additional"])
    assert found >= OF_THE_FILTERS | {"CUSTOM_OF_AN_OPERATOR"}
    assert not path.exists()
