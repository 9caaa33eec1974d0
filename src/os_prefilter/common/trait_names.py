"""Trait names: which of them Placement could have, and the type of a checked one."""

from functools import lru_cache
from typing import NewType

from os_prefilter.common.quoting import quote

Trait = NewType("Trait", str)
"""The name of a trait: one of the vocabulary's, or one that :func:`trait_named` has checked; never a tenant's text."""

CUSTOM_PREFIX = "CUSTOM_"

_TRAIT_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_LONGEST_TRAIT = 255


def is_trait_name(name: object) -> bool:
    """Whether Placement could have a trait of that name (``placement/schemas/trait.py``)."""
    return isinstance(name, str) and len(name) <= _LONGEST_TRAIT and _has_trait_characters(name)


# The same few names, for every request.
@lru_cache(maxsize=1024)
def _has_trait_characters(name: str) -> bool:
    return bool(name) and set(name) <= _TRAIT_CHARACTERS


def trait_named(name: str) -> Trait:
    """Return a trait by a name that an operator or the author of a filter chose.

    :raises ValueError: if Placement could not have a trait of that name.
    """
    if not is_trait_name(name):
        raise ValueError(f"{quote(name)} is not the name of a trait: A-Z, 0-9 and _, 255 characters at most")
    return Trait(name)
