# SPDX-License-Identifier: Apache-2.0

"""The facts of a libvirt host.

:mod:`os_prefilter.adapters.libvirt.host` gathers them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.hosts.reporter import HostFacts

Version = tuple[int, int, int]
"""Major, minor and micro."""


def version_text(version: Version) -> str:
    """Format a version: ``9.0.0``."""
    return ".".join(map(str, version))


@dataclass(frozen=True, kw_only=True)
class GuestFacts:
    """Devices and firmware that libvirt offers guests of one architecture.

    Some of its machine types may not have them.
    """

    default_machine: str = ""
    """The default machine type: from nova.conf, else Nova, else libvirt."""
    machines: frozenset[str] = frozenset()
    """The names of its machine types, short ones and exact versions."""
    machines_are_complete: bool = False
    """True if :attr:`machines` has every name, as capabilities list them.

    Otherwise it has only the names of the domain capabilities.
    """
    deprecated_machines: frozenset[str] | None = None
    """Machine types that libvirt marks as deprecated, aliases among them.

    None if it lists none, or is too old to mark them.
    """
    deprecated_cpu_models: frozenset[str] | None = None
    """CPU models that libvirt marks as deprecated, or None as above."""
    host_model: str = ""
    """The CPU of guests with ``host-model``; empty if libvirt lists none."""
    buses: frozenset[str] = frozenset()
    """Buses of disks (``<disk><enum name='bus'>``)."""
    video_models: frozenset[str] = frozenset()
    tpm_models: frozenset[str] = frozenset()
    tpm_versions: frozenset[str] | None = None
    """None if libvirt does not list them, as old ones do not."""
    usb_redirection: bool | None = None
    """True if a USB port can be redirected to a SPICE console.

    ``<redirdev>`` and ``<graphics>`` list it. None if libvirt does not list
    both, as old ones do not; then it is assumed.
    """
    uefi: bool = False
    """True if libvirt found UEFI firmware."""
    secure_boot: bool = False
    """True if that firmware can enforce signatures (``<loader>``: secure)."""
    devices: frozenset[str] | None = None
    """The devices that QEMU lists, by its names; None if they are not known.
    """
    devices_unknown: str = "no list of them is given"
    """Why they are not known."""
    mem_encryption: frozenset[str] = frozenset()
    """The models of memory encryption, as Nova spells them.

    ``<sev>``, ``<launchSecurity>`` and ``<tdx>`` list them.
    """


@dataclass(frozen=True, kw_only=True)
class NovaSettings:
    """Nova's options that decide what guests of a host can have.

    The defaults are Nova's; the last ones are not read from the file.
    """

    swtpm_enabled: bool = False
    """[libvirt] swtpm_enabled."""
    tpm_secret_security: frozenset[str] = frozenset(
        ("user", "host", "deployment")
    )
    """[libvirt] supported_tpm_secret_security."""
    images_type: str = "default"
    """[libvirt] images_type: the image backend."""
    force_raw_images: bool = True
    """[DEFAULT] force_raw_images."""
    cpu_mode: str = ""
    """[libvirt] cpu_mode; empty leaves it to Nova."""
    cpu_models: tuple[str, ...] = ()
    """[libvirt] cpu_models; Nova reads them with ``cpu_mode = custom``."""
    spice_enabled: bool = False
    """[spice] enabled: whether guests that Nova builds get a SPICE console."""
    built_by_nova: bool = False
    """True if Nova's driver writes the XML of guests; not from the file.

    False for a driver that uses our guest settings.
    """
    nova_release: int | None = None
    """The release of that Nova, 34 for 2026.2; None if not known.

    It does not come from the file either.
    """
    configuration_unknown: str = ""
    """Why these options are not known; empty: they are those of the host."""


_ADDRESS_BITS_OPTIONAL: Version = (9, 2, 0)


@dataclass(frozen=True, kw_only=True)
class LibvirtFacts(HostFacts, NovaSettings):
    """The facts of a libvirt host."""

    driver: ClassVar[str] = "libvirt"

    virt_type: str
    """[libvirt] virt_type: ``kvm``, ``qemu``, ``lxc`` or ``parallels``."""
    libvirt_version: Version
    hypervisor_version: Version = (0, 0, 0)
    """The version of QEMU for kvm and qemu; nothing else depends on it."""
    guests: Mapping[str, GuestFacts] = field(default_factory=dict)
    """Guest architecture, as Nova spells it -> what its guests can have.

    The host's own architecture, and i686 on x86_64; empty for lxc.
    """
    emulated: frozenset[str] = frozenset()
    """The architectures that it emulates, as Nova spells them."""
    smt: bool = False
    """True if its cores run more than one thread."""
    smm: bool | None = None
    """True if KVM has System Management Mode (x86); None if that is not known.
    """

    @property
    def needs_address_bits(self) -> bool:
        """True where libvirt refuses the mode without a number.

        Nova writes it so; our settings always have a number.

        Seen with 9.0, and not with newer ones: 9.2 takes it.
        """
        return (
            self.built_by_nova
            and self.libvirt_version < _ADDRESS_BITS_OPTIONAL
        )

    @property
    def deprecated_machines(self) -> frozenset[str] | None:
        """The types that libvirt marks, of the host's own architecture.

        One QEMU has the same ones for i686.
        """
        own = self.guests.get(self.architecture)
        return own.deprecated_machines if own else None

    @property
    def cpu(self) -> str:
        """The CPU of guests that Nova gives the host's own.

        Empty with models of nova.conf, which do not depend on the host, and
        without KVM, where Nova compares no CPUs.
        """
        own = self.guests.get(self.architecture)
        is_hosts = self.cpu_mode in ("", "host-model", "host-passthrough")
        if self.virt_type != "kvm" or self.configuration_unknown:
            return ""
        return own.host_model if own and is_hosts else ""

    @property
    def is_qemu(self) -> bool:
        """True if QEMU runs its guests."""
        return self.virt_type in ("kvm", "qemu")

    def list_older(
        self, libvirt: Version, qemu: Version
    ) -> list[tuple[str, str, str]]:
        """Return which of libvirt and QEMU is older than the compared version.

        Name, own version and compared version of each.
        """
        versions = [("libvirt", self.libvirt_version, libvirt)]
        if self.is_qemu:
            versions.append(("QEMU", self.hypervisor_version, qemu))
        return [
            (what, version_text(own), version_text(other))
            for what, own, other in versions
            if own < other
        ]
