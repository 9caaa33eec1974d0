"""On the real thing: Debian's libvirt and QEMU, a real Placement, and guests that libvirt really starts.

In CI a libvirt that is missing fails these tests. Elsewhere they need ``OS_PREFILTER_LIBVIRT_URI=qemu:///system``, a
running libvirtd, libvirt-python, and QEMU for x86 and ARM with UEFI firmware for both.
"""

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, SubElement, fromstring, tostring
from xml.sax.saxutils import quoteattr

import pytest

from os_prefilter import guest_settings, unsupported
from os_prefilter.adapters.libvirt.host import LibvirtHost
from os_prefilter.adapters.nova_conf import LibvirtSettings
from os_prefilter.hosts.drivers.libvirt_domain_xml import device_models, domain_elements, driver_attributes
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.hosts.reporter import GuestSettings
from os_prefilter_tools.testing.law import disagreements, pair_cases, platform_cases, single_cases
from tests.conftest import one_in, spec_of
from tests.services.libvirt.connection import needs_libvirt, uri
from tests.support.hosts import EVERY_ARCHITECTURE, OFFERED

pytestmark = needs_libvirt


@pytest.fixture(scope="module")
def facts() -> LibvirtFacts:
    """Return what the host can do without KVM, which not every machine lets a guest use.

    In a cloud that offers to emulate every architecture.
    """
    facts = LibvirtHost(uri(), LibvirtSettings(virt_type="qemu")).facts()
    return replace(facts, emulated_architectures=EVERY_ARCHITECTURE)


def test_required_traits_and_late_check_agree_on_this_host(facts: LibvirtFacts, record_property: Any) -> None:
    """For each value, and for a sample of the pairs: tests/property has all, on hosts that are written down."""
    for offered in OFFERED:
        step = one_in(20)
        pairs = [*pair_cases(step=step, emulated=offered), *platform_cases(step=step, emulated=offered)]
        cases = [*single_cases(offered), *pairs]
        assert list(disagreements(cases, replace(facts, emulated_architectures=offered))) == []
        record_property("law_cases", len(cases))


_Q35_UEFI = {"hw_machine_type": "q35", "hw_firmware_type": "uefi"}


@pytest.mark.parametrize(
    ("properties", "hpet", "address", "packed"),
    [
        (
            {
                "hw_time_hpet": "true",
                "hw_vif_model": "virtio",
                "hw_virtio_packed_ring": "true",
                "hw_maxphysaddr_mode": "emulate",
                "hw_maxphysaddr_bits": "36",
                "hw_machine_type": "q35",
            },
            True,
            {"phys-bits": 36, "host-phys-bits": False},
            True,
        ),
        ({"hw_maxphysaddr_mode": "passthrough"}, False, {"host-phys-bits": True}, False),
    ],
)
def test_started_guest_has_what_is_requested_and_nothing_else(
    properties: dict[str, object], *, hpet: bool, address: dict[str, object], packed: bool, facts: LibvirtFacts
) -> None:
    """QEMU itself says so: its object model, not what was written into the XML. tests/guests starts many more."""
    assert facts.physical_address_bits, "libvirt says it of an x86 host"
    settings = guest_settings(spec_of(properties), facts)
    interface = Element("interface", type="user")
    SubElement(interface, "model", type=device_models(settings).get("interface", "virtio"))
    SubElement(interface, "driver", driver_attributes(settings).get("interface", {}))
    with _started(settings, facts, tostring(interface, encoding="unicode")) as guest:
        assert guest.property("/machine", "hpet") is hpet
        (cpu,) = guest.ask("query-cpus-fast")
        assert {name: guest.property(cpu["qom-path"], name) for name in address} == address
        assert guest.property("/machine/peripheral/net0", "packed") is packed


def test_guest_with_secure_boot_starts_if_and_only_if_the_host_says_so() -> None:
    """Of the virt type that the host has: not every KVM has System Management Mode. libvirt chose the firmware."""
    libvirt = import_module("libvirt")
    facts = LibvirtHost(uri(), LibvirtSettings()).facts()
    for value in ("required", "disabled"):
        spec = spec_of({**_Q35_UEFI, "os_secure_boot": value})
        settings = guest_settings(spec, replace(facts, smm=None))
        refused = pytest.raises(libvirt.libvirtError, match="System Management Mode")
        with refused if unsupported(spec, facts) else nullcontext(), _started(settings, facts) as guest:
            assert guest.xml.find("os/loader[@type='pflash']") is not None
            assert (guest.xml.find("os/loader[@secure='yes']") is not None) is (value == "required")
    assert not unsupported(spec, facts)


class _Guest(NamedTuple):
    """A guest that runs."""

    domain: Any

    @property
    def xml(self) -> Element:
        """What libvirt has made of its XML."""
        return fromstring(self.domain.XMLDesc())  # noqa: S314 - libvirt wrote it

    def ask(self, command: str, **arguments: str) -> Any:
        """Return what its QEMU answers."""
        text = json.dumps({"execute": command, "arguments": arguments})
        return json.loads(import_module("libvirt_qemu").qemuMonitorCommand(self.domain, text, 0))["return"]

    def property(self, path: str, name: str) -> Any:
        """Return a property of an object of QEMU's."""
        return self.ask("qom-get", path=path, property=name)


@contextmanager
def _started(settings: GuestSettings, facts: LibvirtFacts, device: str = "") -> Iterator[_Guest]:
    """Start a guest with its elements and the least beside them."""
    libvirt = import_module("libvirt")
    with closing(libvirt.open(uri())) as connection:
        domain = connection.defineXML(_domain(settings, facts, device))
        try:
            # It ends with the connection, whatever happens here.
            domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED | libvirt.VIR_DOMAIN_START_AUTODESTROY)
            yield _Guest(domain)
            domain.destroy()
        finally:
            # What libvirt keeps of its firmware, the next guest of that name would get.
            domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)


def _domain(settings: GuestSettings, facts: LibvirtFacts, device: str) -> str:
    elements = [fromstring(text) for text in domain_elements(settings)]  # noqa: S314 - they are ours
    system = next((each for each in elements if each.tag == "os"), None)
    if system is None:
        system = fromstring(f"<os><type arch={quoteattr(settings.architecture)}>hvm</type></os>")  # noqa: S314
        elements.append(system)
    kind = system.find("type")
    assert kind is not None
    kind.set("machine", settings.machine or facts.guests[settings.architecture].default_machine)
    written = "".join(tostring(each, encoding="unicode") for each in elements)
    # UEFI wants it on ARM.
    features = "<features><acpi/></features>" if system.get("firmware") else ""
    virt_type = facts.virt_type if settings.architecture == facts.architecture else "qemu"
    return f"""
    <domain type={quoteattr(virt_type)}>
      <name>os-prefilter-{os.getpid()}</name>
      <memory unit='MiB'>64</memory>
      <vcpu>1</vcpu>
      {written}{features}
      <on_poweroff>destroy</on_poweroff><on_reboot>destroy</on_reboot><on_crash>destroy</on_crash>
      <devices><controller type='usb' model='none'/><memballoon model='none'/>{device}</devices>
    </domain>"""
