# SPDX-License-Identifier: Apache-2.0

"""libvirt's XML documents: read as Nova reads them, turned into facts, refused
with a reason if they are invalid.
"""

from collections.abc import Mapping
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
from os_prefilter.adapters.nova_conf import LibvirtSettings
from os_prefilter.common.errors import DocumentError
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.drivers.libvirt_facts import GuestFacts
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

QEMU_EVERYWHERE = {"x86_64": "qemu kvm", "i686": "qemu kvm", "aarch64": "qemu"}
ALL_MACHINES = {
    "x86_64": X86_MACHINES,
    "i686": X86_MACHINES,
    "aarch64": ARM_MACHINES,
}
_LAUNCH = (
    "<launchSecurity supported='{}'><enum"
    " name='sectype'>{}</enum></launchSecurity>"
)
_REDIRECTION = (
    "<redirdev supported='yes'><enum"
    " name='bus'><value>usb</value></enum></redirdev>"
)
_SPICE = (
    "<graphics supported='yes'><enum"
    " name='type'><value>vnc</value><value>spice</value></enum></graphics>"
)

HOSTILE: list[tuple[str, bytes, str]] = [
    ("empty", b"", "not XML of libvirt, or incomplete"),
    ("truncated", capabilities()[:200], "not XML of libvirt, or incomplete"),
    ("huge", b"<capabilities>" + b" " * MAX_BYTES, "larger than 8 MiB"),
    ("deep", b"<capabilities>" * 100_000, "not XML of libvirt, or incomplete"),
    (
        "entities that grow",
        (
            b"<!DOCTYPE a [<!ENTITY a '1234567890'><!ENTITY b"
            b" '&a;&a;&a;&a;'><!ENTITY c"
            b" '&b;&b;&b;&b;'>]><capabilities>&c;</capabilities>"
        ),
        "not XML of libvirt, or incomplete: ",
    ),
    (
        "external entity",
        (
            b"<!DOCTYPE a [<!ENTITY a SYSTEM"
            b" 'file:///etc/hostname'>]><capabilities>&a;</capabilities>"
        ),
        "not XML of libvirt, or incomplete: ",
    ),
    (
        "unknown encoding",
        b"<?xml version='1.0' encoding='nope'?><capabilities/>",
        "not XML of libvirt",
    ),
    (
        "wrong root",
        b"<domain type='kvm'/>",
        "this is the output of 'virsh dumpxml'",
    ),
    (
        "wrong namespace",
        b"<capabilities xmlns='urn:x'/>",
        "this is an element '{urn:x}capabilities'",
    ),
    (
        "no architecture",
        capabilities(""),
        "the element host/cpu/arch is missing",
    ),
    (
        "unknown architecture",
        capabilities("pdp11"),
        "unknown architecture 'pdp11' in host/cpu/arch",
    ),
    (
        "architecture with an escape",
        capabilities("&#x9b;31m"),
        "is not a name that libvirt gives",
    ),
    (
        "siblings",
        capabilities(siblings=("0", "two")),
        "'two' is not a list of processors",
    ),
    (
        "address bits",
        capabilities(address_bits="-1"),
        "'-1' is not a number of address bits",
    ),
]


HOSTILE_DOMAINS: list[tuple[str, bytes, str]] = [
    (
        "capabilities",
        capabilities(),
        "this is the output of 'virsh capabilities'",
    ),
    (
        "unknown architecture of a domain",
        domain_capabilities("pdp11"),
        "unknown architecture 'pdp11' in arch",
    ),
    (
        "no domain",
        domain_capabilities(domain=""),
        "the element domain is missing",
    ),
    (
        "line break",
        domain_capabilities(machine="pc&#10;q35"),
        "is not a name that libvirt gives",
    ),
    (
        "escape",
        domain_capabilities(buses="ide&#x9b;2J"),
        "is not a name that libvirt gives",
    ),
    (
        "word",
        domain_capabilities(sev="<maxESGuests>many</maxESGuests>"),
        "'many' is not a number of guests",
    ),
    (
        "digits",
        domain_capabilities(sev=f"<maxESGuests>{'9' * 5_000}</maxESGuests>"),
        "is not a number of guests",
    ),
]


