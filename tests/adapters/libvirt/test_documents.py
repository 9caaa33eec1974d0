# SPDX-License-Identifier: Apache-2.0

"""libvirt's XML documents: read as Nova reads them, turned into facts, refused
with a reason if they are invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from nova.objects.fields import Architecture
from nova.virt.libvirt import config as nova_config
from nova.virt.libvirt.utils import get_default_machine_type

from os_prefilter.adapters.libvirt.documents import (
    MAX_BYTES,
    capabilities_from,
    domain_capabilities_from,
    facts_from_xml,
    is_architecture,
    nova_architecture,
    parse_version,
)
from os_prefilter.adapters.libvirt.qemu import SavedLists
from os_prefilter.adapters.nova_conf import LibvirtSettings
from os_prefilter.common.errors import DocumentError
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.drivers.libvirt_facts import GuestFacts, LibvirtFacts
from os_prefilter.vocabulary.machine_types import (
    ARCHITECTURES,
    LIBVIRT_ARCHITECTURES,
)
from tests.support.corpus import corpus
from tests.support.libvirt_xml import (
    ARM_MACHINES,
    TPM,
    X86_MACHINES,
    capabilities,
    domain_capabilities,
    facts,
)
from tests.support.qemu import device_list

QEMU_EVERYWHERE = {"x86_64": "qemu kvm", "i686": "qemu kvm", "aarch64": "qemu"}
ALL_MACHINES = {
    "x86_64": X86_MACHINES,
    "i686": X86_MACHINES,
    "aarch64": ARM_MACHINES,
}


def _enum(
    element: str, name: str, *values: str, supported: str = "yes"
) -> str:
    listed = "".join(f"<value>{value}</value>" for value in values)
    enum = f"<enum name='{name}'>{listed}</enum>"
    return f"<{element} supported='{supported}'>{enum}</{element}>"


_Read = Callable[[str, bytes], object]


def _check_refused(read: _Read, data: bytes, reason: str) -> None:
    """Check that the reason is in one short line."""
    with pytest.raises(DocumentError) as raised:
        read("some.xml", data)
    message = str(raised.value)
    assert message.startswith("some.xml: ")
    assert reason in message
    assert message.isprintable()
    assert len(message) < 400


_GROWING = (
    b"<!DOCTYPE a [<!ENTITY a '1234567890'><!ENTITY b '&a;&a;&a;&a;'>"
    b"<!ENTITY c '&b;&b;&b;&b;'>]><capabilities>&c;</capabilities>"
)
_EXTERNAL = (
    b"<!DOCTYPE a [<!ENTITY a SYSTEM 'file:///etc/hostname'>]>"
    b"<capabilities>&a;</capabilities>"
)
_UNKNOWN_ENCODING = b"<?xml version='1.0' encoding='nope'?><capabilities/>"
_NAMESPACE = b"<capabilities xmlns='urn:x'/>"
_PDP11 = "unknown architecture 'pdp11' in host/cpu/arch"
_NO_NAME = "is not a name that libvirt gives"
_BROKEN = {
    "empty": b"",
    "truncated": capabilities()[:200],
    "deep": b"<capabilities>" * 100_000,
    "entities that grow": _GROWING,
    "external entity": _EXTERNAL,
}


@pytest.mark.parametrize("data", _BROKEN.values(), ids=_BROKEN)
def test_broken_document_is_refused(data: bytes) -> None:
    reason = "not XML of libvirt, or incomplete: "
    _check_refused(capabilities_from, data, reason)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<capabilities>" + b" " * MAX_BYTES, "larger than 8 MiB"),
        (_UNKNOWN_ENCODING, "not XML of libvirt"),
        (b"<domain type='kvm'/>", "this is the output of 'virsh dumpxml'"),
        (_NAMESPACE, "this is an element '{urn:x}capabilities'"),
    ],
    ids=["huge", "unknown encoding", "wrong root", "wrong namespace"],
)
def test_other_document_is_refused(data: bytes, reason: str) -> None:
    _check_refused(capabilities_from, data, reason)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"architecture": ""}, "the element host/cpu/arch is missing"),
        ({"architecture": "pdp11"}, _PDP11),
        ({"architecture": "&#x9b;31m"}, _NO_NAME),
        ({"siblings": ("0", "two")}, "'two' is not a list of processors"),
        ({"address_bits": "-1"}, "'-1' is not a number of address bits"),
    ],
    ids=["missing", "unknown", "escape", "siblings", "address bits"],
)
def test_capabilities_with_an_invalid_part_are_refused(
    part: dict[str, Any], reason: str
) -> None:
    _check_refused(capabilities_from, capabilities(**part), reason)


def test_capabilities_are_refused_as_domain_capabilities() -> None:
    reason = "this is the output of 'virsh capabilities'"
    _check_refused(domain_capabilities_from, capabilities(), reason)


@pytest.mark.parametrize(
    ("part", "value", "reason"),
    [
        ("architecture", "pdp11", "unknown architecture 'pdp11' in arch"),
        ("domain", "", "the element domain is missing"),
        ("machine", "pc&#10;q35", _NO_NAME),
        ("buses", "ide&#x9b;2J", _NO_NAME),
    ],
)
def test_domain_capabilities_with_an_invalid_name_are_refused(
    part: str, value: Any, reason: str
) -> None:
    data = domain_capabilities(**{part: value})
    _check_refused(domain_capabilities_from, data, reason)


@pytest.mark.parametrize(
    ("number", "shown"),
    [("many", "'many' "), ("9" * 5_000, "")],
    ids=["word", "digits"],
)
def test_number_of_encrypted_guests_that_is_none_is_refused(
    number: str, shown: str
) -> None:
    data = domain_capabilities(sev=f"<maxESGuests>{number}</maxESGuests>")
    reason = f"{shown}is not a number of guests"
    _check_refused(domain_capabilities_from, data, reason)


def _same_as_nova(data: bytes) -> None:
    """Compare what Nova's own classes read in domain capabilities with what
    ours do.
    """
    nova = nova_config.LibvirtConfigDomainCaps()
    nova.parse_str(data.decode())
    ours = domain_capabilities_from("nova", data)
    guest = ours.guest
    assert ours.machine == nova.machine_type
    # Nova takes each enum of the document that is called bus, that of
    # redirected USB devices too.
    disk, video, tpm = nova.devices.disk, nova.devices.video, nova.devices.tpm
    assert guest.buses | {"usb"} == (disk.buses if disk else set()) | {"usb"}
    assert guest.video_models == (video.models if video else set())
    # For "UEFI" Nova's driver takes that QEMU has flash memory to load it
    # from, found or not (uefi_supported).
    assert guest.uefi == bool(nova.os and nova.os.uefi_autoconfig_supported)
    assert guest.secure_boot == bool(nova.os and nova.os.secure_boot_supported)
    if tpm and tpm.supported and "emulator" in tpm.backend_models:
        versions = tpm.backend_versions
        if versions is not None:
            versions = set(versions)
        assert guest.tpm_models == set(tpm.models)
        assert guest.tpm_versions == versions
    else:
        assert not guest.tpm_models
    has_sev = any(
        each.supported
        for each in nova.features
        if isinstance(each, nova_config.LibvirtConfigDomainCapsFeatureSev)
    )
    assert ("amd-sev" in guest.mem_encryption) == has_sev


_TIS = {"model": "tpm-tis", "backendModel": "emulator"}
_TIS_OF_ANOTHER_BACKEND = {"model": "tpm-tis", "backendModel": "x"}


@pytest.mark.parametrize(
    "parts",
    [
        {"tpm": TPM, "firmware": "bios efi", "secure": "yes no"},
        {"tpm": _TIS, "firmware": "bios", "secure": "no"},
    ],
    ids=["UEFI", "BIOS"],
)
def test_domain_capabilities_are_read_as_nova_reads_them(
    parts: dict[str, Any],
) -> None:
    _same_as_nova(domain_capabilities(**parts))


def test_domain_capabilities_of_aarch64_are_read_as_nova_reads_them() -> None:
    tpm = _TIS_OF_ANOTHER_BACKEND
    data = domain_capabilities(
        "aarch64", "qemu", "virt", tpm=tpm, secure="yes"
    )
    _same_as_nova(data)


@pytest.mark.parametrize(
    ("text", "version"),
    [("8.0.0", (8, 0, 0)), ("7.2", (7, 2, 0)), ("10.10.12", (10, 10, 12))],
)
def test_a_version_is_two_or_three_numbers(
    text: str, version: tuple[int, int, int]
) -> None:
    assert parse_version("--qemu-version", text) == version


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8",
        "8.",
        "8.0.0.1",
        "8.0.0-rc1",
        "8,0,0",
        " 8.0.0",
        "8.0.0\n",
        "\u0668.0.0",
    ],
)
def test_malformed_version_error_names_the_option_and_the_expected_format(
    text: str,
) -> None:
    with pytest.raises(
        DocumentError, match="is not a version. Write it as X.Y.Z"
    ) as raised:
        parse_version("--libvirt-version", text)
    assert str(raised.value).startswith("--libvirt-version: ")
    assert str(raised.value).isprintable()


def _check_misfit(
    reason: str, offered: Mapping[str, str], *domains: bytes, **settings: Any
) -> None:
    """Check that these documents do not fit together."""
    named = [(f"{number}.xml", data) for number, data in enumerate(domains)]
    with pytest.raises(DocumentError) as raised:
        facts_from_xml(
            capabilities(guests=offered),
            named,
            settings=LibvirtSettings(**settings),
            libvirt_version=(9, 0, 0),
            qemu_version=(7, 2, 22),
            where="caps.xml",
        )
    assert reason in str(raised.value)


def test_virt_type_that_libvirt_does_not_offer_is_refused() -> None:
    reason = "caps.xml: libvirt offers no guests of [libvirt]"
    domain = domain_capabilities(domain="qemu")
    _check_misfit(reason, {"x86_64": "qemu"}, domain, virt_type="kvm")


def test_host_that_offers_no_guests_of_qemu_is_refused() -> None:
    reason = "virt_type qemu here, only of: lxc"
    _check_misfit(reason, {"x86_64": "lxc"})


def test_domain_capabilities_of_another_hypervisor_are_refused() -> None:
    reason = "0.xml: these are domain capabilities of type 'xen'"
    domain = domain_capabilities(domain="xen")
    _check_misfit(reason, {"x86_64": "kvm"}, domain)


def test_domain_capabilities_of_qemu_are_refused_on_a_kvm_host() -> None:
    reason = "--arch x86_64 --virttype kvm'"
    domain = domain_capabilities(domain="qemu")
    _check_misfit(reason, {"x86_64": "kvm"}, domain)


def test_domain_capabilities_of_kvm_are_refused_for_an_emulated_guest() -> (
    None
):
    reason = "1.xml: these are domain capabilities of type 'kvm'"
    domains = [domain_capabilities(), domain_capabilities("aarch64")]
    _check_misfit(reason, QEMU_EVERYWHERE, *domains)


def test_host_without_domain_capabilities_of_its_own_is_refused() -> None:
    reason = "caps.xml: no domain capabilities of x86_64, the host's own"
    _check_misfit(reason, {"x86_64": "kvm"})


def guests_of(
    *domains: bytes, offered: bytes | None = None, **settings: Any
) -> Mapping[str, GuestFacts]:
    options = LibvirtSettings(**settings)
    return facts(offered, *domains, settings=options).guests


def x86_guest(
    *domains: bytes, offered: bytes | None = None, **settings: Any
) -> GuestFacts:
    return guests_of(*domains, offered=offered, **settings)["x86_64"]


def test_facts_include_the_nova_conf_settings() -> None:
    settings = LibvirtSettings(
        virt_type="qemu",
        swtpm_enabled=True,
        images_type="rbd",
        force_raw_images=False,
    )
    domain = domain_capabilities(domain="qemu")
    found = facts(None, domain, settings=settings)
    assert found.virt_type == "qemu"
    assert found.swtpm_enabled is True
    assert found.images_type == "rbd"
    assert found.force_raw_images is False


def test_facts_include_the_host_and_the_given_versions() -> None:
    found = facts(host="compute-1")
    assert found.host == "compute-1"
    assert found.architecture == "x86_64"
    assert found.libvirt_version == (9, 0, 0)
    assert found.hypervisor_version == (7, 2, 22)


@pytest.mark.parametrize(
    ("listed", "bits"), [("", None), ("46", 46)], ids=["none", "46"]
)
def test_facts_include_the_address_bits(listed: str, bits: int | None) -> None:
    found = facts(capabilities(address_bits=listed))
    assert found.physical_address_bits == bits


@pytest.mark.parametrize(
    ("siblings", "smt"),
    [
        (("0", "1"), False),
        (("0,32", "1,33"), True),
        (("0-1", "0-1"), True),
        (("0", "", "2"), False),
    ],
)
def test_smt_is_on_if_any_core_has_more_than_one_sibling(
    siblings: tuple[str, ...], smt: bool
) -> None:
    assert facts(capabilities(siblings=siblings)).smt is smt


@pytest.mark.parametrize(
    ("offers", "configured", "virt_type"),
    [
        ("qemu kvm", None, "kvm"),
        ("qemu", None, "qemu"),
        ("qemu kvm", "qemu", "qemu"),
        # Domain capabilities of type kvm are proof of it.
        ("qemu", None, "kvm"),
    ],
)
def test_virt_type_defaults_to_kvm_where_the_host_supports_it(
    offers: str, configured: str | None, virt_type: str
) -> None:
    guests = {"x86_64": offers, "aarch64": "qemu kvm"}
    found = facts(
        capabilities(guests=guests),
        domain_capabilities(domain=virt_type),
        settings=LibvirtSettings(virt_type=configured),
    )
    assert found.virt_type == virt_type


def test_libvirt_architecture_names_are_mapped_to_those_of_nova() -> None:
    for name in Architecture.ALL:
        libvirts = LIBVIRT_ARCHITECTURES.get(name, name)
        assert is_architecture(libvirts)
        assert nova_architecture(libvirts) == name


@pytest.mark.parametrize("name", ["armv6", "itanium", "or1k", "or32"])
def test_name_that_only_nova_has_is_no_architecture_of_libvirt(
    name: str,
) -> None:
    """As getDomainCapabilities() of libvirt 9.0 and 11.3 answers."""
    assert not is_architecture(name)


@pytest.mark.parametrize(
    ("libvirts", "novas"),
    [
        ("riscv64", "riscv64"),
        ("riscv32", "riscv32"),
        ("loongarch64", "loongarch64"),
        ("armv6l", "armv6"),
    ],
)
def test_architecture_of_the_host_has_novas_name(
    libvirts: str, novas: str
) -> None:
    domain = domain_capabilities(libvirts, machine="virt")
    found = facts(capabilities(libvirts), domain)
    assert found.architecture == novas
    assert found.guests.keys() == {novas}


_SPICE = _enum("graphics", "type", "vnc", "spice")
_REDIRECTION = _enum("redirdev", "bus", "usb")


def _with_devices(elements: str) -> bytes:
    end = b"</devices>"
    return domain_capabilities().replace(end, elements.encode() + end)


def _launch(*models: str, supported: str = "yes") -> str:
    return _enum("launchSecurity", "sectype", *models, supported=supported)


def test_devices_of_all_machine_types_add_up() -> None:
    pc = domain_capabilities(buses="ide virtio", video="vga", firmware="bios")
    q35 = domain_capabilities(
        machine="pc-q35-7.2",
        buses="sata virtio",
        video="bochs",
        firmware="bios efi",
        secure="yes no",
        tpm=TPM,
    )
    expected = GuestFacts(
        default_machine="pc",
        machines=frozenset(("pc-i440fx-7.2", "pc-q35-7.2")),
        buses=frozenset(("ide", "sata", "virtio")),
        video_models=frozenset(("vga", "bochs")),
        tpm_models=frozenset(("tpm-tis", "tpm-crb")),
        tpm_versions=frozenset(("2.0",)),
        uefi=True,
        secure_boot=True,
    )
    assert x86_guest(pc, q35) == expected
    assert x86_guest(q35, pc) == expected


def test_guest_without_devices_has_none() -> None:
    found = x86_guest(
        domain_capabilities(buses=None, video=None, firmware="", secure="no")
    )
    assert found == GuestFacts(
        default_machine="pc",
        machines=frozenset(("pc-i440fx-7.2",)),
        tpm_versions=frozenset(),
    )


@pytest.mark.parametrize(
    ("listed", "versions"), [("1.2 2.0", {"1.2", "2.0"}), ("", set())]
)
def test_tpm_has_the_versions_of_its_emulator(
    listed: str, versions: set[str]
) -> None:
    tpm = {**_TIS, "backendVersion": listed}
    _check_tpm(tpm, {"tpm-tis"}, versions)


def test_versions_of_a_tpm_are_unknown_before_libvirt_7_8() -> None:
    tpm = {"model": "tpm-tis", "backendModel": "passthrough emulator"}
    _check_tpm(tpm, {"tpm-tis"}, None)


@pytest.mark.parametrize(
    "tpm",
    [None, {"model": "tpm-tis tpm-crb", "backendModel": "passthrough"}],
    ids=["none", "of the host"],
)
def test_guest_has_no_tpm_where_the_host_has_no_emulator(
    tpm: Mapping[str, str] | None,
) -> None:
    """Without swtpm the models are for a TPM of the host's own."""
    _check_tpm(tpm, set(), set())


