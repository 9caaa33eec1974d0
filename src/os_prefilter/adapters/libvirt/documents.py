# SPDX-License-Identifier: Apache-2.0

"""The facts of a libvirt host in libvirt's XML documents.

Nothing here connects to libvirt.

The documents come from :mod:`os_prefilter.adapters.libvirt.host`, or from
files saved on a host. Formats: libvirt's pages formatcaps.html and
formatdomaincaps.html. A document has at most 8 MiB, no DTD and no entities.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, fields, replace
from functools import reduce
from xml.etree.ElementTree import Element, ParseError

from defusedxml.ElementTree import fromstring

from os_prefilter.adapters.libvirt.qemu import QemuUnavailable
from os_prefilter.adapters.nova_conf import LibvirtSettings
from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import escape_line, join_names, quote
from os_prefilter.hosts.drivers.libvirt_facts import (
    GuestFacts,
    LibvirtFacts,
    NovaSettings,
    Version,
)
from os_prefilter.vocabulary.machine_types import (
    ARCHITECTURES,
    LIBVIRT_ARCHITECTURES,
    guest_architecture,
)

LOG = get_logger(__name__)

MAX_BYTES = 8 * 1024 * 1024
"""The largest document that is read; libvirt's largest are below 1 MiB."""
_MAX_NAME = 200

_NOVA_NAMES = {
    libvirts: novas for novas, libvirts in LIBVIRT_ARCHITECTURES.items()
}
_UNKNOWN_TO_NOVA = ("loongarch64", "riscv32", "riscv64")
_ARCHITECTURES = (
    frozenset((*ARCHITECTURES.split(), *_NOVA_NAMES, *_UNKNOWN_TO_NOVA))
    - LIBVIRT_ARCHITECTURES.keys()
)
# Nova's defaults (nova/virt/libvirt/utils.py); ppc64 is libvirt's.
_DEFAULT_MACHINES = {
    "aarch64": "virt",
    "armv7l": "virt",
    "i686": "pc",
    "ppc64": "pseries",
    "ppc64le": "pseries",
    "s390": "s390-ccw-virtio",
    "s390x": "s390-ccw-virtio",
    "x86_64": "pc",
}
_COMMANDS = {
    "capabilities": "virsh capabilities",
    "domain": "virsh dumpxml",
    "domainCapabilities": "virsh domcapabilities",
}
# "0", "0,32" or "0-1,4"
_SIBLINGS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*", re.ASCII)
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?", re.ASCII)

# Red Hat's QEMU refuses a floppy drive on machine types of RHEL 8 and newer,
# although it has the device.
_WITHOUT_FLOPPY = re.compile(r".*-rhel([89]|[1-9]\d)\b.*", re.ASCII)

# libvirt writes deprecated='yes' or nothing, so without a mark of an older one
# it is not known. formatdomaincaps.html names this version for CPU models;
# formatcaps.html names none for machine types, where it is an assumption.
_MARKS_DEPRECATED: Version = (7, 1, 0)

Machines = Mapping[str, str]
"""Machine type -> the exact machine type that it stands for."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """The capabilities of a host."""

    where: str
    """The source, for messages."""
    architecture: str
    """The host's, by libvirt's name."""
    smt: bool
    """True if its cores run more than one thread."""
    guests: Mapping[str, Mapping[str, Machines]]
    """Guest architecture -> domain type -> machine types.

    Architectures have libvirt's names; empty if machine types are not listed.
    """
    deprecated: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Guest architecture -> the machine types that are marked.

    Without the architectures whose machine types are not listed.
    """
    emulators: frozenset[str] = frozenset()
    """The paths of its QEMUs."""
    physical_address_bits: int | None = None
    """The width of its processors' addresses; None if not listed.

    libvirt lists it for x86's processors only.
    """

    def domain_type(self, architecture: str, virt_type: str) -> str:
        """Return the domain type of guests of an architecture.

        Architectures other than the host's are emulated.
        """
        return virt_type if architecture == self.architecture else "qemu"

    def machines(self, architecture: str, virt_type: str) -> Machines:
        """Return the machine types of guests of an architecture."""
        return self.guests.get(architecture, {}).get(
            self.domain_type(architecture, virt_type), {}
        )


