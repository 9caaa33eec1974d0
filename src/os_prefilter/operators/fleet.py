"""A fleet file: hosts with their inventories, traits and nested providers, written by people in YAML.

::

    x-common: &common [COMPUTE_NODE, OWNER_NOVA]     # x-...: ignored, a place for anchors
    hosts:
      kvm-1:
        description: "QEMU 8.2, libvirt 10.4"
        resources: {VCPU: 32, MEMORY_MB: {total: 131072, reserved: 512, allocation_ratio: 1.5}}
        traits: [*common, HW_ARCH_X86_64]
        aggregates: [rack-1]
        providers:
          kvm-1_gpu: {resources: {VGPU: 4}, traits: [OWNER_NOVA]}

The meaning and the limits of each field are Placement's (its API reference, "Update resource provider inventories").
"""

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import os_resource_classes
import os_traits

from os_prefilter.errors import DocumentError
from os_prefilter.texts import shown
from os_prefilter.yaml_document import parse_yaml, read_yaml

MAX_INT = 2_147_483_647
MAX_NAME = 200
MAX_LIST = 1_000
MAX_NESTING = 10

# Any fixed UUID does; it must never change, or a reloaded fleet would get other providers.
_NAMESPACE = uuid.UUID("4a1a4f0c-6a55-5d6b-9d0f-5c1d3f0f7a11")
_SYMBOL = re.compile(r"[A-Z0-9_]{1,255}")
_PROVIDER_KEYS = ("description", "resources", "traits", "aggregates", "providers")