def _check_tpm(
    tpm: Mapping[str, str] | None,
    models: set[str],
    versions: set[str] | None,
) -> None:
    data = domain_capabilities(tpm=tpm)
    found = x86_guest(data)
    assert found.tpm_models == models
    assert found.tpm_versions == versions
    # One machine type that does not report them is enough.
    both = x86_guest(data, domain_capabilities(machine="isapc"))
    assert (both.tpm_versions is None) == (versions is None)


@pytest.mark.parametrize(
    ("elements", "found"),
    [
        (_REDIRECTION + _SPICE, True),
        (_REDIRECTION + _enum("graphics", "type", "vnc"), False),
        (_enum("redirdev", "bus") + _SPICE, False),
    ],
    ids=["both", "no SPICE", "no redirection"],
)
def test_redirected_usb_devices_need_usb_and_spice(
    elements: str, found: bool
) -> None:
    """SPICE graphics are where they lead; a QEMU may be built without."""
    _check_redirection(elements, found)


@pytest.mark.parametrize(
    "elements",
    [_SPICE, _REDIRECTION, ""],
    ids=["no redirection", "no graphics", "neither"],
)
def test_redirected_usb_devices_are_unknown_if_libvirt_does_not_list_them(
    elements: str,
) -> None:
    """As an older libvirt says."""
    _check_redirection(elements, None)


