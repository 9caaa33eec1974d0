# SPDX-License-Identifier: Apache-2.0

"""Require resource providers that this service owns.

By the spec owner-nova-trait-usage.

Placement has one resource class for what two services hand out: Nova's VGPUs
and Cyborg's. The service that created a provider says so with an owner trait.
This filter keeps requests for the owner's resources on the owner's providers:

- the owner trait on the root, as Nova's own filter does, if the owner creates
  the hosts;
- on the flavor's groups for resource classes whose providers the owner
  creates;
- for such a class in the unsuffixed group, in a group of its own. In the
  unsuffixed group a required trait may be met by any provider, the root above
  all, so it says nothing of the one that has the class. Where the class must
  stay in the unsuffixed group, the traits of other owners are forbidden there:
  that protects from owners that have one;
- kept off the groups of device profiles, which are Cyborg's, whatever traits
  Cyborg's providers have.

The groups of PCI devices require COMPUTE_MANAGED_PCI_DEVICE instead, which
each Nova with PCI devices in Placement gives them, whatever their resource
class. An owner trait does not stay there: before version 34, nova-compute
replaces the traits of its PCI providers
(``PciResourceProvider.update_provider_tree``, run in 33.0.2, read in 29.4.0,
31.3.1).

Groups of ports belong to others; they are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import os_traits

from os_prefilter.common.quoting import quote
from os_prefilter.common.trait_names import Trait, trait_named
from os_prefilter.request.extra_specs import trait_key
from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.requirements import (
    NOTHING,
    ROOT,
    UNSUFFIXED,
    Note,
    Requirement,
    Requirements,
)
from os_prefilter.request.resources import (
    DEVICE_PROFILE,
    unsuffixed_group_uses_host,
)
from os_prefilter.request.spec import RequestGroup
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.options import Options

# Resource classes that the compute node's own provider, or one that shares its
# disk with it, has.
_ON_ROOT = frozenset(("VCPU", "PCPU", "MEMORY_MB", "DISK_GB"))
# Nova requests these in the unsuffixed group by itself (ResourceRequest), so
# that they cannot be taken out of it.
_ADDED_BY_NOVA = ("MEM_ENCRYPTION_CONTEXT", "CUSTOM_PMEM_NAMESPACE_")
# What says something of a compute node, never of a device below it; but for
# this one, which PCI devices have.
_OF_HOSTS = ("COMPUTE_", "HW_CPU_", "HW_ARCH_")
_OF_PCI_DEVICES = trait_named(os_traits.COMPUTE_MANAGED_PCI_DEVICE)
_PCI_CLASSES = "CUSTOM_PCI_"
_OWN_SUFFIX = "_owned_"
_LONGEST_SUFFIX = 64


@Declaration(
    gate="owner_is_reported",
    closed="not every compute node has {options.owner_trait} yet",
    traits=lambda options: (
        (options.owner_trait,) if options.owns_hosts else ()
    ),
    other_traits=lambda options: (
        options.owner_trait,
        *options.foreign_owner_traits,
        _OF_PCI_DEVICES,
    ),
    excludes="owner",
    only_new=True,
)
def owner(
    request: Request,
    *,
    options: Options,
    required_before: tuple[Requirement, ...] = (),
) -> Requirements:
    """Require the owner trait on the providers that the owner creates.

    Once every compute node has it.
    """
    result = _on_hosts(options)
    # Most requests: nothing of the owner's but a host.
    if not request.requested_groups and not request.flavor_groups:
        return result
    trait = trait_named(options.owner_trait)
    # Not the owner trait: before Nova 34, nova-compute replaces the traits of
    # its PCI devices when its cache of Placement has expired.
    on_pci_groups = []
    for suffix in request.requested_groups if options.owns_hosts else ():
        if suffix and suffix.rsplit("-", 1)[0] in request.pci_request_ids:
            source = f"PCI request group {suffix}"
            on_pci_groups.append(
                Requirement(_OF_PCI_DEVICES, True, suffix, source)
            )
    result += Requirements(
        (*on_pci_groups, *_on_device_profiles(request, trait, options))
    )
    if not request.flavor_groups:
        return result
    in_flavor = Requirements(tuple(_on_flavor_groups(request, trait, options)))
    if "" in request.flavor_groups:
        in_flavor += _on_unsuffixed(request, trait, options, required_before)
    # In an order that does not depend on which groups the flavor had before.
    in_order = tuple(
        sorted(
            in_flavor.requirements,
            key=lambda item: (item.scope != UNSUFFIXED, item.scope),
        )
    )
    return result + replace(in_flavor, requirements=in_order)


# One pipeline has one.
@lru_cache(maxsize=16)
def _on_hosts(options: Options) -> Requirements:
    trait = trait_named(options.owner_trait)
    root = Requirement(
        trait, True, ROOT, f"every request: hosts of the owner {trait}"
    )
    return Requirements((root,)) if options.owns_hosts else NOTHING


def _on_device_profiles(
    request: Request, trait: Trait, options: Options
) -> list[Requirement]:
    requirements = []
    for suffix, group in request.requested_groups.items():
        # Without resources it is about other groups (same_subtree), and the
        # root may meet it.
        if (
            not str(suffix).startswith(DEVICE_PROFILE)
            or not group.resource_classes
        ):
            continue
        if trait != os_traits.OWNER_CYBORG:
            if trait not in group.required_traits:
                source = f"request group {suffix}: Cyborg's, not the owner's"
                requirements.append(Requirement(trait, False, suffix, source))
        elif any(
            map(options.owns, group.resource_classes)
        ) and not _names_owner(group, options):
            requirements.append(
                Requirement(trait, True, suffix, f"request group {suffix}")
            )
    return requirements


def _on_flavor_groups(
    request: Request, trait: Trait, options: Options
) -> list[Requirement]:
    requirements = []
    for suffix, group in request.flavor_groups.items():
        # A group that names an owner itself means it.
        if suffix and not _names_owner(group, options):
            owned = sorted(
                name for name in group.resource_classes if options.owns(name)
            )
            requirements += [
                _on_own_group(_trait_on(name, trait, options), suffix, name)
                for name in owned[:1]
            ]
    return requirements


def _trait_on(resource_class: str, trait: Trait, options: Options) -> Trait:
    """Return the trait of the owner's providers of a resource class."""
    return (
        _OF_PCI_DEVICES
        if options.owns_hosts and resource_class.startswith(_PCI_CLASSES)
        else trait
    )