@dataclass(frozen=True, kw_only=True)
class DomainCapabilities:
    """What guests of one architecture, domain and machine type can have."""

    where: str
    domain_type: str
    architecture: str
    """By libvirt's name."""
    machine: str
    """Empty if not listed."""
    emulator: str
    """The path of QEMU; empty if not listed."""
    guest: GuestFacts


AskDevices = Callable[[str, str], frozenset[str]]
"""``(architecture, emulator) -> the devices that this QEMU lists``.

The architecture has libvirt's name. Raises QemuUnavailable with the reason.
"""


def not_asked(_architecture: str, _emulator: str) -> frozenset[str]:
    """Return no devices, where no QEMU can be asked.

    :raises QemuUnavailable: always
    """
    raise QemuUnavailable(GuestFacts.devices_unknown)


def nova_architecture(architecture: str) -> str:
    """Return Nova's name for an architecture; libvirt's if Nova has none."""
    return _NOVA_NAMES.get(architecture, architecture)


def is_architecture(name: str) -> bool:
    """Return whether libvirt knows an architecture of that name."""
    return name in _ARCHITECTURES


def capabilities_from(where: str, data: bytes) -> Capabilities:
    """Parse the output of ``virsh capabilities``.

    :raises DocumentError: if it is not such a document
    """
    document = LibvirtDocument(where, data, "capabilities")
    guests: dict[str, dict[str, Machines]] = {}
    deprecated: dict[str, frozenset[str]] = {}
    for arch in document.root.iterfind("guest/arch"):
        architecture = document.word(arch.get("name"))
        domains = guests.setdefault(architecture, {})
        marked = document.marked_as_deprecated(arch, ".//machine")
        if marked is not None:
            earlier = deprecated.get(architecture, frozenset())
            deprecated[architecture] = earlier | marked
        common = document.machines(arch)
        for domain in arch.iterfind("domain"):
            name = document.word(domain.get("type"))
            domains[name] = {
                **domains.get(name, {}),
                **common,
                **document.machines(domain),
            }
    has_threads = False
    for cpu in document.root.iterfind("host/topology/cells/cell/cpus/cpu"):
        # Not <cpu><topology>, which libvirt only guesses
        # (nova/virt/libvirt/host.py).
        siblings = document.check_form(
            _SIBLINGS, cpu.get("siblings"), "a list of processors (siblings)"
        )
        if "," in siblings or "-" in siblings:
            has_threads = True
    address_space = document.root.find("host/cpu/maxphysaddr")
    bits = None if address_space is None else address_space.get("bits")
    bits = document.check_form(
        "[1-9][0-9]?", bits, "a number of address bits (maxphysaddr)"
    )
    return Capabilities(
        where=where,
        architecture=document.architecture("host/cpu/arch"),
        smt=has_threads,
        emulators=frozenset(
            document.word(each.text)
            for each in document.root.iterfind("guest/arch//emulator")
        ),
        physical_address_bits=int(bits) if bits else None,
        guests=guests,
        deprecated=deprecated,
    )


