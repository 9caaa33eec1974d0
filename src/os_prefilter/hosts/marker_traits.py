# SPDX-License-Identifier: Apache-2.0

"""Marker traits: what schedulers want and what hosts have reported.

A scheduler creates ``CUSTOM_PREFILTER_WANTED_<keys>``, which no provider has:
the traits that its filters may require. An agent reads these names, reports
those of the traits that its host has, and adds the *report marker*
``CUSTOM_PREFILTER_REPORTED_<keys>``: of these traits, one that is missing is
one that the host does not support.

A key stands for the traits of one :class:`TraitGroup`. It is a digest of their
names, so that a trait that a new version adds has a key that no older agent
knows, and counts as not reported until the agent is upgraded.

Such a key says nothing to a release with other traits in the group. So that
each release knows what another one has set, an agent also *notes* each trait
that it sets, in ``CUSTOM_PREFILTER_SET_<digests>`` on the provider.

``CUSTOM_PREFILTER_DEPRECATED_<keys>`` there has the machine types that the
host's libvirt marks as deprecated. No request asks for it: audits read it.

``CUSTOM_PREFILTER_CPU_<digest>`` there is the same on hosts whose libvirt
describes the CPU of their guests in the same way. The weigher prefers such
hosts for a live migration.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Collection, Iterable, Mapping
from functools import cache, lru_cache
from hashlib import sha256
from typing import NamedTuple

from os_prefilter.common.trait_names import Trait
from os_prefilter.vocabulary import (
    BY_NAME,
    opt_in_traits,
    table,
)
from os_prefilter.vocabulary.config_templates import PREFIX, Templates
from os_prefilter.vocabulary.model import RESERVED

WANTED = f"{RESERVED}WANTED_"
REPORTED = f"{RESERVED}REPORTED_"
SET = f"{RESERVED}SET_"
DEPRECATED = f"{RESERVED}DEPRECATED_"
# Another way to describe a CPU needs another prefix: the digests of two
# releases would never be equal.
CPU = f"{RESERVED}CPU_"
ON_PROVIDERS = (REPORTED, SET, DEPRECATED, CPU)
"""What the names begin with that an agent adds to the traits of a provider."""

# 32 ** 5 keys: a test sees that no two groups of the vocabulary share one.
_KEY_LENGTH = 5
# A note is compared with all traits of a provider, also those of operators, of
# which none may look like ours: 40 bits.
_NOTE_LENGTH = 8
# Placement allows no longer name.
_LONGEST_NAME = 255

_EMULATION = BY_NAME["emulation_architecture"]


def marker_key(names: Iterable[str]) -> str:
    """Return the key of traits that are reported together."""
    return _digest(names)[:_KEY_LENGTH]


def _digest(names: Iterable[str]) -> str:
    text = " ".join(sorted(names))
    return b32encode(sha256(text.encode()).digest()).decode()


NOT_CONFIGURED = marker_key(("not configured by request",))
"""The key of a host whose driver applies no configuration template.

