# SPDX-License-Identifier: Apache-2.0

"""Names of properties and extra specs without a row, with reasons.

It also has notes on unknown names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib import resources
from typing import Any, NamedTuple

from os_prefilter.adapters.osinfo import DEVICES, has_libosinfo, implied_by
from os_prefilter.common.quoting import quote
from os_prefilter.documents.strict_yaml import parse_yaml
from os_prefilter.request.remarks import (
    known_properties,
    nearest_name,
    nearest_property,
    remarks_in_nova,
)
from os_prefilter.request.requirements import Note
from os_prefilter.request.view import Request
from os_prefilter.rules.reader import guest_systems
from os_prefilter.vocabulary import ROWS, table
from os_prefilter.vocabulary.config_templates import PREFIX
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.operators.refused_by_nova import is_host_field

_FILE = "properties-without-rows.yaml"
# Between the names that are free. os_* is not: Glance and users have
# properties of their own there.
_OF_NOVA = ("hw_", "img_", "hw:", "os:")
_FREE_IN_IMAGE = re.compile(rf"(trait:|{PREFIX}|hw_numa_(cpus|mem)\.\d+$)")
_FREE_IN_FLAVOR = re.compile(
    rf"((resources|trait)[a-zA-Z0-9_-]{{0,64}}:|preferred_trait:|{PREFIX})"
)
_OTHERS = (
    "resources:",
    "trait:",
    "preferred_trait:",
    PREFIX,
    "capabilities:",
    "aggregate_instance_extra_specs:",
)
_CUTOFF = 0.8
# A request may have any number of them.
_MOST = 10
_LONGEST_NAME = 80


class WithoutRow(NamedTuple):
    """Properties that require no trait of a host, for one reason."""

    reason: str
    image_properties: tuple[str, ...]
    extra_specs: tuple[str, ...]
    """Names as Nova's validators have them; ``*`` stands for any text."""

    def has_extra_spec(self, name: str) -> bool:
        """Return whether an extra spec is one of these."""
        return any(fnmatchcase(name, pattern) for pattern in self.extra_specs)


@cache
def properties_without_rows() -> tuple[WithoutRow, ...]:
    """Return all properties that require no trait.

    With the rows of the vocabulary they are all that Nova has.
    """
    # A package, not its folder: Python 3.9 asks for the former.
    file = resources.files("os_prefilter_tools") / "data" / _FILE
    data = file.read_bytes()
    groups: Any = parse_yaml(data, _FILE)
    found = []
    for each in groups:
        image_properties = each.get("image_properties", "").split()
        extra_specs = each.get("extra_specs", "").split()
        names = tuple(image_properties), tuple(extra_specs)
        found.append(WithoutRow(each["reason"], *names))
    return tuple(found)


def reason_without_row(name: str) -> str:
    """Return why a property or extra spec has no row; empty if it may have."""
    for each in properties_without_rows():
        if name in each.image_properties or each.has_extra_spec(name):
            return each.reason
    return ""


def remarks_of_commands(
    request: Request, options: Options, enabled: Collection[str]
) -> Iterator[Note]:
    """Yield what commands note on a request, besides its filters' notes.

    They are made like those of :func:`remarks_in_nova`.
    """
    yield from notes_on_names(request)
    yield from notes_on_what_follows(request)
    yield from notes_on_implied_devices(request)
    yield from notes_on_guest_system(request)
    yield from remarks_in_nova(request, options, enabled)


def notes_on_implied_devices(request: Request) -> Iterator[Note]:
    """Yield a note for each device that Nova takes from libosinfo.

    The image names its operating system alone.
    """
    distro = request.image_property("os_distro")
    names = [name for name in DEVICES if request.image_property(name) is None]
    if not isinstance(distro, str) or not distro or not names:
        return
    if not has_libosinfo():
        unknown = (
            "where nova-compute has libosinfo, it decides"
            f" {' and '.join(DEVICES)} if not set: not known here"
        )
        yield Note("image property os_distro", unknown, warn=True)
    for name in implied_by(distro).keys() & names:
        given = (
            "where nova-compute has libosinfo, the guest has"
            f" {name}={implied_by(distro)[name]}: set it in the image"
        )
        yield Note(f"image property os_distro={distro}", given, warn=True)


# Names that people give to systems, as letters -> libosinfo's short name.
_AS_SPOKEN_OF = {
    "centos9": "centos-stream9",
    "centos10": "centos-stream10",
    "leap16": "opensuse16",
    "oraclelinux9": "ol9",
    "sle16": "sles16",
    "windows11": "win11",
    "windows2025": "win2k25",
    "windowsserver2025": "win2k25",
}
_OF_WINDOWS_11 = (
    ("hw_firmware_type", "", "uefi"),
    ("os_secure_boot", "os:secure_boot", "required"),
    ("hw_tpm_version", "hw:tpm_version", "2.0"),
)


