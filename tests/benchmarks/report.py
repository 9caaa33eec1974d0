"""How many requests to Placement a report of a host takes: ``python tests/benchmarks/report.py``.

The host is a KVM host as libvirt describes it, and its report is that of ``os-prefilter capabilities report`` with the
section [prefilter] that docs/agent.rst recommends: what nova-compute does not report and the filters may require, the
owner's trait, and every trait that requests may name. Requests are counted where they leave this library; their number
is the same at each run.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from os_prefilter import Options
from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.trait_sync import HostTraits
from os_prefilter.filters.loading import load_filters
from os_prefilter.filters.report_scope import report_scope
from os_prefilter.fleet.model import Fleet, Inventory, Provider, provider_uuid
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.desired_traits import Change, Goal, Mode, select_managed, with_marker
from os_prefilter.hosts.drivers.libvirt_facts import GuestFacts, LibvirtFacts

_GUESTS = GuestFacts(
    default_machine="pc",
    machines=frozenset(("pc", "q35")),
    buses=frozenset(("ide", "scsi", "virtio", "usb", "sata", "fdc")),
    video_models=frozenset(("vga", "virtio", "qxl", "bochs")),
    uefi=True,
)
KVM = LibvirtFacts(
    architecture="x86_64",
    virt_type="kvm",
    libvirt_version=(10, 4, 0),
    hypervisor_version=(8, 2, 0),
    guests={"x86_64": _GUESTS},
)

_OPTIONS = Options(reported_traits=("CUSTOM_COMPUTE_*MACHINE_*", "CUSTOM_HYPERVISOR_TYPE_*", "CUSTOM_VM_MODE_*"))
_SCOPE = report_scope(load_filters(["image_metadata", "hpet"], provided=None), _OPTIONS)

_CONFLICT = 409


class Counted:
    """Counts what passes to the adapter of a client."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self.methods = Counter[str]()
        self.received = 0
        """Bytes of all responses."""
        self.conflicts = 0
        """Responses with status 409: another writer came first."""

    def request(self, url: str, method: str, **options: Any) -> Any:
        """Pass a request on, as ``keystoneauth1.adapter.Adapter`` does."""
        self.methods["read" if method == "GET" else "write"] += 1
        response = self._adapter.request(url, method, **options)
        self.received += len(response.content)
        self.conflicts += response.status_code == _CONFLICT
        return response


def goal_of(facts: LibvirtFacts) -> Goal:
    """Return what Placement should say of a host beside a nova-compute."""
    traits = select_managed(_SCOPE.restrict(capability_traits(facts)), Mode.BESIDE, facts)
    return Goal(with_marker(traits, facts, _SCOPE.marker), _OPTIONS, _SCOPE.known)


def main() -> None:
    """Report hosts of one cloud, each in the state that its line names."""
    with EmbeddedPlacement(Fleet(tuple(map(_host, range(3))))) as placement:
        counted = Counted(placement.client._adapter)
        adapter: Any = counted
        client = PlacementClient(adapter)
        goal, changed = goal_of(KVM), goal_of(replace(KVM, virt_type="qemu"))

        def line(what: str, report: Callable[[], Sequence[Change]]) -> None:
            counted.methods.clear()
            changes = len(report())
            reads, writes = counted.methods["read"], counted.methods["write"]
            print(f"{what:44} {reads:2} reads {writes:4} writes {changes:4} changes")

        line("the first report in a new cloud", lambda: HostTraits(client, provider_uuid("host-0")).sync(goal))
        keeper = HostTraits(client, provider_uuid("host-1"))
        line("the first report of another host", lambda: keeper.sync(goal))
        line("an unchanged host", lambda: keeper.sync(goal))
        line("a host whose facts have changed", lambda: keeper.sync(changed))
        _set_another_trait(placement.client, "host-1")
        line("a host that an operator gave a trait", lambda: keeper.sync(changed))
        line("a first report that names the host", lambda: HostTraits(client, "host-2").sync(goal))


def _host(number: int) -> Provider:
    name = f"host-{number}"
    room = {"VCPU": Inventory(64), "MEMORY_MB": Inventory(262144), "DISK_GB": Inventory(2000)}
    return Provider(name, provider_uuid(name), room, frozenset({"COMPUTE_NODE", "HW_ARCH_X86_64"}))


def _set_another_trait(client: PlacementClient, name: str) -> None:
    url = f"/resource_providers/{provider_uuid(name)}/traits"
    client.create_trait("CUSTOM_OF_AN_OPERATOR")
    body = client.request("GET", url)
    client.request("PUT", url, {**body, "traits": [*body["traits"], "CUSTOM_OF_AN_OPERATOR"]})


if __name__ == "__main__":
    main()
