"""The format of fleet files: YAML that people write by hand, and JSON, which is what a snapshot is written in.

::

    x-common: &common [COMPUTE_NODE, OWNER_NOVA]     # x-...: ignored, a place for anchors
    aggregates:
      rack-1: {availability_zone: north}
    hosts:
      kvm-1:
        description: "QEMU 8.2, libvirt 10.4"
        resources: {VCPU: {total: 32, used: 8}, MEMORY_MB: {total: 131072, reserved: 512, allocation_ratio: 1.5}}
        traits: [*common, HW_ARCH_X86_64]
        aggregates: [rack-1]
        providers:
          kvm-1_gpu: {resources: {VGPU: 4}, traits: [OWNER_NOVA]}

A file that begins with ``{`` is JSON. One with ``taken_at`` was read out of a live Placement: it may have traits and
resource classes that are newer than the installed packages, and amounts that only a live Placement has.
"""

from dataclasses import fields
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import os_resource_classes
import os_traits

from os_prefilter.common.quoting import quote
from os_prefilter.documents.files import read_bytes
from os_prefilter.documents.strict_json import parse_json
from os_prefilter.documents.strict_yaml import parse_yaml
from os_prefilter.fleet.model import (
    MAX_INT,
    Aggregate,
    Fleet,
    Inventory,
    Provider,
    aggregate_uuid,
    provider_uuid,
    uuid_in,
)
from os_prefilter.fleet.values import Values

MAX_LIST = 1_000
MAX_NESTING = 10

_AGGREGATE_KEYS = ("uuid", "availability_zone")
_INVENTORY_KEYS = tuple(each.name for each in fields(Inventory))
_PROVIDER_KEYS = ("uuid", "description", "resources", "traits", "aggregates", "providers")
_TOP_KEYS = ("hosts", "aggregates", "taken_at", "has_inventories", "changed_while_read")
_LOWEST = {"reserved": 0, "used": 0}


def load_fleet(path: str | Path) -> Fleet:
    """Read a fleet file: YAML written by hand, or the JSON of a snapshot.

    :raises DocumentError: with the place in the file, what was found there and what is expected
    """
    return parse_fleet(read_bytes(path), path)


def example_fleet() -> Fleet:
    """Return the fleet that comes with the library, for demonstrations and tests."""
    return parse_fleet((resources.files("os_prefilter") / "data" / "fleet.yaml").read_bytes(), "data/fleet.yaml")


def parse_fleet(data: bytes, path: object) -> Fleet:
    """Return the fleet in the content of a file; ``path`` names it in errors.

    :raises DocumentError: with the place in the file, what was found there and what is expected
    """
    is_json = data.removeprefix(b"\xef\xbb\xbf").startswith(b"{")
    return _Reader(path).fleet(parse_json(data, path) if is_json else parse_yaml(data, path))