def _check_redirection(elements: str, found: bool | None) -> None:
    data = _with_devices(elements)
    assert x86_guest(data).usb_redirection is found
    # One machine type that has them is enough.
    with_them = _with_devices(_REDIRECTION + _SPICE)
    assert x86_guest(data, with_them).usb_redirection is True


@pytest.mark.parametrize(
    ("number", "models"),
    [("0", {"amd-sev"}), ("450", {"amd-sev", "amd-sev-es"})],
)
def test_sev_es_is_read_from_the_number_of_its_guests(
    number: str, models: set[str]
) -> None:
    sev = f"<maxGuests>59</maxGuests><maxESGuests>{number}</maxESGuests>"
    data = domain_capabilities(sev=sev)
    assert x86_guest(data).mem_encryption == models


@pytest.mark.parametrize(
    ("more", "models"),
    [
        (_launch("sev", "sev-snp"), {"amd-sev", "amd-sev-snp"}),
        (_launch("sev-snp", supported="no"), {"amd-sev"}),
    ],
    ids=["supported", "not supported"],
)
def test_sev_snp_is_read_from_the_launch_security(
    more: str, models: set[str]
) -> None:
    data = domain_capabilities(sev="", more_features=more)
    assert x86_guest(data).mem_encryption == models


@pytest.mark.parametrize(
    ("more", "models"),
    [
        ("", set()),
        (_launch("sev-snp"), set()),
        ("<tdx supported='yes'/>", {"intel-tdx"}),
    ],
    ids=["nothing", "SEV-SNP", "TDX"],
)
def test_host_without_sev_encrypts_memory_with_tdx_alone(
    more: str, models: set[str]
) -> None:
    data = domain_capabilities(more_features=more)
    assert x86_guest(data).mem_encryption == models