def _on_own_group(trait: Trait, suffix: str, name: str) -> Requirement:
    # The same words when the request comes again, with that group in it.
    apart = suffix == _OWN_SUFFIX + name
    written = (
        f"resources:{name}, requested in a group of its own"
        if apart
        else f"resources{suffix}:{name}"
    )
    return Requirement(trait, True, suffix, f"flavor extra spec {written}")


def _on_unsuffixed(
    request: Request,
    trait: Trait,
    options: Options,
    required_before: tuple[Requirement, ...],
) -> Requirements:
    group = request.flavor_groups[""]
    nested = sorted(group.resource_classes - _ON_ROOT)
    owned = [
        name
        for name in nested
        if options.owns(name) and not name.startswith(_ADDED_BY_NOVA)
    ]
    if _names_owner(group, options):
        owned = []
    result = NOTHING
    obstacle = ""
    if owned and unsuffixed_group_uses_host(request):
        on_root = request.root_required | (
            {trait} if options.owns_hosts else set()
        )
        obstacle = _obstacle(request, owned, required_before, on_root)
        if not obstacle:
            result = _in_own_groups(
                group,
                {name: _trait_on(name, trait, options) for name in owned},
                required_before,
            )
            nested, owned = [name for name in nested if name not in owned], []
    if not nested:
        return result
    source = f"flavor extra spec resources:{nested[0]}"
    return result + _in_place(
        request,
        trait,
        options,
        owned,
        source + (obstacle and f", in no group of its own: {obstacle}"),
    )


