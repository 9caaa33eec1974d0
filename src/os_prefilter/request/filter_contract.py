# SPDX-License-Identifier: Apache-2.0

"""The contract of a filter: its declared needs, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, TypeVar

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.vocabulary.options import Options

OPTIONS = "options"
REQUIRED_BEFORE = "required_before"
NEEDS = frozenset((OPTIONS, REQUIRED_BEFORE))
"""Needs that every pipeline provides; any other need is a fact."""

F = TypeVar("F", bound=Callable[..., Any])


class UnknownFact(Enum):
    """The type of :data:`UNKNOWN`."""

    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return "<unknown>"

    def __bool__(self) -> bool:
        # Else a filter would take it for a no.
        raise TypeError(
            "a deployment fact that is not known is neither true nor false:"
            " compare it with 'is UNKNOWN'"
        )


UNKNOWN: Final = UnknownFact.UNKNOWN
"""Value of a deployment fact that could not be read yet.

A filter gets it if it declares so.
"""


@dataclass(frozen=True, slots=True)
class Declaration:
    """Declare properties of a filter: a decorator of its function.

    Its parameters say what it needs.
    """

    gate: str = ""
    """The fact that must be true before the filter runs; empty for none."""
    takes_unknown: bool = False
    """True if it runs while a fact is not known, and gets :data:`UNKNOWN`.

    Else it waits.
    """
    closed: str = ""
    """Why it is not run while that fact is not true; a format of ``options``.
    """
    traits: Callable[[Options], Iterable[str]] = lambda _options: ()
    """Returns the traits that hosts must report for it.

    Besides those of the vocabulary that the options let it require.
    """
    other_traits: Callable[[Options], Iterable[str]] = lambda _options: ()
    """Returns the other traits that it may name, such as forbidden ones.

    Placement must know them.
    """

    excludes: str = ""
    """The reason under which ``diagnose`` counts the hosts it excludes.

    Empty: the kind of each requirement.
    """
    by_default: bool = True
    """True if commands enable it where no filters are named.

    Neither by a configuration file nor by an argument.
    """
    reads: tuple[str, ...] = ()
    """Fields of a request that it reads beyond those of each view.

    Beyond image, flavor, groups and traits of the root: ``project_id``,
    ``availability_zone``, ``scheduler_hints``, ``networks``, ``destination``,
    ``same_subtree``, ``server_options``, or another field of image or flavor,
    as ``flavor.name``. A decision is taken again only for requests that are
    equal in these as well.
    """
    only_new: bool = False
    """True if it does not matter for an instance that is on its host."""

    def __call__(self, function: F) -> F:
        """Declare this of a filter."""
        function.declaration = self  # type: ignore[attr-defined]
        return function


NOTHING_SPECIAL = Declaration()


@dataclass(frozen=True, slots=True)
class LoadedFilter:
    """A filter that is ready to be called."""

    name: str
    """The name of its entry point."""
    function: Callable[..., Any]
    needs: tuple[str, ...] = ()
    """The keyword-only parameters that it declares."""
    nova_style: bool = False
    declaration: Declaration = NOTHING_SPECIAL

    @property
    def facts(self) -> tuple[str, ...]:
        """The names of the facts that it needs, or its gate."""
        gate = (self.declaration.gate,) if self.declaration.gate else ()
        return (*(need for need in self.needs if need not in NEEDS), *gate)

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]
