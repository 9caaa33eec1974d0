# SPDX-License-Identifier: Apache-2.0

"""The view of a request that filters get."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, wraps
from types import MappingProxyType
from typing import Any, Final, TypeVar

from os_prefilter.common.errors import MalformedRequest, UnsuitableRequestSpec
from os_prefilter.common.placement_values import HOST_CLASSES
from os_prefilter.common.quoting import find_misspelt, quote
from os_prefilter.common.trait_names import is_trait_name
from os_prefilter.request.extra_specs import flavor_groups
from os_prefilter.request.fields import (
    PartReaders,
    clone_of,
    field_of,
    set_fields_of,
)
from os_prefilter.request.requirements import ROOT, UNSUFFIXED
from os_prefilter.request.spec import (
    Destination,
    Flavor,
    Image,
    NetworkRequest,
    RequestGroup,
    RequestLevelParams,
    RequestSpec,
    ServerOptions,
)
from os_prefilter.vocabulary.image_properties import LEGACY_NAMES

UNKNOWN_MACHINE_TYPE = ""
"""In place of the machine type of a server that keeps one that is not known.
"""

SERVER_OPTIONS = "server_options"
"""What a filter that requires them declares to read."""

_VMWARE_ADAPTER = "vmware_adaptertype"
_ALL_LEGACY = frozenset((*LEGACY_NAMES, _VMWARE_ADAPTER))
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_NO_TRAITS: frozenset[str] = frozenset()
_TRAIT_PREFIX = "trait:"
_MACHINE_TYPE = "hw_machine_type"
# InstancePCIRequest.NEUTRON_PORT; the other requests are of the flavor's
# aliases.
_NEUTRON_PORT = 1

_Found = TypeVar("_Found")


def _problem_in(
    part: Any, what: str, names: Sequence[str], important: Sequence[str]
) -> str:
    """Return why an object is not the expected part; empty if it is.

    A part of the request would be lost.

    :param names: fields of which it has at least one
    :param important: fields that must not be misspelt
    """
    fields = getattr(part, "fields", ())
    missing = [
        name
        for name in (*names, *important)
        if name not in fields and not hasattr(part, name)
    ]
    problem = (
        f"{what} is of the type {type(part).__name__}, with none of the fields"
        f" {', '.join(names)}"
    )
    is_wrong = set(names) <= set(missing)
    for name in [each for each in important if each in missing]:
        # Neither fields nor methods are misspelt: forbidden_aggregates is
        # close to forbidden_traits.
        others = [
            each
            for each in dir(part)
            if not (
                each in important or callable(getattr(type(part), each, None))
            )
        ]
        if close := find_misspelt(name, others) or next(
            filter(others.__contains__, _OTHER_NAMES.get(name, ())), None
        ):
            start = problem if is_wrong else f"{what} has no field {name}"
            problem = f"{start}; {quote(close)} may be meant for {name}"
            is_wrong = True
    return problem if is_wrong else ""


OTHER_IMAGE_NAMES = ("image_meta", "image_ref")
"""Names of the image elsewhere; under one of these it would be ignored."""
_PROPERTY_PREFIXES = ("hw_", "img_", "os_", _TRAIT_PREFIX)


def loose_properties(values: Mapping[Any, Any]) -> str:
    """Return the first image property outside the properties, or "".

    It is ignored there.
    """
    return next(
        (
            str(name)
            for name, value in values.items()
            if value is not None and str(name).startswith(_PROPERTY_PREFIXES)
        ),
        "",
    )


def _problem_in_parts(
    spec: Any, image: Any, flavor: Any, destination: Any, params: Any
) -> str:
    """Return the first reason why a request spec cannot be read.

    None stands for a part that is not there.
    """
    if isinstance(spec, (Mapping, type(None), type)):
        return (
            "it is not an object with fields; os_prefilter.adapters.from_json"
            " reads JSON"
        )
    parts = (
        (spec, "it", SPEC_FIELDS[:2], SPEC_FIELDS),
        (image, "its image", _ALL_IMAGE_FIELDS, _ALL_IMAGE_FIELDS),
        # Without swap, which is close to other short words.
        (flavor, "its flavor", _ALL_FLAVOR_FIELDS, _ALL_FLAVOR_FIELDS[:-1]),
        (
            destination,
            "its requested_destination",
            _DESTINATION_FIELDS,
            _DESTINATION_FIELDS[:-1],
        ),
        (params, "its request_level_params", _LEVEL_FIELDS, _LEVEL_FIELDS),
    )
    problems = (
        _problem_in(part, what, names, important)
        for part, what, names, important in parts
        if part is not None
    )
    return next(filter(None, problems), "") or _problem_of_image(spec, image)


def _problem_of_image(spec: Any, image: Any) -> str:
    """Return why the image or its properties would be ignored, or ""."""
    if image is None:
        others = [
            name
            for name in OTHER_IMAGE_NAMES
            if field_of(spec, name) is not None
        ]
        is_elsewhere = others and not hasattr(spec, "image")
        return (
            f"it has no field image, but {others[0]}; rename it, or set image"
            " to None"
            if is_elsewhere
            else ""
        )
    loose = loose_properties(
        {
            name: getattr(image, name, None)
            for name in dir(image)
            if name.startswith(_PROPERTY_PREFIXES)
        }
    )
    text = (
        f"its image has {quote(loose)} outside its properties;"
        " os_prefilter.Image takes them as properties"
    )
    return text if loose else ""


_OPTIONAL = (
    "requested_resources requested_networks requested_destination"
    " request_level_params scheduler_hints server_options"
)
SPEC_FIELDS = ("flavor", "image", *_OPTIONAL.split(), "availability_zone")
"""Fields of a request spec that must not be misspelt."""
_OTHER_NAMES = {"memory_mb": ("ram",), "root_gb": ("disk",)}
"""Names of fields in openstacksdk's objects, which no spelling shows."""
_IMAGE_FIELDS = ("disk_format",)
_LEVEL_FIELDS = ("root_required", "root_forbidden", "same_subtree")
_DESTINATION_FIELDS = ("aggregates", "forbidden_aggregates", "in_tree", "cell")
GROUP_FIELDS = (
    "requester_id",
    "resources",
    "required_traits",
    "forbidden_traits",
    *_DESTINATION_FIELDS[:-1],
)
_FLAVOR_FIELDS = ("vcpus", "memory_mb", "root_gb", "ephemeral_gb", "swap")
_ALL_IMAGE_FIELDS = ("properties", *_IMAGE_FIELDS)
_ALL_FLAVOR_FIELDS = ("extra_specs", *_FLAVOR_FIELDS)
_READ = (
    "flavor image is_bfv request_level_params requested_resources pci_requests"
    " requested_destination force_hosts scheduler_hints"
)
_SPEC = PartReaders(
    RequestSpec, _READ.split(), {"pci_requests": "pci_request_ids"}
)
_IMAGE = PartReaders(Image, _ALL_IMAGE_FIELDS)
_FLAVOR = PartReaders(Flavor, _ALL_FLAVOR_FIELDS)
_PARAMS = PartReaders(RequestLevelParams, _LEVEL_FIELDS[:2])


