"""The demand of a request on a host, as conditions that can be dropped one by one.

The meaning of each parameter is Placement's (its API reference, "List Allocation Candidates", microversion 1.39).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

from os_prefilter.request.query import query_of
from os_prefilter.request.requirements import ROOT, UNSUFFIXED, AggregateRequirement, Requirement
from os_prefilter.request.spec import RequestGroup

RESOURCE, TRAIT, AGGREGATE, TREE, POLICY = "resource", "trait", "aggregate", "tree", "policy"
"""The kinds of a :class:`Condition`."""


class Condition(NamedTuple):
    """One thing that a query demands of a host."""

    kind: str
    scope: str
    """``ROOT``, ``UNSUFFIXED``, or a group's suffix; for
    groups that are alike, their suffixes joined by commas."""
    wanted: bool
    """False: forbidden."""
    names: tuple[str, ...]
    """A resource class; traits, aggregates, of which one is enough unless they are forbidden; suffixes; a provider."""
    amount: int = 0
    """The amount of the resource class, in its units."""

    def __str__(self) -> str:
        if self.kind == RESOURCE:
            return f"{self.names[0]}={self.amount}"
        if self.kind == TREE:
            return f"{'same_subtree' if self.scope == ROOT else 'in_tree'}={','.join(self.names)}"
        return ("" if self.wanted else "!") + "|".join(self.names)

    @property
    def suffix(self) -> str:
        """The suffix of the group; empty for the host itself, where root and unsuffixed group count as one."""
        return "" if self.scope in (ROOT, UNSUFFIXED) else self.scope


@dataclass(frozen=True, slots=True)
class Group:
    """One request group."""

    resources: Mapping[str, int] = field(default_factory=dict)
    required: tuple[frozenset[str], ...] = ()
    """Alternatives: a host needs at least one trait of each set."""
    forbidden: frozenset[str] = frozenset()
    member_of: tuple[frozenset[str], ...] = ()
    """Alternatives: a host is in at least one aggregate of each set."""
    not_member_of: frozenset[str] = frozenset()
    in_tree: str | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Resources that need not be given, but may be, with the traits of the provider that gives them; the group needs
    one of its resources in any case."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand of a query on one host."""

    groups: Mapping[str, Group]
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtree: tuple[tuple[str, ...], ...] = ()
    isolate: bool = False
    """Suffixed groups must come from different providers."""
    _parts: dict[object, Group] = field(default_factory=dict, repr=False, compare=False)

    def conditions(self) -> tuple[Condition, ...]:
        """Return all that is demanded, in a fixed order: resources, traits, aggregates, the rest."""
        found = [Condition(TRAIT, ROOT, True, (trait,)) for trait in sorted(self.root_required)]
        found += [Condition(TRAIT, ROOT, False, (trait,)) for trait in sorted(self.root_forbidden)]
        found += [item for suffix in self.groups for item in self._of_group(suffix)]
        found += [Condition(TREE, ROOT, True, suffixes) for suffixes in self.same_subtree]
        if self.isolate:
            found.append(Condition(POLICY, ROOT, True, ("isolate",)))
        order = (RESOURCE, TRAIT, AGGREGATE, TREE, POLICY)
        return tuple(dict.fromkeys(sorted(found, key=lambda item: order.index(item.kind))))

    def merge_alike(self) -> "Demand":
        """Return the same demand with groups that are alike as one, named by their suffixes joined by commas."""
        alike: dict[object, list[str]] = {}
        for suffix in self.groups:
            trees = tuple(suffix in names for names in self.same_subtree)
            conditions = frozenset(item._replace(scope="") for item in self._of_group(suffix))
            alike.setdefault((trees, conditions) if suffix else suffix, []).append(suffix)
        return replace(self, groups={",".join(each): self.groups[each[0]] for each in alike.values()})

    def only(self, kept: Collection[Condition]) -> "Demand":
        """Return what a host meets that Placement returns for any part of this demand that has all of ``kept``.

        A group of which nothing is kept is gone. A group always requests one of its resources: Placement looks for
        traits and aggregates on the providers that give something.
        """
        groups = {suffix: group for suffix in self.groups if (group := self._kept(suffix, kept))}
        of_root = demand_from(item for item in kept if item.scope == ROOT)
        return replace(of_root, groups=groups, same_subtree=_among(of_root.same_subtree, groups))

    def without(self, condition: Condition) -> "Demand":
        """Return the demand, as Placement would be queried, without one condition.

        Placement takes a group without resources only where ``same_subtree`` names it; any other is gone.
        """
        part = self.only([item for item in self.conditions() if item != condition])
        in_subtree = frozenset(chain.from_iterable(part.same_subtree))
        groups = {
            suffix: replace(group, dropped={})
            for suffix, group in part.groups.items()
            if group.resources or not group.dropped or not in_subtree.isdisjoint(suffix.split(","))
        }
        return replace(part, groups=groups, same_subtree=_among(part.same_subtree, groups))

    def find_implied(self, dropped: Collection[Condition]) -> frozenset[Condition]:
        """Return the conditions that go with those that are dropped: the rest of a group that has no resource left."""
        found: set[Condition] = set()
        for suffix, group in self.groups.items():
            conditions = list(self._of_group(suffix))
            if group.resources and all(item in dropped for item in conditions if item.kind == RESOURCE):
                found.update(item for item in conditions if item.kind != RESOURCE)
        return frozenset(found)

    def _of_group(self, suffix: str) -> Iterator[Condition]:
        group, scope = self.groups[suffix], suffix or UNSUFFIXED
        yield from (
            Condition(RESOURCE, scope, True, (name,), group.resources[name]) for name in sorted(group.resources)
        )
        yield from (Condition(TRAIT, scope, True, tuple(sorted(traits))) for traits in group.required)
        yield from (Condition(TRAIT, scope, False, (trait,)) for trait in sorted(group.forbidden))
        yield from (Condition(AGGREGATE, scope, True, tuple(sorted(names))) for names in group.member_of)
        if group.not_member_of:
            yield Condition(AGGREGATE, scope, False, tuple(sorted(group.not_member_of)))
        if group.in_tree:
            yield Condition(TREE, scope, True, (group.in_tree,))

    def _kept(self, suffix: str, kept: Collection[Condition]) -> Group | None:
        left = [item for item in self._of_group(suffix) if item in kept]
        if not left:
            return None
        # The same object each time: what serves it is remembered by it.
        key = suffix, *left
        if key not in self._parts:
            part, resources = _group_from(left), self.groups[suffix].resources
            dropped = {name: amount for name, amount in resources.items() if name not in part.resources}
            self._parts[key] = replace(part, dropped=dropped)
        return self._parts[key]


