"""The CPUs in libvirt's XML documents, and libvirt's CPU map. Nothing here connects to libvirt.

Formats: libvirt's pages formatdomaincaps.html ("CPU configuration"), formatcaps.html and formatdomain.html ("CPU model
and topology"), and the files of its ``src/cpu_map``.
"""

import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path, PurePath
from xml.etree.ElementTree import Element, SubElement, tostring

from os_prefilter.adapters.libvirt.documents import MAX_BYTES, Document
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import join_first_names, pluralize, quote
from os_prefilter.documents.files import read_bytes
from os_prefilter.hosts.cpu import Cpu, CpuDefinitions, HostCpu, Model

CPU_MAP = "/usr/share/libvirt/cpu_map"
"""Where libvirt's packages install it."""

_MODES = ("custom", "host-model", "host-passthrough", "maximum")
_MATCHES = ("minimum", "exact", "strict")
_POLICIES = ("force", "require", "optional", "disable", "forbid")
_USABLE = {"yes": True, "no": False}
_REGISTERS = ("eax", "ebx", "ecx", "edx")
_COPY = "Copy the whole directory from a host again, or install libvirt's package again."
_HEX = "0[xX][0-9a-fA-F]{1,8}"
# Of the documents of 10,000 hosts, most have the same bytes.
_REMEMBERED = 1024
_MOST_NAMES = 10


def host_cpus_from(paths: Iterable[str]) -> list[HostCpu]:
    """Return the CPUs of hosts in files and directories: outputs of ``virsh domcapabilities``, each named ``HOST.xml``.

    :raises DocumentError: if files are no such documents, all of them named; or if a directory has none
    """
    found, errors = [], []
    for file in (file for path in paths for file in _files(path)):
        try:
            found.append(_host_cpu(file))
        except DocumentError as error:
            errors.append(error)
    if not errors:
        return found
    first, *others = errors
    if not others:
        raise first
    names = join_first_names([error.path for error in others], _MOST_NAMES)
    more = f"{pluralize(len(others), 'more file')} cannot be used either: {names}."
    raise DocumentError(first.path, f"{first.problem} {more}") from first


def _host_cpu(file: Path) -> HostCpu:
    name = file.name.removesuffix(".xml")
    if not name.isprintable():
        raise DocumentError(file, "the file is named after its host, and this is no name of one. Rename it.")
    return host_cpu_from(name, str(file), read_bytes(file, MAX_BYTES))


def _files(path: str) -> list[Path]:
    if not os.path.isdir(path):  # noqa: PTH112 - Path raises errors for names that can be none
        return [Path(path)]
    try:
        found = sorted(file for file in Path(path).iterdir() if file.suffix == ".xml")
    except OSError as error:
        raise DocumentError(path, f"the directory cannot be read: {error.strerror}.") from error
    if not found:
        raise DocumentError(path, "no file in the directory is named *.xml. Save each host's as HOST.xml.")
    return found


def host_cpu_from(name: str, where: str, data: bytes) -> HostCpu:
    """Return the CPU in the domain capabilities of a host.

    :param where: the source, for messages
    :raises DocumentError: if it is no such document
    """
    try:
        found = _domain_capabilities(data)
    except DocumentError as error:
        raise DocumentError(where, error.problem) from error
    return HostCpu(
        host=name,
        where=where,
        architecture=found.architecture,
        domain_type=found.domain_type,
        cpu=found.cpu,
        models=found.models,
    )


@lru_cache(_REMEMBERED)
def _domain_capabilities(data: bytes) -> HostCpu:
    document = Document("", data, "domainCapabilities")
    architecture = document.architecture("arch")
    domain_type = document.require_text("domain")
    mode = document.find_supported("cpu/mode[@name='host-model']")
    custom = document.find_supported("cpu/mode[@name='custom']")
    models = {
        document.word(model.text): _USABLE.get(model.get("usable") or "")
        for model in (() if custom is None else custom.iterfind("model"))
    }
    models.pop("", None)
    cpu = None if mode is None else _cpu(document, mode, architecture)
    return HostCpu(
        host="",
        where="",
        architecture=architecture,
        domain_type=domain_type,
        cpu=cpu if cpu and cpu.model else None,
        models=models,
    )