@pytest.mark.parametrize(
    ("loader", "has"),
    [("<loader supported='yes'>", True), ("<loader>", False)],
)
def test_unsupported_loader_means_no_secure_boot(
    loader: str, has: bool
) -> None:
    document = domain_capabilities(firmware="efi", secure="yes")
    data = document.replace(b"<loader supported='yes'>", loader.encode())
    assert x86_guest(data).secure_boot is has


def test_machine_types_are_complete_if_the_capabilities_list_them() -> None:
    document = domain_capabilities(machine="pc-i440fx-9.9")
    offered = capabilities(machines=ALL_MACHINES)
    found = x86_guest(document, offered=offered)
    assert found.machines == {*X86_MACHINES, "pc-i440fx-9.9"}
    assert found.machines_are_complete


def test_machine_type_of_the_domain_capabilities_alone_is_not_complete() -> (
    None
):
    found = x86_guest(domain_capabilities(machine="pc-i440fx-9.9"))
    assert found.machines == {"pc-i440fx-9.9"}
    assert not found.machines_are_complete


@pytest.mark.parametrize(
    ("domain", "machines"),
    [
        ("kvm", {"isapc", "pc", "pc-i440fx-7.2"}),
        ("qemu", {"isapc", "microvm"}),
    ],
)
def test_machine_types_include_those_of_the_domain_type_and_canonical_names(
    domain: str, machines: set[str]
) -> None:
    offered = (
        b"<capabilities><host><cpu><arch>x86_64</arch></cpu></host><guest>"
        b"<arch name='x86_64'><machine>isapc</machine>"
        b"<domain type='qemu'><machine>microvm</machine></domain>"
        b"<domain type='kvm'>"
        b"<machine canonical='pc-i440fx-7.2'>pc</machine></domain>"
        b"</arch></guest></capabilities>"
    )
    data = domain_capabilities(domain=domain, machine="")
    found = x86_guest(data, offered=offered, virt_type=domain)
    assert found.machines == machines