def domain_capabilities_from(where: str, data: bytes) -> DomainCapabilities:
    """Parse the output of ``virsh domcapabilities``.

    :raises DocumentError: if it is not such a document
    """
    document = LibvirtDocument(where, data, "domainCapabilities")
    machine = document.word(document.root.findtext("machine"))
    tpm_models, tpm_versions = _emulated_tpm(document)
    buses = document.enum("devices/disk", "bus")
    if _WITHOUT_FLOPPY.fullmatch(machine):
        buses -= {"fdc"}
    return DomainCapabilities(
        where=where,
        domain_type=document.require_text("domain"),
        architecture=document.architecture("arch"),
        machine=machine,
        emulator=document.word(document.root.findtext("path")),
        guest=GuestFacts(
            machines=frozenset((machine,) if machine else ()),
            deprecated_cpu_models=document.marked_as_deprecated(
                document.root, "cpu/mode[@name='custom']/model"
            ),
            host_model=_host_model(document),
            buses=buses,
            video_models=document.enum("devices/video", "modelType"),
            tpm_models=tpm_models,
            tpm_versions=tpm_versions,
            usb_redirection=_usb_redirection(document),
            uefi="efi" in document.enum("os", "firmware"),
            secure_boot="yes" in document.enum("os/loader", "secure"),
            mem_encryption=frozenset(_mem_encryption(document)),
        ),
    )


def _host_model(document: LibvirtDocument) -> str:
    """Return the host-model CPU as libvirt lists it, in a fixed order."""
    model = document.find_supported("cpu/mode[@name='host-model']")
    if model is None:
        return ""
    parts = []
    for each in model:
        attributes = sorted(each.attrib.items())
        parts.append(repr((each.tag, document.word(each.text), attributes)))
    return " ".join(sorted(parts))


def _emulated_tpm(
    document: LibvirtDocument,
) -> tuple[frozenset[str], frozenset[str] | None]:
    """Return the models and versions; versions are None if not listed."""
    path = "devices/tpm"
    versions = document.enum(path, "backendVersion")
    # Nova uses swtpm. Without it libvirt still lists the models, for passing
    # through a TPM of the host.
    if "emulator" not in document.enum(path, "backendModel"):
        return frozenset(), versions
    models = document.enum(path, "model")
    tpm = document.root.find(f"{path}/enum[@name='backendVersion']")
    return models, None if tpm is None else versions


def _usb_redirection(document: LibvirtDocument) -> bool | None:
    """Return whether a guest can have a USB port redirected to SPICE."""
    wanted = (
        ("devices/redirdev", "bus", "usb"),
        ("devices/graphics", "type", "spice"),
    )
    listed: set[bool | None] = set()
    for path, name, value in wanted:
        if document.root.find(path) is None:
            listed.add(None)
        else:
            listed.add(value in document.enum(path, name))
    if False in listed:
        return False
    return None if None in listed else True


def _mem_encryption(document: LibvirtDocument) -> Iterator[str]:
    """Yield Nova's names of the models that libvirt offers."""
    sev = document.find_supported("features/sev")
    if sev is not None:
        yield "amd-sev"
        number = sev.findtext("maxESGuests", "0").strip() or "none"
        number = document.check_form(
            "[0-9]{1,9}", number, "a number of guests (maxESGuests)"
        )
        if int(number):
            yield "amd-sev-es"
        if "sev-snp" in document.enum("features/launchSecurity", "sectype"):
            yield "amd-sev-snp"
    if document.find_supported("features/tdx") is not None:
        yield "intel-tdx"


