# SPDX-License-Identifier: Apache-2.0

"""Reader of fleet files: YAML written by hand, or the JSON of a snapshot.

::

    # x-...: ignored, a place for anchors
    x-common: &common [COMPUTE_NODE, OWNER_NOVA]
    aggregates:
      rack-1: {availability_zone: north}
    hosts:
      kvm-1:
        description: "QEMU 8.2, libvirt 10.4"
        resources:
          VCPU: {total: 32, used: 8}
          MEMORY_MB: {total: 131072, reserved: 512, allocation_ratio: 1.5}
        traits: [*common, HW_ARCH_X86_64]
        aggregates: [rack-1]
        providers:
          kvm-1_gpu: {resources: {VGPU: 4}, traits: [OWNER_NOVA]}

A file that begins with ``{`` is JSON. One with ``taken_at`` was read from a
live Placement: it may have traits and resource classes newer than the
installed packages, and amounts that only a live Placement has.

The checks are written by hand: jsonschema takes 42 s for 10,000 hosts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from importlib import resources
from itertools import count
from pathlib import Path
from typing import Any

import os_resource_classes

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import quote
from os_prefilter.common.trait_names import standard_traits
from os_prefilter.documents.files import read_bytes
from os_prefilter.documents.strict_json import parse_json
from os_prefilter.documents.strict_yaml import parse_yaml
from os_prefilter_tools.fleet import model

MAX_BYTES = 256 * 1024 * 1024
"""The most that is read of a file.