class _Reader(Values):
    """Turns plain Python types into a Fleet; ``where`` is the dotted place in the file.

    What is equal is kept once: ten thousand hosts have a few sets of traits between them.
    """

    def __init__(self, path: object) -> None:
        super().__init__(path)
        self._names: dict[str, str] = {}
        self._uuids: dict[str, str] = {}
        self._aggregates: dict[str, Aggregate] = {}
        self._aggregate_uuids: dict[str, str] = {}
        self._is_snapshot = False
        self._traits: dict[str, str] = {name: name for name in os_traits.get_traits()}
        self._classes: dict[str, str] = {name: name for name in os_resource_classes.STANDARDS}
        self._trait_sets: dict[frozenset[str], frozenset[str]] = {}
        self._inventories: dict[tuple[object, ...], Inventory] = {}

    def fleet(self, document: object) -> Fleet:
        top = self.mapping("the file", document)
        for key in top:
            if key not in _TOP_KEYS and not key.startswith("x-"):
                raise self.problem(
                    "the file", f"the key {quote(key)}", f"{', '.join(_TOP_KEYS)}, or keys that start with 'x-'"
                )
        taken_at = self._time("taken_at", top.get("taken_at", ""))
        self._is_snapshot = bool(taken_at)
        for name, value in self.mapping("aggregates", top.get("aggregates", {})).items():
            self._known_aggregate(name, value)
        hosts = self._providers("hosts", top.get("hosts"), depth=1)
        if not hosts and not self._is_snapshot:
            raise self.problem("hosts", "an empty mapping", "at least one host")
        return Fleet(
            hosts,
            taken_at,
            {each.uuid: each for each in self._aggregates.values()},
            self.flag("has_inventories", top.get("has_inventories", True)),
            self.integer("changed_while_read", top.get("changed_while_read", 0), 0),
        )

    def _time(self, where: str, value: object) -> str:
        try:
            if value == "" or (
                isinstance(value, str) and datetime.fromisoformat(value).utcoffset() == UTC.utcoffset(None)
            ):
                return str(value)
        except ValueError:
            pass
        raise self.problem(where, quote(value), "a time in UTC as text, such as '2026-11-21T18:00:00Z'")

    def _known_aggregate(self, name: str, value: object) -> None:
        where = f"aggregates.{self.label('aggregates', name)}"
        body = self.mapping(where, value, _AGGREGATE_KEYS)
        uuid = self.uuid(f"{where}.uuid", body["uuid"]) if "uuid" in body else aggregate_uuid(name)
        zone = (
            self.label(f"{where}.availability_zone", body["availability_zone"]) if "availability_zone" in body else ""
        )
        for other in self._aggregates.values():
            if other.uuid == uuid:
                raise self.problem(where, f"the UUID of {quote(other.name)}", "another for each aggregate")
        self._aggregates[name] = Aggregate(uuid, name, zone)

    def _aggregate(self, where: str, value: object) -> str:
        """Return the UUID of an aggregate; a name that is new is noted, so that it is not lost."""
        name = self.label(where, value)
        if name not in self._aggregate_uuids:
            if not uuid_in(name) and name not in self._aggregates:
                self._aggregates[name] = Aggregate(aggregate_uuid(name), name)
            self._aggregate_uuids[name] = uuid_in(name) or self._aggregates[name].uuid
        return self._aggregate_uuids[name]

    def _providers(self, where: str, value: object, depth: int) -> tuple[Provider, ...]:
        if depth > MAX_NESTING:
            raise self.problem(where, f"level {depth} of providers", f"at most {MAX_NESTING} levels")
        return tuple(self._provider(where, *item, depth) for item in self.mapping(where, value).items())

    def _provider(self, parent: str, name: str, value: object, depth: int) -> Provider:
        where = f"{parent}.{self.name(parent, name)}"
        self._check_unique(where, "name", name, self._names)
        body = self.mapping(where, value, _PROVIDER_KEYS)
        uuid = self.uuid(f"{where}.uuid", body["uuid"]) if "uuid" in body else provider_uuid(name)
        self._check_unique(where, "UUID", uuid, self._uuids)
        aggregates = self.strings(f"{where}.aggregates", body.get("aggregates", []), self._aggregate, MAX_LIST)
        return Provider(
            name=name,
            uuid=uuid,
            resources=self._resources(f"{where}.resources", body.get("resources", {})),
            traits=self._trait_set(f"{where}.traits", body.get("traits", [])),
            aggregates=tuple(dict.fromkeys(aggregates)),
            providers=self._providers(f"{where}.providers", body.get("providers", {}), depth + 1),
            description=self.text(f"{where}.description", body.get("description", "")),
        )

    def _check_unique(self, where: str, kind: str, value: str, taken: dict[str, str]) -> None:
        if value in taken:
            raise self.problem(where, f"a {kind} that {taken[value]} has too", f"{kind}s unique over the whole fleet")
        taken[value] = where

    def _trait_set(self, where: str, value: object) -> frozenset[str]:
        found = frozenset(self.strings(where, value, self._trait, MAX_LIST, self._traits))
        return self._trait_sets.setdefault(found, found)

    def _trait(self, where: str, value: object) -> str:
        return self.symbol(where, value, self._traits, "trait", "" if self._is_snapshot else "os-traits")

    def _class(self, where: str, value: object) -> str:
        package = "" if self._is_snapshot else "os-resource-classes"
        return self.symbol(where, value, self._classes, "resource class", package)

    def _resources(self, where: str, value: object) -> dict[str, Inventory]:
        return {
            self._class(where, name): self._known_inventory(f"{where}.{name}", inventory)
            for name, inventory in self.mapping(where, value).items()
        }

    def _known_inventory(self, where: str, value: object) -> Inventory:
        # With the types: 1, 1.0 and true are equal, and not all right.
        as_read = (*value.items(), *map(type, value.values())) if isinstance(value, dict) else (value, type(value))
        try:
            known = self._inventories.get(as_read)
        except TypeError:
            # A list, say: the error has words for it.
            return self._inventory(where, value)
        return known or self._inventories.setdefault(as_read, self._inventory(where, value))

    def _inventory(self, where: str, value: object) -> Inventory:
        if not isinstance(value, dict):
            return Inventory(self.integer(where, value, 1, "or a mapping with 'total'"))
        body = self.mapping(where, value, _INVENTORY_KEYS)
        if "total" not in body:
            raise self.problem(where, "no 'total'", "a mapping with 'total'")
        ratio = self._ratio(f"{where}.allocation_ratio", body.pop("allocation_ratio", 1.0))
        numbers = {key: self.integer(f"{where}.{key}", number, _LOWEST.get(key, 1)) for key, number in body.items()}
        inventory = Inventory(**numbers, allocation_ratio=ratio)
        # Placement takes both; whoever writes them by hand has made a mistake.
        for small, large in () if self._is_snapshot else (("reserved", "total"), ("min_unit", "max_unit")):
            if getattr(inventory, small) > getattr(inventory, large):
                found = f"{small} {getattr(inventory, small)} above {large} {getattr(inventory, large)}"
                raise self.problem(where, found, f"{small} up to {large}")
        return inventory

    def _ratio(self, where: str, value: Any) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= MAX_INT or not (value or self._is_snapshot):
            raise self.problem(where, quote(value), "a number above 0")
        return float(value)