@pytest.mark.parametrize(
    "case", [*HOSTILE, *HOSTILE_DOMAINS], ids=lambda case: case[0]
)
def test_invalid_document_is_refused_with_a_one_line_reason(
    case: tuple[str, bytes, str],
) -> None:
    _, data, says = case
    read = capabilities_from if case in HOSTILE else domain_capabilities_from
    with pytest.raises(DocumentError) as raised:
        read("some.xml", data)
    message = str(raised.value)
    assert message.startswith("some.xml: ")
    assert says in message
    assert message.isprintable()
    assert len(message) < 400


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
        versions = (
            None if tpm.backend_versions is None else set(tpm.backend_versions)
        )
        assert guest.tpm_models == set(tpm.models)
        assert guest.tpm_versions == versions
    else:
        assert not guest.tpm_models
    sevs = [
        each
        for each in nova.features
        if isinstance(each, nova_config.LibvirtConfigDomainCapsFeatureSev)
    ]
    assert ("amd-sev" in guest.mem_encryption) == any(
        each.supported for each in sevs
    )


@pytest.mark.parametrize(
    "data",
    [
        domain_capabilities(tpm=TPM, firmware="bios efi", secure="yes no"),
        domain_capabilities(
            tpm={"model": "tpm-tis", "backendModel": "emulator"},
            firmware="bios",
            secure="no",
        ),
        domain_capabilities(
            "aarch64",
            "qemu",
            "virt",
            tpm={"model": "tpm-tis", "backendModel": "x"},
            secure="yes",
        ),
    ],
)
def test_domain_capabilities_are_read_as_nova_reads_them(data: bytes) -> None:
    _same_as_nova(data)


class TestVersions:
    @pytest.mark.parametrize(
        ("text", "version"),
        [("8.0.0", (8, 0, 0)), ("7.2", (7, 2, 0)), ("10.10.12", (10, 10, 12))],
    )
    def test_a_version_is_two_or_three_numbers(
        self, text: str, version: tuple[int, int, int]
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
        self, text: str
    ) -> None:
        with pytest.raises(
            DocumentError, match="is not a version. Write it as X.Y.Z"
        ) as raised:
            parse_version("--libvirt-version", text)
        assert str(raised.value).startswith("--libvirt-version: ")
        assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("settings", "offered", "domains", "says"),
    [
        (
            {"virt_type": "kvm"},
            {"x86_64": "qemu"},
            [{"domain": "qemu"}],
            "caps.xml: libvirt offers no guests of [libvirt]",
        ),
        ({}, {"x86_64": "lxc"}, [], "virt_type qemu here, only of: lxc"),
        (
            {},
            {"x86_64": "kvm"},
            [{"domain": "xen"}],
            "0.xml: these are domain capabilities of type 'xen'",
        ),
        (
            {},
            {"x86_64": "kvm"},
            [{"domain": "qemu"}],
            "--arch x86_64 --virttype kvm'",
        ),
        (
            {},
            QEMU_EVERYWHERE,
            [{}, {"architecture": "aarch64"}],
            "1.xml: these are domain capabilities of type 'kvm'",
        ),
        (
            {},
            {"x86_64": "kvm"},
            [],
            "caps.xml: no domain capabilities of x86_64, the host's own",
        ),
    ],
)
def test_documents_that_do_not_fit_together_are_refused(
    settings: dict[str, Any],
    offered: dict[str, str],
    domains: list[dict[str, Any]],
    says: str,
) -> None:
    with pytest.raises(DocumentError) as raised:
        facts_from_xml(
            capabilities(guests=offered),
            [
                (f"{number}.xml", domain_capabilities(**each))
                for number, each in enumerate(domains)
            ],
            settings=LibvirtSettings(**settings),
            libvirt_version=(9, 0, 0),
            qemu_version=(7, 2, 22),
            where="caps.xml",
        )
    assert says in str(raised.value)


def guests_of(
    *domains: bytes, offered: bytes | None = None, **settings: Any
) -> Mapping[str, GuestFacts]:
    return facts(
        offered, *domains, settings=LibvirtSettings(**settings)
    ).guests