@dataclass(frozen=True, slots=True)
class Inventory:
    """How much of one resource class a provider has, in the units of the class (``MEMORY_MB``: MiB)."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_INT
    step_size: int = 1
    allocation_ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class Provider:
    """A resource provider, the root of a tree (a host) or a node below one."""

    name: str
    uuid: str
    resources: Mapping[str, Inventory] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: tuple[str, ...] = ()  # UUIDs
    providers: "tuple[Provider, ...]" = ()
    description: str = ""

    def walk(self) -> "Iterator[Provider]":
        """Yield this provider and all below it, parents first."""
        yield self
        for child in self.providers:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Fleet:
    """Hosts, in the order of the file."""

    hosts: tuple[Provider, ...]

    def walk(self) -> Iterator[Provider]:
        """Yield every provider of every host, parents first."""
        for host in self.hosts:
            yield from host.walk()

    @property
    def traits(self) -> frozenset[str]:
        """Each trait that any provider has."""
        return frozenset().union(*(provider.traits for provider in self.walk()))

    @property
    def custom_traits(self) -> frozenset[str]:
        """Those of :attr:`traits` that Placement must be told of before they can be used."""
        return frozenset(trait for trait in self.traits if trait.startswith("CUSTOM_"))

    def every_compute_has(self, trait: str) -> bool:
        """Whether every compute node (``COMPUTE_NODE``) has ``trait`` on its root, and some host does."""
        nodes = [host for host in self.hosts if os_traits.COMPUTE_NODE in host.traits]
        return all(trait in host.traits for host in nodes) and any(trait in host.traits for host in self.hosts)

    @property
    def resource_classes(self) -> frozenset[str]:
        """Each resource class that any provider has."""
        return frozenset().union(*(provider.resources for provider in self.walk()))


def load_fleet(path: str | Path) -> Fleet:
    """Read a fleet file.

    :raises DocumentError: with the place in the file, what was found there and what is expected
    """
    return _Reader(path).fleet(read_yaml(path))


def example_fleet() -> Fleet:
    """Return the fleet that comes with the library, for demonstrations and tests."""
    data = (resources.files("os_prefilter") / "data" / "fleet.yaml").read_bytes()
    return _Reader("data/fleet.yaml").fleet(parse_yaml(data, "data/fleet.yaml"))


def provider_uuid(name: str) -> str:
    """Return the UUID that a provider of this name always gets."""
    return str(uuid.uuid5(_NAMESPACE, f"provider:{name}"))


def aggregate_uuid(name: str) -> str:
    """Return a UUID as it is, in its usual form; any other name gets one that is always the same."""
    try:
        return str(uuid.UUID(name))
    except ValueError:
        return str(uuid.uuid5(_NAMESPACE, f"aggregate:{name}"))


class _Reader:
    """Turns plain Python types into a Fleet; ``where`` is the dotted place in the file."""

    def __init__(self, path: object) -> None:
        self._path = path
        self._names: dict[str, str] = {}
        self._traits = frozenset(os_traits.get_traits())
        self._classes = frozenset(os_resource_classes.STANDARDS)

    def fleet(self, document: object) -> Fleet:
        top = self._mapping("the file", document)
        for key in top:
            if key != "hosts" and not key.startswith("x-"):
                raise self._problem("the file", f"the key {shown(key)}", "'hosts', and keys that start with 'x-'")
        hosts = self._providers("hosts", top.get("hosts"), depth=1)
        if not hosts:
            raise self._problem("hosts", "an empty mapping", "at least one host")
        return Fleet(hosts)

    def _providers(self, where: str, value: object, depth: int) -> tuple[Provider, ...]:
        if depth > MAX_NESTING:
            raise self._problem(where, f"level {depth} of providers", f"at most {MAX_NESTING} levels")
        return tuple(self._provider(where, *item, depth) for item in self._mapping(where, value).items())

    def _provider(self, parent: str, name: str, value: object, depth: int) -> Provider:
        where = f"{parent}.{self._name(parent, name)}"
        if name in self._names:
            raise self._problem(where, f"a name that {self._names[name]} has too", "names unique over the whole fleet")
        self._names[name] = where
        body = self._mapping(where, value, _PROVIDER_KEYS)
        return Provider(
            name=name,
            uuid=provider_uuid(name),
            resources=self._resources(f"{where}.resources", body.get("resources", {})),
            traits=frozenset(self._strings(f"{where}.traits", body.get("traits", []), self._trait)),
            aggregates=tuple(
                dict.fromkeys(
                    map(aggregate_uuid, self._strings(f"{where}.aggregates", body.get("aggregates", []), self._name))
                )
            ),
            providers=self._providers(f"{where}.providers", body.get("providers", {}), depth + 1),
            description=self._text(f"{where}.description", body.get("description", "")),
        )

    def _resources(self, where: str, value: object) -> dict[str, Inventory]:
        check = partial(self._symbol, standard=self._classes, kind="resource class", package="os-resource-classes")
        return {
            check(where, name): self._inventory(f"{where}.{name}", inventory)
            for name, inventory in self._mapping(where, value).items()
        }

    def _inventory(self, where: str, value: object) -> Inventory:
        if not isinstance(value, dict):
            return Inventory(self._integer(where, value, 1, "or a mapping with 'total'"))
        body = self._mapping(where, value, Inventory.__slots__)
        if "total" not in body:
            raise self._problem(where, "no 'total'", "a mapping with 'total'")
        ratio = body.pop("allocation_ratio", 1.0)
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= MAX_INT:
            raise self._problem(f"{where}.allocation_ratio", shown(ratio), "a number above 0")
        numbers = {k: self._integer(f"{where}.{k}", v, 0 if k == "reserved" else 1) for k, v in body.items()}
        inventory = Inventory(**numbers, allocation_ratio=float(ratio))
        for small, large in (("reserved", "total"), ("min_unit", "max_unit")):
            if getattr(inventory, small) > getattr(inventory, large):
                found = f"{small} {getattr(inventory, small)} above {large} {getattr(inventory, large)}"
                raise self._problem(where, found, f"{small} up to {large}")
        return inventory

    def _integer(self, where: str, value: object, low: int, alternative: str = "") -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= MAX_INT:
            raise self._problem(where, shown(value), f"an integer from {low} to {MAX_INT} {alternative}".rstrip())
        return value

    def _strings(self, where: str, value: object, check: Callable[[str, object], str]) -> list[str]:
        """Read a list of strings, in which a list of strings (an alias, most often) may stand for its members."""
        found: list[str] = []
        for index, item in enumerate(self._list(where, value)):
            if isinstance(item, list):
                found += [check(f"{where}[{index}][{i}]", v) for i, v in enumerate(self._list(where, item))]
            else:
                found.append(check(f"{where}[{index}]", item))
            if len(found) > MAX_LIST:
                raise self._problem(where, f"{len(found)} entries", f"at most {MAX_LIST}")
        return found

    def _list(self, where: str, value: object) -> list[object]:
        if not isinstance(value, list):
            raise self._problem(where, shown(value), "a list of strings")
        if len(value) > MAX_LIST:
            raise self._problem(where, f"{len(value)} entries", f"at most {MAX_LIST}")
        return value

    def _trait(self, where: str, value: object) -> str:
        return self._symbol(where, value, standard=self._traits, kind="trait", package="os-traits")

    def _symbol(self, where: str, value: object, *, standard: frozenset[str], kind: str, package: str) -> str:
        if not isinstance(value, str) or not _SYMBOL.fullmatch(value):
            raise self._problem(where, shown(value), f"the name of a {kind}: 1 to 255 of A-Z, 0-9 and _")
        if value not in standard and not (value.startswith("CUSTOM_") and value != "CUSTOM_"):
            expected = f"a {kind} that the installed {package} knows, or a name that starts with CUSTOM_"
            raise self._problem(where, shown(value), expected)
        return value

    def _name(self, where: str, value: object) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or not value.isprintable():
            raise self._problem(where, shown(value), f"a name of 1 to {MAX_NAME} printable characters")
        return value

    def _text(self, where: str, value: object) -> str:
        if not isinstance(value, str):
            raise self._problem(where, shown(value), "text")
        return value

    def _mapping(self, where: str, value: object, known: tuple[str, ...] | None = None) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._problem(where, shown(value), "a mapping")
        for key in value:
            if not isinstance(key, str):
                raise self._problem(where, f"the key {shown(key)}", "keys that are strings; quote it")
            if known is not None and key not in known:
                raise self._problem(where, f"the unknown key {shown(key)}", f"keys out of {', '.join(known)}")
        return dict(value)

    def _problem(self, where: str, found: str, expected: str) -> DocumentError:
        return DocumentError(self._path, f"{where}: found {found}; expected {expected}.")
