# SPDX-License-Identifier: Apache-2.0

"""The one reader of the fields of RequestSpec-like objects: Nova's, and ours.

The public interface of Nova's objects, of oslo.versionedobjects, goes through
several calls for each field, and raises or loads lazily where a field is
unset. A request has some thirty fields to read, and most are unset. The
objects keep the values in their ``__dict__`` under the field's name with a
prefix, which is checked once for each class. Neither Nova nor
oslo.versionedobjects is imported, nothing is written, and no field is loaded.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, TypeVar

_Owner = TypeVar("_Owner")
_Read = Callable[[Any], Iterable[Any]]

PREFIX = "_obj_"
"""Prefix of a versioned object's fields in its ``__dict__``."""
_CHANGED = "_changed_fields"


def field_of(owner: Any, name: str, default: Any = None) -> Any:
    """Return a field of a RequestSpec-like object or a part of it.

    ``default`` if it is unset or None.
    """
    if owner is None:
        return default
    fields = getattr(owner, "fields", None)
    if fields is None or name not in fields:
        value = getattr(owner, name, None)
    elif keeps_fields_in_dict(owner.__class__):
        value = vars(owner).get(PREFIX + name)
    else:
        value = getattr(owner, name) if owner.obj_attr_is_set(name) else None
    return default if value is None else value


def set_fields_of(owner: Any) -> dict[str, Any]:
    """Return the fields of a versioned object that are set, by name.

    Nova's ImageMetaProps has eighty; an image sets about ten, and ``__dict__``
    has those alone.
    """
    if keeps_fields_in_dict(owner.__class__):
        names = _names_by_key(owner.__class__)
        return {
            names[key]: value
            for key, value in vars(owner).items()
            if key in names
        }
    return {
        name: getattr(owner, name)
        for name in owner.fields
        if owner.obj_attr_is_set(name)
    }


@cache
def _names_by_key(kind: Any) -> Mapping[str, str]:
    return {PREFIX + name: name for name in kind.fields}


@cache
def keeps_fields_in_dict(kind: Any) -> bool:
    """Return whether a class keeps its fields in ``__dict__``, prefixed.

    So that a value there is what its public interface gives.
    """
    # Not kind(): the class of another service may need arguments.
    probe: Any = object.__new__(kind)
    name = next(iter(probe.fields))
    vars(probe)[PREFIX + name] = value = object()
    try:
        return (
            bool(probe.obj_attr_is_set(name)) and getattr(probe, name) is value
        )
    except AttributeError:
        # It reads what its __init__ would have set.
        return False


def clone_of(owner: _Owner, memo: dict[int, Any] | None = None) -> _Owner:
    """Return a deep copy of a RequestSpec-like object or of one of its parts.

    Objects of oslo.versionedobjects copy themselves by calling their class
    without arguments, which fails for one that needs some, and loses all but
    their fields. Here the fields are copied, and the rest is taken over.

    :param memo: as of :func:`copy.deepcopy`
    :raises Exception: as :func:`copy.deepcopy` does, if a part cannot be
        copied.
    """
    kind: Any = owner.__class__
    memo = {} if memo is None else memo
    is_versioned = hasattr(owner, "obj_attr_is_set") and keeps_fields_in_dict(
        kind
    )
    if not is_versioned or id(owner) in memo:
        return copy.deepcopy(owner, memo)
    # Before its fields: lists and mappings among them refer to their object.
    clone: _Owner = object.__new__(kind)
    memo[id(owner)] = clone
    for name, value in vars(owner).items():
        is_own = name.startswith(PREFIX) or name == _CHANGED
        vars(clone)[name] = clone_of(value, memo) if is_own else value
    return clone


class PartReaders(dict[Any, _Read]):
    """Readers of one part of a request spec, by the class of the part.

    Each is found when a class is first seen.

    A reader returns the values of the fields, None for one that is unset, and
    whether the class is known. An object of an unknown class may compute its
    values, so no two of them are taken for the same.

    :param kind: this library's class
    :param names: the fields, as Nova names them
    :param others: this library's names of fields that it names differently
    """

    def __init__(
        self,
        kind: type,
        names: Sequence[str],
        others: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._names = names
        self._others = others
        own = attrgetter(*(others.get(name, name) for name in names))
        unset = (*(None for _ in names), True)
        super().__init__(
            {
                kind: lambda owner: (*own(owner), True),
                type(None): lambda _none: unset,
            }
        )

    def __missing__(self, kind: Any) -> _Read:
        names = self._names
        if not (
            hasattr(kind, "obj_attr_is_set")
            and kind.fields.keys() >= set(names)
            and keeps_fields_in_dict(kind)
        ):
            return self._read_any
        keys = [PREFIX + name for name in names]
        self[kind] = reader = lambda owner: (*map(vars(owner).get, keys), True)
        return reader

    def _read_any(self, owner: Any) -> Iterable[Any]:
        values = [
            field_of(
                owner, self._others.get(name, name), field_of(owner, name)
            )
            for name in self._names
        ]
        return (*values, False)
