"""What a host has in place of what is asked for, and the change that would help."""

from collections import Counter
from functools import cache

import os_traits

from os_prefilter.common.quoting import escape_line, join_names
from os_prefilter.fleet.matching import Host
from os_prefilter.fleet.model import Inventory
from os_prefilter.operators.diagnose.result import FULL, NOWHERE, TOO_LARGE, UNKNOWN
from os_prefilter.request.demand import AGGREGATE, POLICY, RESOURCE, TRAIT, Condition
from os_prefilter.request.requirements import ROOT
from os_prefilter.vocabulary import table


@cache
def _of_reporters() -> frozenset[str]:
    """Return the traits that capability reporters answer for."""
    return frozenset(trait for row in table() for trait in row.traits)


def has_instead(host: Host, item: Condition) -> str:
    """Return what a host has that does not meet a requirement, in a few words."""
    if item.kind == RESOURCE:
        name = item.names[0]
        found = [each.resources[name] for each in (*host.own, *host.shared) if name in each.resources]
        rooms = Counter(map(_room, found))
        return "; ".join(f"{count} x {room}" if count > 1 else room for room, count in rooms.items()) or f"no {name}"
    if item.kind == TRAIT:
        providers = (host.root,) if item.scope == ROOT else (*host.own, *host.shared)
        having = [each.name for each in providers if not each.traits.isdisjoint(item.names)]
        if having == [host.name] == [each.name for each in providers]:
            return "has it"
        if not item.wanted:
            return f"has it on {join_names(having)}" if having else "no provider without it is left for the group"
        return f"has it on {join_names(having)} alone" if having else "does not have it"
    if item.kind == AGGREGATE:
        return "is in one of them" if not item.wanted else "is in none of them"
    return "its providers are not placed so" if item.scope == ROOT else "is another host"


def _room(inventory: Inventory) -> str:
    capacity = int((inventory.total - inventory.reserved) * inventory.allocation_ratio)
    free = max(0, capacity - inventory.used)
    limits = []
    if inventory.max_unit < capacity:
        limits.append(f"at most {inventory.max_unit} an instance")
    if inventory.min_unit > 1:
        limits.append(f"at least {inventory.min_unit}")
    if inventory.step_size > 1:
        limits.append(f"in steps of {inventory.step_size}")
    return ", ".join([f"{free} of {capacity} free", *limits])


def remedy(item: Condition, state: str, because: str, *, frees: bool) -> str:
    """Return the change that would help, for a person who runs the cloud.

    :param frees: whether hosts lack a resource only because it is used
    """
    if item.kind == TRAIT:
        return _for_trait(item, state, because)
    if item.kind == RESOURCE:
        return {
            NOWHERE: f"No host has the resource class {item.names[0]}: check its name in the {because}.",
            TOO_LARGE: "No host is that large: take a smaller flavor, or add a larger host.",
            FULL: "Free some, add hosts, or take a smaller flavor.",
        }.get(
            state,
            "Free some on the hosts that are near, or take a smaller flavor."
            if frees
            else f"Take or add a host that has so much {item.names[0]} and the rest, or take a smaller flavor.",
        )
    if item.kind == AGGREGATE:
        if item.wanted:
            return "Add hosts that can to such an aggregate, or ask for another zone."
        return "These aggregates are for others: take hosts out of them, or ask for what they are for."
    return _for_place(item)


def _for_place(item: Condition) -> str:
    if item.kind == POLICY:
        return "Each group needs a provider of its own: group_policy=none lets them share one."
    if item.scope != ROOT:
        return "The host is named by the request: name another one, or none."
    return (
        f"One of the providers of the groups {escape_line(join_names(item.names))} has to be above the others: take "
        "or add a host whose providers are placed so, or leave out same_subtree."
    )


def _for_trait(item: Condition, state: str, because: str) -> str:
    name, change = "|".join(item.names), f"change {because}"
    if state == UNKNOWN:
        return f"{name} does not exist in Placement: correct {because}, or report it from a host that can."
    if not item.wanted:
        if item.names == (os_traits.COMPUTE_STATUS_DISABLED,):
            return "Enable the compute services of the hosts that are near: openstack compute service set --enable."
        return f"Take hosts without {name}, or {change}."
    if item.names[0].startswith("OWNER_"):
        return f"The providers need the trait {name} of the service that owns them; see the filter owner."
    if state != NOWHERE:
        return f"Take or add a host that has it, or {change}."
    how = "set it on those that are meant ('openstack resource provider trait set')"
    if _of_reporters().issuperset(item.names):
        how = "'os-prefilter capabilities show' on a host says whether it can and why not"
    return f"No host has {name}: {how}; else {change}."