# Most properties are of one of these; the check is then a look at ten types.
_UNCHANGEABLE = frozenset((str, bool, int, float, type(None)))


def _unchangeable(value: Any) -> Any:
    """Return a value whose lists no filter can change.

    Filters after it, and Nova, read the same.
    """
    return (
        tuple(map(_unchangeable, value))
        if isinstance(value, (list, tuple))
        else value
    )


def _as_text(value: object) -> str | None:
    return value if value is None or value.__class__ is str else str(value)


def _hints_of(spec: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    hints = field_of(spec, "scheduler_hints")
    if hints is None:
        return ()
    if not isinstance(hints, Mapping):
        raise UnsuitableRequestSpec(
            spec,
            f"its scheduler_hints are a {type(hints).__name__}, not a mapping",
        )
    # Nova makes a list of a single value; a service of another kind may leave
    # it as it is.
    return tuple(
        (str(name), tuple(map(str, _as_list(hints[name]))))
        for name in sorted(hints, key=str)
    )


def _is_rebuild(hints: Any) -> bool:
    # Users may give the hint as well: only nova-api, or an administrator, also
    # forces the server's host.
    return isinstance(hints, Mapping) and tuple(
        _as_list(hints.get("_nova_check_type"))
    ) == ("rebuild",)


def _as_list(value: object) -> Iterable[object]:
    if isinstance(value, (list, tuple)):
        return value
    return () if value is None else (value,)


def _networks_of(spec: Any) -> tuple[tuple[str | None, ...], ...]:
    # Nova's objects have neither the subnet nor the VNIC type.
    names = ("network_id", "port_id", "subnet_id", "vnic_type")
    found = []
    for each in field_of(spec, "requested_networks", ()):
        # The field project_id, which many objects have, is close to port_id.
        if problem := _problem_in(
            each,
            "one of its requested_networks",
            names,
            (names[0], *names[2:]),
        ):
            raise UnsuitableRequestSpec(spec, problem)
        found.append(tuple(_as_text(field_of(each, name)) for name in names))
    return tuple(found)


def _destination_of(spec: Any) -> tuple[Any, ...]:
    destination = field_of(spec, "requested_destination")
    aggregates, forbidden, in_tree = (
        field_of(destination, name) for name in _DESTINATION_FIELDS[:3]
    )
    return (
        aggregates and tuple(aggregates),
        forbidden and frozenset(forbidden),
        in_tree,
    )


def _server_options_of(
    spec: Any, found: ServerOptions | None
) -> tuple[bool, ...]:
    options = found
    if options is None:
        options = field_of(spec, "server_options", ServerOptions())
    if not isinstance(options, ServerOptions):
        problem = (
            f"its server_options are a {type(options).__name__}, not"
            " ServerOptions"
        )
        raise UnsuitableRequestSpec(spec, problem)
    # Nova's request spec has the tags of NICs where a server is created. They
    # count even if its database does not respond.
    for network in field_of(spec, "requested_networks", ()):
        if field_of(network, "tag") is not None:
            options = options._replace(nic_tag=True)
    return tuple(map(bool, options))


# Fields in which requests with one flavor and image differ; few filters read
# them.
_EXTRA_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "project_id": lambda spec: _as_text(field_of(spec, "project_id")),
    "availability_zone": lambda spec: _as_text(
        field_of(spec, "availability_zone")
    ),
    "scheduler_hints": _hints_of,
    "networks": _networks_of,
    "flavor.name": lambda spec: _as_text(
        field_of(field_of(spec, "flavor"), "name")
    ),
    "destination": _destination_of,
    "same_subtree": lambda spec: (
        *map(
            tuple,
            field_of(
                field_of(spec, "request_level_params"), "same_subtree", ()
            ),
        ),
    ),
}