class TestFacts:
    def test_facts_include_the_nova_conf_settings_and_the_given_versions(
        self,
    ) -> None:
        settings = LibvirtSettings(
            virt_type="qemu",
            swtpm_enabled=True,
            images_type="rbd",
            force_raw_images=False,
        )
        found = facts(
            None,
            domain_capabilities(domain="qemu"),
            settings=settings,
            host="compute-1",
        )
        assert (found.host, found.architecture, found.virt_type) == (
            "compute-1",
            "x86_64",
            "qemu",
        )
        assert (found.libvirt_version, found.hypervisor_version) == (
            (9, 0, 0),
            (7, 2, 22),
        )
        assert (
            found.swtpm_enabled,
            found.images_type,
            found.force_raw_images,
        ) == (True, "rbd", False)
        assert found.physical_address_bits is None
        assert (
            facts(capabilities(address_bits="46")).physical_address_bits == 46
        )

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
        self, siblings: tuple[str, ...], smt: bool
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
        self, offers: str, configured: str | None, virt_type: str
    ) -> None:
        offered = capabilities(
            guests={"x86_64": offers, "aarch64": "qemu kvm"}
        )
        found = facts(
            offered,
            domain_capabilities(domain=virt_type),
            settings=LibvirtSettings(virt_type=configured),
        )
        assert found.virt_type == virt_type

    def test_libvirt_architecture_names_are_mapped_to_those_of_nova(
        self,
    ) -> None:
        for name in Architecture.ALL:
            libvirts = LIBVIRT_ARCHITECTURES.get(name, name)
            assert is_architecture(libvirts)
            assert nova_architecture(libvirts) == name
        # As getDomainCapabilities() of libvirt 9.0 and 11.3 answers.
        assert not any(
            map(is_architecture, ("armv6", "itanium", "or1k", "or32"))
        )
        for name in ("riscv64", "riscv32", "loongarch64"):
            found = facts(
                capabilities(name), domain_capabilities(name, machine="virt")
            )
            assert (found.architecture, set(found.guests)) == (name, {name})
        found = facts(
            capabilities("armv6l"),
            domain_capabilities("armv6l", machine="virt"),
        )
        assert (found.architecture, set(found.guests)) == ("armv6", {"armv6"})