def test_host_emulates_the_architectures_of_capabilities_and_documents() -> (
    None
):
    """Nothing else is read of these documents."""
    arm = domain_capabilities("armv7l", "qemu", "virt-7.2")
    offered = capabilities(guests=QEMU_EVERYWHERE, machines=ALL_MACHINES)
    found = facts(offered, domain_capabilities(), arm)
    assert found.guests.keys() == {"x86_64"}
    assert found.emulated == {"aarch64", "armv7l"}


def test_i686_has_domain_capabilities_of_its_own() -> None:
    i686 = domain_capabilities("i686", "qemu", firmware="efi")
    offered = capabilities(guests=QEMU_EVERYWHERE)
    found = guests_of(domain_capabilities(), i686, offered=offered)
    assert found.keys() == {"x86_64", "i686"}
    assert found["x86_64"].uefi is False
    assert found["i686"].uefi is True


def test_domain_capabilities_of_i686_do_not_do_for_x86_64() -> None:
    reason = "no domain capabilities of x86_64"
    i686 = domain_capabilities("i686", "qemu", firmware="efi")
    _check_misfit(reason, QEMU_EVERYWHERE, i686)


@pytest.mark.parametrize("architecture", ARCHITECTURES.split())
def test_default_machine_type_is_that_of_nova_or_else_of_libvirt(
    architecture: str,
) -> None:
    libvirts = LIBVIRT_ARCHITECTURES.get(architecture, architecture)
    document = domain_capabilities(libvirts, machine="libvirts-own")
    found = guests_of(document, offered=capabilities(libvirts))
    # libvirt prefers pseries on ppc64, whatever file came first.
    own = "pseries" if architecture == "ppc64" else "libvirts-own"
    expected = get_default_machine_type(architecture) or own
    assert found[architecture].default_machine == expected


