"""A RequestSpec for schedulers that are not Nova.

The names of the fields are those of Nova's objects (``nova/objects/request_spec.py``), with those that scheduling by
traits needs and no others, so that whatever reads one reads the other too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

IMAGE_FIELDS = frozenset(("disk_format",))
"""The fields of an image, beside its properties, that are part of the content."""
FLAVOR_FIELDS = ("vcpus", "memory_mb", "root_gb", "ephemeral_gb", "swap")
"""The fields of a flavor, beside its extra specs, that are part of the content."""


@dataclass
class Image:
    """What Glance says of an image."""

    properties: Mapping[str, object] = field(default_factory=dict)
    """The properties as Glance has them, legacy names and ``trait:X`` included."""
    disk_format: str | None = None
    id: str | None = None
    name: str | None = None


@dataclass
class Flavor:
    """A flavor: vcpus, memory in MiB, disks in GiB, swap in MiB, and its extra specs."""

    vcpus: int = 0
    memory_mb: int = 0
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None


@dataclass
class RequestGroup:
    """Resources and traits of one group of the query, for instance of a port or of a device profile."""

    requester_id: str
    """The suffix of the group in the query."""
    resources: dict[str, int] = field(default_factory=dict)
    required_traits: set[str] = field(default_factory=set)
    forbidden_traits: set[str] = field(default_factory=set)
    aggregates: list[list[str]] = field(default_factory=list)
    """Member of one of each inner list."""
    forbidden_aggregates: set[str] = field(default_factory=set)
    in_tree: str | None = None


@dataclass
class RequestLevelParams:
    """What holds for the query as a whole."""

    root_required: set[str] = field(default_factory=set)
    root_forbidden: set[str] = field(default_factory=set)
    same_subtree: list[list[str]] = field(default_factory=list)


@dataclass
class Destination:
    """Where the instance may go."""

    aggregates: list[str] | None = None
    """Each item is comma-separated aggregates, in one of which the host must be."""
    forbidden_aggregates: set[str] | None = None
    in_tree: str | None = None
    """UUID of a provider: only its tree is asked. Nova looks it up from the host's name."""


@dataclass
class RequestSpec:
    """What somebody asked for. ``Pipeline.apply`` adds to it what the host must be able to do."""

    flavor: Flavor
    image: Image | None = None
    """None when booting from a volume without image metadata."""
    is_bfv: bool = False
    """Boots from a volume: the root disk takes nothing of the host's."""
    requested_resources: list[RequestGroup] = field(default_factory=list)
    pci_request_ids: frozenset[str] = frozenset()
    """Groups named ``<one of these>-<number>`` are PCI devices that Nova manages."""
    requested_destination: Destination | None = None
    request_level_params: RequestLevelParams = field(default_factory=RequestLevelParams)

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