class LibvirtDocument:
    """A parsed document, and its source for messages.

    :param expected: the root element that it must have
    """

    def __init__(self, where: str, data: bytes, expected: str) -> None:
        self._where = where
        command = _COMMANDS[expected]
        again = f"Save the output of '{command}' again."
        if len(data) > MAX_BYTES:
            raise self.error(
                f"larger than {MAX_BYTES >> 20} MiB, which no document of"
                f" libvirt is. {again}"
            )
        try:
            self.root: Element = fromstring(data, forbid_dtd=True)
        except (ParseError, ValueError, LookupError) as error:
            # Also an unknown encoding, and a document type
            # (DefusedXmlException), which libvirt's XML never has.
            raise self.error(
                "not XML of libvirt, or incomplete:"
                f" {escape_line(str(error))}. {again}"
            ) from error
        tag = self.root.tag
        if tag != expected:
            found = f"an element {quote(tag)}"
            if tag in _COMMANDS:
                found = f"the output of '{_COMMANDS[tag]}'"
            raise self.error(
                f"this is {found}; expected the output of '{command}'. {again}"
            )

    def error(self, problem: str) -> DocumentError:
        """Return the error about a problem in the document."""
        return DocumentError(self._where, problem)

    def check_form(
        self, pattern: str | re.Pattern[str], text: str | None, what: str
    ) -> str:
        """Return a text after a check of its form; empty if there is none."""
        if text and not re.fullmatch(pattern, text):
            raise self.error(
                f"{quote(text)} is not {what}. Save the file again."
            )
        return text or ""

    def word(self, text: str | None) -> str:
        """Return a name without spaces around it.

        Names go into messages, so they must be printable.
        """
        word = (text or "").strip()
        if not word.isprintable() or len(word) > _MAX_NAME:
            raise self.error(
                f"{quote(word)} is not a name that libvirt gives. Save the"
                " file again."
            )
        return word

    def require_text(self, path: str) -> str:
        """Return the text of an element that must be there."""
        text = self.word(self.root.findtext(path))
        if not text:
            raise self.error(
                f"the element {path} is missing or empty. Save the file again."
            )
        return text

    def architecture(self, path: str) -> str:
        """Return the architecture in an element, by libvirt's name."""
        name = self.require_text(path)
        if not is_architecture(name):
            raise self.error(
                f"unknown architecture {quote(name)} in {path}; libvirt's are"
                " aarch64, ppc64le, riscv64, s390x, x86_64 and others."
                " Correct the file, or report it if a new libvirt writes it."
            )
        return name

    def machines(self, element: Element) -> Machines:
        """Return the machine types in an element, also those aliases name."""
        named = [
            (self.word(each.text), self.word(each.get("canonical")))
            for each in element.iterfind("machine")
        ]
        exact = {canonical: canonical for _, canonical in named if canonical}
        return {
            **exact,
            **{name: canonical or name for name, canonical in named if name},
        }

    def marked_as_deprecated(
        self, element: Element, path: str
    ) -> frozenset[str] | None:
        """Return the names of elements with ``deprecated='yes'``.

        None if there are no elements, marked or not.
        """
        if element.find(path) is None:
            return None
        marked = element.iterfind(f"{path}[@deprecated='yes']")
        return frozenset(self.word(each.text) for each in marked) - {""}

    def find_supported(self, path: str) -> Element | None:
        """Return an element with ``supported='yes'``; no other has values."""
        element = self.root.find(path)
        if element is None or element.get("supported") != "yes":
            return None
        return element

    def enum(self, path: str, name: str) -> frozenset[str]:
        """Return the values of an enum of a supported element."""
        element = self.find_supported(path)
        if element is None:
            return frozenset()
        values = element.iterfind(f"enum[@name='{name}']/value")
        return frozenset(self.word(value.text) for value in values) - {""}


def facts_from_xml(  # noqa: PLR0913 - one argument for each thing known of a host
    capabilities: bytes,
    domain_capabilities: Iterable[tuple[str, bytes]],
    *,
    settings: LibvirtSettings,
    libvirt_version: Version,
    qemu_version: Version,
    host: str = "this host",
    where: str = "the capabilities",
    smm: bool | None = None,
    ask_devices: AskDevices = not_asked,
) -> LibvirtFacts:
    """Return the facts in the documents of one host.

    :param domain_capabilities: (source, XML) of each document; they do not
        count for lxc and parallels
    :param qemu_version: of the hypervisor, whatever it is
    :param where: source of the capabilities, for messages
    :param smm: whether KVM has System Management Mode, which no document
        contains
    :param ask_devices: called for each architecture
    :raises DocumentError: if a document is invalid, or the documents do not
        fit together
    """
    host_capabilities = capabilities_from(where, capabilities)
    domains = [
        domain_capabilities_from(name, data)
        for name, data in domain_capabilities
    ]
    virt_type = virt_type_of(host_capabilities, settings, domains)
    guests: dict[str, GuestFacts] = {}
    emulated: frozenset[str] = frozenset()
    if virt_type in ("kvm", "qemu"):
        guests = dict(
            _with_devices(
                host_capabilities.architecture,
                [
                    (architecture, path, _with_marks(guest, libvirt_version))
                    for architecture, path, guest in _guests(
                        host_capabilities, domains, virt_type, settings
                    )
                ],
                ask_devices,
            )
        )
        emulated = frozenset(_emulated(host_capabilities, domains))
    return LibvirtFacts(
        host=host,
        architecture=nova_architecture(host_capabilities.architecture),
        virt_type=virt_type,
        libvirt_version=libvirt_version,
        hypervisor_version=qemu_version,
        guests=guests,
        emulated=emulated,
        smt=host_capabilities.smt,
        smm=smm,
        physical_address_bits=host_capabilities.physical_address_bits,
        **{
            each.name: getattr(settings, each.name)
            for each in fields(NovaSettings)
        },
    )


