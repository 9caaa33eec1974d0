"""libvirt's XML documents: the capabilities of a host, and the domain capabilities of one kind of its guests.

Formats: libvirt's pages formatcaps.html and formatdomaincaps.html. What is read has at most 8 MiB, no DTD and no
entities, and its text is printable.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from types import MappingProxyType
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import iterparse

from os_prefilter.common.quoting import escape_line, quote
from os_prefilter.errors import DocumentError
from os_prefilter.hosts.drivers.libvirt_facts import GuestFacts
from os_prefilter.vocabulary.machine_types import ARCHITECTURES, LIBVIRT_ARCHITECTURES

MAX_BYTES = 8 * 1024 * 1024
"""The most that is read of one document; libvirt's largest are below 1 MiB."""
MAX_DEPTH = 50
_MAX_NAME = 200

_NOVA_NAMES = {libvirts: novas for novas, libvirts in LIBVIRT_ARCHITECTURES.items()}
_UNKNOWN_TO_NOVA = ("loongarch64", "riscv32", "riscv64")
_ARCHITECTURES = frozenset((*ARCHITECTURES.split(), *_NOVA_NAMES, *_UNKNOWN_TO_NOVA)) - LIBVIRT_ARCHITECTURES.keys()

_COMMANDS = {"capabilities": "virsh capabilities", "domainCapabilities": "virsh domcapabilities"}
# "0", "0,32" or "0-1,4"
_SIBLINGS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*", re.ASCII)
_NOTHING: frozenset[str] = frozenset()

Machines = Mapping[str, str]
"""Machine type -> the exact machine type that it stands for; an exact one stands for itself."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What libvirt says of a host."""

    where: str
    """Where it says so, for messages."""
    architecture: str
    """Of the host, by libvirt's name."""
    smt: bool
    """Whether its cores run more than one thread."""
    guests: Mapping[str, Mapping[str, Machines]]
    """Guest architecture, by libvirt's name -> domain type -> machine types, none if it does not list them."""
    physical_address_bits: int | None = None
    """Of its processors; None if it does not say, as for other processors than x86's."""

    @property
    def domain_types(self) -> frozenset[str]:
        """The types of guests of the host's own architecture: kvm, qemu, lxc, ..."""
        return frozenset(self.guests.get(self.architecture, ()))

    def domain_type(self, architecture: str, virt_type: str) -> str:
        """Return the type of guests of an architecture: those of another than the host's are emulated."""
        return virt_type if architecture == self.architecture else "qemu"

    def speaks_of(self, architecture: str) -> bool:
        """Whether domain capabilities of an architecture count: those of x86_64 stand for those of i686 as well.

        i686 has firmware of its own, so adding both up would promise what guests of x86_64 do not have.
        """
        return architecture != "i686" or self.architecture == "i686" or "x86_64" not in self.guests


@dataclass(frozen=True, kw_only=True)
class DomainCapabilities:
    """What libvirt says of guests of one architecture, domain type and machine type."""

    where: str
    domain_type: str
    architecture: str
    """By libvirt's name."""
    machine: str
    """Empty if it does not say."""
    guest: GuestFacts


def nova_architecture(architecture: str) -> str:
    """Return Nova's name for an architecture of libvirt's; libvirt's own where Nova has none."""
    return _NOVA_NAMES.get(architecture, architecture)


def is_architecture(name: str) -> bool:
    """Whether libvirt knows an architecture of that name."""
    return name in _ARCHITECTURES


def capabilities_from(where: str, data: bytes) -> Capabilities:
    """Return what a document of 'virsh capabilities' says.

    :raises DocumentError: if it is not such a document
    """
    root = _root(where, data, "capabilities")
    siblings = [cpu.get("siblings", "") for cpu in root.iterfind("host/topology/cells/cell/cpus/cpu")]
    guests: dict[str, dict[str, Machines]] = {}
    for arch in root.iterfind("guest/arch"):
        of_arch = guests.setdefault(_word(where, arch.get("name")), {})
        common = _machines(where, arch)
        for domain in arch.iterfind("domain"):
            name = _word(where, domain.get("type"))
            of_arch[name] = {**of_arch.get(name, {}), **common, **_machines(where, domain)}
    return Capabilities(
        where=where,
        architecture=_architecture(where, root, "host/cpu/arch"),
        # Not <cpu><topology>: for libvirt it is a guess (nova/virt/libvirt/host.py).
        smt=any(_several(where, text) for text in siblings if text),
        physical_address_bits=_address_bits(where, root),
        guests=MappingProxyType(guests),
    )


def domain_capabilities_from(where: str, data: bytes) -> DomainCapabilities:
    """Return what a document of 'virsh domcapabilities' says.

    :raises DocumentError: if it is not such a document
    """
    root = _root(where, data, "domainCapabilities")
    machine = _word(where, root.findtext("machine"))
    return DomainCapabilities(
        where=where,
        domain_type=_required(where, root, "domain"),
        architecture=_architecture(where, root, "arch"),
        machine=machine,
        guest=_guest(where, root, machine),
    )


