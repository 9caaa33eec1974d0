"""A libvirt host, asked what it can do.

Each probe opens a connection and closes it. It gives all facts, or it is an error that names the call that failed:
absence of an answer is never taken for absence of a device.

libvirt's calls have no timeout, and its keepalive needs an event loop. So each is made in a thread of its own, and one
that takes too long is an error. It cannot be broken off: as long as it lasts no other one is made.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from os_prefilter.adapters.libvirt.documents import (
    Capabilities,
    DomainCapabilities,
    capabilities_from,
    domain_capabilities_from,
    is_architecture,
    nova_architecture,
)
from os_prefilter.adapters.libvirt.facts import facts_of, virt_type_of
from os_prefilter.adapters.libvirt.nova_conf import LibvirtSettings
from os_prefilter.common.threads import start_thread
from os_prefilter.errors import ConfigurationError, DocumentError, ProbeFailed
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts, Version
from os_prefilter.vocabulary.machine_types import MACHINES

TIMEOUT = 120.0
"""Seconds that one call may take. The first one after a start of libvirt looks at each QEMU, which has taken 40 s."""

KVM_DEVICE = "/dev/kvm"
# linux/kvm.h
_KVM_CHECK_EXTENSION = 0xAE03
_KVM_CAP_X86_SMM = 117
_LOCAL_SCHEMES = frozenset(("qemu", "qemu+unix"))

_URIS = {"lxc": "lxc:///", "parallels": "parallels:///system"}
_DEFAULT_URI = "qemu:///system"
_ADVICE = "Check that libvirt runs ('virsh -c {uri} capabilities') and look into its log, then try again."
_ADVICE_OPEN = (
    "Check that libvirt runs, that the URI is right, and that this user may connect (group libvirt, or root)."
)
_ADVICE_DENIED = (
    "The connection may only read, and libvirt gives domain capabilities to full ones alone. Connect to the socket "
    "that is not read-only, as root or as a member of the group libvirt."
)
_ADVICE_HANGS = "libvirt hangs: look into its log and restart it; it is asked again then."
_ADVICE_ANSWER = "Mend that; if nothing is wrong with the host, report the answer to this project."


def default_uri(settings: LibvirtSettings) -> str:
    """Return the URI that Nova would connect to."""
    return settings.connection_uri or _URIS.get(settings.virt_type or "", _DEFAULT_URI)


class LibvirtHost:
    """A host whose libvirt answers at a URI.

    :param uri: empty: the usual one of the virt type
    :param settings: what nova.conf says of the host
    :param timeout: seconds that one call may take
    :raises ConfigurationError: if libvirt-python is not installed
    """

    def __init__(self, uri: str, settings: LibvirtSettings, *, timeout: float = TIMEOUT) -> None:
        self.uri = uri or default_uri(settings)
        self._settings = settings
        self._libvirt = _libvirt()
        self._calls = _Calls(timeout)

    def identity(self) -> str:
        """Return what changes when libvirt or QEMU was upgraded, or the host has another name or become another.

        As long as it is the same, :meth:`facts` need not be asked for again. It costs four calls, and a question to
        KVM; the facts cost one call more for each machine type.

        :raises ProbeFailed: if libvirt does not answer
        """
        with self._session() as session:
            host = session.call("getHostname")
            versions = session.call("getLibVersion"), session.call("getVersion")
            digest = hashlib.sha256(session.call("getCapabilities").encode()).hexdigest()
        smm = {True: "yes", False: "no", None: "unknown"}[_kvm_has_smm(self.uri)]
        return f"host {host}, libvirt {versions[0]}, hypervisor {versions[1]}, SMM {smm}, capabilities {digest}"

    def facts(self) -> LibvirtFacts:
        """Return what is known of the host.

        :raises ProbeFailed: if libvirt does not answer one of the calls, or answers something that cannot be used
        """
        with self._session() as session:
            host = session.call("getHostname")
            libvirt_version = session.version("getLibVersion")
            hypervisor_version = session.version("getVersion")
            try:
                offered = capabilities_from("getCapabilities()", session.call("getCapabilities").encode())
                return facts_of(
                    offered,
                    list(session.domain_capabilities(offered, virt_type_of(offered, self._settings))),
                    settings=self._settings,
                    libvirt_version=libvirt_version,
                    qemu_version=hypervisor_version,
                    host=host,
                    smm=_kvm_has_smm(self.uri),
                )
            except DocumentError as error:
                raise ProbeFailed(f"{error.path} of {self.uri}", error.problem, _ADVICE_ANSWER) from error

    @contextmanager
    def _session(self) -> Iterator["_Session"]:
        with _failures(self._libvirt, f"open({self.uri!r})", _ADVICE_OPEN):
            connection = self._calls.make(partial(self._libvirt.open, self.uri))
        try:
            yield _Session(self._libvirt, connection, self.uri, self._calls)
        finally:
            # It may be dead already; what was learned, or went wrong, before is what counts. Where a call hangs, the
            # connection is closed when that ends and nobody has it any more.
            if not self._calls.one_hangs:
                with suppress(self._libvirt.libvirtError, TimeoutError):
                    self._calls.make(connection.close)


class _Calls:
    """Makes one call at a time, and waits no longer than a limit for it."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._last: Future[Any] | None = None

    @property
    def one_hangs(self) -> bool:
        """Whether a call is under way that nobody waits for any more."""
        return bool(self._last and not self._last.done())

    def make(self, call: Callable[[], Any]) -> Any:
        """Make a call.

        :raises TimeoutError: it did not end, or one before it has not ended yet
        """
        if self._last and not wait([self._last], self._timeout).done:
            raise TimeoutError(f"a call made before has not ended, nor in another {self._timeout:g} seconds")
        self._last = last = start_thread(call, "libvirt")
        if not wait([last], self._timeout).done:
            raise TimeoutError(f"no answer in {self._timeout:g} seconds")
        return last.result()


