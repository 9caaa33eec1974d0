# SPDX-License-Identifier: Apache-2.0

"""What libvirts that do not exist say: their XML, and a binding that gives it
and fails where a test wants it to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from os_prefilter.adapters.libvirt.documents import facts_from_xml
from os_prefilter.adapters.nova_conf import LibvirtSettings
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts

X86_MACHINES = MappingProxyType(
    {
        "pc-i440fx-7.2": "",
        "pc": "pc-i440fx-7.2",
        "pc-q35-7.2": "",
        "q35": "pc-q35-7.2",
        "isapc": "",
        "microvm": "",
        "x-remote": "",
    }
)
"""Machine types -> the exact ones that they stand for."""
ARM_MACHINES = MappingProxyType(
    {"virt-7.2": "", "virt": "virt-7.2", "raspi3b": ""}
)
TPM = MappingProxyType(
    {
        "model": "tpm-tis tpm-crb",
        "backendModel": "passthrough emulator",
        "backendVersion": "2.0",
    }
)


def capabilities(
    architecture: str = "x86_64",
    guests: Mapping[str, str] | None = None,
    machines: Mapping[str, Mapping[str, str]] | None = None,
    siblings: tuple[str, ...] = ("0", "1"),
    address_bits: str = "",
) -> bytes:
    """Return the capabilities of a host.

    :param guests: architecture -> domain types; default: kvm and qemu for the
        host's own
    :param machines: architecture -> machine types
    """
    address_space = (
        f"<maxphysaddr mode='emulate' bits='{address_bits}'/>"
        if address_bits
        else ""
    )
    cpus = "".join(
        f"<cpu id='{number}' siblings='{text}'/>"
        for number, text in enumerate(siblings)
    )
    offered = "".join(
        "<guest><os_type>hvm</os_type><arch"
        f" name='{name}'>{_machines((machines or {}).get(name, {}))}"
        f"{''.join(f'<domain type={kind!r}/>' for kind in kinds.split())}</arch></guest>"
        for name, kinds in (guests or {architecture: "qemu kvm"}).items()
    )
    return (
        f"<capabilities><host><cpu><arch>{architecture}</arch>{address_space}</cpu>"
        "<topology><cells num='1'><cell id='0'><cpus"
        f" num='{len(siblings)}'>{cpus}</cpus></cell></cells></topology>"
        f"</host>{offered}</capabilities>"
    ).encode()


def _machines(machines: Mapping[str, str]) -> str:
    return "".join(
        f"<machine{f' canonical={exact!r}' if exact else ''}"
        f" maxCpus='255'>{name}</machine>"
        for name, exact in machines.items()
    )


def domain_capabilities(  # noqa: PLR0913 - a builder has a parameter for each part
    architecture: str = "x86_64",
    domain: str = "kvm",
    machine: str = "pc-i440fx-7.2",
    *,
    buses: str | None = "ide scsi virtio",
    video: str | None = "vga virtio",
    tpm: Mapping[str, str] | None = None,
    firmware: str | None = None,
    secure: str | None = None,
    sev: str | None = None,
    more_features: str = "",
    host_model: str = "",
) -> bytes:
    """Return domain capabilities; values by space, None for a device that is
    not supported.

    :param host_model: the elements of its CPU
    """
    named = f"<machine>{machine}</machine>" if machine else ""
    devices = (
        _device(
            "disk",
            (
                None
                if buses is None
                else {"diskDevice": "disk cdrom", "bus": buses}
            ),
        )
        + _device("video", None if video is None else {"modelType": video})
        + _device("tpm", tpm)
    )
    os = _enums({} if firmware is None else {"firmware": firmware})
    loader = _device(
        "loader",
        None if secure is None else {"type": "rom pflash", "secure": secure},
    )
    cpu = ""
    if host_model:
        mode = f"<mode name='host-model' supported='yes'>{host_model}</mode>"
        cpu = f"<cpu>{mode}</cpu>"
    launch = (
        "<sev supported='no'/>"
        if sev is None
        else f"<sev supported='yes'>{sev}</sev>"
    )
    return (
        f"<domainCapabilities><path>/usr/bin/qemu</path><domain>{domain}</domain>{named}<arch>{architecture}</arch>"
        f"<os supported='yes'>{os}{loader}</os>{cpu}<devices>{devices}</devices><features>{launch}{more_features}</features>"
        "</domainCapabilities>"
    ).encode()


def _device(name: str, enums: Mapping[str, str] | None) -> str:
    # What an unsupported device lists does not count.
    body = _enums(
        {"bus": "sata", "modelType": "qxl"} if enums is None else enums
    )
    return (
        f"<{name}"
        f" supported='{'no' if enums is None else 'yes'}'>{body}</{name}>"
    )


def _enums(enums: Mapping[str, str]) -> str:
    return "".join(
        "<enum"
        f" name='{name}'>{''.join(f'<value>{value}</value>' for value in values.split())}</enum>"
        for name, values in enums.items()
    )


def facts(
    offered: bytes | None = None,
    *domains: bytes,
    settings: LibvirtSettings | None = None,
    **options: Any,
) -> LibvirtFacts:
    """Return the facts of documents that are called caps.xml, 0.xml, 1.xml,
    ...
    """
    options = {
        "libvirt_version": (9, 0, 0),
        "qemu_version": (7, 2, 22),
        **options,
    }
    return facts_from_xml(
        capabilities() if offered is None else offered,
        [
            (f"{number}.xml", data)
            for number, data in enumerate(domains or (domain_capabilities(),))
        ],
        settings=settings or LibvirtSettings(),
        where="caps.xml",
        **options,
    )


class FakeError(Exception):
    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self._code = code

    def get_error_code(self) -> int | None:
        return self._code


GONE = FakeError("Cannot write data: Broken pipe\n", 38)


class FakeLibvirt:
    """The binding, as far as the probe uses it. Stands for an x86_64 host of
    QEMU 7.2.22 that emulates aarch64.

    ``answers`` replace what a function answers: a value, an error to raise, or
    something to call with its arguments. ``lives`` is the number of calls
    after which it dies.
    """

    libvirtError = FakeError  # noqa: N815 - its name
    VIR_ERR_OPERATION_DENIED = 29
    VIR_ERR_ACCESS_DENIED = 88

    def __init__(
        self, answers: Mapping[str, object] | None = None, lives: int = 1_000
    ) -> None:
        self.answers: dict[str, object] = {
            "getLibVersion": 9_000_000,
            "getVersion": 7_002_022,
            "getHostname": "compute-1",
            "getCapabilities": (
                capabilities(
                    guests={
                        "aarch64": "qemu",
                        "i686": "qemu kvm",
                        "x86_64": "qemu kvm",
                        "avr": "qemu",
                        "sparc": "xen",
                    },
                    machines={
                        "x86_64": X86_MACHINES,
                        "i686": X86_MACHINES,
                        "aarch64": ARM_MACHINES,
                    },
                ).decode()
            ),
            "getDomainCapabilities": _answer,
            **(answers or {}),
        }
        self.lives = lives
        self.calls: list[tuple[object, ...]] = []
        self.opened = 0
        self.handlers: list[Callable[..., object]] = []

    def registerErrorHandler(  # noqa: N802
        self, handler: Callable[..., object], _context: object
    ) -> None:
        self.handlers.append(handler)

    def open(self, uri: str) -> FakeConnection:
        self.answer("open", uri)
        self.opened += 1
        return FakeConnection(self)

    def answer(self, name: str, *arguments: object) -> object:
        """Answer a call, or fail as a libvirt does that is gone."""
        self.calls.append((name, *arguments))
        if len(self.calls) > self.lives:
            raise GONE
        answer = self.answers.get(name)
        if isinstance(answer, Exception):
            raise answer
        return answer(*arguments) if callable(answer) else answer

    @property
    def asked(self) -> list[tuple[object, ...]]:
        return [
            call[1:]
            for call in self.calls
            if call[0] == "getDomainCapabilities"
        ]


class FakeConnection:
    """A connection: each of its functions is answered by the binding."""

    def __init__(self, libvirt: FakeLibvirt) -> None:
        self._libvirt = libvirt

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments: self._libvirt.answer(name, *arguments)

    def close(self) -> None:
        self._libvirt.opened -= 1
        self._libvirt.answer("close")


def _answer(
    _emulator: None, architecture: str, machine: str | None, domain: str
) -> str:
    default, machines = (
        ("virt", ARM_MACHINES)
        if architecture == "aarch64"
        else ("pc", X86_MACHINES)
    )
    name = machine or default
    buses = "virtio scsi ide" if name == "pc" else "virtio sata"
    return domain_capabilities(
        architecture, domain, machines[name] or name, buses=buses
    ).decode()