# -- the view
# -----------------------------------------------------------------------------


class Request:
    """A request as filters see it: read-only, for the time of the call.

    :param request_spec: Nova's RequestSpec, or
        :class:`os_prefilter.RequestSpec`
    :param kept_machine_type: the machine type that the server has already and
        keeps on its next host, or ``UNKNOWN_MACHINE_TYPE``; None where a guest
        whose image names none gets the default of its host
    :param reads: what may be read beyond image, flavor, groups and traits of
        the root
        (:attr:`os_prefilter.request.filter_contract.Declaration.reads`); None
        for everything
    :param implied: image properties that are not set, and that its
        ``os_distro`` implies (``adapters/osinfo.py``)
    :param has_new_flavor: True for a resize; a request spec does not say
        whether it is one or a cold migration
    :param server_options: what the server asks for in addition to image and
        flavor; None for what the request spec has of it
    :raises UnsuitableRequestSpec: if the object cannot be read; it would
        require nothing, and any host would do.
    """

    def __init__(  # noqa: C901, PLR0913, PLR0915, PLR0917 - one list of attributes, without calls that not every request needs
        self,
        request_spec: Any,
        kept_machine_type: str | None = None,
        reads: Collection[str] | None = None,
        implied: Mapping[str, str] = MappingProxyType({}),
        has_new_flavor: bool = False,  # noqa: FBT001, FBT002 - the others are given by position as well
        server_options: ServerOptions | None = None,
    ) -> None:
        # Each request comes here, also one whose decision is cached: nothing
        # is called that not every request needs.
        read = _SPEC[request_spec.__class__]
        (
            flavor,
            image,
            is_bfv,
            params,
            groups,
            pci_requests,
            destination,
            forced_hosts,
            hints,
            knows_spec,
        ) = read(request_spec)
        properties, disk_format, knows_image = _IMAGE[image.__class__](image)
        extra_specs, *amounts, knows_flavor = _FLAVOR[flavor.__class__](flavor)
        required, forbidden, knows_params = _PARAMS[params.__class__](params)
        knows_destination = (
            destination is None or destination.__class__ is Destination
        )
        knows_all = (
            knows_spec
            and knows_image
            and knows_flavor
            and knows_destination
            and knows_params
        )
        problem = ""
        if request_spec is None or not knows_all:
            problem = _problem_in_parts(
                request_spec, image, flavor, destination, params
            )
        lists_traits = False
        if properties is None:
            properties = _NOTHING
        elif properties.__class__ is not dict and not isinstance(
            properties, Mapping
        ):
            if hasattr(properties, "fields"):
                # Nova's ImageMetaProps, which has translated legacy names, and
                # lists the traits that an image requires.
                properties, lists_traits = set_fields_of(properties), True
            else:
                found = type(properties).__name__
                problem = problem or f"its image's properties are a {found}"
        if extra_specs is None:
            extra_specs = _NOTHING
        elif extra_specs.__class__ is not dict and not isinstance(
            extra_specs, Mapping
        ):
            found = type(extra_specs).__name__
            problem = problem or f"its flavor's extra_specs are a {found}"
        if problem or flavor is None:
            # It would require nothing, and any host would do.
            raise UnsuitableRequestSpec(
                request_spec, problem or "it has no flavor"
            )
        self.root_required: Final[frozenset[str]] = (
            frozenset(required) if required else _NO_TRAITS
        )
        """The traits that the request spec requires of the root provider."""
        self.root_forbidden: Final[frozenset[str]] = (
            frozenset(forbidden) if forbidden else _NO_TRAITS
        )
        """The traits that the request spec forbids on the root provider."""
        self.boots_from_volume: Final = bool(is_bfv)
        """True if the root disk is a volume: the host reads no image."""
        self.kept_machine_type: Final = kept_machine_type
        """Machine type that the server keeps, as given for the view.

        In place of one in the image.
        """
        self.server_exists: Final = destination is not None and (
            field_of(destination, "cell") is not None
            or bool(field_of(destination, "allow_cross_cell_move"))
        )
        """True if the server was started before.

        Nova then names its cell, or allows it to leave its cell.
        """
        self.is_rebuild: Final = bool(forced_hosts) and _is_rebuild(hints)
        """True if Nova rebuilds the server on its host.

        With a new image and the flavor that it has.
        """
        self.has_new_flavor: Final = has_new_flavor
        """True for a resize; as it was given for the view."""
        self._new_parts: Final = _new_parts(
            self.server_exists, self.is_rebuild, has_new_flavor
        )
        self.cache: Final[dict[Any, Any]] = {}
        """Results for this request: readings by row, others by function.

        See ``cached_per_request``.
        """
        self._spec = request_spec
        self._properties: Mapping[str, Any] = properties
        # Filters are code of others: they get the mapping itself, without a
        # copy, and cannot change it.
        self.extra_specs: Final[Mapping[str, object]] = MappingProxyType(
            extra_specs
        )
        """The flavor's extra specs."""
        # Not a cached_property, which before Python 3.12 takes a lock that all
        # requests share: every filter reads it.
        if not lists_traits and not _ALL_LEGACY.isdisjoint(properties):
            properties = _with_current_names(properties)
        self.implied: Final = implied
        """Image properties that Nova takes from libosinfo, as none set them.
        """
        if not _UNCHANGEABLE.issuperset(map(type, properties.values())):
            properties = dict(
                zip(properties, map(_unchangeable, properties.values()))
            )
        if implied or kept_machine_type:
            kept = (
                {_MACHINE_TYPE: kept_machine_type} if kept_machine_type else {}
            )
            properties = {**properties, **implied, **kept}
        self.image_properties: Final[Mapping[str, object]] = MappingProxyType(
            properties
        )
        """The image properties under their current names."""
        self.given_server_options: Final = server_options
        """What the server asks for, as it was given for the view."""
        self._lists_traits = lists_traits
        self._reads = reads
        self._disk_format = disk_format
        self._amounts = amounts
        self._requested_resources = groups
        self._pci_requests = pci_requests

    def ask(
        self, look_up: Callable[[Any, Any], _Found], context: Any
    ) -> _Found:
        """Return what the embedding service knows of the request spec.

        :param look_up: ``(context, request_spec) -> result``
        """
        return look_up(context, self._spec)

    @property
    def instance_uuid(self) -> Any:
        """The UUID of the server; None if it is not set."""
        return field_of(self._spec, "instance_uuid")

    def copy_spec(self) -> Any:
        """Return a copy of the request spec, for filters that change one.

        :raises UnsuitableRequestSpec: if it cannot be copied, or the copy
            could not take its place
        """
        kind = type(self._spec)
        if hasattr(kind, "__getattr__") or any(
            getattr(each, "__slots__", ()) for each in kind.__mro__
        ):
            problem = (
                "its fields are not all in its __dict__, so that no copy with"
                " changes can take its place"
            )
            raise UnsuitableRequestSpec(self._spec, problem)
        try:
            return clone_of(self._spec)
        except Exception as error:
            problem = (
                "it cannot be copied before filters change it"
                f" ({type(error).__name__}: {quote(str(error))})"
            )
            raise UnsuitableRequestSpec(self._spec, problem) from error

    def cache_key(self) -> tuple[Any, ...] | None:
        """Return all that the view holds, as the key of cached decisions.

        None for one with groups of devices or ports: hardly two are equal.
        """
        if self._requested_resources or (
            self._pci_requests and self.pci_request_ids
        ):
            return None
        properties = self._properties
        extra_specs = self.extra_specs
        # Nova keeps the traits of an image in a list of a class of its own.
        values = [
            tuple(each) if isinstance(each, list) else each
            for each in properties.values()
        ]
        return (
            *self._amounts,
            self._disk_format,
            self.kept_machine_type,
            (*properties, *extra_specs),
            values,
            (*extra_specs.values(),),
            self.root_required,
            self.root_forbidden,
            # Where the names of properties end and those of extra specs begin.
            len(properties),
            self._lists_traits,
            self.boots_from_volume,
            self.server_exists,
            self._new_parts,
            [
                self._read_extra_field(name)
                for name in sorted(self._reads or ())
            ],
        )

    def asks_anew(self, *sources: str) -> bool:
        """Return whether one of these sources is new in the request.

        Then it may be a reason to reject it.

        All are in the request of a new server, none in that of a server that
        moves: it has lived with them. A rebuild has a new image, a resize a
        new flavor.

        :param sources: ``image property hw_vif_model=igb``, for instance
        """
        return any(source.startswith(self._new_parts) for source in sources)

    def image_property(self, name: str) -> object:
        """Return an image property by its current name; None if not set."""
        return self.image_properties.get(name)

    def place_of(self, name: str | None) -> str:
        """Return where an image property is set, for messages."""
        if self.kept_machine_type and name == _MACHINE_TYPE:
            return f"the server's system metadata image_{name}"
        if name in self.implied:
            return (
                f"by os_distro={self._properties['os_distro']}, image property"
                f" {name}"
            )
        return f"image property {name}"

    @property
    def takes_default_machine_type(self) -> bool:
        """True if the guest gets the host's default machine type.

        Its image names none.
        """
        return (
            self.kept_machine_type is None
            and self.image_property(_MACHINE_TYPE) is None
        )

    def image_attribute(self, name: str) -> object:
        """Return a field of the image, such as ``disk_format``, or None.

        None without it or without an image.
        """
        return (
            self._disk_format
            if name in _IMAGE_FIELDS
            else self._read_extra_field(f"image.{name}")
        )

    def extra_spec(self, name: str) -> object:
        """Return the value of a flavor extra spec; None if it is not set."""
        return self.extra_specs.get(name)

    def flavor_attribute(self, name: str) -> object:
        """Return a field of the flavor, such as ``memory_mb``, or None."""
        if name in _FLAVOR_FIELDS:
            return self._amounts[_FLAVOR_FIELDS.index(name)]
        return self._read_extra_field(f"flavor.{name}")

    @property
    def project_id(self) -> str | None:
        """The project that the server belongs to."""
        return _as_text(self._read_extra_field("project_id"))

    @property
    def availability_zone(self) -> str | None:
        """The availability zone that the author of the request chose."""
        return _as_text(self._read_extra_field("availability_zone"))

    @cached_property
    def scheduler_hints(self) -> Mapping[str, tuple[str, ...]]:
        """The scheduler hints, each with its values.

        They are tenants' text, as everything else of a request.
        """
        return MappingProxyType(
            dict(self._read_extra_field("scheduler_hints"))
        )

    @cached_property
    def networks(self) -> tuple[NetworkRequest, ...]:
        """The networks and ports that the author of the request chose."""
        return tuple(
            NetworkRequest(*each)
            for each in self._read_extra_field("networks")
        )

    @property
    def server_options(self) -> ServerOptions:
        """What the server asks for in addition to image and flavor."""
        return ServerOptions(*self._read_extra_field(SERVER_OPTIONS))

    @property
    def same_subtree(self) -> Sequence[Sequence[str]]:
        """Lists of group suffixes that must come from one subtree."""
        return tuple(self._read_extra_field("same_subtree"))

    @property
    def destination(self) -> Destination:
        """The aggregates and the tree that the instance may go to."""
        return Destination(*self._read_extra_field("destination"))

    def _read_extra_field(self, name: str) -> Any:
        if self._reads is not None and name not in self._reads:
            # Undeclared, a decision would be taken again for a request that
            # differs in it.
            raise LookupError(
                f"it reads {name} of a request without"
                f" @Declaration(reads=({name!r},))"
            )
        if name == SERVER_OPTIONS:
            return _server_options_of(self._spec, self.given_server_options)
        if name in _EXTRA_FIELDS:
            return _EXTRA_FIELDS[name](self._spec)
        part, _, field = name.partition(".")
        return _unchangeable(field_of(field_of(self._spec, part), field))

    # These are read late: a malformed trait is the error of the filter or the
    # query that needs it.
    @cached_property
    def image_traits(self) -> tuple[str, ...]:
        """The traits that the image requires (``trait:X=required``), sorted.

        :raises MalformedRequest: for a name that Placement cannot have.
        """
        if self._lists_traits:
            names = self._properties.get("traits_required") or ()
        else:
            required = [
                key
                for key, value in self._properties.items()
                if value == "required"
            ]
            names = [
                key.removeprefix(_TRAIT_PREFIX)
                for key in required
                if isinstance(key, str) and key.startswith(_TRAIT_PREFIX)
            ]
        # "trait:=required" names none: Nova leaves it out.
        traits = sorted({trait for trait in names if trait})
        for trait in traits:
            if not is_trait_name(trait):
                raise MalformedRequest(
                    "image property",
                    f"trait:{trait}",
                    "trait:NAME with a NAME of A-Z, 0-9 and _",
                )
        return tuple(traits)

    @property
    def names_traits(self) -> bool:
        """True if the image or the flavor names a trait itself.

        :raises MalformedRequest: as :attr:`image_traits` and
            :attr:`flavor_groups` do.
        """
        groups = self.flavor_groups.values()
        return bool(self.image_traits) or any(
            each.required_traits or each.forbidden_traits for each in groups
        )

    @cached_property
    def flavor_groups(self) -> Mapping[str, RequestGroup]:
        """The request groups of the flavor's extra specs, by suffix.

        The unsuffixed one is under ``""``.

        :raises MalformedRequest: for a malformed trait, an amount out of
            range, or a suffix that is reserved.
        """
        groups = flavor_groups(self.extra_specs)
        for suffix in groups:
            _check_suffix("flavor extra specs: the group suffix", suffix)
        return MappingProxyType(groups)

    @cached_property
    def requested_groups(self) -> Mapping[str, RequestGroup]:
        """The groups of ports, device profiles and PCI devices, by suffix.

        :raises MalformedRequest: if two have one suffix, or for a reserved
            one, or a malformed trait.
        """
        groups: dict[str, RequestGroup] = {}
        for each in self._requested_resources or ():
            if problem := _problem_in(
                each,
                "one of its requested_resources",
                GROUP_FIELDS[:2],
                GROUP_FIELDS[1:],
            ):
                raise UnsuitableRequestSpec(self._spec, problem)
            group = _read_only_group(each)
            if group.requester_id in groups:
                raise MalformedRequest(
                    "requested_resources: the requester_id",
                    group.requester_id,
                    "unique",
                )
            _check_suffix(
                "requested_resources: the requester_id", group.requester_id
            )
            groups[group.requester_id] = group
        return MappingProxyType(groups)

    def is_of_host(self, scope: str) -> bool:
        """Return whether a trait in a scope is one of the host.

        So it is on the root, in the unsuffixed group, in a group that requests
        CPUs or memory, and in one of the flavor that requests no resources. In
        any other group it is one of the provider that serves the group, such
        as a GPU, a slot for encrypted memory, or a port, and says nothing of
        the host.

        :raises MalformedRequest: as :attr:`flavor_groups` and
            :attr:`requested_groups` do.
        """
        if scope in (ROOT, UNSUFFIXED):
            return True
        group = self.flavor_groups.get(scope) or self.requested_groups.get(
            scope
        )
        classes = group.resource_classes if group else frozenset()
        return not HOST_CLASSES.isdisjoint(classes) or (
            scope in self.flavor_groups and not classes
        )

    @property
    def pci_request_ids(self) -> frozenset[str]:
        """The PCI requests of the flavor, not those of Neutron's ports.

        Their groups are named ``<id>-<number>``.
        """
        requests = self._pci_requests
        if requests is None or isinstance(
            requests, (frozenset, set, list, tuple)
        ):
            return frozenset(requests or ())
        return frozenset(
            request_id
            for request in field_of(requests, "requests", ())
            if (request_id := field_of(request, "request_id"))
            and field_of(request, "source", 0) != _NEUTRON_PORT
        )


