# SPDX-License-Identifier: Apache-2.0

"""Findings: source, state and suggested change of each requirement.

They include the hosts that fail it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import os_traits

from os_prefilter.common.quoting import (
    escape_line,
    join_first_names,
    join_names,
)
from os_prefilter.common.trait_names import CUSTOM_PREFIX
from os_prefilter.request.extra_specs import resource_key
from os_prefilter.request.query import (
    BY_REQUEST,
    query_of,
    requirements_without_filters,
)
from os_prefilter.request.requirements import (
    ROOT,
    UNSUFFIXED,
    AggregateRequirement,
    Requirement,
)
from os_prefilter.request.view import Request
from os_prefilter.service import Service
from os_prefilter.vocabulary import table
from os_prefilter.vocabulary.filter_rows import SEVERAL_CPU_MODELS
from os_prefilter_tools.fleet.demand import (
    AGGREGATE,
    POLICY,
    RESOURCE,
    TRAIT,
    TREE,
    Condition,
    condition_of,
)
from os_prefilter_tools.fleet.matching import Host, capacity_of
from os_prefilter_tools.fleet.model import Inventory
from os_prefilter_tools.operators.diagnose import result
from os_prefilter_tools.operators.diagnose.result import Finding
from os_prefilter_tools.operators.diagnose.shortfall import Shortfalls

_MOST_NAMES = 5
_FIELDS = {
    "VCPU": "flavor vcpus",
    "PCPU": "flavor vcpus, and dedicated CPUs",
    "MEMORY_MB": "flavor ram",
    "DISK_GB": "flavor disk, ephemeral and swap",
    "MEM_ENCRYPTION_CONTEXT": "memory encryption",
}


class Sources:
    """A service applied to a request: the query, and its sources.

    Each condition of the query has a source.
    """

    def __init__(self, request_spec: Any, service: Service) -> None:
        """Apply the service.

        :raises RequestRejected: a filter, or Nova's own translation, rejects
            the request, or it cannot be a query
        """
        self.request = Request(request_spec)
        # Before the service adds to it.
        from_request = requirements_without_filters(self.request)
        self.decision = decision = service.apply(request_spec)
        self.query = query_of(request_spec)
        self._excludes = {
            each.name: each.declaration.excludes for each in service.filters
        }
        self._required: dict[Condition, tuple[str, str]] = {}
        # What the request requires comes first: it stays when the filter is
        # switched off.
        items: list[Requirement | AggregateRequirement] = [
            *from_request,
            *decision.requirements,
            *decision.aggregates,
        ]
        for item in items:
            because = (
                item.because
                if isinstance(item, AggregateRequirement)
                else item.source
            )
            self._required.setdefault(
                condition_of(item), (item.filter, escape_line(because))
            )

    def of(self, condition: Condition) -> tuple[str, str]:
        """Return the filter that requires a condition, and the reason.

        Or ``request`` for the filter.

        Of equal request groups, it is that of the first.
        """
        first, *equal = condition.scope.split(",")
        by, because = BY_REQUEST, f"the request group {escape_line(first)}"
        if condition.kind == TRAIT:
            by, because = self._required.get(
                condition._replace(scope=first), (by, because)
            )
        elif condition in self._required:
            by, because = self._required[condition]
        else:
            because = escape_line(
                self._field_of(condition._replace(scope=first))
            )
        return by, f"{because} and {len(equal)} equal" if equal else because

    def reason(self, condition: Condition) -> str:
        """Return the reason under which hosts that fail a condition count."""
        if declared := self._excludes.get(self.of(condition)[0]):
            return declared
        if condition.names == (os_traits.COMPUTE_STATUS_DISABLED,):
            return result.DISABLED
        of_kind = {
            TRAIT: result.TRAITS,
            RESOURCE: result.RESOURCES,
            AGGREGATE: result.AGGREGATE,
        }
        return of_kind.get(condition.kind, result.PLACE)

    def _field_of(self, condition: Condition) -> str:
        if condition.kind == POLICY:
            return "flavor extra spec group_policy=isolate"
        if condition.scope in self.request.requested_groups:
            return f"request group {condition.scope}"
        if condition.kind == AGGREGATE:
            return (
                "the availability zone, tenant or image that aggregates"
                " are for"
                if condition.wanted
                else "isolation"
            )
        if condition.kind == TREE:
            return (
                "same_subtree of the request"
                if condition.scope == ROOT
                else "the host that the request names"
            )
        name, groups = condition.names[0], self.request.flavor_groups
        for suffix in (condition.suffix, ""):
            if suffix in groups and name in groups[suffix].resources:
                return f"flavor extra spec {resource_key(name, suffix)}"
        return _FIELDS.get(name, "flavor and image")


def findings(
    now: Shortfalls,
    empty: Shortfalls,
    sources: Sources,
    hosts: Sequence[Host],
    unknown: Collection[str],
) -> tuple[Finding, ...]:
    """Return a finding for each requirement.

    :param unknown: the traits that do not exist in Placement, as far as it
        answered
    """
    reasons = {item: sources.reason(item) for item in now.conditions}
    providers = {each.uuid: each for host in hosts for each in host.providers}
    offered = frozenset().union(
        *(each.traits | each.resources.keys() for each in providers.values())
    )
    if_empty = frozenset[str]()
    if not now.candidates:
        if_empty = frozenset(empty.candidates)
    to_free = now.find_to_free(host for host in hosts if host.name in if_empty)
    bare_metal = _bare_metal(now.conditions, hosts)
    found = []
    for number, item in enumerate(now.conditions, 1):
        by, because = sources.of(item)
        state = _state(item, now, empty, offered, unknown)
        freed = []
        help_text = ""
        if item.kind == RESOURCE:
            freed = [
                (host, names)
                for host, sets in to_free.items()
                for names in sets
                if item.names[0] in names
            ]
        if state != result.MET:
            help_text = bare_metal.get(item) or _remedy(
                item, state, because, now, freed
            )
        free_on = dict.fromkeys(host for host, _ in freed)
        finding = Finding(
            number=number,
            condition=item,
            by=by,
            because=because,
            state=state,
            hosts_lacking=now.count_lacking(item),
            hosts_lacking_only_this=now.count_lacking_only(item),
            candidates_without_it=now.count_if_dropped(item),
            others_kept_out_by=_kept_out(now, item, reasons),
            free_on=tuple(free_on),
            help=help_text,
        )
        found.append(finding)
    return tuple(found)


def _state(
    item: Condition,
    now: Shortfalls,
    empty: Shortfalls,
    offered: frozenset[str],
    unknown: Collection[str],
) -> str:
    if item.kind == TRAIT and not frozenset(item.names).isdisjoint(unknown):
        return result.UNKNOWN
    if now.count_lacking(item) < now.hosts:
        return result.MET if now.candidates else result.ELSEWHERE
    if (
        item.wanted
        and item.kind in (TRAIT, RESOURCE)
        and offered.isdisjoint(item.names)
    ):
        return result.NOWHERE
    met_if_empty = empty.count_lacking(item) < empty.hosts
    if item.kind == RESOURCE:
        return result.FULL if met_if_empty else result.TOO_LARGE
    return result.ELSEWHERE if met_if_empty else result.NO_HOST


def _kept_out(
    now: Shortfalls, item: Condition, reasons: Mapping[Condition, str]
) -> dict[str, int]:
    """Return what else excludes the hosts that meet a requirement.

    A host that fails several others counts once.
    """
    counts: Counter[str] = Counter()
    for host, sets in now.to_drop.items():
        if item not in now.lacks[host] and sets[0]:
            counts[
                " + ".join(
                    sorted({reasons[each] for each in min(sets, key=len)})
                )
            ] += 1
    return dict(sorted(counts.items()))


# -- suggested changes
# -----------------------------------------------------------------------------


def _remedy(
    item: Condition,
    state: str,
    because: str,
    now: Shortfalls,
    freed: Iterable[tuple[str, frozenset[str]]],
) -> str:
    """Return the suggested change.

    :param freed: hosts where that helps, and the resource classes to free
        together
    """
    if item.kind == TRAIT:
        return _remedy_for_trait(item, state, because, now)
    if item.kind == RESOURCE:
        name = item.names[0]
        helps = {
            result.NOWHERE: (
                f"No host has the resource class {name}: check its name in the"
                f" {because}."
            ),
            result.TOO_LARGE: (
                "No host is that large: use a smaller flavor, or add a larger"
                " host."
            ),
        }.get(
            state,
            f"Take or add a host with that much {name} and the rest, or use a"
            " smaller flavor.",
        )
        return _free(freed) or helps
    if item.kind == AGGREGATE:
        return (
            "Add suitable hosts to such an aggregate, or request another zone."
            if item.wanted
            else (
                "These aggregates are reserved: take hosts out of them, or"
                " request what they are reserved for."
            )
        )
    if item.kind == POLICY:
        return (
            "Each group needs a provider of its own: group_policy=none lets"
            " them share one."
        )
    if item.scope != ROOT:
        return "The request names this host: name another one, or none."
    return (
        "One of the providers of the groups"
        f" {escape_line(join_names(item.names))} must be above the others:"
        " take or add a host with such a tree of providers, or leave out"
        " same_subtree."
    )


def _bare_metal(
    conditions: Collection[Condition], hosts: Sequence[Host]
) -> dict[Condition, str]:
    """Return the flavor's changes for bare metal, by resource class.

    There is one for each amount that such nodes do not have.

    Nova requests the flavor's CPUs, memory and disk too, until extra specs set
    them to 0.
    """
    amounts = [
        item
        for item in conditions
        if item.kind == RESOURCE and item.scope == UNSUFFIXED
    ]
    offered = []
    for host in hosts:
        providers = host.providers
        offered.append(
            set[str]().union(*(each.resources for each in providers))
        )
    found = {}
    for item in amounts:
        name = item.names[0]
        having = [classes for classes in offered if name in classes]
        present = set[str]().union(*having)
        missing = [
            each
            for each in amounts
            if each.names[0] in _FIELDS and each.names[0] not in present
        ]
        if name.startswith(CUSTOM_PREFIX) and having and missing:
            names = [each.names[0] for each in missing]
            specs = join_names([f"resources:{each}=0" for each in names])
            text = (
                f"Hosts with {name} have no {join_names(names)}: set {specs}"
                " in a flavor for bare metal."
            )
            found.update(dict.fromkeys((item, *missing), text))
    return found


def _free(freed: Iterable[tuple[str, frozenset[str]]]) -> str:
    """Return the suggestion to free resources, or empty.

    The fewest come first; empty if it helps nowhere.
    """
    together: dict[tuple[str, ...], dict[str, None]] = {}
    for host, free in freed:
        together.setdefault(tuple(sorted(free)), {})[host] = None
    ways = sorted(together.items(), key=lambda each: (len(each[0]), each[0]))[
        :_MOST_NAMES
    ]
    lines = [
        f"{' and '.join(names)} on"
        f" {join_first_names(list(hosts), _MOST_NAMES)}"
        for names, hosts in ways
    ]
    return (
        f"Free {'; or '.join(lines)}; or add hosts, or use a smaller flavor."
        if lines
        else ""
    )


def _remedy_for_trait(
    item: Condition, state: str, because: str, now: Shortfalls
) -> str:
    name, change = "|".join(item.names), f"change {because}"
    if state == result.UNKNOWN:
        return (
            f"{name} does not exist in Placement: correct {because}, or report"
            " it from a capable host."
        )
    if not item.wanted:
        if item.names == (os_traits.COMPUTE_STATUS_DISABLED,):
            hosts = sorted(
                host for host, sets in now.to_drop.items() if {item} in sets
            )
            names = (
                join_first_names(hosts, _MOST_NAMES)
                or "hosts that meet the rest"
            )
            return (
                f"Enable the compute services of {names}: openstack compute"
                " service set --enable."
            )
        how = f"Take hosts without {name}"
        if item.names == (SEVERAL_CPU_MODELS,):
            # Nova gives the guest a model that has what its flavor requires.
            how = (
                "Name the CPU features in the flavor"
                " (trait:HW_CPU_...=required), take hosts with one model in"
                " [libvirt] cpu_models"
            )
        return f"{how}, or {change}."
    if item.names[0].startswith("OWNER_"):
        return (
            f"The providers need the trait {name} of the service that owns"
            " them; see the filter owner."
        )
    if state != result.NOWHERE:
        return f"Take or add a host that has it, or {change}."
    how = (
        "set it on the hosts that should have it ('openstack resource provider"
        " trait set', which replaces all traits of the provider: name the"
        " present ones, too)"
    )
    # Of capability reporters.
    if frozenset(trait for row in table() for trait in row.traits).issuperset(
        item.names
    ):
        how = (
            "'os-prefilter capabilities show' on a host shows whether it has"
            " it, and why not"
        )
    elif item.names[0].startswith("HW_CPU_"):
        how = (
            "nova-compute reports it of the CPU that guests get. Add a host"
            " with it, or name a newer model in [libvirt] cpu_models"
        )
    return f"No host has {name}: {how}; otherwise {change}."


def describe_instead(host: Host, item: Condition) -> str:
    """Describe briefly what a host has that does not meet a requirement."""
    if item.kind == RESOURCE:
        name = item.names[0]
        rooms = Counter(
            _describe_free(each.resources[name])
            for each in host.providers
            if name in each.resources
        )
        return (
            "; ".join(
                f"{count} x {room}" if count > 1 else room
                for room, count in rooms.items()
            )
            or f"no {name}"
        )
    if item.kind == TRAIT:
        providers = (host.root,) if item.scope == ROOT else host.providers
        having = [
            each.name
            for each in providers
            if not each.traits.isdisjoint(item.names)
        ]
        if having == [host.name] == [each.name for each in providers]:
            return "has it"
        if not item.wanted:
            return (
                f"has it on {join_names(having)}"
                if having
                else "no provider without it is left for the group"
            )
        return (
            f"has it only on {join_names(having)}"
            if having
            else "does not have it"
        )
    if item.kind == AGGREGATE:
        return "is in one of them" if not item.wanted else "is in none of them"
    return (
        "its providers are in different subtrees"
        if item.scope == ROOT
        else "is another host"
    )


def _describe_free(inventory: Inventory) -> str:
    capacity = capacity_of(inventory)
    text = f"{max(0, capacity - inventory.used)} of {capacity} free"
    if inventory.max_unit < capacity:
        text += f", at most {inventory.max_unit} an instance"
    return text
