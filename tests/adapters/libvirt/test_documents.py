"""libvirt's XML documents: read as Nova reads them, and refused with a reason if they are something else."""

import os
from pathlib import Path

import pytest
from nova.virt.libvirt import config as nova_config

from os_prefilter.adapters.libvirt.documents import MAX_BYTES, capabilities_from, domain_capabilities_from
from os_prefilter.errors import DocumentError
from tests.support.libvirt_xml import TPM, capabilities, domain_capabilities

HOSTILE: list[tuple[str, bytes, str]] = [
    ("empty", b"", "no XML, or not all of it"),
    ("truncated", capabilities()[:200], "no XML, or not all of it"),
    ("binary", bytes(range(256)), "no XML, or not all of it"),
    ("text", b"error: failed to connect to the hypervisor\n", "no XML, or not all of it"),
    ("huge", b"<capabilities>" + b" " * MAX_BYTES, "larger than 8 MiB"),
    ("deep", b"<capabilities>" * 100_000, "nested deeper than 50"),
    (
        "entities that grow",
        b"<!DOCTYPE a [<!ENTITY a '1234567890'><!ENTITY b '&a;&a;&a;&a;'><!ENTITY c '&b;&b;&b;&b;'>]>"
        b"<capabilities>&c;</capabilities>",
        "document type or entities",
    ),
    (
        "external entity",
        b"<!DOCTYPE a [<!ENTITY a SYSTEM 'file:///etc/hostname'>]><capabilities>&a;</capabilities>",
        "document type or entities",
    ),
    ("external DTD", b"<!DOCTYPE a SYSTEM 'http://192.0.2.1/a.dtd'><capabilities/>", "document type or entities"),
    ("undefined entity", b"<capabilities>&nbsp;</capabilities>", "no XML, or not all of it"),
    ("unknown encoding", b"<?xml version='1.0' encoding='nope'?><capabilities/>", "the XML cannot be read"),
    ("wrong root", b"<domain type='kvm'/>", "its root element is 'domain'"),
    ("wrong namespace", b"<capabilities xmlns='urn:x'/>", "its root element is '{urn:x}capabilities'"),
    ("domain capabilities", domain_capabilities(), "this is the output of 'virsh domcapabilities'"),
    ("no host", b"<capabilities/>", "the element host/cpu/arch is missing"),
    ("no architecture", capabilities(""), "the element host/cpu/arch is missing"),
    ("unknown architecture", capabilities("pdp11"), "the architecture 'pdp11' in host/cpu/arch is none that libvirt"),
    ("architecture with an escape", capabilities("&#x9b;31m"), "is no name that libvirt gives"),
    ("long architecture", capabilities("x" * 5_000), "is no name that libvirt gives"),
    ("siblings", capabilities(siblings=("0", "two")), "'two' is no list of processors"),
    ("address bits", capabilities(address_bits="-1"), "'-1' is no number of address bits"),
]


@pytest.mark.parametrize(("data", "says"), [each[1:] for each in HOSTILE], ids=[each[0] for each in HOSTILE])
def test_invalid_capabilities_document_is_refused_with_a_one_line_reason(data: bytes, says: str) -> None:
    """Whatever it holds, the message is one line that begins with where it is from."""
    with pytest.raises(DocumentError) as raised:
        capabilities_from("caps.xml", data)
    message = str(raised.value)
    assert message.startswith("caps.xml: ")
    assert says in message
    assert message.isprintable()
    assert len(message) < 400


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no XML, or not all of it"),
        (domain_capabilities()[:-20], "no XML, or not all of it"),
        (capabilities(), "this is the output of 'virsh capabilities'"),
        (domain_capabilities("pdp11"), "the architecture 'pdp11' in arch"),
        (domain_capabilities(domain=""), "the element domain is missing"),
        (domain_capabilities(machine="pc&#10;q35"), "is no name that libvirt gives"),
        (domain_capabilities(buses="ide&#x9b;2J"), "is no name that libvirt gives"),
        (domain_capabilities(sev="<maxESGuests>many</maxESGuests>"), "'many' is no number of guests"),
        (domain_capabilities(sev=f"<maxESGuests>{'9' * 5_000}</maxESGuests>"), "is no number of guests"),
    ],
)
def test_invalid_domain_capabilities_document_is_refused_with_a_one_line_reason(data: bytes, says: str) -> None:
    with pytest.raises(DocumentError) as raised:
        domain_capabilities_from("domain.xml", data)
    message = str(raised.value)
    assert message.startswith("domain.xml: ")
    assert says in message
    assert message.isprintable()


def _same_as_nova(data: bytes) -> None:
    """Compare what Nova's own classes read in domain capabilities with what ours do."""
    nova = nova_config.LibvirtConfigDomainCaps()
    nova.parse_str(data.decode())
    ours = domain_capabilities_from("nova", data)
    guest = ours.guest
    assert ours.machine == nova.machine_type
    # Nova takes each enum of the document that is called bus, that of redirected USB devices too.
    disk, video, tpm = nova.devices.disk, nova.devices.video, nova.devices.tpm
    assert guest.buses | {"usb"} == (disk.buses if disk else set()) | {"usb"}
    assert guest.video_models == (video.models if video else set())
    # For "UEFI" Nova's driver takes that QEMU has flash memory to load it from, found or not (uefi_supported).
    assert guest.uefi == bool(nova.os and nova.os.uefi_autoconfig_supported)
    assert guest.secure_boot == bool(nova.os and nova.os.secure_boot_supported)
    if tpm and tpm.supported and "emulator" in tpm.backend_models:
        versions = None if tpm.backend_versions is None else set(tpm.backend_versions)
        assert guest.tpm_models == set(tpm.models)
        assert guest.tpm_versions == versions
    else:
        assert not guest.tpm_models
    sevs = [each for each in nova.features if isinstance(each, nova_config.LibvirtConfigDomainCapsFeatureSev)]
    assert ("amd-sev" in guest.mem_encryption) == any(each.supported for each in sevs)


@pytest.mark.parametrize(
    "data",
    [
        domain_capabilities(tpm=TPM, firmware="bios efi", secure="yes no"),
        domain_capabilities(tpm={"model": "tpm-tis", "backendModel": "emulator"}, firmware="bios", secure="no"),
        domain_capabilities("aarch64", "qemu", "virt", tpm={"model": "tpm-tis", "backendModel": "x"}, secure="yes"),
    ],
)
def test_domain_capabilities_are_read_as_nova_reads_them(data: bytes) -> None:
    _same_as_nova(data)


# The corpus is outside the project: without it, these tests do not exist.
if os.environ.get("OS_PREFILTER_LIBVIRT_DATA"):
    _CORPUS = Path(os.environ["OS_PREFILTER_LIBVIRT_DATA"])
    _HOSTS = sorted((_CORPUS / "capabilities").glob("*.xml"))
    _DOMAINS = sorted((_CORPUS / "domaincapabilities").glob("*.xml"))
    assert _HOSTS
    assert _DOMAINS

    @pytest.mark.parametrize("path", _HOSTS, ids=lambda path: path.stem)
    def test_capabilities_of_the_corpus_are_read(path: Path) -> None:
        offered = capabilities_from(path.name, path.read_bytes())
        assert offered.architecture in path.stem
        assert offered.domain_types

    @pytest.mark.parametrize("path", _DOMAINS, ids=lambda path: path.stem)
    def test_domain_capabilities_of_the_corpus_are_read_as_nova_reads_them(path: Path) -> None:
        _same_as_nova(path.read_bytes())
