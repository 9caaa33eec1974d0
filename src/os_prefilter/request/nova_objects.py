"""Reading Nova's objects, of oslo.versionedobjects, without importing either.

Their public interface goes through several calls for each field, and raises or loads lazily where a field is unset. A
request has some thirty fields to look at, and most are unset. The objects keep the values in their ``__dict__`` under
the field's name with a prefix; whether that still holds is asked of each class once.
"""

import copy
from functools import cache
from typing import Any, TypeVar

_Owner = TypeVar("_Owner")

PREFIX = "_obj_"
"""Before the name of a field in an object's ``__dict__``."""


def field_of(owner: Any, name: str, default: Any = None) -> Any:
    """Return a field of a RequestSpec-like object or of one of its parts; ``default`` if it is unset or None."""
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
    """Return the fields of an object of oslo.versionedobjects that are set, by name."""
    if keeps_fields_in_dict(owner.__class__):
        start = len(PREFIX)
        return {key[start:]: value for key, value in vars(owner).items() if key.startswith(PREFIX)}
    return {name: getattr(owner, name) for name in owner.fields if owner.obj_attr_is_set(name)}


@cache
def keeps_fields_in_dict(kind: Any) -> bool:
    """Whether a value under the prefixed name is what the class's public interface gives for the field."""
    # Not kind(): the class of another service may need arguments.
    probe: Any = object.__new__(kind)
    name = next(iter(probe.fields))
    vars(probe)[PREFIX + name] = value = object()
    try:
        return bool(probe.obj_attr_is_set(name)) and getattr(probe, name) is value
    except AttributeError:
        # It reads what its __init__ would have set.
        return False


def clone_of(owner: _Owner) -> _Owner:
    """Return a deep copy of a RequestSpec-like object or of one of its parts.

    Objects of oslo.versionedobjects copy themselves by calling their class without arguments, which fails for one that
    needs some, and loses all but their fields. Here the fields are copied, and the rest is taken over.

    :raises Exception: as :func:`copy.deepcopy` does, if a part cannot be copied.
    """
    return _cloned(owner, {})


def _cloned(owner: _Owner, memo: dict[int, Any]) -> _Owner:
    kind: Any = owner.__class__
    is_versioned = hasattr(owner, "obj_attr_is_set") and keeps_fields_in_dict(kind)
    if not is_versioned or id(owner) in memo:
        return copy.deepcopy(owner, memo)
    # Before its fields: lists and mappings among them refer to their object.
    clone: _Owner = object.__new__(kind)
    memo[id(owner)] = clone
    for name, value in vars(owner).items():
        is_own = name.startswith(PREFIX) or name == _CHANGED
        vars(clone)[name] = _cloned(value, memo) if is_own else value
    return clone


_CHANGED = "_changed_fields"