def virt_type_of(
    host_capabilities: Capabilities,
    settings: LibvirtSettings,
    domains: Iterable[DomainCapabilities] = (),
) -> str:
    """Return the virt type of the host.

    :param domains: domain capabilities; those of a type prove that the host
        has it
    :raises DocumentError: if libvirt does not offer the configured one
    """
    own = host_capabilities.architecture
    types = {
        *host_capabilities.guests.get(own, ()),
        *(each.domain_type for each in domains if each.architecture == own),
    }
    # Nova's default is kvm, and nova-compute starts no guest with it on a host
    # without KVM. So where nova.conf does not set it, what the host has
    # decides.
    wanted = settings.virt_type or ("kvm" if "kvm" in types else "qemu")
    if wanted not in types:
        raise DocumentError(
            host_capabilities.where,
            f"libvirt offers no guests of [libvirt] virt_type {wanted} here,"
            f" only of: {join_names(types)}. Set virt_type in nova.conf to"
            " what the host has; for kvm, load its kernel module and let QEMU"
            " use /dev/kvm.",
        )
    return wanted


def parse_version(where: str, text: str) -> Version:
    """Parse a version X.Y.Z or X.Y.

    :raises DocumentError: if it is not one
    """
    match = _VERSION.fullmatch(text)
    if not match:
        raise DocumentError(
            where,
            f"{quote(text)} is not a version. Write it as X.Y.Z, for example"
            " 8.0.0.",
        )
    major, minor, micro = map(int, match.groups(default="0"))
    return major, minor, micro


def _guests(
    host_capabilities: Capabilities,
    domains: Iterable[DomainCapabilities],
    virt_type: str,
    settings: LibvirtSettings,
) -> Iterator[tuple[str, str, GuestFacts]]:
    """Yield architecture, emulator and the facts of its guests.

    Of the host's architecture, and i686 on x86_64.
    """
    own = host_capabilities.architecture
    by_architecture: dict[str, list[DomainCapabilities]] = {}
    for each in domains:
        wanted = host_capabilities.domain_type(each.architecture, virt_type)
        if each.domain_type != wanted:
            raise DocumentError(
                each.where,
                "these are domain capabilities of type"
                f" {quote(each.domain_type)}; this {own} host with virt_type"
                f" {virt_type} needs type {wanted}. Save the output of 'virsh"
                f" domcapabilities --arch {each.architecture} --virttype"
                f" {wanted}'.",
            )
        by_architecture.setdefault(each.architecture, []).append(each)
    if own not in by_architecture:
        raise DocumentError(
            host_capabilities.where,
            f"no domain capabilities of {own}, the host's own architecture."
            f" Add the output of 'virsh domcapabilities --arch {own}"
            f" --virttype {virt_type}'.",
        )
    for architecture, found in by_architecture.items():
        name = nova_architecture(architecture)
        if architecture != own and guest_architecture(name) != own:
            continue
        machines = host_capabilities.machines(architecture, virt_type)
        guest = reduce(_merged, (each.guest for each in found))
        default = _default_machine(settings, name, machines)
        guest = replace(
            guest,
            default_machine=default or found[0].machine,
            machines=guest.machines.union(machines),
            machines_are_complete=bool(machines),
            deprecated_machines=host_capabilities.deprecated.get(architecture),
        )
        yield architecture, found[0].emulator, guest