def _new_parts(
    server_exists: bool,  # noqa: FBT001
    is_rebuild: bool,  # noqa: FBT001
    has_new_flavor: bool,  # noqa: FBT001
) -> tuple[str, ...]:
    """Return the prefixes of the sources that are new in a request.

    The server, if it exists, has not lived with them.
    """
    if is_rebuild:
        return ("image ", "an image ", "by os_distro=")
    if not server_exists:
        return ("",)
    return ("flavor ",) if has_new_flavor else ()


def cached_per_request(
    function: Callable[[Request], _Found],
) -> Callable[[Request], _Found]:
    """Cache the function's result on the request; None is not cached."""

    @wraps(function)
    def find(request: Request) -> _Found:
        found: _Found | None = request.cache.get(find)
        if found is None:
            found = request.cache[find] = function(request)
        return found

    return find


def _check_suffix(source: str, suffix: object) -> None:
    if suffix in (ROOT, UNSUFFIXED):
        raise MalformedRequest(
            source, suffix, "free to use: it names a scope here"
        )


def _read_only_group(group: Any) -> RequestGroup:
    suffix = field_of(group, "requester_id")
    required = field_of(group, "required_traits", ())
    forbidden = field_of(group, "forbidden_traits", ())
    for trait in (*required, *forbidden):
        if not is_trait_name(trait):
            raise MalformedRequest(
                f"request group {quote(suffix)}",
                trait,
                "a trait name of A-Z, 0-9 and _",
            )
    aggregates = field_of(group, "aggregates", ())
    forbidden_aggregates = field_of(group, "forbidden_aggregates", ())
    return RequestGroup(
        suffix,
        MappingProxyType(field_of(group, "resources", {})),
        frozenset(required),
        frozenset(forbidden),
        tuple(map(tuple, aggregates)),
        frozenset(forbidden_aggregates),
        field_of(group, "in_tree"),
    )


def _with_current_names(properties: Mapping[str, object]) -> dict[str, object]:
    current = {
        LEGACY_NAMES[key]: value
        for key, value in properties.items()
        if key in LEGACY_NAMES
    }
    adapter = properties.get(_VMWARE_ADAPTER)
    if adapter:
        current["hw_disk_bus"] = "ide" if adapter == "ide" else "scsi"
        if adapter != "ide":
            current["hw_scsi_model"] = adapter
    # A current name that is null says nothing; any other wins.
    return current | {
        key: value for key, value in properties.items() if value is not None
    }
