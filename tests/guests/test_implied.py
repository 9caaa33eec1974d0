# SPDX-License-Identifier: Apache-2.0

"""The real libosinfo of Debian: what it implies is what Nova's libvirt driver
gives a guest.

In CI a libosinfo that is missing fails these tests, as a libvirt that is
missing does. Debian's binding is for its own Python, which is of the version
that CI runs on: it is seen alone, without Debian's other packages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nova.virt import osinfo as novas

from os_prefilter.adapters import osinfo
from tests.guests.cases import Case
from tests.guests.record import as_built, probed, started
from tests.guests.records import STARTS
from tests.services.libvirt.connection import needs_libvirt, uri

# Of the binding itself.
pytestmark = [
    needs_libvirt,
    pytest.mark.filterwarnings("ignore:DynamicImporter:ImportWarning"),
]
_DEBIANS = Path("/usr/lib/python3/dist-packages/gi")


@pytest.fixture(autouse=True)
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "gi").symlink_to(_DEBIANS)
    monkeypatch.syspath_prepend(str(tmp_path))
    caches = (osinfo.implied_by, osinfo._libosinfo)
    for each in caches:
        each.cache_clear()
    assert osinfo.has_libosinfo(), (
        "Debian's packages are gir1.2-libosinfo-1.0, python3-gi and osinfo-db"
    )
    yield osinfo._libosinfo()
    for each in caches:
        each.cache_clear()


def test_each_system_implies_what_nova_reads(library: Any) -> None:
    _, systems = library
    all_systems = [
        systems.get_nth(number) for number in range(systems.get_length())
    ]
    names = {
        name
        for each in all_systems
        for name in (each.get_short_id(), each.get_id())
    }
    assert len(names) > 1_000
    found = {}
    for name in names:
        system = novas.OsInfo(name)
        expected = {
            "hw_vif_model": system.network_model,
            "hw_disk_bus": system.disk_model,
        }
        found[name] = osinfo.implied_by(name)
        assert found[name] == {
            device: value for device, value in expected.items() if value
        }, name
    assert {"e1000e", "e1000", "ne2k_pci", "pcnet", "virtio"} <= {
        each.get("hw_vif_model") for each in found.values()
    }
    assert osinfo.implied_by("no-such-system") == {}


@pytest.mark.parametrize("distro", ["win2k3", "freebsd7.0", "openbsd5.0"])
def test_guest_of_nova_has_the_network_card_that_its_system_implies(
    distro: str,
) -> None:
    facts = as_built(probed(uri(), "qemu"), by_nova=True)
    model = osinfo.implied_by(distro)["hw_vif_model"]
    assert model != "virtio"
    case = Case(facts.architecture, "pc", "vif_model", model, distro=distro)
    assert case.properties(facts.architecture) == {
        "hw_machine_type": "pc",
        "os_distro": distro,
    }
    assert started([case], facts, uri())[case].answer == STARTS