def demand_from(conditions: Iterable[Condition]) -> Demand:
    """Return the demand that has these conditions."""
    scopes: dict[str, list[Condition]] = {ROOT: []}
    for item in conditions:
        scopes.setdefault(item.scope, []).append(item)
    root = scopes.pop(ROOT)
    traits = _group_from(root)
    return Demand(
        {"" if scope == UNSUFFIXED else scope: _group_from(items) for scope, items in scopes.items()},
        frozenset(chain.from_iterable(traits.required)),
        traits.forbidden,
        tuple(item.names for item in root if item.kind == TREE),
        isolate=any(item.kind == POLICY for item in root),
    )


def _group_from(conditions: Collection[Condition]) -> Group:
    def names_of(kind: str, *, wanted: bool) -> Iterable[frozenset[str]]:
        return (frozenset(item.names) for item in conditions if item.kind == kind and item.wanted == wanted)

    return Group(
        resources={item.names[0]: item.amount for item in conditions if item.kind == RESOURCE},
        required=tuple(names_of(TRAIT, wanted=True)),
        forbidden=frozenset().union(*names_of(TRAIT, wanted=False)),
        member_of=tuple(names_of(AGGREGATE, wanted=True)),
        not_member_of=frozenset().union(*names_of(AGGREGATE, wanted=False)),
        in_tree=next((item.names[0] for item in conditions if item.kind == TREE), None),
    )


def _among(subtrees: Iterable[tuple[str, ...]], groups: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Return the suffixes that each ``same_subtree`` names, as far as there are such groups."""
    suffixes = frozenset(suffix for joined in groups for suffix in joined.split(","))
    return tuple(tuple(name for name in names if name in suffixes) for names in subtrees)


def condition_of(requirement: Requirement | AggregateRequirement) -> Condition:
    """Return the condition that a requirement is in the query; forbidden aggregates of several are one condition."""
    if isinstance(requirement, AggregateRequirement):
        return Condition(AGGREGATE, requirement.scope, requirement.required, requirement.aggregates)
    return Condition(TRAIT, requirement.scope, requirement.required, (requirement.trait,))


def demand_of(request_spec: Any) -> Demand:
    """Return the demand of a request's query, as conditions on a host.

    :raises RequestRejected: if part of the request cannot be put into a query.
    """
    query = query_of(request_spec)
    return Demand(
        {suffix: _demand_of_group(query.groups[suffix]) for suffix in sorted(query.groups)},
        query.root_required,
        query.root_forbidden,
        query.same_subtree,
        isolate=query.policy == "isolate",
    )


def _demand_of_group(group: RequestGroup) -> Group:
    return Group(
        dict(sorted(group.resources.items())),
        tuple(frozenset((trait,)) for trait in sorted(group.required_traits)),
        frozenset(group.forbidden_traits),
        tuple(map(frozenset, sorted(map(sorted, group.aggregates)))),
        frozenset(group.forbidden_aggregates),
        group.in_tree or None,
    )
