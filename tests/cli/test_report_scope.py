"""``capabilities report`` of a plain KVM host, by files of its libvirt: which traits it gets, and why no others."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from os_prefilter.vocabulary import REPORTED, REPORTED_CUSTOM
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.cli.main import main
from tests.support.libvirt_xml import capabilities, domain_capabilities
from tests.support.placements import HOST, Served, everything, lone_host, nova_conf, put_traits, served, traits_of
from tests.support.report_scopes import RECOMMENDED, scope_of

Capture = pytest.CaptureFixture[str]
Give = Callable[..., tuple[int, str]]
Report = Callable[..., frozenset[str]]

# Nova's, Neutron's, Cyborg's and an operator's; one that only looks like ours, and a name of a later table.
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
        "CUSTOM_PREFILTER_REPORTED_BY_ME",
        "CUSTOM_COMPUTE_MACHINE_OF_MINE",
    )
)
MACHINES = {"pc-i440fx-8.2": "", "pc": "pc-i440fx-8.2", "pc-q35-8.2": "", "q35": "pc-q35-8.2"}
_device_models = partial(domain_capabilities, video="vga virtio qxl bochs", firmware="efi")

BARE = "[prefilter]\nenabled_filters = image_metadata, hpet\n"
EVERY_PATTERN = f"[spice]\nenabled = yes\n{BARE}reported_traits = *\n"

OF_THE_FILTERS = {"CUSTOM_COMPUTE_TIME_HPET"}
OF_MACHINE_TYPES = {"CUSTOM_COMPUTE_DEFAULT_MACHINE_PC", "CUSTOM_COMPUTE_MACHINE_PC", "CUSTOM_COMPUTE_MACHINE_Q35"}
OF_HYPERVISOR_TYPES = {"CUSTOM_HYPERVISOR_TYPE_KVM", "CUSTOM_HYPERVISOR_TYPE_QEMU", "CUSTOM_VM_MODE_HVM"}
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
}
LEAN = OF_THE_FILTERS | OF_MACHINE_TYPES | OF_HYPERVISOR_TYPES
# They may be an operator's, whatever wrote them.
STANDARD = {trait for trait in OF_DEVICES_FIRMWARE_AND_I686 if not trait.startswith("CUSTOM_")}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with EmbeddedPlacement(lone_host(" ".join(OTHERS))) as placement, served(placement) as state:
        yield state


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the command for a host with KVM, the machine types pc and q35, and no QEMU of another architecture."""
    monkeypatch.chdir(tmp_path)
    files = {
        "capabilities.xml": capabilities(machines={"x86_64": MACHINES}),
        "pc.xml": _device_models(machine="pc-i440fx-8.2", buses="ide fdc scsi virtio usb sata"),
        "q35.xml": _device_models(machine="pc-q35-8.2", buses="fdc scsi virtio usb sata"),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    documents = "--capabilities capabilities.xml --domain-capabilities pc.xml --domain-capabilities q35.xml"
    versions = "--libvirt-version 10.4.0 --qemu-version 8.2.0"
    return ["capabilities", "report", *documents.split(), *versions.split()]


@pytest.fixture
def give(server: Served, host: list[str], tmp_path: Path, capsys: Capture) -> Give:
    """Return a function that gives the command with a section; it returns the exit code and the errors."""

    def run(section: str, *argv: str) -> tuple[int, str]:
        conf = tmp_path / "nova.conf"
        conf.write_text(nova_conf(server.url) + section)
        # --watch probes the libvirt of the machine.
        command = host[:2] if "--watch" in argv else host
        code = main([*command, "--nova-conf", str(conf), "--provider", HOST, *argv])
        return code, capsys.readouterr().err

    return run


@pytest.fixture
def report(server: Served, give: Give) -> Report:
    """Return a function: the host's traits after a report by a section, without those of others."""

    def run(section: str, *argv: str) -> frozenset[str]:
        code, err = give(section, *argv)
        assert code == 0, err
        traits = traits_of(server.placement)
        assert traits >= OTHERS
        return traits - OTHERS

    return run


@pytest.mark.parametrize(
    ("section", "expected", "number"),
    [
        pytest.param(BARE, OF_THE_FILTERS, 2, id="filters alone: the HPET"),
        pytest.param(RECOMMENDED, LEAN, 8, id="recommended: machine types, hypervisor types and vm modes"),
        pytest.param(EVERY_PATTERN, LEAN | OF_DEVICES_FIRMWARE_AND_I686, 22, id="*: devices, firmware and i686"),
    ],
)
def test_plain_kvm_host_has_only_the_traits_that_the_section_names(
    section: str, expected: frozenset[str], number: int, server: Served, report: Report
) -> None:
    """With the report marker; ``OWNER_NOVA`` is Nova's own. The recommended section creates at most 60 names."""
    before = server.placement.client.traits()
    found = report(section)
    created = server.placement.client.traits() - before
    assert created == {each for each in scope_of(section).known if each.startswith("CUSTOM_")} | {
        scope_of(section).marker
    }
    assert len(created) <= 60 or section != RECOMMENDED
    assert found == expected | {scope_of(section).marker}
    assert len(found) == number


def test_option_all_reports_what_the_host_could_emulate_and_the_next_report_or_removal_takes_it_away(
    server: Served, report: Report
) -> None:
    """An earlier version reported all, as --all does now. Traits of others stay, and standard ones."""
    found = report("", "--all") - LEAN - OF_DEVICES_FIRMWARE_AND_I686
    qualified = {trait for trait in found if trait.startswith("CUSTOM_X86_64_")}
    assert found == {REPORTED, "CUSTOM_COMPUTE_ARCH_I686", *qualified}
    assert "CUSTOM_X86_64_COMPUTE_MACHINE_PC" in qualified
    assert len(qualified) == 17
    names = server.placement.client.traits()
    markers = {f"{kind}{scope}" for kind in (REPORTED, REPORTED_CUSTOM) for scope in ("", "_00000000", "_A7E6DDE5")}
    markers |= {"CUSTOM_PREFILTER_REPORTED_1", "CUSTOM_PREFILTER_REPORTED_CUSTOM_1"}
    lean = LEAN | STANDARD | {scope_of(RECOMMENDED).marker}
    assert report(RECOMMENDED) == lean
    # Names stay: other hosts, flavors and schedulers may use them.
    assert server.placement.client.traits() >= names
    before = everything(server.placement)
    assert report(RECOMMENDED) == lean
    assert everything(server.placement) == before
    server.placement.know(markers)
    put_traits(server.placement, lambda traits: traits.update(markers))
    assert report("", "--remove") == STANDARD


@pytest.mark.parametrize("way", [(), ("--alone",)])
def test_true_traits_that_an_operator_set_survive_reports_that_do_not_need_them(
    way: tuple[str, ...], server: Served, report: Report
) -> None:
    """A flavor may require them: trait:COMPUTE_FIRMWARE_UEFI=required. What the host cannot do goes."""
    server.placement.know(("CUSTOM_VM_MODE_HVM", "CUSTOM_VM_MODE_XEN"))
    by_hand = {*STANDARD, "CUSTOM_VM_MODE_HVM"}
    put_traits(server.placement, lambda traits: traits.update(by_hand, ("HW_ARCH_ARMV7", "CUSTOM_VM_MODE_XEN")))
    for _ in range(2):
        found = report(BARE, *way)
        assert by_hand | OF_THE_FILTERS | {scope_of(BARE).marker} <= found
        assert not {"HW_ARCH_ARMV7", "CUSTOM_VM_MODE_XEN"} & found
    # Another section: what an earlier report may have written goes, a standard trait never.
    found = report("[prefilter]\nenabled_filters = rules\n", *way)
    assert found >= STANDARD
    assert not found & {"CUSTOM_VM_MODE_HVM", *OF_THE_FILTERS}
    assert report("", "--remove") >= STANDARD


def test_traits_of_other_architectures_go_unless_the_section_offers_to_emulate_them(report: Report) -> None:
    offered = RECOMMENDED.replace("CUSTOM_VM_MODE_*", "CUSTOM_VM_MODE_*, CUSTOM_X86_64_*")
    offered += "emulated_architectures = x86_64\n"
    qualified = report(offered) - LEAN - {scope_of(offered).marker}
    assert len(qualified) == 17
    assert all(trait.startswith("CUSTOM_X86_64_") for trait in qualified)
    assert report(RECOMMENDED) == LEAN | {scope_of(RECOMMENDED).marker}


_WRONG = [
    ("", "nova.conf: [prefilter] enabled_filters names no filter"),
    ("[prefilter]\nenabled_filters =\nreported_traits = *\n", "Copy the section [prefilter] of the schedulers"),
    ("[prefilter]\nenabled_filters = hpt\n", "'hpt'"),
    (f"{EVERY_PATTERN}emulated_architectures = arm64\n", "option emulated_architectures"),
    (f"{BARE}reported_traits = CUSTOM_HYPERVISOR_KVM\n", "[prefilter] reported_traits: 'CUSTOM_HYPERVISOR_KVM'"),
]


_WAYS: list[tuple[str, ...]] = [(), ("--dry-run",), ("--provider-config", "file.yaml"), ("--watch", "5")]


@pytest.mark.parametrize(
    ("section", "message", "way"),
    [*((*_WRONG[0], way) for way in _WAYS), *((*case, way) for case, way in zip(_WRONG[1:], _WAYS, strict=True))],
)
def test_wrong_or_missing_section_is_refused_and_nothing_is_removed(
    section: str, message: str, way: tuple[str, ...], server: Served, give: Give
) -> None:
    put_traits(server.placement, lambda traits: traits.add("COMPUTE_FIRMWARE_UEFI"))
    before = everything(server.placement)
    code, err = give(section, *way)
    (line,) = err.splitlines()
    assert (code, message in line) == (1, True), err
    assert everything(server.placement) == before
    assert not Path("file.yaml").exists()


def test_provider_config_without_a_nova_conf_is_refused_unless_all_is_given(
    host: list[str], tmp_path: Path, capsys: Capture
) -> None:
    argv = [*host, "--provider-config", str(tmp_path / "os-prefilter.yaml")]
    assert main(argv) == 1
    assert "--nova-conf is not given: [prefilter] enabled_filters names no filter" in capsys.readouterr().err
    assert main([*argv, "--all"]) == 0
