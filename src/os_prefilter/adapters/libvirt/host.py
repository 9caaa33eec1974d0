# SPDX-License-Identifier: Apache-2.0

"""A libvirt host, probed over a connection to its libvirt.

A probe opens a connection and closes it. It returns all facts, or raises an
error that names the call that failed: a missing response never counts as a
missing device.

libvirt's calls have no timeout, and its keepalive needs an event loop. So each
call runs in a thread of its own, and one that takes too long is an error. It
cannot be interrupted: no other call is made until it ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from os_prefilter.adapters.libvirt import documents, qemu
from os_prefilter.adapters.nova_conf import LibvirtSettings
from os_prefilter.common.errors import (
    ConfigurationError,
    DocumentError,
    ProbeFailed,
    install_extra,
)
from os_prefilter.common.threads import start_thread
from os_prefilter.hosts.drivers.libvirt_facts import (
    LibvirtFacts,
    Version,
    version_text,
)
from os_prefilter.vocabulary.machine_types import MACHINES, guest_architecture

TIMEOUT = 120.0
"""Seconds that one call may take.

The first one after a start of libvirt looks at each QEMU, which has taken 40
s.
"""

_CAPABILITIES = "getCapabilities()"
KVM_DEVICE = "/dev/kvm"
# linux/kvm.h
_KVM_CHECK_EXTENSION = 0xAE03
_KVM_CAP_X86_SMM = 117

_URIS = {"lxc": "lxc:///", "parallels": "parallels:///system"}
_ADVICE = (
    "Check that libvirt runs ('virsh -c {uri} capabilities') and look into its"
    " log, then try again."
)
_ADVICE_OPEN = (
    "Check that libvirt runs, that the URI is right, and that this user may"
    " connect (group libvirt, or root)."
)
_ADVICE_DENIED = (
    "The connection is read-only, and libvirt gives domain capabilities only"
    " to full connections. Connect to the read-write socket, as root or as a"
    " member of the group libvirt."
)
_ADVICE_HANGS = (
    "libvirt hangs: look into its log and restart it; then the next probe"
    " works."
)
_ADVICE_DOCUMENT = (
    "Correct that; if nothing is wrong with the host, report the response to"
    " this project."
)


class LibvirtHost:
    """A host with a libvirt at a URI.

    :param uri: empty: the one that Nova connects to
    :param settings: the host's options of nova.conf
    :param timeout: seconds that one call may take
    :raises ConfigurationError: if libvirt-python is not installed
    """

    def __init__(
        self, uri: str, settings: LibvirtSettings, *, timeout: float = TIMEOUT
    ) -> None:
        # As Nova chooses it.
        self.uri = (
            uri
            or settings.connection_uri
            or _URIS.get(settings.virt_type or "", "qemu:///system")
        )
        self._settings = settings
        self._timeout = timeout
        try:
            self._libvirt: Any = import_module("libvirt")
        except ImportError as error:
            raise ConfigurationError(
                "libvirt cannot be probed without its Python binding"
                f" ({error}): {install_extra('libvirt')}"
            ) from error
        # By default libvirt prints each error to stderr as well.
        self._libvirt.registerErrorHandler(lambda _context, _error: None, None)
        self._last: Future[Any] | None = None

    def identity(self) -> str:
        """Return a text that changes when the host or its hypervisor changes.

        When libvirt or QEMU is upgraded or built again, or the host is renamed
        or replaced.

        As long as it is the same, :meth:`facts` need not be called again. It
        costs four calls, and a question to KVM; the facts cost one call more
        for each machine type.

        :raises ProbeFailed: if a call of libvirt fails
        """
        with self._session() as call:
            host = call("getHostname")
            versions = (
                f"libvirt {call('getLibVersion')}, hypervisor"
                f" {call('getVersion')}"
            )
            capabilities = call("getCapabilities").encode()
        digest = hashlib.sha256(capabilities)
        if _is_local(self.uri):
            for path in self._emulators(capabilities):
                digest.update(_stamp_of(path))
        return (
            f"host {host}, {versions}, SMM {_kvm_has_smm(self.uri)},"
            f" capabilities and QEMUs {digest.hexdigest()}"
        )

    def facts(self) -> LibvirtFacts:
        """Return the facts of the host.

        :raises ProbeFailed: if a call of libvirt fails, or its response cannot
            be used
        """
        with self._session() as call:
            libvirt_version = self._version("getLibVersion", call)
            hypervisor_version = self._version("getVersion", call)
            capabilities = call("getCapabilities").encode()
            domains = _domain_capabilities(call, capabilities, self._settings)
            with self._wrong_documents():
                return documents.facts_from_xml(
                    capabilities,
                    list(domains),
                    settings=self._settings,
                    libvirt_version=libvirt_version,
                    qemu_version=hypervisor_version,
                    host=call("getHostname"),
                    where=_CAPABILITIES,
                    smm=_kvm_has_smm(self.uri),
                    ask_devices=partial(self._devices_of, hypervisor_version),
                )

    def _emulators(self, capabilities: bytes) -> list[str]:
        with self._wrong_documents():
            found = documents.capabilities_from(_CAPABILITIES, capabilities)
        return sorted(found.emulators)

    def _devices_of(
        self, version: Version, _architecture: str, emulator: str
    ) -> frozenset[str]:
        """Ask a QEMU of libvirt's for its devices.

        :param version: of libvirt's QEMU
        :raises QemuUnavailable: if there is another one here, or none
        """
        if not _is_local(self.uri):
            raise qemu.QemuUnavailable(f"{self.uri} is on another machine")
        # Where libvirt runs in a container, its path may lead to another QEMU
        # here.
        own = qemu.version_of(emulator)
        if own != version:
            raise qemu.QemuUnavailable(
                f"{emulator} has the version {version_text(own)} here, and the"
                f" QEMU of libvirt {version_text(version)}"
            )
        return qemu.devices_of(emulator)

    @contextmanager
    def _wrong_documents(self) -> Iterator[None]:
        """Turn an error in a response into one that names the URI."""
        try:
            yield
        except DocumentError as error:
            raise ProbeFailed(
                f"{error.path} of {self.uri}",
                error.problem,
                _ADVICE_DOCUMENT,
            ) from error

    def _version(self, name: str, call: _Call) -> Version:
        number = call(name)
        # 1,000,000 * major + 1,000 * minor + micro; 0 where libvirt does not
        # know.
        if number <= 0:
            raise ProbeFailed(
                f"{name}() of {self.uri}",
                f"{number} is not a version",
                _ADVICE_DOCUMENT,
            )
        return number // 1_000_000, number // 1_000 % 1_000, number % 1_000

    @contextmanager
    def _session(self) -> Iterator[_Call]:
        """Open a connection, and yield a function that makes calls by name."""
        with self._failures(f"open({self.uri!r})", _ADVICE_OPEN):
            connection = self._run(partial(self._libvirt.open, self.uri))

        def call(name: str, *arguments: object) -> Any:
            with self._failures(
                f"{_describe(name, *arguments)} of {self.uri}",
                _ADVICE.format(uri=self.uri),
            ):
                return self._run(
                    partial(getattr(connection, name), *arguments)
                )

        try:
            yield call
        finally:
            # Errors of closing do not count: the connection may be dead
            # already. While a call hangs, the connection stays open until that
            # call ends and the last reference goes.
            if self._last and self._last.done():
                with suppress(self._libvirt.libvirtError, TimeoutError):
                    self._run(connection.close)

    def _run(self, call: Callable[[], Any]) -> Any:
        """Make one call after the last one has ended, each within the timeout.

        :raises TimeoutError: if it, or the one before, has not ended
        """
        if self._last and not wait([self._last], self._timeout).done:
            raise TimeoutError(
                "an earlier call has not ended, nor in another"
                f" {self._timeout:g} seconds"
            )
        self._last = last = start_thread(call, "libvirt")
        if not wait([last], self._timeout).done:
            raise TimeoutError(f"no response in {self._timeout:g} seconds")
        return last.result()

    @contextmanager
    def _failures(self, what: str, advice: str) -> Iterator[None]:
        """Turn an error of libvirt into one that names call and remedy."""
        libvirt = self._libvirt
        try:
            yield
        except libvirt.libvirtError as error:
            if error.get_error_code() in (
                libvirt.VIR_ERR_OPERATION_DENIED,
                libvirt.VIR_ERR_ACCESS_DENIED,
            ):
                advice = _ADVICE_DENIED
            raise ProbeFailed(what, str(error), advice) from error
        except TimeoutError as error:
            raise ProbeFailed(what, str(error), _ADVICE_HANGS) from error


_Call = Callable[..., Any]


def _domain_capabilities(
    call: _Call, document: bytes, settings: LibvirtSettings
) -> Iterator[tuple[str, bytes]]:
    """Yield the domain capabilities of guests of the host's architecture.

    On x86_64 those of i686 as well. The default machine type comes first.
    """
    capabilities = documents.capabilities_from(_CAPABILITIES, document)
    virt_type = documents.virt_type_of(capabilities, settings)
    if virt_type not in ("kvm", "qemu"):
        return
    own = documents.nova_architecture(capabilities.architecture)
    for architecture, domain_types in capabilities.guests.items():
        domain_type = capabilities.domain_type(architecture, virt_type)
        platform = guest_architecture(
            documents.nova_architecture(architecture)
        )
        if platform != own or domain_type not in domain_types:
            continue
        where, found = _ask(call, architecture, None, domain_type)
        yield where, found
        default = documents.domain_capabilities_from(where, found).machine
        for machine, exact in sorted(domain_types[domain_type].items()):
            # Each call can take seconds; the default machine type is known.
            if platform in MACHINES.get(machine, ()) and exact != default:
                yield _ask(call, architecture, machine, domain_type)


def _ask(
    call: _Call, architecture: str, machine: str | None, domain_type: str
) -> tuple[str, bytes]:
    """Return the call and the domain capabilities of a machine type."""
    name = "getDomainCapabilities"
    arguments = (None, architecture, machine, domain_type)
    return _describe(name, *arguments), call(name, *arguments).encode()


def _is_local(uri: str) -> bool:
    """Return whether the libvirt at a URI is that of this machine."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    return parts.scheme in ("qemu", "qemu+unix") and not parts.netloc


def _stamp_of(path: str) -> bytes:
    """Return what changes when a file is replaced."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return f"{path} is not there".encode()
    stamp = (path, found.st_ino, found.st_size, found.st_ctime_ns)
    return repr(stamp).encode()


def _kvm_has_smm(uri: str) -> bool | None:
    """Return whether KVM has System Management Mode; None if not known.

    That of another machine cannot be asked.

    libvirt lists firmware that needs it also where KVM does not have it, as in
    some nested guests.
    """
    # Only on x86 does 0 mean no.
    if not _is_local(uri) or os.uname().machine != "x86_64":
        return None
    try:
        device = os.open(KVM_DEVICE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return fcntl.ioctl(device, _KVM_CHECK_EXTENSION, _KVM_CAP_X86_SMM) > 0
    except OSError:
        return None
    finally:
        os.close(device)


def _describe(name: str, *arguments: object) -> str:
    return f"{name}({', '.join(map(repr, arguments))})"