class TestGuests:
    def test_devices_of_all_machine_types_add_up(self) -> None:
        pc = domain_capabilities(
            buses="ide virtio", video="vga", firmware="bios"
        )
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
        assert (
            guests_of(pc, q35)["x86_64"]
            == guests_of(q35, pc)["x86_64"]
            == expected
        )
        none = guests_of(
            domain_capabilities(
                buses=None, video=None, firmware="", secure="no"
            )
        )["x86_64"]
        assert none == GuestFacts(
            default_machine="pc",
            machines=frozenset(("pc-i440fx-7.2",)),
            tpm_versions=frozenset(),
        )

    @pytest.mark.parametrize(
        ("tpm", "models", "versions"),
        [
            (None, set(), set()),
            (
                {
                    "model": "tpm-tis",
                    "backendModel": "emulator",
                    "backendVersion": "1.2 2.0",
                },
                {"tpm-tis"},
                {"1.2", "2.0"},
            ),
            (
                {
                    "model": "tpm-tis",
                    "backendModel": "emulator",
                    "backendVersion": "",
                },
                {"tpm-tis"},
                set(),
            ),
            # Before libvirt 7.8.0 nothing is said of versions.
            (
                {"model": "tpm-tis", "backendModel": "passthrough emulator"},
                {"tpm-tis"},
                None,
            ),
            # No swtpm on the host: the models are for a TPM of its own.
            (
                {"model": "tpm-tis tpm-crb", "backendModel": "passthrough"},
                set(),
                set(),
            ),
        ],
    )
    def test_tpm_models_count_only_with_the_emulator_backend(
        self,
        tpm: Mapping[str, str] | None,
        models: set[str],
        versions: set[str] | None,
    ) -> None:
        found = guests_of(domain_capabilities(tpm=tpm))["x86_64"]
        assert found.tpm_models == models
        assert found.tpm_versions == versions
        # One machine type that does not report them is enough.
        both = guests_of(
            domain_capabilities(tpm=tpm), domain_capabilities(machine="isapc")
        )["x86_64"]
        assert (both.tpm_versions is None) == (versions is None)

    @pytest.mark.parametrize(
        ("elements", "found"),
        [
            (_REDIRECTION + _SPICE, True),
            (
                _REDIRECTION + "<graphics supported='yes'><enum"
                " name='type'><value>vnc</value></enum></graphics>",
                False,
            ),
            (
                "<redirdev supported='yes'><enum name='bus'/></redirdev>"
                + _SPICE,
                False,
            ),
            # As an older libvirt says.
            (_SPICE, None),
            (_REDIRECTION, None),
            ("", None),
        ],
    )
    def test_redirected_usb_devices_are_unknown_if_libvirt_does_not_list_them(
        self, elements: str, found: bool | None
    ) -> None:
        """The same for the SPICE graphics to which they lead, without which a
        QEMU may be built.
        """
        data = domain_capabilities().replace(
            b"</devices>", elements.encode() + b"</devices>"
        )
        assert guests_of(data)["x86_64"].usb_redirection is found
        # One machine type that has them is enough.
        with_them = domain_capabilities().replace(
            b"</devices>", f"{_REDIRECTION}{_SPICE}</devices>".encode()
        )
        assert guests_of(data, with_them)["x86_64"].usb_redirection is True

    @pytest.mark.parametrize(
        ("sev", "more", "models"),
        [
            (None, "", set()),
            (
                "<maxGuests>59</maxGuests><maxESGuests>0</maxESGuests>",
                "",
                {"amd-sev"},
            ),
            (
                "<maxGuests>59</maxGuests><maxESGuests>450</maxESGuests>",
                "",
                {"amd-sev", "amd-sev-es"},
            ),
            (
                "",
                _LAUNCH.format(
                    "yes", "<value>sev</value><value>sev-snp</value>"
                ),
                {"amd-sev", "amd-sev-snp"},
            ),
            ("", _LAUNCH.format("no", "<value>sev-snp</value>"), {"amd-sev"}),
            (None, _LAUNCH.format("yes", "<value>sev-snp</value>"), set()),
            (None, "<tdx supported='yes'/>", {"intel-tdx"}),
        ],
    )
    def test_memory_encryption_models_are_read_from_sev_launch_security_and_tdx(
        self, sev: str | None, more: str, models: set[str]
    ) -> None:
        assert (
            set(
                guests_of(domain_capabilities(sev=sev, more_features=more))[
                    "x86_64"
                ].mem_encryption
            )
            == models
        )

    def test_unsupported_loader_means_no_secure_boot(self) -> None:
        document = domain_capabilities(firmware="efi", secure="yes")
        for data, has in (
            (document, True),
            (
                document.replace(b"<loader supported='yes'>", b"<loader>"),
                False,
            ),
        ):
            assert guests_of(data)["x86_64"].secure_boot is has

    def test_machine_types_are_complete_only_if_the_capabilities_list_them(
        self,
    ) -> None:
        document = domain_capabilities(machine="pc-i440fx-9.9")
        found = guests_of(
            document, offered=capabilities(machines=ALL_MACHINES)
        )["x86_64"]
        assert found.machines == {*X86_MACHINES, "pc-i440fx-9.9"}
        assert found.machines_are_complete
        alone = guests_of(document)["x86_64"]
        assert alone.machines == {"pc-i440fx-9.9"}
        assert not alone.machines_are_complete

    def test_machine_types_include_those_of_the_domain_type_and_canonical_names(
        self,
    ) -> None:
        offered = (
            b"<capabilities><host><cpu><arch>x86_64</arch></cpu></host><guest><arch"
            b" name='x86_64'>"
            b"<machine>isapc</machine><domain"
            b" type='qemu'><machine>microvm</machine></domain>"
            b"<domain type='kvm'><machine"
            b" canonical='pc-i440fx-7.2'>pc</machine></domain></arch></guest></capabilities>"
        )
        kvm, qemu = (
            domain_capabilities(machine=""),
            domain_capabilities(domain="qemu", machine=""),
        )
        assert guests_of(kvm, offered=offered)["x86_64"].machines == {
            "isapc",
            "pc",
            "pc-i440fx-7.2",
        }
        assert guests_of(qemu, offered=offered, virt_type="qemu")[
            "x86_64"
        ].machines == {"isapc", "microvm"}

    def test_kvm_host_takes_emulated_architectures_from_qemu_domain_capabilities(
        self,
    ) -> None:
        arm = domain_capabilities(
            "aarch64", "qemu", "virt-7.2", buses="virtio usb"
        )
        found = guests_of(
            domain_capabilities(),
            arm,
            offered=capabilities(
                guests=QEMU_EVERYWHERE, machines=ALL_MACHINES
            ),
        )
        assert set(found) == {"x86_64", "aarch64"}
        assert found["aarch64"].buses == {"virtio", "usb"}
        assert found["aarch64"].machines == set(ARM_MACHINES)
        assert found["aarch64"].default_machine == "virt"

    def test_i686_has_domain_capabilities_of_its_own(self) -> None:
        i686 = domain_capabilities("i686", "qemu", firmware="efi")
        offered = capabilities(guests=QEMU_EVERYWHERE)
        found = guests_of(domain_capabilities(), i686, offered=offered)
        assert {name: guest.uefi for name, guest in found.items()} == {
            "x86_64": False,
            "i686": True,
        }
        with pytest.raises(
            DocumentError, match="no domain capabilities of x86_64"
        ):
            guests_of(i686, offered=offered)

    def test_default_machine_type_comes_from_nova_conf_nova_and_otherwise_from_libvirt(
        self,
    ) -> None:
        for architecture in ARCHITECTURES.split():
            libvirts = LIBVIRT_ARCHITECTURES.get(architecture, architecture)
            document = domain_capabilities(libvirts, machine="libvirts-own")
            found = guests_of(document, offered=capabilities(libvirts))[
                architecture
            ].default_machine
            # libvirt prefers pseries on ppc64, whatever file came first.
            libvirt_default = {"ppc64": "pseries"}.get(
                architecture, "libvirts-own"
            )
            assert found == (
                get_default_machine_type(architecture) or libvirt_default
            )
        machines = {"x86_64": "q35", "aarch64": "virt-6.2"}
        assert (
            guests_of(domain_capabilities(), hw_machine_type=machines)[
                "x86_64"
            ].default_machine
            == "q35"
        )


