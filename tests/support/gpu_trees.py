# SPDX-License-Identifier: Apache-2.0

"""Trees of providers with GPUs whose owner is known, whatever their traits
say, and what a request may take of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, combinations, product
from typing import NamedTuple

from os_prefilter import RequestGroup, RequestSpec
from os_prefilter_tools.fleet.model import (
    Fleet,
    Inventory,
    Provider,
    provider_uuid,
)
from tests.conftest import spec_of

NOVA, CYBORG = "nova", "cyborg"
PCI = "CUSTOM_PCI_8086_1563"
PCI_REQUEST = "11111111-1111-4111-8111-111111111111"
PROFILE = "device_profile_0"
HOST_TRAIT, DEVICE_TRAIT, UNWANTED = (
    "HW_CPU_X86_AVX2",
    "CUSTOM_NVIDIA_11",
    "CUSTOM_SLOW",
)
_HOST = "VCPU MEMORY_MB DISK_GB"
_SHARING = "MISC_SHARES_VIA_AGGREGATE"
# Kind of a device -> its owner, and the owner trait that its provider has.
_KINDS = {
    "novas": (NOVA, "OWNER_NOVA"),
    "cyborgs": (CYBORG, "OWNER_CYBORG"),
    "untagged": (CYBORG, ""),
}


@dataclass(frozen=True)
class Device:
    provider: Provider
    owner: str

    @property
    def units(self) -> int:
        return min(each.total for each in self.provider.resources.values())

    @property
    def tagged(self) -> bool:
        return any(
            trait.startswith("OWNER_") for trait in self.provider.traits
        )

    def has(self, resource_class: str) -> bool:
        return resource_class in self.provider.resources


@dataclass(frozen=True)
class Tree:
    """A host, and the providers that share something with it; the host itself
    comes first.
    """

    devices: tuple[Device, ...]
    fleet: tuple[Provider, ...]

    @property
    def root(self) -> Device:
        return self.devices[0]

    @property
    def name(self) -> str:
        return self.root.provider.name


@dataclass(frozen=True)
class Asked:
    """A request: its VGPUs by the group that asks for them, and the other
    parts of its flavor.
    """

    name: str
    gpus: tuple[str, ...] = ()
    """Suffixes of the flavor's groups that ask for a VGPU each; empty for the
    unsuffixed one.
    """
    pci: int = 0
    """How many PCI devices."""
    profile: bool = False
    traits: Mapping[str, str] = field(default_factory=dict)
    """Of the unsuffixed group."""
    policy: str = ""
    in_place: bool = False
    """Whether the unsuffixed VGPU must stay there, so that the filter cannot
    tell a provider without a trait.
    """

    def spec(self) -> RequestSpec:
        """Return it as a request spec."""
        extra_specs = {f"resources{suffix}:VGPU": "1" for suffix in self.gpus}
        extra_specs |= {
            f"trait:{name}": rule for name, rule in self.traits.items()
        }
        extra_specs |= {"group_policy": self.policy} if self.policy else {}
        groups = [
            RequestGroup(f"{PCI_REQUEST}-{number}", {PCI: 1})
            for number in range(self.pci)
        ]
        groups += [RequestGroup(PROFILE, {"VGPU": 1})] if self.profile else []
        ids = frozenset((PCI_REQUEST,)) if self.pci else frozenset[str]()
        return spec_of(
            extra_specs=extra_specs,
            requested_resources=groups,
            pci_request_ids=ids,
        )


_UNSUFFIXED, _TWO, _NONE = ("",), ("1", "2"), "none"
REQUESTS = (
    Asked("nothing"),
    Asked("unsuffixed", _UNSUFFIXED),
    Asked("own group", ("_gpu",)),
    Asked("two groups", _TWO, policy=_NONE),
    Asked("two groups apart", _TWO, policy="isolate"),
    Asked("unsuffixed and own group", ("", "1"), policy=_NONE),
    Asked(
        "unsuffixed, trait of the host",
        _UNSUFFIXED,
        traits={HOST_TRAIT: "required"},
    ),
    Asked(
        "unsuffixed, unwanted trait",
        _UNSUFFIXED,
        traits={UNWANTED: "forbidden"},
    ),
    Asked(
        "unsuffixed, trait of the device",
        _UNSUFFIXED,
        traits={DEVICE_TRAIT: "required"},
        in_place=True,
    ),
    Asked(
        "unsuffixed, isolated", _UNSUFFIXED, policy="isolate", in_place=True
    ),
    Asked(
        "unsuffixed and own group, no policy",
        ("", "1"),
        profile=True,
        in_place=True,
    ),
    Asked("PCI device", pci=1),
    Asked("profile", profile=True),
    Asked("unsuffixed and profile", _UNSUFFIXED, profile=True),
    Asked("own group and profile", ("_gpu",), profile=True),
    Asked(
        "own group and profile apart",
        ("_gpu",),
        profile=True,
        policy="isolate",
    ),
    Asked("two groups and profile", _TWO, profile=True, policy=_NONE),
    Asked(
        "trait of the host and profile",
        _UNSUFFIXED,
        profile=True,
        traits={HOST_TRAIT: "required"},
    ),
    Asked(
        "trait of the device and profile",
        _UNSUFFIXED,
        profile=True,
        traits={DEVICE_TRAIT: "required"},
        in_place=True,
    ),
    Asked(
        "unsuffixed, PCI device and profile", _UNSUFFIXED, pci=1, profile=True
    ),
)
Outcome = tuple[str, ...]
"""The names of the host, and of the provider that each VGPU of the flavor, PCI
device and profile got, in order.
"""


class Known(NamedTuple):
    """One way to serve a request, and what who knows the owners says of it."""

    outcome: Outcome
    right: bool
    """Whether each part got a provider of its owner, on a host of Nova's."""
    undetectable: bool
    """Not right, but only because of a provider without a trait, for a VGPU
    that must stay in the unsuffixed group.
    """


