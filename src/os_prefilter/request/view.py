"""The read-only view of a request that filters get.

It reads Nova's own objects, also with fields unset, and ours (:mod:`os_prefilter.request.spec`) alike, and hides the
difference. It never writes, and never makes Nova's objects load a field lazily.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from os_prefilter.common.quoting import quote
from os_prefilter.errors import MalformedRequest, UnsuitableRequestSpec
from os_prefilter.request.extra_specs import Group, flavor_groups
from os_prefilter.request.nova_objects import field_of, set_fields_of
from os_prefilter.request.requirements import ROOT, UNSUFFIXED
from os_prefilter.request.spec import FLAVOR_FIELDS, IMAGE_FIELDS
from os_prefilter.vocabulary.image_properties import LEGACY_NAMES
from os_prefilter.vocabulary.model import is_trait_name
from os_prefilter.vocabulary.resource_classes import HOST_CLASSES

_VMWARE_ADAPTER = "vmware_adaptertype"
_ALL_LEGACY = frozenset((*LEGACY_NAMES, _VMWARE_ADAPTER))
_NO_PROPERTIES: Mapping[str, object] = MappingProxyType({})
_TRAIT_PREFIX = "trait:"
_MACHINE_TYPE = "hw_machine_type"

UNKNOWN_MACHINE_TYPE = ""
"""In the place of the machine type of a server that keeps one, but which one is not known."""


class Request:
    """What was asked for, as filters may see it. Not to be kept longer than the call.

    :param kept_machine_type: the machine type that the server has already and keeps on the host that is looked for, or
        ``UNKNOWN_MACHINE_TYPE``; None where the host gives its default to a guest whose image names none
    """

    __slots__ = (
        "_beyond_content",
        "_extra_specs",
        "_flavor_groups",
        "_image",
        "_image_traits",
        "_kept_machine_type",
        "_properties",
        "_property",
        "_requested_groups",
        "_spec",
    )

    def __init__(self, request_spec: Any, kept_machine_type: str | None = None) -> None:
        # What cannot be read would ask for nothing, and every host would do.
        if request_spec is None or isinstance(request_spec, Mapping):
            raise UnsuitableRequestSpec(
                request_spec, "it is not an object with fields; os_prefilter.request.from_json reads JSON"
            )
        self._spec = request_spec
        self._image = field_of(request_spec, "image")
        if isinstance(self._image, (Mapping, str)):
            raise UnsuitableRequestSpec(request_spec, f"its image is a {type(self._image).__name__}, not an Image")
        properties = field_of(self._image, "properties")
        if not (properties is None or isinstance(properties, Mapping) or hasattr(properties, "fields")):
            raise UnsuitableRequestSpec(request_spec, f"its image's properties are a {type(properties).__name__}")
        self._properties = _by_current_name(properties)
        self._kept_machine_type = kept_machine_type
        if kept_machine_type:
            self._properties = {**self._properties, _MACHINE_TYPE: kept_machine_type}
        self._property = self._properties.get
        extra_specs = field_of(field_of(request_spec, "flavor"), "extra_specs", {})
        self._extra_specs: Mapping[str, object] = MappingProxyType(extra_specs)
        self._image_traits: tuple[str, ...] | None = None
        self._flavor_groups: Mapping[str, Group] | None = None
        self._requested_groups: Mapping[str, Group] | None = None
        self._beyond_content = False

    @property
    def read_beyond_content(self) -> bool:
        """Whether a filter has read what requests of the same content may differ in."""
        return self._beyond_content

    def image_property(self, name: str) -> object:
        """Return the value of an image property under its current name; None if it is not set."""
        return self._property(name)

    @property
    def image_properties(self) -> Mapping[str, object]:
        """The image properties under their current names."""
        return MappingProxyType(self._properties)

    def place_of(self, name: str) -> str:
        """Return where an image property is set, for messages."""
        if self._kept_machine_type and name == _MACHINE_TYPE:
            return f"the server's system metadata image_{name}"
        return f"image property {name}"

    @property
    def takes_default_machine_type(self) -> bool:
        """Whether a guest whose image names no machine type gets the host's default."""
        return self._kept_machine_type is None and self.image_property(_MACHINE_TYPE) is None

    @property
    def keeps_machine_type(self) -> bool:
        """Whether the machine type is that of a server that exists, in place of one in the image."""
        return bool(self._kept_machine_type)

    def image_attribute(self, name: str) -> object:
        """Return a field of the image itself, for instance ``disk_format``; None without it or without an image."""
        self._beyond_content |= name not in IMAGE_FIELDS
        return field_of(self._image, name)

    def extra_spec(self, name: str) -> object:
        """Return the value of a flavor extra spec; None if it is not set."""
        return self._extra_specs.get(name)

    def flavor_attribute(self, name: str) -> object:
        """Return a field of the flavor itself, for instance ``memory_mb``; None without it."""
        self._beyond_content |= name not in FLAVOR_FIELDS
        return field_of(field_of(self._spec, "flavor"), name)

    @property
    def root_required(self) -> frozenset[str]:
        """The traits that the root provider must have already."""
        return frozenset(field_of(field_of(self._spec, "request_level_params"), "root_required", ()))

    @property
    def extra_specs(self) -> Mapping[str, object]:
        """The flavor's extra specs."""
        return self._extra_specs

    @property
    def boots_from_volume(self) -> bool:
        """Whether the root disk is a volume, so that the host does not read the image."""
        return bool(field_of(self._spec, "is_bfv", default=False))

    @property
    def image_traits(self) -> tuple[str, ...]:
        """The traits that the image itself requires (``trait:X=required``), sorted.

        :raises MalformedRequest: for one that Placement could not have.
        """
        if self._image_traits is None:
            self._image_traits = _required_traits(field_of(self._image, "properties", {}))
        return self._image_traits

    @property
    def names_traits(self) -> bool:
        """Whether the image or the flavor names a trait itself.

        :raises MalformedRequest: as :attr:`image_traits` and :attr:`flavor_groups` do.
        """
        groups = self.flavor_groups.values()
        return bool(self.image_traits) or any(group.required or group.forbidden for group in groups)

    @property
    def flavor_groups(self) -> Mapping[str, Group]:
        """The request groups in the flavor's extra specs by suffix, the unsuffixed one under ``""``.

        :raises MalformedRequest: for a malformed trait, an amount out of range, or a suffix that is reserved.
        """
        if self._flavor_groups is None:
            groups = flavor_groups(self._extra_specs)
            for suffix in groups:
                _check_suffix("flavor extra specs: the group suffix", suffix)
            self._flavor_groups = MappingProxyType(groups)
        return self._flavor_groups

    @property
    def requested_groups(self) -> Mapping[str, Group]:
        """The request groups that ports, device profiles and PCI devices brought, by suffix.

        :raises MalformedRequest: if two have one suffix, or for a reserved one, or a malformed trait.
        """
        if self._requested_groups is None:
            groups = {suffix: _as_group(suffix, group) for suffix, group in raw_groups(self._spec).items()}
            self._requested_groups = MappingProxyType(groups)
        return self._requested_groups

    def is_of_host(self, scope: str) -> bool:
        """Whether a trait that is required or forbidden in a scope is one of the host.

        So it is on the root, in the unsuffixed group, in a group that asks for CPUs or memory, and in one of the flavor
        that asks for no resources. In any other group it is one of the provider that serves the group, such as a GPU, a
        slot for encrypted memory, or a port, and says nothing of the host.

        :raises MalformedRequest: as :attr:`flavor_groups` and :attr:`requested_groups` do.
        """
        if scope in (ROOT, UNSUFFIXED):
            return True
        group = self.flavor_groups.get(scope) or self.requested_groups.get(scope)
        classes = {name for name, amount in group.resources.items() if amount} if group else set()
        return not classes.isdisjoint(HOST_CLASSES) or (scope in self.flavor_groups and not classes)

    @property
    def pci_request_ids(self) -> frozenset[str]:
        """The PCI requests of the flavor, not those of Neutron's ports; their groups are named ``<id>-<number>``."""
        own = field_of(self._spec, "pci_request_ids")
        if own is not None:
            return frozenset(own)
        requests = field_of(field_of(self._spec, "pci_requests"), "requests", ())
        return frozenset(
            request_id
            for request in requests
            # 1 is InstancePCIRequest.NEUTRON_PORT; the others are flavor aliases.
            if (request_id := field_of(request, "request_id")) and field_of(request, "source", 0) != 1
        )


