"""Snapshots: a fleet as one file, with or without its names."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.trait_names import is_trait_name
from os_prefilter_tools.fleet.model import Aggregate, Fleet, Inventory, Provider, aggregate_uuid, provider_uuid, uuid_in
from os_prefilter_tools.fleet.reader import MAX_BYTES

_AMOUNTS = [each.name for each in fields(Inventory)]
# The metadata of aggregates that request filters read.
_ZONE, _TENANT, _TRAIT, _REQUIRED = "availability_zone", "filter_tenant_id", "trait:", "required"


def snapshot(fleet: Fleet) -> str:
    """Return a fleet as JSON, one line a host, which :func:`os_prefilter_tools.fleet.reader.load_fleet` reads.

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
    """Return a fleet whose hosts, providers, aggregates, zones and projects are named ``host-1`` and so on.

    UUIDs are replaced, and descriptions are left out. Traits, resource classes and amounts stay, with whatever the
    names of ``CUSTOM_`` ones reveal. Requests have the same candidates as before, under the names that
    :func:`pseudonyms` returns.
    """
    # First of the aggregates that have names, then of the others.
    unnamed = {uuid for provider in fleet.walk() for uuid in provider.aggregates} - fleet.aggregates.keys()
    every = enumerate((*fleet.aggregates, *sorted(unnamed)), 1)
    new_uuids = {uuid: aggregate_uuid(f"aggregate-{number}") for number, uuid in every}
    zones, projects = pseudonyms(fleet)
    aggregates = {}
    for number, old in enumerate(fleet.aggregates.values(), 1):
        zone = zones.get(old.availability_zone, "")
        metadata = _anonymous_metadata(old.metadata, zones, projects)
        aggregates[new_uuids[old.uuid]] = Aggregate(new_uuids[old.uuid], f"aggregate-{number}", zone, metadata)
    instance_hosts = {host.uuid for host in fleet.instance_hosts}
    hosts = []
    count: Counter[str] = Counter()
    for host in fleet.hosts:
        kind = "host" if host.uuid in instance_hosts else "sharing"
        count[kind] += 1
        name = f"{kind}-{count[kind]}"
        below = (f"{name}-provider-{number}" for number, _ in enumerate(host.walk(), 1))
        hosts.append(_rename(host, name, below, new_uuids))
    return replace(fleet, hosts=tuple(hosts), aggregates=aggregates)


def pseudonyms(fleet: Fleet) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names of availability zones in the anonymous fleet, by the old ones, and those of projects."""
    zones: dict[str, None] = {}
    projects: dict[str, None] = {}
    for each in fleet.aggregates.values():
        zones |= dict.fromkeys(filter(None, (each.availability_zone, each.metadata.get(_ZONE))))
        projects |= {value: None for key, value in each.metadata.items() if key.startswith(_TENANT) and value}
    new_zones = {old: f"zone-{number}" for number, old in enumerate(zones, 1)}
    return new_zones, {old: f"project-{number}" for number, old in enumerate(projects, 1)}


def _anonymous_metadata(
    metadata: Mapping[str, str], zones: Mapping[str, str], projects: Mapping[str, str]
) -> dict[str, str]:
    """Return the metadata that request filters read, without text of the operator's."""
    found = {_ZONE: zones.get(metadata[_ZONE], "")} if _ZONE in metadata else {}
    # Any text may follow the key.
    tenants = dict.fromkeys(projects.get(value, "") for key, value in metadata.items() if key.startswith(_TENANT))
    found |= {f"{_TENANT}{number}" if number > 1 else _TENANT: value for number, value in enumerate(tenants, 1)}
    required = [
        key.removeprefix(_TRAIT) for key, value in metadata.items() if key.startswith(_TRAIT) and value == _REQUIRED
    ]
    # What is not the name of a trait cannot be required, and so closes the aggregate.
    found |= {f"{_TRAIT}{name if is_trait_name(name) else 'no trait'}": _REQUIRED for name in required}
    return found


def _rename(provider: Provider, name: str, names: Iterator[str], aggregates: dict[str, str]) -> Provider:
    return replace(
        provider,
        name=name,
        uuid=provider_uuid(name),
        description="",
        aggregates=tuple(aggregates[uuid] for uuid in provider.aggregates),
        providers=tuple(_rename(child, next(names), names, aggregates) for child in provider.providers),
    )