def test_hw_machine_type_that_qemu_lacks_is_a_warning_and_the_default_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nova passes it to libvirt; guests that name a machine type start."""
    offered = capabilities(
        machines={"x86_64": {"pc": "pc-i440fx-7.2", "q35": "pc-q35-7.2"}}
    )
    right = LibvirtSettings(hw_machine_type={"x86_64": "pc-q35-7.2"})
    assert (
        facts(
            offered, domain_capabilities(), settings=right
        ).own_guests.default_machine
        == "pc-q35-7.2"
    )
    traits = capability_traits(
        facts(offered, domain_capabilities(), settings=right)
    )
    assert not caplog.messages
    for wrong in ("nonsense", "pc-q35-99.9"):
        found = facts(
            offered,
            domain_capabilities(),
            settings=LibvirtSettings(hw_machine_type={"x86_64": wrong}),
        )
        assert found.own_guests.default_machine == wrong
        assert (
            "hw_machine_type of nova.conf gives x86_64 guests the machine"
            f" type '{wrong}'" in caplog.messages[-1]
        )
        differ = {
            trait
            for trait, has in capability_traits(found).items()
            if has != traits[trait]
        }
        assert all("DEFAULT_MACHINE" in trait for trait in differ)


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
        offered = capabilities(
            answer.architecture, {answer.architecture: "kvm qemu"}
        )
        if answer.domain_type not in ("kvm", "qemu"):
            with pytest.raises(
                DocumentError, match=f"of type '{answer.domain_type}'"
            ):
                facts(offered, data)
            return
        own = facts(
            offered,
            data,
            settings=LibvirtSettings(virt_type=answer.domain_type),
        ).own_guests
        assert own.buses == answer.guest.buses
        assert own.machines == {answer.machine}
        assert own.default_machine
        assert bool(own.buses | own.video_models) == (path.stem != "empty")
