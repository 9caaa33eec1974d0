"""From libvirt's XML documents to facts. Nothing here asks libvirt.

The documents come from :mod:`os_prefilter.adapters.libvirt.host`, or from files that somebody saved on a host.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType

from os_prefilter.adapters.libvirt.documents import (
    Capabilities,
    DomainCapabilities,
    Machines,
    capabilities_from,
    domain_capabilities_from,
    nova_architecture,
)
from os_prefilter.adapters.libvirt.nova_conf import LibvirtSettings
from os_prefilter.common.quoting import join_names, quote
from os_prefilter.errors import ConfigurationError, DocumentError
from os_prefilter.hosts.drivers.libvirt_facts import GuestFacts, LibvirtFacts, Version
from os_prefilter.vocabulary.machine_types import MACHINE_PREFIXES

# Nova's, for guests that ask for none (nova/virt/libvirt/utils.py); ppc64 is libvirt's.
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
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?", re.ASCII)
# Names like pc-q35-rhel9.2.0 and pc-i440fx-jammy say nothing of QEMU's version.
_VERSIONED_MACHINE = re.compile(f"(?:{'|'.join(map(re.escape, MACHINE_PREFIXES))})({_VERSION.pattern})", re.ASCII)


def facts_from_xml(  # noqa: PLR0913 - one argument a thing that is known of a host
    capabilities: bytes,
    domain_capabilities: Iterable[tuple[str, bytes]],
    *,
    settings: LibvirtSettings,
    libvirt_version: Version | None,
    qemu_version: Version | None = None,
    host: str = "this host",
    where: str = "the capabilities",
) -> LibvirtFacts:
    """Return the facts that the documents of one host hold.

    :param domain_capabilities: (where it is from, XML) of each document; none for lxc and parallels
    :param qemu_version: None: the newest machine type of the host's own architecture says which it is at least
    :param where: where the capabilities are from, for messages
    :raises DocumentError: if a document is not what it should be, or they do not fit together
    """
    offered = capabilities_from(where, capabilities)
    answers = [domain_capabilities_from(name, data) for name, data in domain_capabilities]
    return facts_of(
        offered, answers, settings=settings, libvirt_version=libvirt_version, qemu_version=qemu_version, host=host
    )


def facts_of(  # noqa: PLR0913 - see facts_from_xml
    offered: Capabilities,
    answers: Sequence[DomainCapabilities],
    *,
    settings: LibvirtSettings,
    libvirt_version: Version | None,
    qemu_version: Version | None = None,
    host: str = "this host",
    smm: bool | None = None,
) -> LibvirtFacts:
    """Return the facts that parsed documents of one host hold; see :func:`facts_from_xml`.

    :param smm: whether KVM has System Management Mode, which no document says
    """
    virt_type = virt_type_of(offered, settings, answers)
    if libvirt_version is None:
        raise DocumentError(offered.where, "libvirt's version is not in its XML. Give --libvirt-version X.Y.Z.")
    guests: dict[str, GuestFacts] = {}
    if virt_type in ("kvm", "qemu"):
        guests = dict(_guests(offered, answers, virt_type, settings))
        qemu_version = qemu_version or _oldest_qemu(offered, answers)
    elif answers:
        raise DocumentError(
            answers[0].where, f"domain capabilities say nothing of a {virt_type} host. Leave the file out."
        )
    return LibvirtFacts(
        host=host,
        architecture=nova_architecture(offered.architecture),
        virt_type=virt_type,
        libvirt_version=libvirt_version,
        hypervisor_version=qemu_version or (0, 0, 0),
        guests=MappingProxyType(guests),
        i686_default_machine=_default_machine(settings, "i686", _machines(offered, "i686", virt_type)),
        smt=offered.smt,
        smm=smm,
        physical_address_bits=offered.physical_address_bits,
        swtpm_enabled=settings.swtpm_enabled,
        tpm_secret_security=settings.tpm_secret_security,
        images_type=settings.images_type,
        force_raw_images=settings.force_raw_images,
        cpu_mode=settings.cpu_mode,
        built_by_nova=settings.built_by_nova,
        nova_release=settings.nova_release,
    )


def virt_type_of(offered: Capabilities, settings: LibvirtSettings, answers: Iterable[DomainCapabilities] = ()) -> str:
    """Return the virt type of the host.

    :param answers: domain capabilities; those of a type are proof that the host has it
    :raises DocumentError: if libvirt does not offer the one that is configured
    """
    own = offered.architecture
    types = offered.domain_types.union(each.domain_type for each in answers if each.architecture == own)
    # Nova's default is kvm, and nova-compute starts no guest with it where there is no KVM. So without nova.conf, or
    # with one that does not say it, what the host has decides.
    wanted = settings.virt_type or ("kvm" if "kvm" in types else "qemu")
    if wanted not in types:
        raise DocumentError(
            offered.where,
            f"libvirt offers no guests of [libvirt] virt_type {wanted} here, only of: {join_names(types)}. Set "
            "virt_type in nova.conf to what the host has; for kvm, load its kernel module and let QEMU use /dev/kvm.",
        )
    return wanted


def parse_version(where: str, text: str) -> Version:
    """Return a version that somebody wrote as X.Y.Z or X.Y.

    :raises DocumentError: if it is none
    """
    match = _VERSION.fullmatch(text)
    if not match:
        raise DocumentError(where, f"{quote(text)} is not a version. Write it as X.Y.Z, for example 8.0.0.")
    return _version(match)


def _version(match: re.Match[str]) -> Version:
    major, minor, micro = match.groups(default="0")[-3:]
    return int(major), int(minor), int(micro)


def _guests(
    offered: Capabilities, answers: Iterable[DomainCapabilities], virt_type: str, settings: LibvirtSettings
) -> Iterator[tuple[str, GuestFacts]]:
    """Yield what libvirt can give guests of each architecture that domain capabilities speak of."""
    by_architecture: dict[str, list[DomainCapabilities]] = {}
    for answer in answers:
        if offered.speaks_of(answer.architecture):
            _check_domain_type(offered, answer, virt_type)
            by_architecture.setdefault(answer.architecture, []).append(answer)
    if offered.architecture not in by_architecture:
        own = offered.architecture
        raise DocumentError(
            offered.where,
            f"no domain capabilities of {own}, the host's own architecture, came with it. Add the output of "
            f"'virsh domcapabilities --arch {own} --virttype {virt_type}'.",
        )
    for architecture, of_it in by_architecture.items():
        name = nova_architecture(architecture)
        listed_machines = _machines(offered, architecture, virt_type)
        merged = _merged([answer.guest for answer in of_it])
        yield (
            name,
            replace(
                merged,
                default_machine=_default_machine(settings, name, listed_machines) or of_it[0].machine,
                machines=merged.machines.union(listed_machines),
                machines_are_complete=bool(listed_machines),
            ),
        )


def _machines(offered: Capabilities, architecture: str, virt_type: str) -> Machines:
    return offered.guests.get(architecture, {}).get(offered.domain_type(architecture, virt_type), {})


def _default_machine(settings: LibvirtSettings, name: str, machines: Machines) -> str:
    """Return the machine type that Nova gives to guests of an architecture; empty if it leaves that to libvirt.

    :raises ConfigurationError: if nova.conf names one that is not among those that libvirt lists
    """
    configured = settings.hw_machine_type.get(name)
    if configured and machines and configured not in machines:
        raise ConfigurationError(
            f"[libvirt] hw_machine_type of nova.conf gives {name} guests the machine type {quote(configured)}, "
            "which QEMU here does not have. Correct it; 'virsh capabilities' lists those that exist."
        )
    return configured or _DEFAULT_MACHINES.get(name, "")


def _check_domain_type(offered: Capabilities, answer: DomainCapabilities, virt_type: str) -> None:
    wanted = offered.domain_type(answer.architecture, virt_type)
    if answer.domain_type != wanted:
        raise DocumentError(
            answer.where,
            f"these are domain capabilities of type {quote(answer.domain_type)}; on this {offered.architecture} host "
            f"with virt_type {virt_type}, those of type {wanted} are needed. Save the output of 'virsh domcapabilities "
            f"--arch {answer.architecture} --virttype {wanted}'.",
        )


def _merged(guests: Sequence[GuestFacts]) -> GuestFacts:
    """Return what any machine type has, as Nova's driver adds it up; what one never has, the platforms say."""
    versions = [each.tpm_versions for each in guests]
    return GuestFacts(
        machines=_union(each.machines for each in guests),
        buses=_union(each.buses for each in guests),
        video_models=_union(each.video_models for each in guests),
        tpm_models=_union(each.tpm_models for each in guests),
        tpm_versions=None if None in versions else _union(each or frozenset() for each in versions),
        uefi=any(each.uefi for each in guests),
        secure_boot=any(each.secure_boot for each in guests),
        mem_encryption=_union(each.mem_encryption for each in guests),
    )


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


def _oldest_qemu(offered: Capabilities, answers: Iterable[DomainCapabilities]) -> Version:
    """Return the oldest QEMU that has the host's machine types: its newest one is named after a version."""
    own = offered.architecture
    names = {name for machines in offered.guests.get(own, {}).values() for name in machines}
    names.update(answer.machine for answer in answers if answer.architecture == own)
    found = [_version(match) for match in map(_VERSIONED_MACHINE.fullmatch, names) if match]
    if not found:
        raise DocumentError(offered.where, "no machine type says which QEMU the host has. Give --qemu-version X.Y.Z.")
    return max(found)