def _guest(where: str, root: Element, machine: str) -> GuestFacts:
    """Return what one document says; an element that is not ``supported='yes'`` has nothing."""
    tpm = _supported(root, "devices/tpm")
    # Nova's is swtpm; without it libvirt still lists the models, for a TPM of the host that one guest may get.
    emulated = "emulator" in _enum(where, tpm, "backendModel")
    says_versions = tpm is not None and tpm.find("enum[@name='backendVersion']") is not None
    return GuestFacts(
        machines=frozenset((machine,) if machine else ()),
        buses=_enum(where, _supported(root, "devices/disk"), "bus"),
        video_models=_enum(where, _supported(root, "devices/video"), "modelType"),
        tpm_models=_enum(where, tpm, "model") if emulated else _NOTHING,
        tpm_versions=_enum(where, tpm, "backendVersion") if says_versions or not emulated else None,
        uefi="efi" in _enum(where, _supported(root, "os"), "firmware"),
        secure_boot="yes" in _enum(where, _supported(root, "os/loader"), "secure"),
        mem_encryption=frozenset(_mem_encryption(where, root)),
    )


def _mem_encryption(where: str, root: Element) -> Iterator[str]:
    """Yield Nova's names of the models that libvirt offers."""
    sev = _supported(root, "features/sev")
    if sev is not None:
        yield "amd-sev"
        if _number(where, sev, "maxESGuests") > 0:
            yield "amd-sev-es"
        if "sev-snp" in _enum(where, _supported(root, "features/launchSecurity"), "sectype"):
            yield "amd-sev-snp"
    if _supported(root, "features/tdx") is not None:
        yield "intel-tdx"


def _root(where: str, data: bytes, expected: str) -> Element:
    """Return the root element of a document, after all that could be wrong with it."""
    again = f"Save the output of '{_COMMANDS[expected]}' again."
    if len(data) > MAX_BYTES:
        raise DocumentError(where, f"larger than {MAX_BYTES >> 20} MiB, which no answer of libvirt is. {again}")
    try:
        root = _parsed(data)
    except ParseError as error:
        raise DocumentError(where, f"this is no XML, or not all of it: {escape_line(str(error))}. {again}") from error
    except DefusedXmlException as error:
        raise DocumentError(
            where, f"it has a document type or entities, which libvirt's XML never has. {again}"
        ) from error
    except (ValueError, LookupError) as error:
        # Encodings that do not exist, and nesting.
        raise DocumentError(where, f"the XML cannot be read: {escape_line(str(error))}. {again}") from error
    if root.tag in _COMMANDS and root.tag != expected:
        raise DocumentError(
            where, f"this is the output of '{_COMMANDS[root.tag]}'; that of '{_COMMANDS[expected]}' is needed here."
        )
    if root.tag != expected:
        raise DocumentError(where, f"its root element is {quote(root.tag)}, not {expected}. {again}")
    return root


def _parsed(data: bytes) -> Element:
    events = iterparse(BytesIO(data), ("start", "end"), forbid_dtd=True)
    root: Element = next(events)[1]
    depth = 1
    for event, _ in events:
        depth += 1 if event == "start" else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"elements are nested deeper than {MAX_DEPTH}")
    return root


def _architecture(where: str, root: Element, path: str) -> str:
    name = _required(where, root, path)
    if not is_architecture(name):
        raise DocumentError(
            where,
            f"the architecture {quote(name)} in {path} is none that libvirt knows (such as aarch64, ppc64le, riscv64, "
            "s390x, x86_64). Correct the file, or report it if a new libvirt says so.",
        )
    return name


def _address_bits(where: str, root: Element) -> int | None:
    element = root.find("host/cpu/maxphysaddr")
    text = "" if element is None else element.get("bits", "")
    if text and not re.fullmatch(r"[1-9]\d?", text, re.ASCII):
        raise DocumentError(where, f"{quote(text)} is no number of address bits (maxphysaddr). Save the file again.")
    return int(text) if text else None


def _machines(where: str, element: Element) -> Machines:
    named = [(_word(where, each.text), _word(where, each.get("canonical"))) for each in element.iterfind("machine")]
    exact = {canonical: canonical for _, canonical in named if canonical}
    return {**exact, **{name: canonical or name for name, canonical in named if name}}


def _several(where: str, siblings: str) -> bool:
    """Whether the processors that share a core are more than one."""
    if not _SIBLINGS.fullmatch(siblings):
        raise DocumentError(where, f"{quote(siblings)} is no list of processors (siblings of a cpu). Save it again.")
    first, _, last = siblings.partition("-")
    return "," in siblings or first != (last or first)


def _supported(root: Element, path: str) -> Element | None:
    element = root.find(path)
    return element if element is not None and element.get("supported") == "yes" else None


def _enum(where: str, element: Element | None, name: str) -> frozenset[str]:
    values = [] if element is None else element.iterfind(f"enum[@name='{name}']/value")
    return frozenset(_word(where, value.text) for value in values) - {""}


def _number(where: str, element: Element, name: str) -> int:
    text = element.findtext(name, "0").strip()
    if not (text.isascii() and text.isdigit() and len(text) < 10):  # noqa: PLR2004 - far above any number of guests
        raise DocumentError(where, f"{quote(text)} is no number of guests ({name}). Save the file again.")
    return int(text)


def _required(where: str, root: Element, path: str) -> str:
    text = _word(where, root.findtext(path))
    if not text:
        raise DocumentError(where, f"the element {path} is missing or empty. Save the file again.")
    return text


def _word(where: str, text: str | None) -> str:
    """Return the text of an element without spaces around it; names go into messages, so they must be printable."""
    word = (text or "").strip()
    if not word.isprintable() or len(word) > _MAX_NAME:
        raise DocumentError(where, f"{quote(word)} is no name that libvirt gives. Save the file again.")
    return word
