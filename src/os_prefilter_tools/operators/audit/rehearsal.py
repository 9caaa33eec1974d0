# SPDX-License-Identifier: Apache-2.0

"""Rehearsal of an upgrade: a fleet whose hosts become like a canary.

A canary is a host of the fleet that is upgraded already, or the file that
``os-prefilter capabilities show -f json`` printed on one. Hosts get the traits
of its virt driver and of its agent, and keep their own: of hardware, owners
and rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple

import os_traits

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import join_names, quote
from os_prefilter.documents.files import read_bytes
from os_prefilter.documents.strict_json import parse_json
from os_prefilter.hosts.capabilities import reporter_traits
from os_prefilter.hosts.marker_traits import (
    DEPRECATED,
    ON_PROVIDERS,
    REPORTED,
    SET,
)
from os_prefilter.hosts.reporter import (
    traits_reported_by_nova,
    traits_without_devices,
)
from os_prefilter.service import Service
from os_prefilter.vocabulary import BY_NAME
from os_prefilter_tools.fleet.model import Fleet, Provider
from os_prefilter_tools.operators.audit.image_audit import Counts, FilterChange
from os_prefilter_tools.operators.readiness import (
    DEFERRED,
    ENFORCED,
    readiness,
)

OPTION = "--becoming"

# Not the marker of a CPU: hosts with the same one keep it together.
_ANSWERS = ("yes", "no", "not known", "not owned")
_BY_SOFTWARE = ("COMPUTE_", REPORTED, SET, DEPRECATED)
# Nova reports them of a host's service, its state and its network cards, which
# no upgrade changes.
_OF_HOST = frozenset(
    (
        os_traits.COMPUTE_NODE,
        os_traits.COMPUTE_STATUS_DISABLED,
        os_traits.COMPUTE_REMOTE_MANAGED_PORTS,
    )
)


class Canary(NamedTuple):
    """The traits of an upgraded host."""

    name: str
    has: frozenset[str]
    """All its traits, as far as known."""
    decides: frozenset[str]
    """Traits that hosts like it have if, and only if, it has them."""


def read_canaries(options: Iterable[str], fleet: Fleet) -> dict[str, Canary]:
    """Return the canary of each host that is upgraded, by the host's name.

    :param options: ``PATTERN=HOST`` or ``PATTERN=FILE``; a canary that a
        pattern matches is upgraded already, and left out
    :raises DocumentError: if one is neither, matches no host, or a host that
        another one matches or that is of another kind than the canary
    """
    hosts = {host.name: host for host in fleet.instance_hosts}
    named = [_split(option) for option in options]
    canaries = {name: _canary_named(name, fleet) for _, name in named}
    patterns: dict[str, str] = {}
    found: dict[str, Canary] = {}
    for pattern, name in named:
        matched = [each for each in hosts if fnmatchcase(each, pattern)]
        upgraded = [each for each in matched if each not in canaries]
        if not upgraded:
            left = "only canaries" if matched else "no host"
            raise DocumentError(
                OPTION,
                f"{quote(pattern)} matches {left}. Give a pattern of names of"
                " hosts.",
            )
        for each in upgraded:
            if each in found:
                raise DocumentError(
                    OPTION,
                    f"both {quote(patterns[each])} and {quote(pattern)} match"
                    f" {quote(each)}. Each host must match one pattern.",
                )
            _check_kind(hosts[each], canaries[name], pattern)
            patterns[each] = pattern
            found[each] = canaries[name]
    return found


def become(fleet: Fleet, canaries: Mapping[str, Canary]) -> Fleet:
    """Return a fleet as it is when some of its hosts are like their canaries.

    Only traits of root providers change.

    :param canaries: the canary of each upgraded host, by the host's name
    """
    hosts = []
    for host in fleet.hosts:
        canary = canaries.get(host.name)
        if canary:
            kept = host.traits - canary.decides
            gets = canary.has & canary.decides
            host = replace(host, traits=kept | gets)  # noqa: PLW2901
        hosts.append(host)
    return replace(fleet, hosts=tuple(hosts))


def _split(option: str) -> tuple[str, str]:
    pattern, _, name = option.partition("=")
    if not (pattern and name):
        raise DocumentError(
            OPTION,
            f"{quote(option)}: expected PATTERN=HOST or PATTERN=FILE, such as"
            " 'kvm-*=kvm-canary'.",
        )
    return pattern, name


def _canary_named(name: str, fleet: Fleet) -> Canary:
    for host in fleet.instance_hosts:
        if host.name == name:
            return Canary(name, host.traits, _by_software(fleet.traits))
    try:
        data = read_bytes(name)
    except DocumentError as error:
        raise DocumentError(
            OPTION,
            f"the fleet has no host {quote(name)}, and as a file:"
            f" {error.problem}",
        ) from error
    document: Any = parse_json(data, name)
    expected = "expected what 'os-prefilter capabilities show -f json' prints."
    answers: dict[str, str] = {}
    try:
        for number, row in enumerate(document, 1):
            trait = row["Trait"]
            if trait in answers:
                raise DocumentError(
                    name,
                    f"row {number} is a second one of {quote(trait)}. Print"
                    " it again with 'os-prefilter capabilities show -f json'.",
                )
            answers[trait] = row["Host has it"]
    except (KeyError, TypeError) as error:
        raise DocumentError(name, expected) from error
    if not all(
        isinstance(trait, str) and answer in _ANSWERS
        for trait, answer in answers.items()
    ):
        raise DocumentError(name, expected)
    missing = [each for each in reporter_traits() if each not in answers]
    if missing:
        raise DocumentError(
            name,
            f"it does not say whether the host has {missing[0]}: another"
            " release of os-prefilter printed it, or not all of it. Print it"
            " again, with this release.",
        )
    # What it does not know, hosts keep; but the marks of their machine types
    # are those of the old libvirt.
    known = {each for each in fleet.traits if each.startswith(DEPRECATED)}
    known |= {each for each in answers if answers[each] in ("yes", "no")}
    has = frozenset(each for each in answers if answers[each] == "yes")
    return Canary(name, has, _by_software(known))


def _by_software(traits: Iterable[str]) -> frozenset[str]:
    """Return the traits that a virt driver or an agent reports.

    Not those of hardware, and of what else stays with a host.
    """
    reported = frozenset[str](reporter_traits())
    return frozenset(
        trait
        for trait in traits
        if (trait in reported or trait.startswith(_BY_SOFTWARE))
        and not trait.startswith("HW_")
        and trait not in _OF_HOST
    )


def _check_kind(host: Provider, canary: Canary, pattern: str) -> None:
    """Refuse a host of another architecture or virt driver than the canary.

    By what both report.
    """
    differs = ""
    for row in ("architecture", "hypervisor_type"):
        names = BY_NAME[row].traits
        own, other = host.traits & names, canary.has & names
        if own and other and own.isdisjoint(other):
            differs = f"it has {join_names(own)}, not {join_names(other)}"
    devices = _device_traits()
    if devices.isdisjoint(host.traits) != devices.isdisjoint(canary.has):
        differs = differs or "only one of them reports devices"
    if differs:
        raise DocumentError(
            OPTION,
            f"{quote(pattern)} matches {quote(host.name)}, which is of another"
            f" kind than the canary {quote(canary.name)}: {differs}. Give a"
            " pattern without it.",
        )


@cache
def _device_traits() -> frozenset[str]:
    """Return the traits that, of Nova's drivers, only libvirt's reports."""
    return traits_reported_by_nova() - traits_without_devices(None)


class MixedTime(NamedTuple):
    """What a filter does to hosts while only some of them are upgraded."""

    filter: str
    row: str
    """A row of the vocabulary, as in :class:`ReadinessLine`."""
    traits: tuple[str, ...]
    hosts: int
    effect: str


@dataclass(frozen=True)
class Rehearsal:
    """An upgrade of hosts, before and after."""

    fleet: Fleet
    """The fleet afterwards."""
    change: FilterChange
    """The filters as they act on the fleet before and afterwards."""
    upgraded: Mapping[str, Canary]
    lost: Counts
    """Traits that hosts lose, and how many of them."""
    won: Counts
    mixed: tuple[MixedTime, ...]


def rehearse(
    before: Fleet,
    after: Fleet,
    change: FilterChange,
    upgraded: Mapping[str, Canary],
) -> Rehearsal:
    """Compare a fleet with what it becomes."""
    lost, won = Counter[str](), Counter[str]()
    for old, new in zip(before.hosts, after.hosts):
        lost.update(_shown(old.traits - new.traits))
        won.update(_shown(new.traits - old.traits))
    return Rehearsal(
        after,
        change,
        upgraded,
        tuple(lost.most_common()),
        tuple(won.most_common()),
        tuple(_mixed_times(before, after, change, lost, won)),
    )


def _shown(traits: Iterable[str]) -> list[str]:
    return sorted(each for each in traits if not each.startswith(ON_PROVIDERS))


def _mixed_times(
    before: Fleet,
    after: Fleet,
    change: FilterChange,
    lost: Mapping[str, int],
    won: Mapping[str, int],
) -> Iterator[MixedTime]:
    """Yield what each filter does while only some hosts are upgraded."""
    found: dict[tuple[str, str, int, str], list[str]] = {}
    reported = _unreported(before, change.before)
    for key, missing in _unreported(after, change.after).items():
        name, row, trait = key
        missed = reported.get(key, ())
        if missing and len(missing) == len(missed):
            continue
        effects = {
            f"{ENFORCED}: excludes each from its upgrade on": lost[trait],
            f"{ENFORCED}: excludes each until its upgrade": won[trait],
        }
        if missed:
            effects = {f"{DEFERRED} until all are upgraded": len(missed)}
        if missing:
            effects = {f"{DEFERRED} until the canary reports": len(missing)}
        for effect, hosts in effects.items():
            if hosts:
                traits = found.setdefault((name, row, hosts, effect), [])
                traits.append(trait)
    for (name, row, hosts, effect), traits in found.items():
        yield MixedTime(name, row, tuple(traits), hosts, effect)


def _unreported(
    fleet: Fleet, service: Service
) -> dict[tuple[str, str, str], tuple[str, ...]]:
    """Return the compute nodes that have not reported.

    By filter, row and trait; none where filters do not wait for reports.
    """
    waits = service.options.wait_for_reports
    return {
        (line.filter, line.row, trait): line.unreported if waits else ()
        for line in readiness(fleet, service.filters, service.options)
        for trait in line.traits
    }