def notes_on_guest_system(request: Request) -> Iterator[Note]:
    """Yield a note on an ``os_distro`` that promises more than Nova does.

    One from which the needs of the system cannot be read, and Windows 11
    without the devices that it requires.
    """
    distro = request.image_property("os_distro")
    if not isinstance(distro, str) or len(distro) > _LONGEST_NAME:
        return
    place = f"image property os_distro={distro}"
    problem = _problem_of_distro(distro)
    if problem:
        yield Note(place, problem, warn=True)
    missing = []
    for name, extra_spec, value in _OF_WINDOWS_11:
        if not request.image_property(name) and not request.extra_spec(
            extra_spec
        ):
            missing.append(f"{name}={value}")
    if missing and distro == "win11":
        reason = (
            "Microsoft requires UEFI, Secure Boot and TPM 2.0, and Nova gives"
            f" a guest what is named. Set {', '.join(missing)} in the image"
        )
        yield Note(place, reason, warn=True)


@lru_cache(maxsize=4096)
def _problem_of_distro(distro: str) -> str:
    known = _guest_systems_by_letters()
    letters = _letters_of(distro)
    begins_one = any(each.startswith(letters) for each in known)
    if letters.isalpha() and (begins_one or letters == "windows"):
        return (
            "it names no release, and Nova drops os_version: not known which"
            " CPU the system needs. Write libosinfo's short name, with the"
            " release"
        )
    meant = known.get(letters, distro)
    if meant == distro:
        return ""
    return (
        "libosinfo has no such short name: not known which CPU the system"
        f" needs. Did you mean {meant}?"
    )


@cache
def _guest_systems_by_letters() -> Mapping[str, str]:
    """Return the systems of ``builtin:guest-systems`` by their letters."""
    conditions = (
        condition
        for rule in guest_systems().rules
        for clause in rule.when
        for condition in clause
    )
    systems = {
        _letters_of(str(value)): str(value)
        for condition in conditions
        for value in condition.values
    }
    return systems | _AS_SPOKEN_OF


