"""The arguments that name a host: what they stand for, what is assumed, and which do not go together."""

import argparse
import json
import re
import sys
from pathlib import Path

import pytest

from os_prefilter.adapters.libvirt.host import LibvirtHost
from os_prefilter.cli.host import add_host_arguments, assumptions, builder_of, facts_from
from os_prefilter.cli.main import main
from os_prefilter.common.errors import DocumentError
from os_prefilter.hosts.drivers.fake import FakeFacts
from os_prefilter.hosts.drivers.ironic import IronicFacts
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts, Version, version_text
from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter.hosts.reporter import HostFacts
from tests.support.libvirt_xml import FakeLibvirt, capabilities, domain_capabilities

NODE = {"uuid": "6c3c5127-ede2-43ef-94f9-e7143943c080", "properties": {"cpu_arch": "x86_64"}, "traits": ["CUSTOM_A"]}
BIOS = [{"BIOS setting name": "LogicalProc", "BIOS setting value": "Enabled"}]
VERSIONS = ("--libvirt-version", "9.3.0", "--qemu-version", "8.0")


def parsed(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_host_arguments(parser)
    return parser.parse_args(argv)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder, the current one, with files of a host."""
    monkeypatch.chdir(tmp_path)
    documents: dict[str, bytes] = {
        "caps.xml": capabilities(),
        "pc.xml": domain_capabilities(),
        "q35.xml": domain_capabilities(machine="pc-q35-7.1", buses="sata"),
        "lxc.xml": capabilities(guests={"x86_64": "lxc"}),
        "nova.conf": b"[libvirt]\nvirt_type = kvm\nhw_machine_type = x86_64=q35\n",
        "lxc.conf": b"[libvirt]\nvirt_type = lxc\n",
        "node.json": json.dumps(NODE).encode(),
        "bios.json": json.dumps(BIOS).encode(),
        "broken.json": b"[{",
    }
    for name, data in documents.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


SAVED = ("--capabilities", "caps.xml", "--domain-capabilities", "pc.xml", "--domain-capabilities", "q35.xml")


@pytest.mark.usefixtures("files")
class TestFiles:
    """A host that is judged by files."""

    def test_files_and_versions_become_facts(self) -> None:
        arguments = parsed(*SAVED, *VERSIONS, "--nova-conf", "nova.conf")
        for assume in (True, False):
            facts = facts_from(arguments, assume=assume)
            assert isinstance(facts, LibvirtFacts)
            assert (facts.libvirt_version, facts.hypervisor_version) == ((9, 3, 0), (8, 0, 0))
            assert facts.own_guests.buses == {"ide", "scsi", "virtio", "sata"}
            assert facts.own_guests.default_machine == "q35"
        assert assumptions(arguments, facts) == ()

    @pytest.mark.parametrize(
        ("release", "oldest", "of"),
        [("34", (8, 0, 0), 34), ("29", (7, 0, 0), 29), ("27", (6, 0, 0), 27), ("12", (8, 0, 0), 34)],
    )
    def test_assumed_libvirt_and_qemu_versions_are_reported(self, release: str, oldest: Version, of: int) -> None:
        """Libvirt is the oldest that the release of Nova runs on; of a release that is not known, the newest's."""
        arguments = parsed(*SAVED, "--nova-release", release)
        facts = facts_from(arguments)
        assert isinstance(facts, LibvirtFacts)
        assert (facts.libvirt_version, facts.hypervisor_version) == (oldest, (7, 2, 0))
        libvirt, qemu = assumptions(arguments, facts)
        assert libvirt.startswith(f"libvirt {version_text(oldest)} is assumed, the oldest that Nova {of} runs on.")
        assert qemu.startswith("QEMU 7.2.0 is assumed")

    @pytest.mark.parametrize(
        ("argv", "says"),
        [
            ("--nova-release 34 --libvirt-version 8.0.0 --qemu-version 6.2.0", ""),
            (
                "--nova-release 34 --libvirt-version 7.0.0 --qemu-version 5.2.0",
                "libvirt 7.0.0 is older than 8.0.0 and QEMU 5.2.0 is older than 6.2.0: nova-compute of Nova 34 does "
                "not start here.",
            ),
            ("--nova-release 29 --libvirt-version 7.0.0 --qemu-version 5.2.0", ""),
            ("--alone --libvirt-version 6.0.0 --qemu-version 5.1.0", ""),
        ],
    )
    def test_versions_that_the_release_of_nova_refuses_are_reported(self, argv: str, says: str) -> None:
        found = [
            each for each in builder_of(facts_from(parsed(*SAVED, *argv.split()))) if "does not start here" in each
        ]
        assert found == ([says] if says else [])

    @pytest.mark.parametrize(
        ("given", "says"), [((), "--libvirt-version"), (VERSIONS[:2], "--qemu-version"), (VERSIONS[2:], "--libvirt-")]
    )
    def test_versions_must_be_given_where_traits_are_written(self, given: tuple[str, ...], says: str) -> None:
        """What is not known of a host must not take traits from it."""
        with pytest.raises(DocumentError, match=f"Give {says}.*not written by assumptions"):
            facts_from(parsed(*SAVED, *given), assume=False)

    def test_lxc_needs_neither_domain_capabilities_nor_a_qemu(self) -> None:
        arguments = parsed("--capabilities", "lxc.xml", "--nova-conf", "lxc.conf", "--libvirt-version", "9.0.0")
        facts = facts_from(arguments, assume=False)
        assert isinstance(facts, LibvirtFacts)
        assert (facts.virt_type, assumptions(arguments, facts)) == ("lxc", ())

    @pytest.mark.parametrize(
        ("argv", "says"),
        [
            ("--capabilities caps.xml", "caps.xml: no domain capabilities of x86_64"),
            ("--capabilities pc.xml", "pc.xml: this is the output of 'virsh domcapabilities'"),
            ("--capabilities caps.xml --domain-capabilities caps.xml", "this is the output of 'virsh capabi"),
            ("--capabilities none.xml", "none.xml: there is no such file"),
            ("--capabilities caps.xml --domain-capabilities none.xml", "none.xml: there is no such file"),
            (f"{' '.join(SAVED)} --libvirt-version nine", "--libvirt-version: 'nine' is not a version"),
            (f"{' '.join(SAVED)} --connect qemu:///system", "--capabilities: it cannot go with --connect"),
            ("--capabilities=", "this is a directory"),
            ("--domain-capabilities pc.xml", "--domain-capabilities: it goes with --capabilities FILE"),
            ("--qemu-version 8.0.0", "--qemu-version: it goes with --capabilities FILE"),
            ("--libvirt-version=", "--libvirt-version: it goes with --capabilities FILE"),
            ("--node node.json", "--node: it is for --driver ironic, not libvirt"),
            ("--driver vmware --capabilities caps.xml", "--capabilities: it is for --driver libvirt, not vm"),
            ("--driver fake --connect qemu:///system", "--connect: it is for --driver libvirt, not fake"),
            ("--driver vmware --nova-conf nova.conf", "--nova-conf: it is for --driver libvirt"),
            ("--driver ironic --bios bios.json", "no node: give --node FILE"),
            ("--driver ironic --node broken.json", "broken.json: line 1"),
            ("--driver ironic --node node.json --bios broken.json", "column 3: broken JSON"),
        ],
    )
    def test_conflicting_or_unusable_host_arguments_are_errors(self, argv: str, says: str) -> None:
        """None is ever ignored."""
        with pytest.raises(DocumentError) as raised:
            facts_from(parsed(*argv.split()))
        assert says in str(raised.value)

    @pytest.mark.parametrize(
        ("argv", "kind"),
        [
            (("--driver", "vmware"), VmwareFacts),
            (("--driver", "fake"), FakeFacts),
            (("--driver", "ironic", "--node", "node.json"), IronicFacts),
            (("--driver", "ironic", "--node", "node.json", "--bios", "bios.json"), IronicFacts),
        ],
    )
    def test_driver_option_selects_the_kind_of_facts(self, argv: tuple[str, ...], kind: type[HostFacts]) -> None:
        for assume in (True, False):
            facts = facts_from(parsed(*argv), assume=assume)
            assert isinstance(facts, kind)
            assert assumptions(parsed(*argv), facts) == ()
        if isinstance(facts, IronicFacts):
            assert facts.other_traits == {"CUSTOM_A"}
            assert set(facts.bios) == ({"LogicalProc"} if "--bios" in argv else set())

    def test_libvirt_is_probed_at_the_right_uri_if_no_files_are_given(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By the URI of --connect, else of nova.conf, else the usual one; what it says is never assumed."""
        asked: list[str] = []

        def facts(host: LibvirtHost) -> LibvirtFacts:
            asked.append(host.uri)
            return LibvirtFacts(architecture="x86_64", virt_type="kvm", libvirt_version=(9, 0, 0))

        monkeypatch.setitem(sys.modules, "libvirt", FakeLibvirt())
        monkeypatch.setattr(LibvirtHost, "facts", facts)
        Path("other.conf").write_text("[libvirt]\nconnection_uri = qemu://other/system\n")
        for argv in ((), ("--nova-conf", "other.conf"), ("--nova-conf", "other.conf", "--connect", "test:///default")):
            found = facts_from(parsed(*argv), assume=False)
            assert assumptions(parsed(*argv), found) == ()
        assert asked == ["qemu:///system", "qemu://other/system", "test:///default"]

    @pytest.mark.parametrize(("package", "argv"), [("libvirt", ()), ("defusedxml.ElementTree", SAVED)])
    def test_missing_package_error_names_the_extra_to_install(
        self,
        package: str,
        argv: tuple[str, ...],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        if argv:
            monkeypatch.delitem(sys.modules, "os_prefilter.adapters.libvirt.documents", raising=False)
        monkeypatch.setitem(sys.modules, package, None)
        assert main(["capabilities", "show", *argv]) == 1
        assert re.search(r"pip install '\.\[(cli,)?libvirt\]'", capsys.readouterr().err)