def guest_cpu_from(where: str, data: bytes) -> tuple[Cpu, str]:
    """Return the CPU and the domain type of a guest in the output of ``virsh dumpxml``.

    Or an element ``cpu``, or that of a host in ``virsh capabilities``, which is what Nova compares for guests with
    host-model; their domain type is empty.

    :raises DocumentError: if it is no such document, or the CPU is not in it
    """
    document = Document(where, data, "domain", "cpu", "capabilities")
    root = document.root
    element = {"cpu": root, "domain": root.find("cpu"), "capabilities": root.find("host/cpu")}[root.tag]
    mode = "" if element is None else document.word(element.get("mode"))
    if element is None or (mode not in ("", "custom")):
        what = f"mode {quote(mode)}" if mode else "no element cpu"
        raise document.error(
            f"its CPU has {what}, so it is not in the document. Save 'virsh dumpxml DOMAIN' of the running guest; for "
            "host-passthrough only hosts with the same CPU will do."
        )
    machine = root.find("os/type")
    architecture = "" if machine is None else document.word(machine.get("arch"))
    cpu = _cpu(document, element, architecture)
    if not cpu.model:
        raise document.error("its CPU has no model, so there is nothing to compare: it is QEMU's default.")
    return cpu, document.word(root.get("type"))


def _cpu(document: Document, element: Element, architecture: str) -> Cpu:
    """Return the CPU in an element of domain capabilities, capabilities or a domain."""
    features = {}
    for feature in element.iterfind("feature"):
        name, policy = document.word(feature.get("name")), document.word(feature.get("policy")) or "require"
        if not name or policy not in _POLICIES:
            raise document.error(f"the CPU feature {quote(name)} has policy {quote(policy)}. Save the file again.")
        features[name] = policy
    return Cpu(
        architecture=document.word(element.findtext("arch")) or architecture,
        model=document.word(element.findtext("model")),
        vendor=document.word(element.findtext("vendor")),
        features=tuple(sorted(features.items())),
        strict=element.get("match") == "strict",
    )


def guest_cpu_xml(cpu: Cpu) -> str:
    """Return the element ``cpu`` of a guest, as libvirt compares it."""
    element = Element("cpu", {"match": "strict" if cpu.strict else "exact"})
    SubElement(element, "model").text = cpu.model
    if cpu.vendor:
        SubElement(element, "vendor").text = cpu.vendor
    for name, policy in cpu.features:
        SubElement(element, "feature", {"policy": policy, "name": name})
    return tostring(element, encoding="unicode")


def definitions_from(directory: str) -> CpuDefinitions:
    """Return the definitions of x86 in a directory like :data:`CPU_MAP`.

    :raises DocumentError: if it is no such directory
    """
    index = Path(directory) / "index.xml"
    document = Document(str(index), read_bytes(index, MAX_BYTES), "cpus")
    elements: list[tuple[Document, Element]] = []
    for include in document.root.iterfind("arch[@name='x86']//include"):
        name = document.word(include.get("filename"))
        if not name or PurePath(name).name != name:
            raise document.error(f"it includes {quote(name)}, which is no name of a file. {_COPY}")
        path = Path(directory) / name
        part = Document(str(path), read_bytes(path, MAX_BYTES), "cpus")
        elements += [(part, element) for element in part.root]
    elements += [(document, element) for element in document.root.iterfind("arch[@name='x86']/*")]
    features = _features(elements)
    models = _models(elements, features)
    if not features or not models:
        raise document.error(f"defines no CPU model or no feature of x86. {_COPY}")
    return CpuDefinitions(directory, features, models)


def _features(elements: Iterable[tuple[Document, Element]]) -> dict[str, int]:
    """Return the bits of each feature: 32 for each distinct register."""
    positions: dict[tuple[str, ...], int] = {}
    features = {}
    for document, element in elements:
        if element.tag != "feature":
            continue
        bits = 0
        for kind in ("cpuid", "msr"):
            for item in element.iterfind(kind):
                place = kind, item.get("index", ""), item.get("eax_in", ""), item.get("ecx_in", "0x00")
                for register in _REGISTERS:
                    value = document.check_form(_HEX, item.get(register), "a hexadecimal number")
                    if value:
                        bits |= int(value, 16) << positions.setdefault((*place, register), 32 * len(positions))
        features[document.word(element.get("name"))] = bits
    return features


def _models(elements: Iterable[tuple[Document, Element]], features: dict[str, int]) -> dict[str, Model]:
    models: dict[str, Model] = {}
    for document, element in elements:
        if element.tag != "model":
            continue
        name = document.word(element.get("name"))
        parent = element.find("model")
        vendor, bits = "", 0
        if parent is not None:
            known = models.get(document.word(parent.get("name")))
            if known is None:
                raise document.error(f"the CPU model {quote(name)} builds on an undefined one. {_COPY}")
            vendor, bits = known.vendor, known.bits
        for feature in element.iterfind("feature"):
            word = document.word(feature.get("name"))
            if word not in features:
                raise document.error(f"the CPU model {quote(name)} has the undefined feature {quote(word)}. {_COPY}")
            if feature.get("removed") != "yes":
                bits |= features[word]
        stated, decode = element.find("vendor"), element.find("decode")
        models[name] = Model(
            name,
            vendor if stated is None else document.word(stated.get("name")),
            bits,
            for_guests=decode is None or decode.get("guest") != "off",
        )
    return models
