"""Files that somebody saved on a host: versions, what does not fit together, and what libvirt really answers."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from os_prefilter.adapters.libvirt.documents import capabilities_from, domain_capabilities_from
from os_prefilter.adapters.libvirt.facts import facts_from_xml, parse_version
from os_prefilter.adapters.libvirt.nova_conf import LibvirtSettings
from os_prefilter.errors import DocumentError
from tests.support.libvirt_xml import X86_MACHINES, capabilities, domain_capabilities, facts

QEMU_EVERYWHERE = {"x86_64": "qemu kvm", "i686": "qemu kvm", "aarch64": "qemu"}


class TestVersions:
    """Versions that are written, or read off machine types."""

    @pytest.mark.parametrize(
        ("text", "version"), [("8.0.0", (8, 0, 0)), ("7.2", (7, 2, 0)), ("10.10.12", (10, 10, 12))]
    )
    def test_a_version_is_two_or_three_numbers(self, text: str, version: tuple[int, int, int]) -> None:
        assert parse_version("--qemu-version", text) == version

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "8",
            "8.",
            "8.0.0.1",
            "v8.0.0",
            "8.0.0-rc1",
            "1:7.2",
            "8,0,0",
            "-8.0.0",
            " 8.0.0",
            "8.0.0\n",
            "\N{ARABIC-INDIC DIGIT EIGHT}.0.0",
            "99999.0.0",
            "9" * 5_000,
        ],
    )
    def test_malformed_version_error_names_the_option_and_the_expected_format(self, text: str) -> None:
        with pytest.raises(DocumentError, match="is not a version. Write it as X.Y.Z") as raised:
            parse_version("--libvirt-version", text)
        assert str(raised.value).startswith("--libvirt-version: ")
        assert str(raised.value).isprintable()

    @pytest.mark.parametrize(
        ("machines", "machine", "version"),
        [
            (X86_MACHINES, "", (7, 2, 0)),
            ({}, "pc-i440fx-6.2", (6, 2, 0)),
            ({"pc-q35-4.0.1": "", "pc-q35-4.0": "", "pc-i440fx-3.1": ""}, "", (4, 0, 1)),
            ({"pc-i440fx-2.12": "", "pc-i440fx-2.9": ""}, "", (2, 12, 0)),
            ({"pc-q35-rhel9.2.0": "", "pc-i440fx-6.0": "", "pc-i440fx-jammy": ""}, "pc-i440fx-5.2", (6, 0, 0)),
        ],
    )
    def test_qemu_version_is_taken_from_the_newest_versioned_machine_type(
        self, machines: Mapping[str, str], machine: str, version: tuple[int, int, int]
    ) -> None:
        offered = capabilities(machines={"x86_64": machines})
        found = facts(offered, domain_capabilities(machine=machine), qemu_version=None)
        assert found.hypervisor_version == version

    def test_machine_types_of_other_architectures_do_not_raise_the_qemu_version(self) -> None:
        offered = capabilities(guests=QEMU_EVERYWHERE, machines={"aarch64": {"virt-9.1": ""}})
        arm = domain_capabilities("aarch64", "qemu", "virt-9.1")
        assert facts(offered, domain_capabilities(), arm, qemu_version=None).hypervisor_version == (7, 2, 0)

    @pytest.mark.parametrize("machine", ["", "pc", "pc-q35-rhel9.2.0", "my-machine-type"])
    def test_qemu_version_is_required_without_a_versioned_machine_type(self, machine: str) -> None:
        with pytest.raises(DocumentError, match="Give --qemu-version X.Y.Z"):
            facts(None, domain_capabilities(machine=machine), qemu_version=None)

    def test_the_version_of_libvirt_must_be_given(self) -> None:
        with pytest.raises(DocumentError, match="Give --libvirt-version X.Y.Z"):
            facts(libvirt_version=None)


@pytest.mark.parametrize(
    ("settings", "offered", "domains", "says"),
    [
        (
            {"virt_type": "kvm"},
            {"x86_64": "qemu"},
            [{"domain": "qemu"}],
            "caps.xml: libvirt offers no guests of [libvirt]",
        ),
        ({"virt_type": "lxc"}, {"x86_64": "qemu kvm"}, [], "virt_type lxc here, only of: kvm, qemu"),
        ({}, {"x86_64": "lxc"}, [], "virt_type qemu here, only of: lxc"),
        ({}, {"aarch64": "qemu"}, [], "only of: none"),
        ({"virt_type": "lxc"}, {"x86_64": "lxc"}, [{}], "0.xml: domain capabilities say nothing of a lxc host"),
        ({}, {"x86_64": "kvm"}, [{"domain": "xen"}], "0.xml: these are domain capabilities of type 'xen'"),
        ({}, {"x86_64": "kvm"}, [{"domain": "qemu"}], "--arch x86_64 --virttype kvm'"),
        ({"virt_type": "qemu"}, {"x86_64": "qemu kvm"}, [{"domain": "kvm"}], "--arch x86_64 --virttype qemu'"),
        ({}, QEMU_EVERYWHERE, [{}, {"architecture": "aarch64"}], "1.xml: these are domain capabilities of type 'kvm'"),
        ({}, {"x86_64": "kvm"}, [], "caps.xml: no domain capabilities of x86_64, the host's own"),
        ({}, QEMU_EVERYWHERE, [{"architecture": "aarch64", "domain": "qemu"}], "no domain capabilities of x86_64"),
    ],
)
def test_documents_that_do_not_fit_together_are_refused(
    settings: dict[str, Any], offered: dict[str, str], domains: list[dict[str, Any]], says: str
) -> None:
    with pytest.raises(DocumentError) as raised:
        facts_from_xml(
            capabilities(guests=offered),
            [(f"{number}.xml", domain_capabilities(**each)) for number, each in enumerate(domains)],
            settings=LibvirtSettings(**settings),
            libvirt_version=(9, 0, 0),
            where="caps.xml",
        )
    assert says in str(raised.value)


# The corpus is outside the project: without it, these tests do not exist.
if os.environ.get("OS_PREFILTER_LIBVIRT_DATA"):
    _CORPUS = Path(os.environ["OS_PREFILTER_LIBVIRT_DATA"])
    _HOSTS = sorted((_CORPUS / "capabilities").glob("*.xml"))
    _DOMAINS = sorted((_CORPUS / "domaincapabilities").glob("*.xml"))

    @pytest.mark.parametrize("path", _DOMAINS, ids=lambda path: path.stem)
    def test_domain_capabilities_of_the_corpus_become_facts(path: Path) -> None:
        """Each stands for a host of its own; one for Xen is refused, and an empty one is a host that has nothing."""
        data = path.read_bytes()
        answer = domain_capabilities_from(path.name, data)
        offered = capabilities(answer.architecture, {answer.architecture: "kvm qemu"})
        if answer.domain_type not in ("kvm", "qemu"):
            with pytest.raises(DocumentError, match=f"of type '{answer.domain_type}'"):
                facts(offered, data)
            return
        own = facts(offered, data, settings=LibvirtSettings(virt_type=answer.domain_type)).own_guests
        assert own.buses == answer.guest.buses
        assert own.machines == {answer.machine}
        assert own.default_machine
        assert bool(own.buses | own.video_models) == (path.stem != "empty")

    @pytest.mark.parametrize("path", _HOSTS, ids=lambda path: path.stem)
    def test_corpus_host_uses_every_document_of_its_architecture_and_virt_type(path: Path) -> None:
        offered = capabilities_from(path.name, path.read_bytes())
        answers = [(each, domain_capabilities_from(each.name, each.read_bytes())) for each in _DOMAINS]
        for virt_type in ("kvm", "qemu"):
            fits = [
                each
                for each, answer in answers
                if (answer.architecture, answer.domain_type) == (offered.architecture, virt_type)
            ]
            if fits:
                found = facts(
                    path.read_bytes(),
                    *(each.read_bytes() for each in fits),
                    settings=LibvirtSettings(virt_type=virt_type),
                )
                assert set(found.guests) == {found.architecture}
                assert found.own_guests.machines >= {answer.machine for each, answer in answers if each in fits}
