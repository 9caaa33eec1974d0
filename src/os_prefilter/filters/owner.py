"""Whose provider it is (spec owner-nova-trait-usage).

Placement has one resource class for what two services hand out: Nova's VGPUs and Cyborg's. The service that created a
provider says so with an owner trait. This filter keeps Nova's requests on Nova's providers:

- the owner trait on the root, as Nova's own filter does;
- on the groups of PCI devices, and on the flavor's groups for resource classes whose providers the owner creates;
- the traits of other owners kept out of the unsuffixed group when it asks for more than the root has: there a required
  trait may be met by any provider of the group, so only a forbidden one protects ``resources:VGPU=1``.

Groups of device profiles and of ports belong to others; they are left alone.
"""

from os_prefilter.extra_specs import Group
from os_prefilter.options import Options
from os_prefilter.request import Request
from os_prefilter.requirements import ROOT, UNSUFFIXED, Note, Requirement, Requirements
from os_prefilter.terms import Trait, trait_named

# Resource classes that the compute node's own provider, or one that shares its disk with it, has.
_ON_ROOT = frozenset(("VCPU", "PCPU", "MEMORY_MB", "DISK_GB"))


def owner(request: Request, *, options: Options, owner_is_reported: bool) -> Requirements:
    """Require the owner trait on the providers that the owner creates, once every compute reports it."""
    if not owner_is_reported:
        note = Note(f"not every compute service reports {options.owner_trait} yet", "not asked for")
        return Requirements(notes=(note,))
    trait = trait_named(options.owner_trait)
    asked = [Requirement(trait, True, ROOT, f"every request: hosts of the owner {trait}")]
    asked += _on_pci_groups(request, trait)
    if request.extra_specs:
        asked += _on_flavor_groups(request, trait, options)
    return Requirements(tuple(asked))


def _on_pci_groups(request: Request, trait: Trait) -> list[Requirement]:
    ids = request.pci_request_ids
    if not ids:
        return []
    return [
        Requirement(trait, True, suffix, f"PCI request group {suffix}")
        for suffix in request.requested_groups
        if suffix and suffix.rsplit("-", 1)[0] in ids
    ]


def _on_flavor_groups(request: Request, trait: Trait, options: Options) -> list[Requirement]:
    asked = []
    for suffix, group in request.flavor_groups.items():
        if not suffix:
            asked += _on_unsuffixed(group, options)
        # A group that names an owner itself means it.
        elif options.owner_trait not in group.forbidden and group.required.isdisjoint(options.foreign_owner_traits):
            owned = sorted(name for name in _classes(group) if options.owns(name))
            asked += [
                Requirement(trait, True, suffix, f"flavor extra spec resources{suffix}:{name}") for name in owned[:1]
            ]
    return asked


def _on_unsuffixed(group: Group, options: Options) -> list[Requirement]:
    nested = sorted(_classes(group) - _ON_ROOT)
    if not nested:
        return []
    source = f"flavor extra spec resources:{nested[0]}"
    foreign = (other for other in options.foreign_owner_traits if other not in group.required)
    return [Requirement(trait_named(other), False, UNSUFFIXED, source) for other in foreign]


def _classes(group: Group) -> set[str]:
    # None of a class takes no provider of it.
    return {name for name, amount in group.resources.items() if amount}