def _with_marks(guest: GuestFacts, libvirt: Version) -> GuestFacts:
    """Return the guest facts, with None for marks that libvirt cannot set."""
    if libvirt >= _MARKS_DEPRECATED:
        return guest
    return replace(
        guest,
        deprecated_machines=guest.deprecated_machines or None,
        deprecated_cpu_models=guest.deprecated_cpu_models or None,
    )


def _with_devices(
    own: str, guests: list[tuple[str, str, GuestFacts]], ask: AskDevices
) -> Iterator[tuple[str, GuestFacts]]:
    """Yield the guest facts, by Nova's architecture, with QEMU's devices.

    :param own: the architecture of the host
    """
    emulators = {architecture: path for architecture, path, _ in guests}
    for architecture, path, guest in guests:
        # One QEMU may be for both x86_64 and i686, as Red Hat's is.
        asked = architecture
        if path and path == emulators[own]:
            asked = own
        name = nova_architecture(architecture)
        try:
            yield name, replace(guest, devices=ask(asked, path))
        except QemuUnavailable as error:
            yield name, replace(guest, devices_unknown=str(error))


def _emulated(
    host_capabilities: Capabilities, domains: Iterable[DomainCapabilities]
) -> Iterator[str]:
    """Yield the architectures that the host emulates, by Nova's names."""
    own = nova_architecture(host_capabilities.architecture)
    found = {each.architecture for each in domains}
    for architecture, domain_types in host_capabilities.guests.items():
        # An architecture without a known name has no trait either.
        if "qemu" in domain_types and is_architecture(architecture):
            found.add(architecture)
    for name in map(nova_architecture, found):
        if guest_architecture(name) != own:
            yield name


def _merged(one: GuestFacts, other: GuestFacts) -> GuestFacts:
    """Return what guests of any machine type have, as Nova adds it up.

    ``machine_types.py`` has what one of them never has.
    """
    tpm_versions = None
    if one.tpm_versions is not None and other.tpm_versions is not None:
        tpm_versions = one.tpm_versions | other.tpm_versions
    listed = (one.usb_redirection, other.usb_redirection)
    usb_redirection: bool | None = True in listed
    if None in listed and not usb_redirection:
        usb_redirection = None
    # QEMU has the same CPUs with each machine type: one list will do.
    deprecated_cpu_models = one.deprecated_cpu_models
    if deprecated_cpu_models is None:
        deprecated_cpu_models = other.deprecated_cpu_models
    return GuestFacts(
        machines=one.machines | other.machines,
        deprecated_cpu_models=deprecated_cpu_models,
        host_model=one.host_model or other.host_model,
        buses=one.buses | other.buses,
        video_models=one.video_models | other.video_models,
        tpm_models=one.tpm_models | other.tpm_models,
        tpm_versions=tpm_versions,
        usb_redirection=usb_redirection,
        uefi=one.uefi or other.uefi,
        secure_boot=one.secure_boot or other.secure_boot,
        mem_encryption=one.mem_encryption | other.mem_encryption,
    )


def _default_machine(
    settings: LibvirtSettings, name: str, machines: Machines
) -> str:
    """Return the machine type that Nova gives to guests of an architecture.

    Empty if it leaves that to libvirt.
    """
    configured = settings.hw_machine_type.get(name)
    if configured and machines and configured not in machines:
        # Nova passes it to libvirt all the same; guests that name a machine
        # type start.
        LOG.warning(
            "[libvirt] hw_machine_type of nova.conf gives %s guests the"
            " machine type %s, which QEMU here does not have: guests that get"
            " it do not start. Correct it; 'virsh capabilities' lists those"
            " that exist.",
            name,
            quote(configured),
        )
    return configured or _DEFAULT_MACHINES.get(name, "")