def _in_own_groups(
    group: RequestGroup,
    owned: Mapping[str, Trait],
    required_before: tuple[Requirement, ...],
) -> Requirements:
    """Request each class in a group of its own.

    It means the same but for the owner: Placement takes all of one class of
    the unsuffixed group from one provider.

    :param owned: resource class -> the trait of the owner's providers of it
    """
    unwanted = {
        item.trait
        for item in required_before
        if _on_unsuffixed_group(item, required=False)
    }
    # Forbidden traits go with the resource. Required ones stay: they may be
    # the host's, and capable hosts would be lost.
    forbidden = frozenset(map(trait_named, group.forbidden_traits | unwanted))
    groups = tuple(
        RequestGroup(
            _OWN_SUFFIX + name,
            {name: group.resources[name]},
            forbidden_traits=forbidden,
        )
        for name in owned
    )
    requirements = tuple(
        _on_own_group(trait, _OWN_SUFFIX + name, name)
        for name, trait in owned.items()
    )
    return Requirements(requirements, own_groups=groups)


def _obstacle(
    request: Request,
    owned: list[str],
    required_before: tuple[Requirement, ...],
    on_root: frozenset[str],
) -> str:
    """Return why groups of their own could mean something else, or "".

    Something else than the unsuffixed group does.
    """
    policy = request.extra_spec("group_policy")
    if policy == "isolate":
        return "group_policy=isolate"
    # A policy that is not written is Nova's to choose for one group of the
    # flavor. It cannot be written here: Nova's
    # AggregateInstanceExtraSpecsFilter takes the extra spec for something that
    # the host's aggregates must have.
    if (
        policy != "none"
        and len(owned) + len(request.flavor_groups.keys() - {""}) > 1
    ):
        return "several groups in a flavor without group_policy=none"
    for suffix in (_OWN_SUFFIX + name for name in owned):
        if (
            suffix in request.flavor_groups
            or suffix in request.requested_groups
            or len(suffix) > _LONGEST_SUFFIX
        ):
            return f"{quote(suffix)} is taken, or too long"
    named = {
        *request.flavor_groups[""].required_traits,
        *request.image_traits,
    } - on_root
    # What the pipeline requires twice is on the root as well.
    twice = {
        item.trait
        for item in required_before
        if item.scope == ROOT and item.required
    }
    others = {
        item.trait
        for item in required_before
        if _on_unsuffixed_group(item, required=True)
    } - twice
    for trait in sorted(named | others):
        if trait == _OF_PCI_DEVICES or not trait.startswith(_OF_HOSTS):
            return (
                f"{trait_key(trait, '')}=required may be met by its provider"
            )
    return ""


def _in_place(
    request: Request,
    trait: Trait,
    options: Options,
    owned: list[str],
    source: str,
) -> Requirements:
    requires_host = unsuffixed_group_uses_host(request)
    if requires_host and not options.owns_hosts:
        # The host belongs to one of those.
        return Requirements(
            notes=(
                Note(
                    source,
                    f"cannot be kept on providers of the owner {trait}",
                    warn=True,
                ),
            )
        )
    required = request.flavor_groups[""].required_traits
    foreign = [
        other
        for other in options.foreign_owner_traits
        if other not in required
    ]
    requirements = tuple(
        Requirement(trait_named(other), False, UNSUFFIXED, source)
        for other in foreign
    )
    if owned and not requires_host:
        # Often its only provider.
        in_place = sorted({_trait_on(name, trait, options) for name in owned})
        requirements = (
            *(
                Requirement(each, True, UNSUFFIXED, source)
                for each in in_place
            ),
            *requirements,
        )
    return Requirements(requirements)


def _names_owner(group: RequestGroup, options: Options) -> bool:
    return (
        options.owner_trait in group.forbidden_traits
        or not group.required_traits.isdisjoint(options.foreign_owner_traits)
    )


def _on_unsuffixed_group(item: Requirement, *, required: bool) -> bool:
    return item.scope == UNSUFFIXED and item.required is required