def _required_traits(properties: Any) -> tuple[str, ...]:
    if isinstance(properties, Mapping):
        traits = [key[len(_TRAIT_PREFIX) :] for key, value in properties.items() if _requires_trait(key, value)]
    else:
        traits = field_of(properties, "traits_required", [])
    # "trait:=required" names none: Nova leaves it out.
    traits = sorted({trait for trait in traits if trait})
    for trait in traits:
        if not is_trait_name(trait):
            raise MalformedRequest("image property", f"trait:{trait}", "trait:NAME with a NAME of A-Z, 0-9 and _")
    return tuple(traits)


def raw_groups(request_spec: Any) -> dict[str, Any]:
    """Return the groups in ``requested_resources`` themselves, by suffix: for those who write into them.

    :raises MalformedRequest: if two have one suffix, or for a suffix that has a meaning here.
    """
    groups: dict[str, Any] = {}
    for group in field_of(request_spec, "requested_resources", ()):
        suffix = field_of(group, "requester_id")
        if suffix in groups:
            raise MalformedRequest("requested_resources: the requester_id", suffix, "unique")
        _check_suffix("requested_resources: the requester_id", suffix)
        groups[suffix] = group
    return groups


def _check_suffix(source: str, suffix: object) -> None:
    if suffix in (ROOT, UNSUFFIXED):
        raise MalformedRequest(source, suffix, "free to use: it names a scope here")


def _as_group(suffix: str, group: Any) -> Group:
    required, forbidden = field_of(group, "required_traits", ()), field_of(group, "forbidden_traits", ())
    for trait in (*required, *forbidden):
        if not is_trait_name(trait):
            raise MalformedRequest(f"request group {quote(suffix)}", trait, "a trait name of A-Z, 0-9 and _")
    resources = MappingProxyType(field_of(group, "resources", {}))
    return Group(resources, frozenset(required), frozenset(forbidden))


def _by_current_name(properties: Any) -> Mapping[str, object]:
    if properties is None:
        return _NO_PROPERTIES
    if isinstance(properties, Mapping):
        return properties if _ALL_LEGACY.isdisjoint(properties) else _with_current_names(properties)
    # Nova's ImageMetaProps has translated the legacy names already.
    return set_fields_of(properties)


def _with_current_names(properties: Mapping[str, object]) -> dict[str, object]:
    current = {LEGACY_NAMES[key]: value for key, value in properties.items() if key in LEGACY_NAMES}
    adapter = properties.get(_VMWARE_ADAPTER)
    if adapter:
        current["hw_disk_bus"] = "ide" if adapter == "ide" else "scsi"
        if adapter != "ide":
            current["hw_scsi_model"] = adapter
    # A current name that is null says nothing; any other wins.
    return current | {key: value for key, value in properties.items() if value is not None}


def _requires_trait(key: object, value: object) -> bool:
    return isinstance(key, str) and key.startswith(_TRAIT_PREFIX) and value == "required"