class _Session:
    """An open connection."""

    def __init__(self, libvirt: Any, connection: Any, uri: str, calls: _Calls) -> None:
        self._libvirt = libvirt
        self._connection = connection
        self._uri = uri
        self._calls = calls

    def call(self, name: str, *arguments: object) -> Any:
        """Return what a function of the connection answers."""
        what = f"{_call(name, *arguments)} of {self._uri}"
        with _failures(self._libvirt, what, _ADVICE.format(uri=self._uri)):
            return self._calls.make(partial(getattr(self._connection, name), *arguments))

    def version(self, name: str) -> Version:
        """Return the version that a function of the connection answers."""
        number = self.call(name)
        # 1,000,000 * major + 1,000 * minor + micro; libvirt answers 0 where it does not know.
        if number <= 0:
            raise ProbeFailed(f"{name}() of {self._uri}", f"the answer {number} is no version", _ADVICE_ANSWER)
        return number // 1_000_000, number // 1_000 % 1_000, number % 1_000

    def domain_capabilities(self, offered: Capabilities, virt_type: str) -> Iterator[DomainCapabilities]:
        """Yield the domain capabilities of each guest architecture, the one of its default machine type first."""
        if virt_type not in ("kvm", "qemu"):
            return
        for architecture, domain_types in offered.guests.items():
            domain_type = offered.domain_type(architecture, virt_type)
            # An architecture without a name that is known has no trait either.
            asked = is_architecture(architecture) and offered.speaks_of(architecture)
            if not asked or domain_type not in domain_types:
                continue
            default = self._domain_capabilities(architecture, None, domain_type)
            yield default
            for machine, exact in sorted(domain_types[domain_type].items()):
                # Each call can take seconds, and the default machine type has answered.
                if nova_architecture(architecture) in MACHINES.get(machine, ()) and exact != default.machine:
                    yield self._domain_capabilities(architecture, machine, domain_type)

    def _domain_capabilities(self, architecture: str, machine: str | None, domain_type: str) -> DomainCapabilities:
        arguments = (None, architecture, machine, domain_type)
        answer = self.call("getDomainCapabilities", *arguments)
        return domain_capabilities_from(_call("getDomainCapabilities", *arguments), answer.encode())


def _kvm_has_smm(uri: str) -> bool | None:
    """Return whether KVM has System Management Mode; None where that cannot be asked, as of another machine's KVM.

    libvirt lists firmware that needs it also where KVM does not have it, as in some nested guests.
    """
    try:
        parts = urlsplit(uri)
        # 0 says nothing on a machine that is no x86.
        if parts.scheme not in _LOCAL_SCHEMES or parts.netloc or os.uname().machine != "x86_64":
            return None
        device = os.open(KVM_DEVICE, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return fcntl.ioctl(device, _KVM_CHECK_EXTENSION, _KVM_CAP_X86_SMM) > 0
    except OSError:
        return None
    finally:
        os.close(device)


@contextmanager
def _failures(libvirt: Any, what: str, advice: str) -> Iterator[None]:
    """Turn libvirt's error into one that says what was asked, and what to do."""
    try:
        yield
    except libvirt.libvirtError as error:
        if error.get_error_code() in (libvirt.VIR_ERR_OPERATION_DENIED, libvirt.VIR_ERR_ACCESS_DENIED):
            advice = _ADVICE_DENIED
        raise ProbeFailed(what, str(error), advice) from error
    except TimeoutError as error:
        raise ProbeFailed(what, str(error), _ADVICE_HANGS) from error


def _call(name: str, *arguments: object) -> str:
    return f"{name}({', '.join(map(repr, arguments))})"


def _libvirt() -> Any:
    try:
        libvirt = import_module("libvirt")
    except ImportError as error:
        raise ConfigurationError(
            f"libvirt cannot be asked without its Python binding ({error}): pip install 'os-prefilter[libvirt]'"
        ) from error
    # By default libvirt prints each error to stderr as well.
    libvirt.registerErrorHandler(_be_silent, None)
    return libvirt


def _be_silent(_context: object, _error: object) -> None:
    pass
