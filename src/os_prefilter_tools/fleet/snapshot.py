# SPDX-License-Identifier: Apache-2.0

"""Snapshots: a fleet as one file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from os_prefilter.common.errors import DocumentError
from os_prefilter_tools.fleet.model import (
    Aggregate,
    Fleet,
    Inventory,
    Provider,
    aggregate_uuid,
    provider_uuid,
    uuid_in,
)
from os_prefilter_tools.fleet.reader import MAX_BYTES

_AMOUNTS = [each.name for each in fields(Inventory)]


def snapshot(fleet: Fleet) -> str:
    """Return a fleet as JSON, one line a host.

    :func:`os_prefilter_tools.fleet.reader.load_fleet` reads it.

    :raises DocumentError: the file would be larger than what is read, two
        aggregates share a name, or the fleet was read without inventories
    """
    parts = [f"{_json(name)}: {_json(value)}" for name, value in _head(fleet)]
    names = {
        each.uuid: each.name
        for each in fleet.aggregates.values()
        if not uuid_in(each.name)
    }
    hosts = [
        f"{_json(host.name)}: {_json(_provider(host, names))}"
        for host in fleet.hosts
    ]
    parts.append('"hosts": {\n' + ",\n".join(hosts) + "\n}")
    text = "{\n" + ",\n".join(parts) + "\n}\n"
    if len(text.encode()) > MAX_BYTES:
        raise DocumentError(
            "the snapshot",
            f"it would exceed {MAX_BYTES >> 20} MiB, the limit for"
            " reading it.",
        )
    return text


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _head(fleet: Fleet) -> Iterator[tuple[str, object]]:
    if fleet.taken_at:
        yield "taken_at", fleet.taken_at
    if not fleet.has_inventories:
        raise DocumentError(
            "the snapshot",
            "the fleet was read without inventories; read it with them.",
        )
    if fleet.changed_while_read:
        yield "changed_while_read", fleet.changed_while_read
    if fleet.aggregates:
        named = {
            each.name: _aggregate(each) for each in fleet.aggregates.values()
        }
        if len(named) < len(fleet.aggregates):
            raise DocumentError(
                "the snapshot",
                "two aggregates have the same name; rename one of them.",
            )
        yield "aggregates", named


def _aggregate(aggregate: Aggregate) -> dict[str, Any]:
    document = {
        "uuid": aggregate.uuid,
        "availability_zone": aggregate.availability_zone,
        "metadata": dict(aggregate.metadata),
    }
    return _without_defaults(document, aggregate_uuid(aggregate.name))


def _without_defaults(document: dict[str, Any], uuid: str) -> dict[str, Any]:
    """Return the fields that are not empty, nor the UUID made of a name."""
    return {
        key: value
        for key, value in document.items()
        if value and value != uuid
    }


def _provider(provider: Provider, names: dict[str, str]) -> dict[str, Any]:
    document = {
        "uuid": provider.uuid,
        "description": provider.description,
        "resources": {
            name: _inventory(inventory)
            for name, inventory in provider.resources.items()
        },
        "traits": sorted(provider.traits),
        "aggregates": [names.get(uuid, uuid) for uuid in provider.aggregates],
        "providers": {
            child.name: _provider(child, names) for child in provider.providers
        },
    }
    return _without_defaults(document, provider_uuid(provider.name))


def _inventory(inventory: Inventory) -> int | dict[str, Any]:
    usual = Inventory(inventory.total)
    if inventory == usual:
        return inventory.total
    document = {"total": inventory.total}
    for name in _AMOUNTS:
        amount = getattr(inventory, name)
        if amount != getattr(usual, name):
            document[name] = amount
    return document
