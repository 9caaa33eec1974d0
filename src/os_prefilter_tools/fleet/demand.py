# SPDX-License-Identifier: Apache-2.0

"""The demand of a request on a host, as droppable conditions.

The meaning of each parameter is Placement's (its API reference, "List
Allocation Candidates", microversion 1.39).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.request.query import Query
from os_prefilter.request.requirements import (
    ROOT,
    UNSUFFIXED,
    AggregateRequirement,
    Requirement,
)
from os_prefilter.request.spec import RequestGroup

RESOURCE, TRAIT, AGGREGATE, TREE, POLICY = (
    "resource",
    "trait",
    "aggregate",
    "tree",
    "policy",
)
"""What a :class:`Condition` can be about."""
_ORDER = (RESOURCE, TRAIT, AGGREGATE, TREE, POLICY)


class Condition(NamedTuple):
    """One thing that a query demands of a host."""

    kind: str
    scope: str
    """``ROOT``, ``UNSUFFIXED``, or a group's suffix.

    For equal groups, their suffixes joined by commas.
    """
    wanted: bool
    """False: forbidden."""
    names: tuple[str, ...]
    """What the condition names.

    A resource class; a trait; aggregates, of which one is enough unless they
    are forbidden; suffixes; a provider.
    """
    amount: int = 0
    """The amount of the resource class, in its units."""

    def __str__(self) -> str:
        if self.kind == RESOURCE:
            return f"{self.names[0]}={self.amount}"
        if self.kind == TREE:
            kind = "same_subtree" if self.scope == ROOT else "in_tree"
            return f"{kind}={','.join(self.names)}"
        if self.kind == POLICY:
            return f"group_policy={self.names[0]}"
        return ("" if self.wanted else "!") + "|".join(self.names)

    @property
    def suffix(self) -> str:
        """The suffix of the group; empty for the host itself.

        There the root and the unsuffixed group count as one.
        """
        return "" if self.scope in (ROOT, UNSUFFIXED) else self.scope


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand of a query on one host."""

    groups: Mapping[str, RequestGroup]
    """The request groups by suffix, the unsuffixed one under ``""``.

    See :meth:`merge_equal`.
    """
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtree: tuple[tuple[str, ...], ...] = ()
    isolate: bool = False
    """Suffixed groups must come from different providers."""
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Suffix -> optional resources, with the traits of their provider.

    They need not be given, but may be; the group needs one of its resources in
    any case.
    """

    def conditions(self) -> tuple[Condition, ...]:
        """Return all conditions: resources, traits, aggregates, the rest."""
        found = _trait_conditions(
            ROOT, self.root_required, self.root_forbidden
        )
        for suffix in self.groups:
            found += self._of_group(suffix)
        for suffixes in self.same_subtree:
            found.append(Condition(TREE, ROOT, True, suffixes))
        if self.isolate:
            found.append(Condition(POLICY, ROOT, True, ("isolate",)))
        found.sort(key=lambda item: _ORDER.index(item.kind))
        return tuple(dict.fromkeys(found))

    def merge_equal(self) -> Demand:
        """Return the same demand with equal groups as one.

        It is named by their suffixes, joined by commas.
        """
        equal: dict[object, list[str]] = {}
        for suffix in self.groups:
            trees = tuple(suffix in names for names in self.same_subtree)
            conditions = frozenset(
                item._replace(scope="") for item in self._of_group(suffix)
            )
            key = (trees, conditions) if suffix else suffix
            equal.setdefault(key, []).append(suffix)
        groups = {
            ",".join(suffixes): self.groups[suffixes[0]]
            for suffixes in equal.values()
        }
        return replace(self, groups=groups)

    def only(self, kept: Collection[Condition]) -> Demand:
        """Return what a host must meet for any part with all of ``kept``.

        Placement returns no other host for such a part.

        A group of which nothing is kept is gone. A group always requests one
        of its resources: Placement looks for traits and aggregates on the
        providers that give something.
        """
        groups = {}
        dropped = {}
        for suffix, group in self.groups.items():
            left = [item for item in self._of_group(suffix) if item in kept]
            if left:
                groups[suffix] = part = _group_from(tuple(left))
                dropped[suffix] = {
                    name: amount
                    for name, amount in group.resources.items()
                    if name not in part.resources
                }
        of_root = demand_from(item for item in kept if item.scope == ROOT)
        return replace(
            of_root,
            groups=groups,
            same_subtree=_among(of_root.same_subtree, groups),
            dropped=dropped,
        )

    def without(self, condition: Condition) -> Demand:
        """Return the demand without one condition, as Placement reads it.

        Placement takes a group without resources only where ``same_subtree``
        names it; any other is gone.
        """
        part = self.only(
            [item for item in self.conditions() if item != condition]
        )
        in_subtree = frozenset(chain.from_iterable(part.same_subtree))
        groups = {
            suffix: group
            for suffix, group in part.groups.items()
            if group.resources
            or not part.dropped[suffix]
            or not in_subtree.isdisjoint(suffix.split(","))
        }
        return replace(
            part,
            groups=groups,
            same_subtree=_among(part.same_subtree, groups),
            dropped={},
        )

    def find_implied(
        self, dropped: Collection[Condition]
    ) -> frozenset[Condition]:
        """Return the conditions that a drop takes with it.

        The rest of a group that has no resource left.
        """
        found: set[Condition] = set()
        for suffix, group in self.groups.items():
            conditions = list(self._of_group(suffix))
            if group.resources and all(
                item in dropped for item in conditions if item.kind == RESOURCE
            ):
                found.update(
                    item for item in conditions if item.kind != RESOURCE
                )
        return frozenset(found)

    def _of_group(self, suffix: str) -> Iterator[Condition]:
        group, scope = self.groups[suffix], suffix or UNSUFFIXED
        for name, amount in sorted(group.resources.items()):
            yield Condition(RESOURCE, scope, True, (name,), amount)
        yield from _trait_conditions(
            scope, group.required_traits, group.forbidden_traits
        )
        for names in sorted(map(sorted, group.aggregates)):
            yield Condition(AGGREGATE, scope, True, tuple(names))
        if group.forbidden_aggregates:
            forbidden = tuple(sorted(group.forbidden_aggregates))
            yield Condition(AGGREGATE, scope, False, forbidden)
        if group.in_tree:
            yield Condition(TREE, scope, True, (group.in_tree,))


def _trait_conditions(
    scope: str, required: Iterable[str], forbidden: Iterable[str]
) -> list[Condition]:
    found = []
    for traits, wanted in ((required, True), (forbidden, False)):
        found += [
            Condition(TRAIT, scope, wanted, (trait,))
            for trait in sorted(traits)
        ]
    return found


def demand_from(conditions: Iterable[Condition]) -> Demand:
    """Return the demand that has these conditions."""
    scopes: dict[str, list[Condition]] = {ROOT: []}
    for item in conditions:
        scopes.setdefault(item.scope, []).append(item)
    root = scopes.pop(ROOT)
    traits = _group_from(tuple(root))
    groups = {}
    for scope, items in scopes.items():
        suffix = "" if scope == UNSUFFIXED else scope
        groups[suffix] = _group_from(tuple(items))
    return Demand(
        groups,
        frozenset(traits.required_traits),
        frozenset(traits.forbidden_traits),
        tuple(item.names for item in root if item.kind == TREE),
        isolate=any(item.kind == POLICY for item in root),
    )


# The same object each time: the matcher remembers by it what serves the group.
@lru_cache(4_000)
def _group_from(conditions: tuple[Condition, ...]) -> RequestGroup:
    resources: dict[str, int] = {}
    required, forbidden = set[str](), set[str]()
    aggregates: list[list[str]] = []
    forbidden_aggregates = set[str]()
    in_tree = None
    for kind, _, wanted, names, amount in conditions:
        if kind == RESOURCE:
            resources[names[0]] = amount
        elif kind == TRAIT and wanted:
            required.update(names)
        elif kind == TRAIT:
            forbidden.update(names)
        elif kind == AGGREGATE and wanted:
            aggregates.append(list(names))
        elif kind == AGGREGATE:
            forbidden_aggregates.update(names)
        elif kind == TREE:
            in_tree = names[0]
    return RequestGroup(
        "",
        resources,
        required,
        forbidden,
        aggregates,
        forbidden_aggregates,
        in_tree,
    )


def _among(
    subtrees: Iterable[tuple[str, ...]], groups: Iterable[str]
) -> tuple[tuple[str, ...], ...]:
    """Return the existing suffixes that each ``same_subtree`` names."""
    suffixes = frozenset(
        suffix for joined in groups for suffix in joined.split(",")
    )
    return tuple(
        tuple(name for name in names if name in suffixes) for names in subtrees
    )


def condition_of(requirement: Requirement | AggregateRequirement) -> Condition:
    """Return the condition of a requirement in the query.

    Forbidden aggregates of several requirements are one condition.
    """
    if isinstance(requirement, AggregateRequirement):
        return Condition(
            AGGREGATE,
            requirement.scope,
            requirement.required,
            requirement.aggregates,
        )
    return Condition(
        TRAIT, requirement.scope, requirement.required, (requirement.trait,)
    )


def demand_of(query: Query) -> Demand:
    """Return the demand of a query, as conditions on a host."""
    groups = dict(sorted(query.groups.items()))
    root = query.root_required, query.root_forbidden
    return Demand(
        groups, *root, query.same_subtree, isolate=query.policy == "isolate"
    )
