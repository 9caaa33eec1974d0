# SPDX-License-Identifier: Apache-2.0

"""The extra specs of a flavor that are for Placement.

``resources$S:CLASS``, ``trait$S:NAME`` and ``group_policy``.

Parsed as Nova does it (``nova/scheduler/utils.py``, ``ResourceRequest``): what
is not well-formed is left out with a warning, each time that a flavor is
parsed; a pipeline parses none whose decision is in its cache. Two things are
errors instead. A malformed trait name could smuggle other parameters into the
query; and an amount that Placement cannot store must not become a request for
nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from os_prefilter.common.errors import MalformedRequest
from os_prefilter.common.placement_values import (
    LARGEST_AMOUNT,
    is_resource_class,
    resource_amount,
)
from os_prefilter.common.quoting import quote
from os_prefilter.common.trait_names import CUSTOM_PREFIX, is_trait_name
from os_prefilter.request.spec import RequestGroup
from os_prefilter.vocabulary.model import as_boolean

LOG = logging.getLogger(__name__)

# Nova's pattern ends with $, which one line break at the end of the key does
# not disturb.
_KEY = re.compile(
    r"(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*?)\n?", re.DOTALL
)
_LINE_BREAK = "\n"

_LEFT_OUT = "The extra spec %s=%s is left out, as Nova does: it must %s."
_TRAIT = "trait:"
_PREFERRED = "preferred"
_PREFERRED_TRAIT = "preferred_trait:"


def flavor_groups(
    extra_specs: Mapping[str, object],
) -> dict[str, RequestGroup]:
    """Return the request groups of a flavor by suffix.

    The unsuffixed one is under ``""``.

    :raises MalformedRequest: for a trait name that Placement could not have,
        or an amount that it could not store.
    """
    found: dict[str, tuple[dict[str, int], set[str], set[str]]] = {}
    for key, value in extra_specs.items():
        # Nearly all keys are hw:..., os:...: skip them before the slower
        # regular expression does.
        if not isinstance(key, str) or not key.startswith(
            ("resources", "trait")
        ):
            continue
        if match := _KEY.fullmatch(key):
            kind, suffix, name = match.groups()
            # For Nova, a key with a line break within the name is none of
            # these, and makes no group.
            empty: tuple[dict[str, int], set[str], set[str]] = (
                {},
                set(),
                set(),
            )
            resources, required, forbidden = (
                empty
                if _LINE_BREAK in name
                else found.setdefault(suffix or "", empty)
            )
            if kind == "resources":
                _add_resource(resources, key, name, value)
            elif preferred_trait(key, value) is None and _is_trait(
                key, name, value
            ):
                (required if value == "required" else forbidden).add(name)
    # A group of which everything was left out is among them: it counts as a
    # group in Nova.
    return {
        suffix: RequestGroup(
            suffix,
            MappingProxyType(resources),
            frozenset(required),
            frozenset(forbidden),
        )
        for suffix, (resources, required, forbidden) in found.items()
    }


def _add_resource(
    resources: dict[str, int], key: str, name: str, value: object
) -> None:
    amount = resource_amount(value)
    is_class = is_resource_class(name)
    if (
        not (is_class or name.startswith(CUSTOM_PREFIX))
        or amount is None
        or amount < 0
    ):
        problem = "name a resource class, and be a whole number of at least 0"
        LOG.warning(_LEFT_OUT, quote(key), quote(value), problem)
    elif amount > LARGEST_AMOUNT:
        raise MalformedRequest(
            f"flavor extra spec {quote(key)}",
            value,
            f"an amount of at most {LARGEST_AMOUNT}",
        )
    elif is_class:
        resources[name] = amount
    elif amount:
        # Nova sends it, and Placement refuses the query; left out, the request
        # would fit on hosts without it.
        raise MalformedRequest(
            "flavor extra spec",
            key,
            f"{_start(key)}:CUSTOM_NAME with a NAME of A-Z, 0-9 and _",
        )


def _is_trait(key: str, name: str, value: object) -> bool:
    if value not in ("required", "forbidden") or not name:
        LOG.warning(
            _LEFT_OUT,
            quote(key),
            quote(value),
            "name a trait, and be required or forbidden",
        )
        return False
    if not is_trait_name(name):
        raise MalformedRequest(
            "flavor extra spec",
            key,
            f"{_start(key)}:NAME with a NAME of A-Z, 0-9 and _",
        )
    return True


def _start(key: str) -> str:
    """Return kind and suffix of a key: ``trait1`` of ``trait1:NAME``."""
    return key.partition(":")[0]


def preferred_trait(key: object, value: object) -> str | None:
    """Return the trait that an extra spec prefers; None if it does not.

    There are two spellings.

    ``trait:NAME=preferred``, which Nova's API refuses from microversion 2.86
    on, and ``preferred_trait:NAME=true``, in a namespace that Nova does not
    know and so leaves alone.
    """
    if not isinstance(key, str):
        return None
    if value == _PREFERRED:
        name = key.removeprefix(_TRAIT)
    else:
        name = key.removeprefix(_PREFERRED_TRAIT) if as_boolean(value) else key
    return name if name != key and is_trait_name(name) else None


def is_preference(key: object, value: object) -> bool:
    """Return whether an extra spec prefers a trait, well-formed or not."""
    return isinstance(key, str) and (
        key.startswith(_PREFERRED_TRAIT)
        or (value == _PREFERRED and key.startswith(_TRAIT))
    )


def respell_preferences(
    extra_specs: Mapping[str, Any], traits: Collection[str]
) -> dict[str, Any]:
    """Respell preferences of traits as ``preferred_trait:NAME=true``.

    Nova logs a warning of ``trait:NAME=preferred`` whenever it reads it.
    """
    keys = {
        trait_key(trait, ""): f"{_PREFERRED_TRAIT}{trait}" for trait in traits
    }
    respelled = {key for key in keys if extra_specs.get(key) == _PREFERRED}
    # Replaced and not removed: filters that are applied again must find the
    # same preferences. Last, as the flavor may have the other spelling with
    # another value.
    return {
        key: value
        for key, value in extra_specs.items()
        if key not in respelled
    } | {keys[key]: "true" for key in sorted(respelled)}


def resource_key(resource_class: str, suffix: str) -> str:
    """Return the extra spec that requests a resource class in a group.

    An empty ``suffix`` names the unsuffixed group.
    """
    return f"resources{suffix}:{resource_class}"


def regroup(
    extra_specs: Mapping[str, str], own_groups: Iterable[RequestGroup]
) -> dict[str, str]:
    """Move resource classes of the unsuffixed group into their own groups."""
    found = dict(extra_specs)
    for group in own_groups:
        suffix = group.requester_id
        for name in group.resources:
            # In their order: where both spellings are there, Nova takes the
            # last one.
            spellings = {
                resource_key(name, "") + end: resource_key(name, suffix) + end
                for end in ("", _LINE_BREAK)
            }
            found = {
                spellings.get(key, key): value for key, value in found.items()
            }
        found |= {
            trait_key(trait, suffix): "forbidden"
            for trait in sorted(group.forbidden_traits)
        }
    return found


def trait_key(trait: str, suffix: str) -> str:
    """Return the extra spec that puts a trait on a group.

    On the unsuffixed group if ``suffix`` is empty.
    """
    return f"trait{suffix}:{trait}"
