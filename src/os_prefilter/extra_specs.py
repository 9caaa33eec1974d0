"""The Placement part of a flavor's extra specs: ``resources$S:CLASS``, ``trait$S:NAME`` and ``group_policy``.

Parsed as Nova does it (``nova/scheduler/utils.py``, ``ResourceRequest``): what is not well-formed is left out with a
warning, except that a malformed trait name is an error, because it could smuggle other parameters into the query.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import os_resource_classes

from os_prefilter.errors import MalformedRequest, shown
from os_prefilter.vocabulary import is_trait_name

LOG = logging.getLogger(__name__)

_KEY = re.compile(r"(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*)", re.DOTALL)
_CUSTOM_CLASS = re.compile(r"CUSTOM_[A-Z0-9_]{1,248}")
_STANDARD_CLASSES = frozenset(os_resource_classes.STANDARDS)
# The largest amount that Placement can store: INTEGER of its database.
_LARGEST_AMOUNT = 2**31 - 1


@dataclass(slots=True)
class FlavorGroup:
    """One request group as the flavor's extra specs describe it."""

    resources: dict[str, int] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)


def flavor_groups(extra_specs: Mapping[str, object]) -> dict[str, FlavorGroup]:
    """Return the request groups of a flavor by suffix; the unsuffixed one under ``""``.

    :raises MalformedRequest: for a trait name that Placement could not have.
    """
    groups: dict[str, FlavorGroup] = {}
    for key, value in extra_specs.items():
        # Nearly all keys are hw:..., os:...: tell them apart before the regular expression does.
        if not key.startswith(("resources", "trait")):
            continue
        match = _KEY.fullmatch(key)
        if match:
            kind, suffix, name = match.groups()
            group = groups.setdefault(suffix or "", FlavorGroup())
            if kind == "resources":
                _add_resource(group, key, name, value)
            else:
                _add_trait(group, key, name, value)
    return groups


def _add_resource(group: FlavorGroup, key: str, name: str, value: object) -> None:
    if name not in _STANDARD_CLASSES and not _CUSTOM_CLASS.fullmatch(name):
        LOG.warning("The extra spec %s names no resource class; it is left out, as Nova does.", shown(key))
        return
    amount = resource_amount(value)
    if amount is None:
        LOG.warning(
            "The extra spec %s=%s is left out, as Nova does: the amount is not a whole number of at least 0.",
            shown(key),
            shown(value),
        )
        return
    group.resources[name] = amount


def resource_amount(value: object) -> int | None:
    """Return an amount of a resource as a whole number, None if it is not one that Placement can take."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    if isinstance(value, str) and (len(value) > 20 or not value.strip().isdecimal()):  # noqa: PLR2004
        return None
    amount = int(value)
    return amount if 0 <= amount <= _LARGEST_AMOUNT else None


def is_resource_class(name: object) -> bool:
    """Whether Placement could have a resource class of that name."""
    return isinstance(name, str) and (name in _STANDARD_CLASSES or bool(_CUSTOM_CLASS.fullmatch(name)))


def _add_trait(group: FlavorGroup, key: str, name: str, value: object) -> None:
    if not is_trait_name(name):
        raise MalformedRequest("flavor extra spec", key, "trait$S:NAME with a NAME of A-Z, 0-9 and _")
    if value == "required":
        group.required.add(name)
    elif value == "forbidden":
        group.forbidden.add(name)
    else:
        LOG.warning(
            "The extra spec %s=%s is left out, as Nova does: it must be required or forbidden.",
            shown(key),
            shown(value),
        )


def trait_key(trait: str, suffix: str) -> str:
    """Return the extra spec that puts ``trait`` on the group ``suffix``, the unsuffixed one if that is empty."""
    return f"trait{suffix}:{trait}"