A fleet of 50,000 hosts with 90 traits each is about half of it.
"""
MAX_LIST = 1_000
MAX_NESTING = 10
MAX_NAME = 200
"""The longest name of a provider in Placement."""
MAX_LABEL = 255
"""The longest name of an aggregate or a zone in Nova."""

_AGGREGATE_KEYS = ("uuid", "availability_zone", "metadata")
_INVENTORY_KEYS = tuple(each.name for each in fields(model.Inventory))
_PROVIDER_KEYS = (
    "uuid",
    "description",
    "resources",
    "traits",
    "aggregates",
    "providers",
)
_TOP_KEYS = ("hosts", "aggregates", "taken_at", "changed_while_read")
_LOWEST = {"reserved": 0, "used": 0}
_SYMBOL = re.compile(r"[A-Z0-9_]{1,255}")


def load_fleet(path: str | Path) -> model.Fleet:
    """Read a fleet file.

    :raises DocumentError: with the place in the file, what was found there and
        what is expected
    """
    return parse_fleet(read_bytes(path, MAX_BYTES), path)


def example_fleet() -> model.Fleet:
    """Return the bundled fleet, for demonstrations and tests."""
    return parse_fleet(
        (
            resources.files("os_prefilter_tools") / "data" / "fleet.yaml"
        ).read_bytes(),
        "data/fleet.yaml",
    )


def parse_fleet(data: bytes, path: object) -> model.Fleet:
    """Return the fleet in the content of a file; ``path`` names it in errors.

    :raises DocumentError: with the place in the file, what was found there and
        what is expected
    """
    is_json = data.removeprefix(b"\xef\xbb\xbf").startswith(b"{")
    return _Reader(path).fleet(
        parse_json(data, path) if is_json else parse_yaml(data, path)
    )


class _Reader:
    """Turns plain Python types into a Fleet.

    ``where`` is the dotted place in the file.

    Equal values are kept once: ten thousand hosts have a few different sets of
    traits and inventories.
    """

    def __init__(self, path: object) -> None:
        self._path = path
        self._names: dict[str, str] = {}
        self._uuids: dict[str, str] = {}
        self._aggregates: dict[str, model.Aggregate] = {}
        self._uuids_of_aggregates: dict[str, str] = {}
        self._is_snapshot = False
        self._traits: dict[str, str] = {
            name: name for name in standard_traits()
        }
        self._classes: dict[str, str] = {
            name: name for name in os_resource_classes.STANDARDS
        }
        self._trait_sets: dict[frozenset[str], frozenset[str]] = {}
        self._inventories: dict[model.Inventory, model.Inventory] = {}

    def fleet(self, document: object) -> model.Fleet:
        if document is None:
            raise DocumentError(
                self._path,
                "the file is empty; expected hosts. 'os-prefilter snapshot'"
                " writes such a file.",
            )
        top = self._mapping("the file", document)
        for key in top:
            if key not in _TOP_KEYS and not key.startswith("x-"):
                expected = (
                    f"{', '.join(_TOP_KEYS)}, or keys that start with 'x-'"
                )
                raise self._problem(
                    "the file", f"the key {quote(key)}", expected
                )
        taken_at = (
            self._name("taken_at", top["taken_at"])
            if top.get("taken_at")
            else ""
        )
        self._is_snapshot = bool(taken_at)
        for name, value in self._mapping(
            "aggregates", top.get("aggregates", {})
        ).items():
            self._define_aggregate(name, value)
        hosts = self._providers("hosts", top.get("hosts"), depth=1)
        if not hosts and not self._is_snapshot:
            raise self._problem(
                "hosts", "an empty mapping", "at least one host"
            )
        return model.Fleet(
            hosts,
            taken_at,
            {each.uuid: each for each in self._aggregates.values()},
            changed_while_read=self._integer(
                "changed_while_read", top.get("changed_while_read", 0), 0
            ),
        )

    def _define_aggregate(self, name: str, value: object) -> None:
        where = f"aggregates.{self._name('aggregates', name, MAX_LABEL)}"
        body = self._mapping(where, value, _AGGREGATE_KEYS)
        uuid = self._uuid_of(where, body, model.aggregate_uuid(name))
        zone = body.get("availability_zone", "")
        if "availability_zone" in body:
            self._name(f"{where}.availability_zone", zone, MAX_LABEL)
        self._check_unique(where, "UUID", uuid, self._uuids_of_aggregates)
        metadata = self._mapping(f"{where}.metadata", body.get("metadata", {}))
        for key, text in metadata.items():
            key_name = self._name(f"{where}.metadata", key, MAX_LABEL)
            self._text(f"{where}.metadata.{key_name}", text)
        self._aggregates[name] = model.Aggregate(
            uuid, name, zone, dict(metadata)
        )

    def _aggregate(self, where: str, value: object) -> str:
        """Return the UUID of an aggregate; keep the name if it is new."""
        name = self._name(where, value, MAX_LABEL)
        if uuid := model.uuid_in(name):
            return uuid
        if name not in self._aggregates:
            self._aggregates[name] = model.Aggregate(
                model.aggregate_uuid(name), name
            )
        return self._aggregates[name].uuid

    def _providers(
        self, where: str, value: object, depth: int
    ) -> tuple[model.Provider, ...]:
        if depth > MAX_NESTING:
            raise self._problem(
                where,
                f"level {depth} of providers",
                f"at most {MAX_NESTING} levels",
            )
        providers = self._mapping(where, value).items()
        return tuple(self._provider(where, *each, depth) for each in providers)

    def _provider(
        self, parent: str, name: str, document: object, depth: int
    ) -> model.Provider:
        where = f"{parent}.{self._name(parent, name)}"
        self._check_unique(where, "name", name, self._names)
        body = self._mapping(where, document, _PROVIDER_KEYS)
        uuid = self._uuid_of(where, body, model.provider_uuid(name))
        self._check_unique(where, "UUID", uuid, self._uuids)
        aggregates = self._strings(
            f"{where}.aggregates", body.get("aggregates", []), self._aggregate
        )
        place = f"{where}.resources"
        inventories = {}
        for each, value in self._mapping(
            place, body.get("resources", {})
        ).items():
            resource_class = self._class(place, each)
            inventory = self._inventory(f"{place}.{each}", value)
            inventories[resource_class] = inventory
        names = self._strings(
            f"{where}.traits",
            body.get("traits", []),
            self._trait,
            self._traits,
        )
        traits = frozenset(names)
        providers = self._providers(
            f"{where}.providers", body.get("providers", {}), depth + 1
        )
        description = self._text(
            f"{where}.description", body.get("description", "")
        )
        return model.Provider(
            name,
            uuid,
            inventories,
            self._trait_sets.setdefault(traits, traits),
            tuple(dict.fromkeys(aggregates)),
            providers,
            description,
        )

    def _check_unique(
        self, where: str, kind: str, value: str, taken: dict[str, str]
    ) -> None:
        if value in taken:
            raise self._problem(
                where,
                f"a {kind} that {taken[value]} has too",
                f"{kind}s unique over the whole fleet",
            )
        taken[value] = where

    def _inventory(self, where: str, value: object) -> model.Inventory:
        if not isinstance(value, dict):
            inventory = model.Inventory(
                self._integer(where, value, 1, "or a mapping with 'total'")
            )
            return self._inventories.setdefault(inventory, inventory)
        body = self._mapping(where, value, _INVENTORY_KEYS)
        if "total" not in body:
            raise self._problem(where, "no 'total'", "a mapping with 'total'")
        ratio = self._ratio(
            f"{where}.allocation_ratio", body.pop("allocation_ratio", 1.0)
        )
        numbers = {
            key: self._integer(f"{where}.{key}", number, _LOWEST.get(key, 1))
            for key, number in body.items()
        }
        inventory = model.Inventory(**numbers, allocation_ratio=ratio)
        # Placement accepts both; in a file written by hand it is a mistake.
        for small, large in (
            ()
            if self._is_snapshot
            else (("reserved", "total"), ("min_unit", "max_unit"))
        ):
            if getattr(inventory, small) > getattr(inventory, large):
                found = (
                    f"{small} {getattr(inventory, small)} above {large}"
                    f" {getattr(inventory, large)}"
                )
                raise self._problem(where, found, f"{small} up to {large}")
        return self._inventories.setdefault(inventory, inventory)

    # -- single values
    # -------------------------------------------------------------------------

    def _problem(self, where: str, found: str, expected: str) -> DocumentError:
        return DocumentError(
            self._path, f"{where}: found {found}; expected {expected}."
        )

    def _mapping(
        self, where: str, value: object, known: tuple[str, ...] | None = None
    ) -> dict[str, Any]:
        """Return a mapping with string keys, each among ``known`` if given."""
        if not isinstance(value, dict):
            raise self._problem(where, quote(value), "a mapping")
        for key in value:
            if not isinstance(key, str):
                raise self._problem(
                    where,
                    f"the key {quote(key)}",
                    "keys that are strings; quote it",
                )
            if known is not None and key not in known:
                raise self._problem(
                    where,
                    f"the unknown key {quote(key)}",
                    f"keys out of {', '.join(known)}",
                )
        return dict(value)

    def _strings(
        self,
        where: str,
        value: object,
        check: Callable[[str, object], str],
        checked: dict[str, str] | None = None,
    ) -> list[str]:
        """Read a list of strings; a list in it stands for its members.

        The inner one is usually an alias.

        :param checked: strings that ``check`` has accepted already, and the
            ones to return for them
        """
        if not isinstance(value, list):
            raise self._problem(where, quote(value), "a list of strings")
        # Nearly all lists of a large file have nothing new.
        with suppress(KeyError, TypeError):
            return [(checked or {})[item] for item in value]
        found: list[str] = []
        for index, item in enumerate(value):
            at = f"{where}[{index}]"
            if isinstance(item, list):
                found += map(check, (f"{at}[{i}]" for i in count()), item)
            else:
                found.append(check(at, item))
            if len(found) > MAX_LIST:
                raise self._problem(
                    where, f"{len(found)} entries", f"at most {MAX_LIST}"
                )
        return found

    def _trait(self, where: str, value: object) -> str:
        return self._symbol(where, value, self._traits, "trait", "os-traits")

    def _class(self, where: str, value: object) -> str:
        return self._symbol(
            where,
            value,
            self._classes,
            "resource class",
            "os-resource-classes",
        )

    def _symbol(
        self,
        where: str,
        value: object,
        known: dict[str, str],
        kind: str,
        package: str,
    ) -> str:
        """Return a trait or resource class, and add it to ``known``."""
        if isinstance(value, str) and value in known:
            return known[value]
        if not isinstance(value, str) or not _SYMBOL.fullmatch(value):
            raise self._problem(
                where,
                quote(value),
                f"the name of a {kind}: 1 to 255 of A-Z, 0-9 and _",
            )
        if value == "CUSTOM_" or not (
            self._is_snapshot or value.startswith("CUSTOM_")
        ):
            expected = (
                f"a {kind} that the installed {package} knows, or a name that"
                " starts with CUSTOM_"
            )
            raise self._problem(where, quote(value), expected)
        return known.setdefault(value, value)

    def _integer(
        self, where: str, value: object, low: int, alternative: str = ""
    ) -> int:
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not low <= value <= model.MAX_INT
        ):
            expected = f"an integer from {low} to {model.MAX_INT}"
            if alternative:
                expected = f"{expected} {alternative}"
            raise self._problem(where, quote(value), expected)
        return value

    def _ratio(self, where: str, value: Any) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(
            value, bool
        )
        if (
            not is_number
            or not 0 <= value <= model.MAX_INT
            or not (value or self._is_snapshot)
        ):
            raise self._problem(where, quote(value), "a number above 0")
        return float(value)

    def _name(self, where: str, value: object, most: int = MAX_NAME) -> str:
        if (
            not isinstance(value, str)
            or not 0 < len(value) <= most
            or not value.isprintable()
        ):
            raise self._problem(
                where,
                quote(value),
                f"a name of 1 to {most} printable characters",
            )
        return value

    def _uuid(self, where: str, value: object) -> str:
        found = model.uuid_in(value) if isinstance(value, str) else ""
        if not found:
            raise self._problem(where, quote(value), "a UUID")
        return found

    def _uuid_of(
        self, where: str, body: Mapping[str, object], default: str
    ) -> str:
        """Return the UUID in a mapping, or the default if it has none."""
        if "uuid" not in body:
            return default
        return self._uuid(f"{where}.uuid", body["uuid"])

    def _text(self, where: str, value: object) -> str:
        """Return text that can be written again: without lone surrogates."""
        if not isinstance(value, str) or any(
            "\ud800" <= character <= "\udfff" for character in value
        ):
            raise self._problem(where, quote(value), "text")
        return value
