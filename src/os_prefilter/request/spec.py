# SPDX-License-Identifier: Apache-2.0

"""A RequestSpec for schedulers that are not Nova.

The fields have the names of Nova's (``nova/objects/request_spec.py``), as far
as scheduling by traits needs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass
class Image:
    """An image, as Glance has it."""

    properties: Mapping[str, object] = field(default_factory=dict)
    """Properties as Glance has them, with legacy names and ``trait:X``."""
    disk_format: str | None = None
    id: str | None = None
    name: str | None = None


@dataclass
class Flavor:
    """A flavor: its amounts and its extra specs.

    vcpus, memory in MiB, disks in GiB, swap in MiB.
    """

    vcpus: int = 0
    memory_mb: int = 0
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None


@dataclass
class RequestGroup:
    """Resources and traits of one group of the query.

    Of a flavor, a port, or a device profile.

    Filters add to the sets of traits of a group in
    ``RequestSpec.requested_resources``; the groups of a view are read-only.
    """

    requester_id: str
    """The suffix of the group in the query; empty for the unsuffixed group."""
    resources: Mapping[str, int] = field(default_factory=dict)
    required_traits: AbstractSet[str] = field(default_factory=set)
    forbidden_traits: AbstractSet[str] = field(default_factory=set)
    aggregates: Sequence[Sequence[str]] = field(default_factory=list)
    """Member of one of each inner list."""
    forbidden_aggregates: AbstractSet[str] = field(default_factory=set)
    in_tree: str | None = None

    @property
    def resource_classes(self) -> frozenset[str]:
        """The resource classes of which the group requests more than 0."""
        return frozenset(
            name for name, amount in self.resources.items() if amount
        )


@dataclass
class RequestLevelParams:
    """Parameters of the query as a whole."""

    root_required: set[str] = field(default_factory=set)
    root_forbidden: set[str] = field(default_factory=set)
    same_subtree: list[list[str]] = field(default_factory=list)


@dataclass
class NetworkRequest:
    """A network or a port that the instance is to have.

    As the service found it in Neutron before it schedules.
    """

    network_id: str | None = None
    port_id: str | None = None
    """The port that the user named; None if it is to be created.

    By nova-compute, or its like, on the network.
    """
    subnet_id: str | None = None
    """Subnet of the port's first fixed IP address; None without one."""
    vnic_type: str | None = None
    """The port's ``binding:vnic_type``."""
    tag: str | None = None
    """The tag by which the guest recognizes the NIC."""


class ServerOptions(NamedTuple):
    """What a server asks for in addition to its image and its flavor."""

    nic_tag: bool = False
    """A NIC has a tag; one in the requested networks need not be repeated."""
    block_device_tag: bool = False
    """A block device has a tag."""
    trusted_certs: bool = False
    """Trusted certificates validate the image."""
    multiattach: bool = False
    """A volume can be attached to several servers."""
    shares: bool = False
    """A shared file system of Manila's is attached."""
    not_known: bool = False
    """The others could not be read, and are not required."""


@dataclass
class Destination:
    """The hosts that the instance may go to."""

    aggregates: list[str] | None = None
    """Comma-separated aggregates; the host must be in one of each item."""
    forbidden_aggregates: set[str] | None = None
    in_tree: str | None = None
    """UUID of a provider: only its tree is considered.

    Nova looks it up by the host's name.
    """
    cell: str | None = None
    """The cell of a server that exists.

    Nova keeps it there: it may keep the machine type of its first start.
    """


@dataclass
class RequestSpec:
    """A request for an instance.

    ``Pipeline.apply`` adds what it requires of the host.
    """

    flavor: Flavor
    image: Image | None = None
    """None when booting from a volume without image metadata."""
    is_bfv: bool = False
    """Boots from a volume: the root disk takes nothing of the host's."""
    requested_resources: list[RequestGroup] = field(default_factory=list)
    pci_request_ids: frozenset[str] = frozenset()
    """Prefixes of the groups of PCI devices that Nova manages.

    They are named ``<one of these>-<number>``.
    """
    requested_destination: Destination | None = None
    request_level_params: RequestLevelParams = field(
        default_factory=RequestLevelParams
    )
    project_id: str | None = None
    availability_zone: str | None = None
    scheduler_hints: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Each hint with its values, tenants' text."""
    requested_networks: list[NetworkRequest] = field(default_factory=list)
    """The networks and ports that the author of the request chose."""
    force_hosts: Sequence[str] = ()
    """The host of a server that is rebuilt."""
    server_options: ServerOptions = field(default_factory=ServerOptions)

    @property
    def root_required(self) -> set[str]:
        """Traits that the root provider must have."""
        return self.request_level_params.root_required

    @property
    def root_forbidden(self) -> set[str]:
        """Traits that the root provider must not have."""
        return self.request_level_params.root_forbidden

    @property
    def same_subtree(self) -> list[list[str]]:
        """Lists of group suffixes that must come from one subtree."""
        return self.request_level_params.same_subtree