def outcomes(tree: Tree, asked: Asked) -> Iterator[Known]:
    """Yield each way to serve a request from a tree.

    By trying all devices for all parts; of Placement's rules this knows what
    the requests here need.
    """
    disk = next(device for device in tree.devices if device.has("DISK_GB"))
    gpus = [device for device in tree.devices if device.has("VGPU")]
    parts: list[tuple[str, list[Device]]] = [
        (
            NOVA,
            [
                gpu
                for gpu in gpus
                if suffix or _suits((tree.root, disk, gpu), asked)
            ],
        )
        for suffix in asked.gpus
    ]
    parts += [
        (NOVA, [device for device in tree.devices if device.has(PCI)])
    ] * asked.pci
    parts += [(CYBORG, gpus)] * asked.profile
    for chosen in product(*(devices for _, devices in parts)):
        suffixed = chosen[asked.gpus.count("") :]
        if asked.policy == "isolate" and len(
            {each.provider.name for each in suffixed}
        ) < len(suffixed):
            continue
        units = {device.provider.name: device.units for device in chosen}
        if any(
            taken > units[name]
            for name, taken in Counter(
                device.provider.name for device in chosen
            ).items()
        ):
            continue
        wrong = {
            number
            for number, (owner, _) in enumerate(parts)
            if chosen[number].owner != owner
        }
        right_host = tree.root.owner == NOVA
        names = (tree.name, *(device.provider.name for device in chosen))
        # The unsuffixed VGPU is the first part.
        untagged = asked.in_place and wrong == {0} and not chosen[0].tagged
        yield Known(names, right_host and not wrong, right_host and untagged)


def _suits(devices: tuple[Device, ...], asked: Asked) -> bool:
    """Whether the providers of the unsuffixed group have together what is
    required, and each not what is forbidden.
    """
    traits = frozenset().union(*(device.provider.traits for device in devices))
    return all(
        (trait in traits) == (rule == "required")
        for trait, rule in asked.traits.items()
    )