def test_default_machine_type_of_nova_conf_comes_first() -> None:
    machines = {"x86_64": "q35", "aarch64": "virt-6.2"}
    found = x86_guest(domain_capabilities(), hw_machine_type=machines)
    assert found.default_machine == "q35"


def _host_of(machine: str) -> LibvirtFacts:
    """Return a host with this default machine type in nova.conf."""
    exact = {"pc": "pc-i440fx-7.2", "q35": "pc-q35-7.2"}
    offered = capabilities(machines={"x86_64": exact})
    settings = LibvirtSettings(hw_machine_type={"x86_64": machine})
    return facts(offered, domain_capabilities(), settings=settings)


def test_hw_machine_type_that_qemu_has_is_the_default_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = _host_of("pc-q35-7.2")
    assert host.guests[host.architecture].default_machine == "pc-q35-7.2"
    assert not caplog.messages


@pytest.mark.parametrize("wrong", ["nonsense", "pc-q35-99.9"])
def test_hw_machine_type_that_qemu_lacks_is_a_warning_and_the_default_all_the_same(
    wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nova passes it to libvirt; guests that name a machine type start."""
    host = _host_of(wrong)
    assert host.guests[host.architecture].default_machine == wrong
    warning = (
        "hw_machine_type of nova.conf gives x86_64 guests the machine type"
        f" '{wrong}'"
    )
    assert warning in caplog.messages[-1]


@pytest.mark.parametrize("wrong", ["nonsense", "pc-q35-99.9"])
def test_hw_machine_type_that_qemu_lacks_changes_default_machines_alone(
    wrong: str,
) -> None:
    right = capability_traits(_host_of("pc-q35-7.2"))
    for trait, has in capability_traits(_host_of(wrong)).items():
        assert has == right[trait] or "DEFAULT_MACHINE" in trait


# The corpus is outside the project: without it, these tests do not exist.
if folder := corpus():

    @pytest.mark.parametrize(
        "path",
        sorted((folder / "domaincapabilities").glob("*.xml")),
        ids=lambda path: path.stem,
    )
    def test_domain_capabilities_of_the_corpus_become_facts(
        path: Path,
    ) -> None:
        """As Nova reads them. Each is a host of its own; one for Xen is
        refused, an empty one has nothing.
        """
        data = path.read_bytes()
        _same_as_nova(data)
        answer = domain_capabilities_from(path.name, data)
        kind = answer.domain_type
        guests = {answer.architecture: "kvm qemu"}
        offered = capabilities(answer.architecture, guests)
        if kind not in ("kvm", "qemu"):
            with pytest.raises(DocumentError, match=f"of type '{kind}'"):
                facts(offered, data)
            return
        settings = LibvirtSettings(virt_type=kind)
        host = facts(offered, data, settings=settings)
        own = host.guests[host.architecture]
        assert own.buses == answer.guest.buses
        assert own.machines == {answer.machine}
        assert own.default_machine
        assert bool(own.buses | own.video_models) == (path.stem != "empty")


# -- QEMU's devices
# -----------------------------------------------------------------------------

_I686 = {"x86_64": "qemu kvm", "i686": "qemu"}


def _facts_by_lists(
    *domains: bytes, lists: tuple[tuple[str, ...], ...]
) -> LibvirtFacts:
    files = [
        (f"{number}.txt", device_list(*names).encode())
        for number, names in enumerate(lists)
    ]
    return facts(
        capabilities(guests=_I686),
        *domains,
        ask_devices=SavedLists(files).devices_of,
    )


_OWN = domain_capabilities()
_I386 = domain_capabilities("i686", "qemu").replace(b"/qemu<", b"/qemu-i386<")
_SAME = domain_capabilities("i686", "qemu")


@pytest.mark.parametrize(
    ("domains", "lists", "own", "i686"),
    [
        ((_OWN, _I386), (("e1000",),), {"e1000"}, None),
        (
            (_OWN, _I386),
            (("e1000",), ("igb", "max-i386-cpu")),
            {"e1000"},
            {"igb", "max-i386-cpu"},
        ),
        (
            (_I386, _OWN),
            (("igb", "max-i386-cpu"),),
            None,
            {"igb", "max-i386-cpu"},
        ),
        # Red Hat has one QEMU for both.
        ((_SAME, _OWN), (("e1000",),), {"e1000"}, {"e1000"}),
        ((_OWN, _SAME), (), None, None),
    ],
    ids=["own", "both", "i686 alone", "one QEMU for both", "none"],
)
def test_devices_are_those_of_the_qemu_for_an_architecture(
    domains: tuple[bytes, ...],
    lists: tuple[tuple[str, ...], ...],
    own: set[str] | None,
    i686: set[str] | None,
) -> None:
    found = _facts_by_lists(*domains, lists=lists).guests
    for guest, names in (("x86_64", own), ("i686", i686)):
        devices = None if names is None else frozenset(names)
        assert found[guest].devices == devices
        if devices is None:
            reason = "no list of them is given"
            assert found[guest].devices_unknown == reason


def test_document_without_a_path_has_the_devices_of_its_architecture() -> None:
    path = b"<path>/usr/bin/qemu</path>"
    domains = [each.replace(path, b"") for each in (_OWN, _SAME)]
    found = _facts_by_lists(*domains, lists=(("e1000",),)).guests
    assert found["x86_64"].devices == frozenset(("e1000",))
    assert found["i686"].devices is None


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            [b"garbage"],
            "0.txt: 'garbage' is no line of QEMU's list of devices",
        ),
        ([b""], "0.txt: QEMU lists no devices"),
        (
            [device_list("e1000").encode(), device_list("igb").encode()],
            "1.txt: this is a second list of devices for guests of the same",
        ),
    ],
)
def test_file_that_is_no_list_of_devices_is_an_error(
    files: list[bytes], message: str
) -> None:
    named = [(f"{number}.txt", data) for number, data in enumerate(files)]
    with pytest.raises(DocumentError) as raised:
        SavedLists(named)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("machine", "has_floppy"),
    [
        ("pc-q35-rhel10.0.0", False),
        ("pc-q35-rhel8.6.0", False),
        ("pc-i440fx-rhel9.0.0", False),
        ("pc-i440fx-rhel7.6.0", True),
        ("pc-q35-9.1", True),
        ("q35", True),
    ],
)
def test_red_hats_machine_types_have_no_floppy_drive(
    machine: str, has_floppy: bool
) -> None:
    """Libvirt lists the bus, as QEMU has the device."""
    guest = x86_guest(domain_capabilities(machine=machine, buses="fdc sata"))
    assert ("fdc" in guest.buses) is has_floppy


_MARKED = (
    b"<machine maxCpus='240' deprecated='yes'>pc-i440fx-rhel10.0.0</machine>"
    b"<machine canonical='pc-i440fx-rhel10.0.0' maxCpus='240'"
    b" deprecated='yes'>pc</machine>"
    b"<machine maxCpus='710' deprecated='yes'>pc-q35-rhel8.6.0</machine>"
    b"<machine maxCpus='4096'>pc-q35-rhel10.0.0</machine>"
)


def test_marked_machine_types_are_deprecated() -> None:
    """As in the capabilities of Red Hat's QEMU 10."""
    data = (
        b"<capabilities><host><cpu><arch>x86_64</arch></cpu></host><guest>"
        b"<arch name='x86_64'>" + _MARKED + b"<domain type='kvm'/></arch>"
        b"</guest></capabilities>"
    )
    assert capabilities_from("host.xml", data).deprecated == {
        "x86_64": {"pc", "pc-i440fx-rhel10.0.0", "pc-q35-rhel8.6.0"}
    }


def test_marked_cpu_models_are_deprecated() -> None:
    folder = corpus()
    if folder is None:
        pytest.skip("the corpus of libvirt's documents is not here")
    name = "domaincapabilities/qemu_6.2.0.x86_64.xml"
    data = (folder / name).read_bytes()
    guest = domain_capabilities_from(name, data).guest
    expected = frozenset(("Icelake-Client", "Icelake-Client-noTSX"))
    assert guest.deprecated_cpu_models == expected


_EPYC = "<model fallback='forbid'>EPYC</model>"
_PKU = "<feature policy='require' name='pku'/>"
_UMIP = "<feature policy='require' name='umip'/>"


def _host_model(elements: str) -> str:
    data = domain_capabilities(host_model=elements)
    return domain_capabilities_from("some.xml", data).guest.host_model


def test_cpus_are_equal_whatever_the_order_of_their_features() -> None:
    assert _host_model(_EPYC + _PKU + _UMIP) == _host_model(
        f"{_UMIP}\n{_EPYC}{_PKU}"
    )


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(_EPYC, id="a feature less"),
        pytest.param(_EPYC + _UMIP, id="another feature"),
        pytest.param(
            _EPYC + _PKU.replace("require", "disable"), id="another policy"
        ),
        pytest.param(_EPYC.replace("EPYC", "EPYC-Rome") + _PKU, id="model"),
    ],
)
def test_cpus_differ_by_model_features_and_policies(other: str) -> None:
    assert _host_model(_EPYC + _PKU) != _host_model(other)