It has none of their traits.
"""

# Without it, a host that marks none would look like one that cannot mark them.
_MARKS_KNOWN = marker_key(("deprecated machine types are known",))


class TraitGroup(NamedTuple):
    """Traits that are reported together."""

    row: str
    """A row of the vocabulary; ``deploy-config`` for configuration templates.
    """
    traits: frozenset[Trait]
    keys: frozenset[str]
    """A report marker with one of these covers the group."""
    implied_by: frozenset[Trait]
    """A host with one of these has reported the group; Nova may set it."""


@lru_cache(maxsize=16)
def trait_groups(templates: Templates) -> tuple[TraitGroup, ...]:
    """Return the groups of the vocabulary and of configuration templates."""
    found: list[TraitGroup] = []
    for row in table():
        optional = opt_in_traits((row,))
        standard = row.traits - optional
        if standard:
            # A driver that reports one value of a row knows the row. That it
            # is older than a value of the row is not seen: Nova's drivers got
            # each row as a whole.
            implied_by = standard
            if row is _EMULATION:
                # Nova's libvirt driver asks about KVM guests alone, and so
                # reports one value of many.
                implied_by = frozenset()
            keys = frozenset((marker_key(standard),))
            found.append(TraitGroup(row.name, standard, keys, implied_by))
        found += [
            _alone(row.name, trait, marker_key((trait,)))
            for trait in sorted(optional)
        ]
    grouped = frozenset[Trait]().union(*(group.traits for group in found))
    found += [
        _alone(PREFIX.rstrip(":"), trait, marker_key((trait,)), NOT_CONFIGURED)
        for trait in sorted(templates.found_traits - grouped)
    ]
    return tuple(found)


def _alone(row: str, trait: Trait, *keys: str) -> TraitGroup:
    traits = frozenset((trait,))
    return TraitGroup(row, traits, frozenset(keys), traits)


def groups_by_trait(templates: Templates) -> dict[str, TraitGroup]:
    """Return the group of each trait that a capability reporter reports."""
    return {
        trait: group
        for group in trait_groups(templates)
        for trait in group.traits
    }


@cache
def _keys_of_rows() -> Mapping[str, frozenset[str]]:
    """Return the keys that stand for several others in a marker.

    They stand for all optional traits of a row.

    Placement sends the marker of each host with each candidate, and most
    agents report a row as a whole.
    """
    found = {}
    for row in table():
        traits = opt_in_traits((row,))
        if len(traits) > 1:
            members = frozenset(marker_key((trait,)) for trait in traits)
            found[marker_key(("all", *traits))] = members
    return found


def names_with(prefix: str, keys: Iterable[str]) -> tuple[Trait, ...]:
    """Return the marker traits that hold these keys, several for many.

    :param prefix: :data:`WANTED` or :data:`REPORTED`
    """
    held = set(keys)
    if prefix == REPORTED:
        for key, members in _keys_of_rows().items():
            if members <= held:
                held -= members
                held.add(key)
    return _joined(prefix, held, _KEY_LENGTH)


def keys_in(prefix: str, names: Iterable[str]) -> frozenset[str]:
    """Return the keys that names of traits hold; other names are ignored."""
    held = _split(prefix, names, _KEY_LENGTH)
    return frozenset().union(
        *(_keys_of_rows().get(key, (key,)) for key in held)
    )


def names_noting(traits: Iterable[str]) -> tuple[Trait, ...]:
    """Return the marker traits that note on a provider what an agent set."""
    return _joined(SET, map(_note_of, traits), _NOTE_LENGTH)


def _note_of(trait: str) -> str:
    return _digest((trait,))[:_NOTE_LENGTH]


def noted_among(traits: Collection[str]) -> frozenset[str]:
    """Return the traits of a provider that an agent of any release has set.

    Its note among them names them.
    """
    noted = _split(SET, traits, _NOTE_LENGTH)
    if not noted:
        return noted
    return frozenset(trait for trait in traits if _note_of(trait) in noted)


def names_of_deprecated(
    machine_types: Iterable[str] | None,
) -> tuple[Trait, ...]:
    """Return the marker traits of a host with these deprecated types.

    None if they are not known.
    """
    if machine_types is None:
        return ()
    # Keys and no trait for each type: newer QEMUs deprecate dozens, which
    # Placement would send with each candidate.
    keys = {marker_key((name,)) for name in machine_types}
    return _joined(DEPRECATED, {_MARKS_KNOWN, *keys}, _KEY_LENGTH)


def is_deprecated(machine_type: str, traits: Iterable[str]) -> bool | None:
    """Return whether a host's traits mark a machine type as deprecated.

    None if they do not say so of any.
    """
    keys = _split(DEPRECATED, traits, _KEY_LENGTH)
    if _MARKS_KNOWN not in keys:
        return None
    return marker_key((machine_type,)) in keys


def names_of_cpu(cpu: str) -> tuple[Trait, ...]:
    """Return the marker trait of hosts with a CPU; none if it is empty."""
    return (Trait(f"{CPU}{_note_of(cpu)}"),) if cpu else ()


def _joined(
    prefix: str, keys: Iterable[str], length: int
) -> tuple[Trait, ...]:
    ordered = sorted(set(keys))
    most = (_LONGEST_NAME - len(prefix)) // length
    chunks = (
        ordered[start : start + most] for start in range(0, len(ordered), most)
    )
    return tuple(Trait(prefix + "".join(chunk)) for chunk in chunks)


def _split(prefix: str, names: Iterable[str], length: int) -> frozenset[str]:
    texts = (
        name.removeprefix(prefix) for name in names if name.startswith(prefix)
    )
    return frozenset(
        text[at : at + length]
        for text in texts
        for at in range(0, len(text), length)
    )
