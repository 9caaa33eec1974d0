"""Snapshots: a fleet as one file, with or without its names."""

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from os_prefilter.common.errors import DocumentError
from os_prefilter.fleet.model import Aggregate, Fleet, Inventory, Provider, aggregate_uuid, provider_uuid, uuid_in
from os_prefilter.fleet.reader import MAX_BYTES

_AMOUNTS = [each.name for each in fields(Inventory)]


def snapshot(fleet: Fleet) -> str:
    """Return a fleet as JSON, one line a host, which :func:`os_prefilter.fleet.reader.load_fleet` reads.

    :raises DocumentError: the file would be larger than what is read, or two aggregates share a name
    """
    parts = [f"{_json(name)}: {_json(value)}" for name, value in _head(fleet)]
    names = {each.uuid: each.name for each in fleet.aggregates.values() if not uuid_in(each.name)}
    hosts = [f"{_json(host.name)}: {_json(_provider(host, names))}" for host in fleet.hosts]
    parts.append('"hosts": {\n' + ",\n".join(hosts) + "\n}")
    text = "{\n" + ",\n".join(parts) + "\n}\n"
    if len(text.encode()) > MAX_BYTES:
        raise DocumentError("the snapshot", f"it would exceed {MAX_BYTES >> 20} MiB, the limit for reading it.")
    return text


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _head(fleet: Fleet) -> Iterator[tuple[str, object]]:
    if fleet.taken_at:
        yield "taken_at", fleet.taken_at
    if not fleet.has_inventories:
        yield "has_inventories", False
    if fleet.changed_while_read:
        yield "changed_while_read", fleet.changed_while_read
    if fleet.aggregates:
        named = {each.name: _aggregate(each) for each in fleet.aggregates.values()}
        if len(named) < len(fleet.aggregates):
            raise DocumentError("the snapshot", "two aggregates have the same name; rename one of them.")
        yield "aggregates", named


def _aggregate(aggregate: Aggregate) -> dict[str, Any]:
    own: dict[str, Any] = {} if aggregate.uuid == aggregate_uuid(aggregate.name) else {"uuid": aggregate.uuid}
    own |= {"availability_zone": aggregate.availability_zone} if aggregate.availability_zone else {}
    return own | ({"metadata": dict(aggregate.metadata)} if aggregate.metadata else {})


def _provider(provider: Provider, names: dict[str, str]) -> dict[str, Any]:
    """Return the fields that differ from the defaults."""
    document = {
        "uuid": provider.uuid if provider.uuid != provider_uuid(provider.name) else "",
        "description": provider.description,
        "resources": {name: _inventory(inventory) for name, inventory in provider.resources.items()},
        "traits": sorted(provider.traits),
        "aggregates": [names.get(uuid, uuid) for uuid in provider.aggregates],
        "providers": {child.name: _provider(child, names) for child in provider.providers},
    }
    return {key: value for key, value in document.items() if value}


def _inventory(inventory: Inventory) -> int | dict[str, Any]:
    usual = Inventory(inventory.total)
    amounts = {name: getattr(inventory, name) for name in _AMOUNTS}
    own = {name: amount for name, amount in amounts.items() if amount != getattr(usual, name)}
    return {"total": inventory.total, **own} if own else inventory.total


def anonymous(fleet: Fleet) -> Fleet:
    """Return a fleet whose hosts, providers, aggregates and zones are named ``host-1`` and so on.

    UUIDs are replaced; descriptions, and which tenants an aggregate is for, are left out. Traits, resource classes and
    amounts stay, with whatever the names of ``CUSTOM_`` ones reveal.
    """
    new_uuids = _anonymous_aggregates(fleet)
    zones: dict[str, str] = {}
    aggregates = {}
    for number, old in enumerate(fleet.aggregates.values(), 1):
        zone = old.availability_zone
        if zone:
            zone = zones.setdefault(zone, f"zone-{len(zones) + 1}")
        # Not the projects of tenants.
        metadata = {key: value for key, value in old.metadata.items() if key.startswith("trait:")}
        aggregates[new_uuids[old.uuid]] = Aggregate(new_uuids[old.uuid], f"aggregate-{number}", zone, metadata)
    sharing = {host.uuid for host in fleet.hosts} - {host.uuid for host in fleet.instance_hosts}
    hosts = []
    count = {"host": 0, "sharing": 0}
    for host in fleet.hosts:
        kind = "sharing" if host.uuid in sharing else "host"
        count[kind] += 1
        name = f"{kind}-{count[kind]}"
        below = (f"{name}-provider-{number}" for number, _ in enumerate(host.walk(), 1))
        hosts.append(_rename(host, name, below, new_uuids))
    return replace(fleet, hosts=tuple(hosts), aggregates=aggregates)


def _anonymous_aggregates(fleet: Fleet) -> dict[str, str]:
    """Return the new UUID of each aggregate: first of those that have names, then of the others."""
    named = list(fleet.aggregates)
    unnamed = {uuid for provider in fleet.walk() for uuid in provider.aggregates} - set(named)
    return {uuid: aggregate_uuid(f"aggregate-{number}") for number, uuid in enumerate((*named, *sorted(unnamed)), 1)}


def _rename(provider: Provider, name: str, names: Iterator[str], aggregates: dict[str, str]) -> Provider:
    return replace(
        provider,
        name=name,
        uuid=provider_uuid(name),
        description="",
        aggregates=tuple(aggregates[uuid] for uuid in provider.aggregates),
        providers=tuple(_rename(child, next(names), names, aggregates) for child in provider.providers),
    )