def _letters_of(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_AFTER_PLACEMENT = {
    "pci_passthrough:alias": (
        "the devices are not examined here. Nova's PciPassthroughFilter looks"
        " for them on each host, or Placement with pci_in_placement: see [pci]"
        " alias and device_spec of nova.conf"
    ),
    "accel:device_profile": (
        "its devices are not examined here. Nova reads the profile from Cyborg"
        " and adds its groups to the query: see 'openstack accelerator device"
        " profile show'"
    ),
}
_AMOUNTS = {
    "VCPU": "vcpus",
    "MEMORY_MB": "memory_mb",
    "DISK_GB": "root_gb",
}
# What Ironic makes of a node's resource class baremetal..., as its
# documentation names them.
_BARE_METAL = "resources:CUSTOM_BAREMETAL"
_CUSTOM_CLASS = re.compile(r"resources[a-zA-Z0-9_-]{0,64}:CUSTOM_")
_NO_FIELD = (
    "Nova's ComputeCapabilitiesFilter, enabled by default, excludes every KVM"
    " host: none has such a field. Only bare-metal nodes report others; their"
    " flavors request a resource class of their own"
)


def notes_on_what_follows(request: Request) -> Iterator[Note]:
    """Yield a note on each extra spec of which Placement does not decide.

    Or in which it decides otherwise than a flavor for bare metal expects.
    """
    for name, reason in _AFTER_PLACEMENT.items():
        # The groups of a server's devices are in its request spec.
        if request.extra_spec(name) and not request.requested_groups:
            yield Note(f"flavor extra spec {name}", reason, warn=True)
    names = [
        name
        for name in request.extra_specs
        if isinstance(name, str) and len(name) <= _LONGEST_NAME
    ]
    if not any(_CUSTOM_CLASS.match(name) for name in names):
        without_field = [name for name in names if _has_no_field(name)]
        for name in without_field[:_MOST]:
            yield Note(f"flavor extra spec {name}", _NO_FIELD, warn=True)
    bare_metal = [name for name in names if name.startswith(_BARE_METAL)]
    missing = [
        f"resources:{name}=0"
        for name, amount in _AMOUNTS.items()
        if request.flavor_attribute(amount)
        and f"resources:{name}" not in names
    ]
    if bare_metal and missing:
        reason = (
            "Nova requests CPUs, memory and disk of the flavor as well, which"
            f" no bare-metal node has. Set {', '.join(missing)}"
        )
        yield Note(f"flavor extra spec {bare_metal[0]}", reason, warn=True)


def _has_no_field(name: str) -> bool:
    namespace, _, path = name.partition(":")
    return namespace == "capabilities" and not is_host_field(
        path.partition(":")[0]
    )


def notes_on_names(request: Request) -> Iterator[Note]:
    """Yield a note for each name that looks like a misspelt one of Nova.

    Slow, for commands: a scheduler has better things to do for each request.
    """
    for names, place, problem_of in (
        (request.image_properties, "image property", _problem_of_property),
        (request.extra_specs, "flavor extra spec", _problem_of_extra_spec),
    ):
        left = _MOST
        for name in names:
            problem = ""
            if left and isinstance(name, str) and len(name) <= _LONGEST_NAME:
                problem = problem_of(name)
            if problem:
                left -= 1
                yield Note(f"{place} {name}", problem, warn=True)


@lru_cache(maxsize=4096)
def _problem_of_property(name: str) -> str:
    if name in known_properties() or _FREE_IN_IMAGE.match(name):
        return ""
    close = nearest_property(name)
    if close or name.startswith(_OF_NOVA):
        return f"Nova does not know it, and drops it{close}"
    return ""


@lru_cache(maxsize=4096)
def _problem_of_extra_spec(name: str) -> str:
    namespace, colon, rest = name.partition(":")
    if namespace == "traits":
        # The most common suffix that is meant to be none.
        meant = quote(f"trait:{rest}")
        return (
            "a trait of a request group named s, which Placement refuses"
            f" without resources. Did you mean {meant}?"
        )
    if (
        name in _extra_specs()
        or _FREE_IN_FLAVOR.match(name)
        or reason_without_row(name)
    ):
        return ""
    of_nova = f"{namespace}:" in _namespaces()
    known = [
        each
        for each in _extra_specs()
        if of_nova == each.startswith(f"{namespace}:")
    ]
    close = nearest_name(name, known if of_nova or not colon else [])
    for each in _extra_specs() if of_nova else ():
        # Of another namespace.
        close = (
            f". Did you mean {each}?"
            if each.partition(":")[2] == rest
            else close
        )
    others = () if of_nova or not colon else sorted((*_namespaces(), *_OTHERS))
    for other in get_close_matches(f"{namespace}:", others, cutoff=_CUTOFF):
        if other != f"{namespace}:" and not _problem_of_extra_spec(
            f"{other}{rest}"
        ):
            close = f". Did you mean {quote(other + rest)}?"
            break
    in_image = name.replace(":", "_", 1)
    if (
        not close
        and name.startswith(_OF_NOVA)
        and in_image in known_properties()
    ):
        return f"no effect: Nova reads {in_image} of an image alone"
    if of_nova or close:
        return f"Nova knows no such extra spec{close}"
    # A node of Ironic's reports its cpu_arch.
    return "" if colon or name == "cpu_arch" else _without_namespace(name)


def _without_namespace(name: str) -> str:
    """Return what Nova's host filters do with an extra spec."""
    custom = re.sub(r"[^A-Z0-9_]", "_", name.upper())
    advice = (
        f"Write trait:CUSTOM_{custom}=required for a trait, or"
        f" {quote(f'aggregate_instance_extra_specs:{name}')} for metadata of"
        " aggregates"
    )
    if is_host_field(name):
        return (
            "it has no namespace: Nova's ComputeCapabilitiesFilter, enabled by"
            " default, compares it with that field of each host, and excludes"
            f" every host that differs. {advice}"
        )
    return (
        "it has no namespace: Nova's ComputeCapabilitiesFilter compares it"
        " with a field of that name, which no KVM host has, and excludes none"
        " of them. Only AggregateInstanceExtraSpecsFilter, if enabled, reads"
        f" it. {advice}"
    )


@cache
def _extra_specs() -> frozenset[str]:
    names = [row.extra_spec for row in table() if row.extra_spec]
    for each in properties_without_rows():
        names += [name for name in each.extra_specs if "*" not in name]
    return frozenset(names)


@cache
def _namespaces() -> frozenset[str]:
    """Return the namespaces of which Nova knows all extra specs."""
    names = [row.extra_spec for row in ROWS if row.extra_spec]
    for each in properties_without_rows():
        names += each.extra_specs
    namespaces = set()
    for name in names:
        start, _, rest = name.partition(":")
        if rest.strip("*"):
            namespaces.add(f"{start}:")
    return frozenset(namespaces)