def test_host_model_that_libvirt_does_not_support_is_not_known() -> None:
    assert _host_model("") == ""
    data = domain_capabilities(host_model=_EPYC)
    refused = data.replace(
        b"supported='yes'>" + _EPYC.encode(), b"supported='no'>"
    )
    assert refused != data
    assert domain_capabilities_from("x", refused).guest.host_model == ""


_LISTED = {"x86_64": {"pc-i440fx-7.2": ""}}


@pytest.mark.parametrize(
    ("machines", "version", "expected"),
    [
        pytest.param({}, (9, 0, 0), None, id="no list"),
        pytest.param(_LISTED, (7, 0, 0), None, id="too old to mark"),
        pytest.param(_LISTED, (7, 1, 0), set(), id="marks none"),
    ],
)
def test_deprecated_machine_types_are_known_from_their_list(
    machines: dict[str, dict[str, str]],
    version: tuple[int, int, int],
    expected: set[str] | None,
) -> None:
    listed = capabilities(machines=machines)
    guest = facts(listed, libvirt_version=version).guests["x86_64"]
    assert guest.deprecated_machines == expected


_MODELS = (
    b"<cpu><mode name='custom' supported='yes'><model usable='yes'>Penryn"
    b"</model>%s</mode></cpu>"
)
_ICELAKE = b"<model usable='no' deprecated='yes'>Icelake-Client</model>"


@pytest.mark.parametrize(
    ("cpus", "version", "expected"),
    [
        pytest.param([b""], (9, 0, 0), None, id="no list"),
        pytest.param([_MODELS % b""], (7, 0, 0), None, id="too old to mark"),
        pytest.param([_MODELS % b""], (7, 1, 0), set(), id="marks none"),
        pytest.param(
            [_MODELS % _ICELAKE],
            (7, 0, 0),
            {"Icelake-Client"},
            id="a mark counts whatever the version",
        ),
        pytest.param(
            [_MODELS % _ICELAKE, b""],
            (9, 0, 0),
            {"Icelake-Client"},
            id="list in the first document",
        ),
        pytest.param(
            [b"", _MODELS % _ICELAKE],
            (9, 0, 0),
            {"Icelake-Client"},
            id="list in the last document",
        ),
    ],
)
def test_deprecated_cpu_models_are_known_from_their_list(
    cpus: list[bytes], version: tuple[int, int, int], expected: set[str] | None
) -> None:
    documents = [
        domain_capabilities().replace(b"<devices>", cpu + b"<devices>")
        for cpu in cpus
    ]
    found = facts(None, *documents, libvirt_version=version)
    assert found.guests["x86_64"].deprecated_cpu_models == expected
