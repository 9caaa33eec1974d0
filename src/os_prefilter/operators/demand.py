"""What an allocation-candidates query demands, taken apart into conditions that can be dropped one by one.

The meaning of each parameter is Placement's (its API reference, "List Allocation Candidates", microversion 1.39).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import parse_qsl

from os_prefilter.requirements import ROOT, UNSUFFIXED, Requirement

RESOURCE, TRAIT, AGGREGATE, TREE, POLICY = "resource", "trait", "aggregate", "tree", "policy"
"""The kinds of a :class:`Condition`."""


class Condition(NamedTuple):
    """One thing that a query demands of a host."""

    kind: str
    scope: str
    """:data:`~os_prefilter.requirements.ROOT`, :data:`~os_prefilter.requirements.UNSUFFIXED`, or a group's suffix."""
    wanted: bool
    """False: forbidden."""
    names: tuple[str, ...]
    """A resource class; traits, aggregates, of which one is enough unless they are forbidden; suffixes; a provider."""
    amount: int = 0
    """Of the resource class, in its units."""

    def __str__(self) -> str:
        if self.kind == RESOURCE:
            return f"{self.names[0]}={self.amount}"
        return ("" if self.wanted else "!") + "|".join(self.names)

    @property
    def suffix(self) -> str:
        """Of the group, empty for the host itself: filters may ask its root and the unsuffixed group for one trait."""
        return "" if self.scope in (ROOT, UNSUFFIXED) else self.scope


@dataclass(frozen=True, slots=True)
class Group:
    """One request group."""

    resources: Mapping[str, int] = field(default_factory=dict)
    required: tuple[frozenset[str], ...] = ()
    """Of each set one trait."""
    forbidden: frozenset[str] = frozenset()
    member_of: tuple[frozenset[str], ...] = ()
    """Of each set one aggregate."""
    not_member_of: frozenset[str] = frozenset()
    in_tree: str | None = None
    lacks_resources: bool = False
    """Some of its resources were dropped: any provider of the host may take their place, and bring its traits."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a query demands of one host."""

    groups: Mapping[str, Group]
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtree: tuple[tuple[str, ...], ...] = ()
    isolate: bool = False
    """Suffixed groups must come from different providers."""

    def conditions(self) -> tuple[Condition, ...]:
        """Return all that is demanded, in a fixed order: resources, traits, aggregates, the rest."""
        found = [*self._of_the_root(), *(item for suffix in self.groups for item in self._of_group(suffix))]
        found += [Condition(TREE, ROOT, True, suffixes) for suffixes in self.same_subtree]
        if self.isolate:
            found.append(Condition(POLICY, ROOT, True, ("isolate",)))
        order = (RESOURCE, TRAIT, AGGREGATE, TREE, POLICY)
        return tuple(dict.fromkeys(sorted(found, key=lambda item: order.index(item.kind))))

    def only(self, kept: Collection[Condition]) -> "Demand":
        """Return the demand that is left of this one; a group of which nothing is kept is gone."""
        groups = {suffix: self._kept(suffix, kept) for suffix in self.groups}
        groups = {suffix: group for suffix, group in groups.items() if group != Group(lacks_resources=True)}
        subtrees = [each.names for each in kept if each.kind == TREE and each.scope == ROOT]
        return Demand(
            groups=groups,
            root_required=frozenset(t for t in self.root_required if Condition(TRAIT, ROOT, True, (t,)) in kept),
            root_forbidden=frozenset(t for t in self.root_forbidden if Condition(TRAIT, ROOT, False, (t,)) in kept),
            same_subtree=tuple(tuple(name for name in names if name in groups) for names in subtrees),
            isolate=self.isolate and Condition(POLICY, ROOT, True, ("isolate",)) in kept,
        )

    def _of_the_root(self) -> Iterator[Condition]:
        for wanted, traits in ((True, self.root_required), (False, self.root_forbidden)):
            yield from (Condition(TRAIT, ROOT, wanted, (trait,)) for trait in sorted(traits))

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

    def _kept(self, suffix: str, kept: Collection[Condition]) -> Group:
        group, left = self.groups[suffix], [item for item in self._of_group(suffix) if item in kept]

        def of(kind: str, *, wanted: bool) -> Iterable[tuple[str, ...]]:
            return (item.names for item in left if item.kind == kind and item.wanted == wanted)

        resources = {item.names[0]: item.amount for item in left if item.kind == RESOURCE}
        return replace(
            group,
            resources=resources,
            required=tuple(map(frozenset, of(TRAIT, wanted=True))),
            forbidden=frozenset(name for (name,) in of(TRAIT, wanted=False)),
            member_of=tuple(map(frozenset, of(AGGREGATE, wanted=True))),
            not_member_of=frozenset(name for names in of(AGGREGATE, wanted=False) for name in names),
            in_tree=next((names[0] for names in of(TREE, wanted=True)), None),
            lacks_resources=group.lacks_resources or len(resources) < len(group.resources) or not left,
        )


def condition_of(requirement: Requirement) -> Condition:
    """Return the condition that a requirement is in the query."""
    return Condition(TRAIT, requirement.scope, requirement.required, (requirement.trait,))


def demand_of(query: str) -> Demand:
    """Return what a query string demands, as :func:`os_prefilter.allocation_candidates_query` writes it."""
    groups: dict[str, Group] = {}
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtree: list[tuple[str, ...]] = []
    isolate = False
    for name, value in parse_qsl(query):
        if name == "root_required":
            root_required, root_forbidden = _signed(value)
        elif name == "same_subtree":
            same_subtree.append(tuple(value.split(",")))
        elif name == "group_policy":
            isolate = value == "isolate"
        elif name != "limit":
            parameter = next(
                each for each in ("resources", "required", "member_of", "in_tree") if name.startswith(each)
            )
            suffix = name.removeprefix(parameter)
            groups[suffix] = _with(groups.get(suffix, Group()), parameter, value)
    return Demand(dict(sorted(groups.items())), root_required, root_forbidden, tuple(same_subtree), isolate)


def _with(group: Group, parameter: str, value: str) -> Group:
    """Return the group with one more parameter of the query."""
    if parameter == "resources":
        pairs = (each.split(":") for each in value.split(","))
        return replace(group, resources={name: int(amount) for name, amount in pairs})
    if parameter == "in_tree":
        return replace(group, in_tree=value)
    if parameter == "required":
        if value.startswith("in:"):
            return replace(group, required=(*group.required, frozenset(value[3:].split(","))))
        required, forbidden = _signed(value)
        each = tuple(frozenset((trait,)) for trait in sorted(required))
        return replace(group, required=group.required + each, forbidden=group.forbidden | forbidden)
    names = frozenset(value.removeprefix("!").removeprefix("in:").split(","))
    if value.startswith("!"):
        return replace(group, not_member_of=group.not_member_of | names)
    return replace(group, member_of=(*group.member_of, names))


def _signed(value: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the required and the forbidden traits of ``A,B,!C``."""
    traits = value.split(",")
    forbidden = frozenset(trait[1:] for trait in traits if trait.startswith("!"))
    return frozenset(trait for trait in traits if not trait.startswith("!")), forbidden
