# SPDX-License-Identifier: Apache-2.0

"""``dataclass`` with keyword-only fields, on Python 3.9 as well."""

from __future__ import annotations

import sys

__all__ = ["dataclass"]

if sys.version_info >= (3, 10):
    from dataclasses import dataclass
else:
    import dataclasses
    from functools import partial

    def _raise_missing(name):  # noqa: ANN001, ANN202 - mypy checks for 3.10
        raise TypeError(f"missing required keyword argument: {name!r}")

    def dataclass(cls=None, /, *, kw_only=False, slots=False, **options):  # noqa: ANN001, ANN003, ANN201, ARG001
        """Make a data class as Python 3.10 does.

        Its fields may be given by position, and instances have no slots. No
        ``InitVar``, no ``field()`` without a default after one with a default,
        and no class below it that has a field without and is not keyword-only.
        """
        if cls is None:
            return partial(dataclass, kw_only=kw_only, **options)
        if kw_only:
            # A field without a default may follow one with a default.
            for name, kind in vars(cls).get("__annotations__", {}).items():
                if "ClassVar" not in str(kind) and not hasattr(cls, name):
                    missing = partial(_raise_missing, name)
                    setattr(
                        cls, name, dataclasses.field(default_factory=missing)
                    )
        return dataclasses.dataclass(cls, **options)
