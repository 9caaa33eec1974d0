# SPDX-License-Identifier: Apache-2.0

"""Reconcile the traits of an Ironic node with what its reporter found.

Operators put traits on nodes by hand, so only traits that this library has set
are removed. It keeps a note of them in the node's ``extra``. Ironic writes
traits and ``extra`` in separate requests, so the order counts: a trait is
noted before it is set, and the note is removed after the trait. A process
killed in between leaves a note too many, which the next run corrects, and
never a trait of ours that looks like an operator's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openstack import exceptions
from openstack.baremetal.v1.node import Node

from os_prefilter.adapters.ironic.api import convert_errors
from os_prefilter.adapters.ironic.errors import IronicRefused, NodeNotReady
from os_prefilter.common.quoting import quote
from os_prefilter.common.trait_names import is_trait_name
from os_prefilter.hosts.desired_traits import TraitChange
from os_prefilter.hosts.marker_traits import REPORTED

EXTRA = "os_prefilter_traits"
"""The key in a node's ``extra``: the traits that we have set, sorted."""

KEEP = "keep"
"""The change of an undesired trait that stays because an operator set it."""

MOST_TRAITS = 50
"""The traits that Ironic allows on a node.

``MAX_TRAITS_PER_NODE`` in its ``db/sqlalchemy/api.py``.
"""


@dataclass(frozen=True)
class TraitPlan:
    """The change of the traits on a node."""

    present: frozenset[str]
    noted: frozenset[str]
    """The traits that we have set, by our note."""
    traits: Mapping[str, bool]
    """The managed traits, and whether the node can do what each says."""

    @property
    def added(self) -> frozenset[str]:
        """The traits to add to the node."""
        return (
            frozenset(trait for trait, has in self.traits.items() if has)
            - self.present
        )

    @property
    def removed(self) -> frozenset[str]:
        """The traits to remove from the node."""
        return self.present & self.noted & self._denied

    @property
    def noted_before(self) -> frozenset[str]:
        """Our note before any trait is written."""
        return self.noted | self.added

    @property
    def noted_after(self) -> frozenset[str]:
        """Our note at the end."""
        # Without traits that an operator removed, and noted traits that were
        # never set.
        return self.noted_before - self._denied

    @property
    def _denied(self) -> frozenset[str]:
        return frozenset(
            trait for trait, has in self.traits.items() if not has
        )

    def changes(self, node: str) -> list[TraitChange]:
        """Return all differences: added, removed, kept though undesired."""
        kept = self.present & self._denied - self.noted
        changes = (("add", self.added), ("remove", self.removed), (KEEP, kept))
        return [
            TraitChange(node, trait, change)
            for change, traits in changes
            for trait in sorted(traits)
        ]


def read_own_traits(
    extra: Mapping[str, Any] | None, node: str
) -> frozenset[str]:
    """Return the traits that we have set on a node, from its ``extra``.

    :param node: its UUID
    :raises NodeNotReady: what is there was not written by us
    """
    value = (extra or {}).get(EXTRA, [])
    if not isinstance(value, list) or not all(map(is_trait_name, value)):
        raise NodeNotReady(
            node,
            f"{EXTRA} in its extra is {quote(value)}, not a list of trait"
            " names",
            f"Remove it: openstack baremetal node unset {node} --extra"
            f" {EXTRA}.",
        )
    return frozenset(value)


def check_trait_limit(node: Node, plan: TraitPlan) -> None:
    """Check that the traits fit on the node.

    :raises NodeNotReady: they do not
    """
    count = len(plan.present | plan.added) - len(plan.removed)
    if plan.added and count > MOST_TRAITS:
        raise NodeNotReady(
            str(node.id),
            f"it would have {count} traits, and Ironic allows {MOST_TRAITS} on"
            " a node",
            "Remove traits that no request needs: openstack baremetal node"
            " remove trait NODE TRAIT. To be added are:"
            f" {', '.join(sorted(plan.added))}.",
        )


def write(baremetal: Any, node: Node, plan: TraitPlan) -> None:
    """Make the traits on a node those of a plan.

    Traits that Ironic refuses do not keep others off the node.

    :raises IronicRefused: it refused some; all else is done
    :raises IronicError: Ironic does not respond; running it again goes on from
        there
    """
    before = plan.noted_before
    if before != plan.noted:
        _note(baremetal, node, before)
    # A report marker is removed first and added last.
    for trait in sorted(
        plan.removed, key=lambda trait: (not trait.startswith(REPORTED), trait)
    ):
        _remove(baremetal, node, trait)
    refused: list[IronicRefused] = []
    after = plan.noted_after
    wanted = (trait for trait, has in plan.traits.items() if has)
    for trait in sorted(
        wanted, key=lambda trait: (trait.startswith(REPORTED), trait)
    ):
        if refused and trait.startswith(REPORTED):
            # It is withheld while the node lacks traits, unless an operator
            # set it.
            if trait in plan.present & plan.noted:
                _remove(baremetal, node, trait)
            after -= {trait}
        elif trait in plan.added:
            try:
                with convert_errors(
                    f"PUT /v1/nodes/ID/traits/{trait}", str(node.id)
                ):
                    node.add_trait(baremetal, trait)
            except IronicRefused as error:
                # Its os-traits is older than ours, for one.
                refused.append(error)
                after -= {trait}
    if after != before:
        _note(baremetal, node, after)
    if refused:
        raise refused[0]


def _remove(baremetal: Any, node: Node, trait: str) -> None:
    with convert_errors(f"DELETE /v1/nodes/ID/traits/{trait}", str(node.id)):
        try:
            node.remove_trait(baremetal, trait, ignore_missing=False)
        except exceptions.NotFoundException:
            # Another writer was faster; if the node itself is gone, the next
            # request says so.
            return


def _note(baremetal: Any, node: Node, traits: frozenset[str]) -> None:
    """Write our note, and nothing else of ``extra``."""
    path = f"/extra/{EXTRA}"
    # In JSON patches, "add" replaces what is there.
    patch: dict[str, Any] = (
        {"op": "add", "path": path, "value": sorted(traits)}
        if traits
        else {"op": "remove", "path": path}
    )
    with convert_errors("PATCH /v1/nodes/ID", str(node.id)):
        baremetal.patch_node(node.id, [patch])