# -- trees
# -----------------------------------------------------------------------------


def trees() -> Iterator[Tree]:
    """Yield Nova's hosts with each set of GPUs, one or two levels deep, with
    each sharing; and others' hosts.
    """
    shared, owners = ("", "disk", *_KINDS), ("root", *_KINDS)
    some = chain.from_iterable(
        combinations(owners, size) for size in range(len(owners) + 1)
    )
    for kinds, deep, sharing in product(some, (False, True), shared):
        name = "-".join(
            ("deep" if deep else "flat", *kinds, "shared", sharing)
        )
        yield _tree(
            name, (NOVA, "OWNER_NOVA"), kinds, deep=deep, sharing=sharing
        )
    for trait, sharing in product(("OWNER_CYBORG", ""), shared):
        yield _tree(
            f"foreign-{trait}-shared-{sharing}",
            (CYBORG, trait),
            ("root",),
            deep=False,
            sharing=sharing,
        )


def fleet_of(some: list[Tree]) -> Fleet:
    return Fleet(tuple(chain.from_iterable(tree.fleet for tree in some)))


def _tree(
    name: str,
    host: tuple[str, str],
    kinds: tuple[str, ...],
    *,
    deep: bool,
    sharing: str,
) -> Tree:
    owner, trait = host
    aggregates = (provider_uuid(f"aggregate {name}"),)
    own = [kind for kind in kinds if kind != "root"]
    devices = [
        _device(
            f"{name}/{kind}", kind, "VGPU", f"{DEVICE_TRAIT} {UNWANTED * deep}"
        )
        for kind in own
    ]
    if owner == NOVA:
        devices += [
            _device(f"{name}/pci-{kind}", kind, PCI)
            for kind in _KINDS
            if kind != "novas"
        ]
        # Before version 34, Nova leaves no owner trait on them.
        traits = (
            "COMPUTE_MANAGED_PCI_DEVICE"
            if deep
            else "COMPUTE_MANAGED_PCI_DEVICE OWNER_NOVA"
        )
        devices.append(
            Device(_provider(f"{name}/pci-novas", PCI, traits), NOVA)
        )
    below = tuple(device.provider for device in devices)
    if deep:
        below = (_provider(f"{name}/numa", "", trait, providers=below),)
    classes = _HOST.replace("DISK_GB", "") if sharing == "disk" else _HOST
    classes += " VGPU" * ("root" in kinds)
    # A foreign host is not a compute node.
    of_host = f"{trait} {HOST_TRAIT} {'COMPUTE_NODE' * (owner == NOVA)}"
    root, sharers = (
        _provider(
            name, classes, of_host, providers=below, aggregates=aggregates
        ),
        [],
    )
    if sharing == "disk":
        sharers = [
            Device(
                _provider(
                    f"{name}/disk", "DISK_GB", _SHARING, aggregates=aggregates
                ),
                "",
            )
        ]
    elif sharing:
        sharers = [
            _device(f"{name}/shared", sharing, "VGPU", _SHARING, aggregates)
        ]
    fleet = (root, *(device.provider for device in sharers))
    return Tree((Device(root, owner), *devices, *sharers), fleet)


def _device(
    name: str,
    kind: str,
    resource_class: str,
    traits: str = "",
    aggregates: tuple[str, ...] = (),
) -> Device:
    owner, trait = _KINDS[kind]
    return Device(
        _provider(
            name, resource_class, f"{trait} {traits}", aggregates=aggregates
        ),
        owner,
    )


def _provider(
    name: str,
    classes: str,
    traits: str,
    *,
    providers: tuple[Provider, ...] = (),
    aggregates: tuple[str, ...] = (),
) -> Provider:
    resources = {each: Inventory(1024) for each in classes.split()}
    return Provider(
        name,
        provider_uuid(name),
        resources,
        frozenset(traits.split()),
        aggregates,
        providers,
    )
