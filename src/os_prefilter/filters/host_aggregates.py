# SPDX-License-Identifier: Apache-2.0

"""Host aggregates of a deployment: the value of the fact ``aggregates``.

Their metadata says which requests they are reserved for.

The metadata has Nova's meaning (``nova/scheduler/request_filter.py``):
``availability_zone=NAME``, ``filter_tenant_id=PROJECT`` with any further text
after the key, and ``trait:NAME=required``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from os_prefilter.common.errors import UnusableFact
from os_prefilter.common.placement_values import is_uuid
from os_prefilter.common.quoting import escape_line, quote, shorten
from os_prefilter.request.filter_contract import UNKNOWN

FACT = "aggregates"
"""The name of the fact."""

_ZONE = "availability_zone"
_TENANT = "filter_tenant_id"
_TRAIT = "trait:"
_REQUIRED = "required"
_MOST_NAMES = 5
_ADVICE = "Correct what the service passes as facts={'aggregates': callable}."


class Isolated(NamedTuple):
    """An aggregate reserved for requests that require certain traits."""

    uuid: str
    traits: frozenset[str]


@dataclass(frozen=True)
class HostAggregates:
    """The UUIDs of aggregates by what their metadata says."""

    names: Mapping[str, str] = field(default_factory=dict)
    """UUID -> name, of all."""
    by_zone: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Availability zone -> its aggregates."""
    by_tenant: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Project ID -> the aggregates that are for it."""
    isolated: tuple[Isolated, ...] = ()

    def __repr__(self) -> str:
        return (
            f"<{len(self.names)} aggregates: {len(self.by_zone)} zones,"
            f" {len(self.by_tenant)} tenants, {len(self.isolated)} isolated>"
        )

    @classmethod
    def of(cls, aggregates: Any) -> HostAggregates:
        """Return the aggregates that a service gives.

        :param aggregates: objects or mappings, each with ``uuid``, ``name``,
            and ``metadata`` (a mapping of strings) or ``availability_zone`` or
            both, as Nova's API and its objects have them; or what this
            returned before
        :raises UnusableFact: if it is not known, or one of them is malformed
        """
        if isinstance(aggregates, cls):
            return aggregates
        if aggregates is None or aggregates is UNKNOWN:
            raise UnusableFact(
                FACT,
                "is not known yet",
                "Check the warning in the log about reading it.",
            )
        if isinstance(aggregates, (str, bytes, Mapping)) or not isinstance(
            aggregates, Iterable
        ):
            raise UnusableFact(
                FACT,
                f"is {quote(aggregates)}, not a sequence of aggregates",
                _ADVICE,
            )
        names: dict[str, str] = {}
        zones: dict[str, dict[str, None]] = {}
        tenants: dict[str, dict[str, None]] = {}
        isolated: list[Isolated] = []
        for number, each in enumerate(aggregates, 1):
            uuid, name, metadata = _read(each, number)
            names[uuid] = name
            if zone := metadata.get(_ZONE):
                zones.setdefault(zone, {})[uuid] = None
            for key, value in metadata.items():
                if key.startswith(_TENANT):
                    tenants.setdefault(value, {})[uuid] = None
            traits = frozenset(
                key[len(_TRAIT) :]
                for key, value in metadata.items()
                if key.startswith(_TRAIT) and value == _REQUIRED
            )
            if traits:
                isolated.append(Isolated(uuid, traits))
        return cls(
            MappingProxyType(names),
            _frozen(zones),
            _frozen(tenants),
            tuple(sorted(isolated)),
        )

    def describe(self, uuids: Iterable[str]) -> str:
        """Name aggregates for the operator: ``aggregates rack-1, rack-2``."""
        names = sorted(escape_line(self.names[uuid]) for uuid in uuids)
        word = "aggregates" if len(names) > 1 else "aggregate"
        return f"{word} {', '.join(shorten(names, _MOST_NAMES))}"


def _frozen(
    uuids: Mapping[str, Iterable[str]],
) -> Mapping[str, tuple[str, ...]]:
    return MappingProxyType(
        {name: tuple(sorted(each)) for name, each in uuids.items()}
    )


def _read(each: Any, number: int) -> tuple[str, str, dict[str, str]]:
    """Return the UUID, the name and the metadata of an aggregate.

    :raises UnusableFact: if one is malformed
    """

    def value_of(name: str) -> Any:
        return (
            each.get(name)
            if isinstance(each, Mapping)
            else getattr(each, name, None)
        )

    def check(is_valid: bool, name: str, value: object, expected: str) -> None:  # noqa: FBT001
        if not is_valid:
            raise UnusableFact(
                FACT,
                f"has {name} {quote(value)} in its aggregate {number}, not"
                f" {expected}",
                _ADVICE,
            )

    uuid, name, metadata, zone = map(
        value_of, ("uuid", "name", "metadata", _ZONE)
    )
    check(is_uuid(uuid), "uuid", uuid, "the UUID of an aggregate")
    check(isinstance(name, str), "name", name, "a name")
    check(
        metadata is None or isinstance(metadata, Mapping),
        "metadata",
        metadata,
        "a mapping of strings",
    )
    check(zone is None or isinstance(zone, str), _ZONE, zone, "a name")
    found = dict(metadata or {})
    for key, value in found.items():
        check(isinstance(key, str), "metadata", key, "a string")
        check(
            isinstance(value, str),
            f"metadata {quote(key)} with",
            value,
            "a string",
        )
    if zone:
        found.setdefault(_ZONE, zone)
    return uuid, name, found
