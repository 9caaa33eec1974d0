# SPDX-License-Identifier: Apache-2.0

"""Audit of images or volumes: their hosts before and after filters.

An audit judges capability: traits, and the presence of resource classes.
Amounts and usage are not judged. Filters that wait for capability reports are
judged twice: as they are now, and as they are once none waits. The worse
counts. Thousands of images make tens of groups of images with the same
requirements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import NamedTuple

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.errors import RequestRejected
from os_prefilter.common.host_sets import size_of
from os_prefilter.common.placement_values import LARGEST_AMOUNT
from os_prefilter.common.progress import Progress, no_progress
from os_prefilter.common.quoting import escape_line
from os_prefilter.request.query import (
    query_of,
    query_string,
    requirements_without_filters,
)
from os_prefilter.request.requirements import Note, Requirement
from os_prefilter.request.spec import (
    Flavor,
    Image,
    RequestLevelParams,
    RequestSpec,
)
from os_prefilter.request.view import Request
from os_prefilter.rules.filter import rules as apply_rules
from os_prefilter.rules.reader import guest_systems
from os_prefilter.service import Service
from os_prefilter_tools.fleet.demand import (
    RESOURCE,
    Condition,
    condition_of,
    demand_of,
)
from os_prefilter_tools.fleet.host_index import HostIndex, capability_of
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.operators.readiness import (
    compute_nodes,
    simulate_ownership,
)
from os_prefilter_tools.operators.refused_by_nova import (
    problems_of_image,
    refusals_of_flavor,
)

LONGEST_NAME = 255

ANY_FLAVOR = Flavor(
    vcpus=1,
    memory_mb=1,
    extra_specs={"hw_video:ram_max_mb": str(LARGEST_AMOUNT)},
)
"""For images alone, where every host counts as large enough.

Flavors with a limit for video memory may exist, too.
"""


class FilterChange(NamedTuple):
    """The filters before and after a change."""

    before: Service
    after: Service


class Requested(NamedTuple):
    """The conditions of a request after a service."""

    query: tuple[Condition, ...]
    from_request: tuple[Requirement, ...] = ()
    """From flavor and image."""
    added: tuple[Requirement, ...] = ()
    """By the service."""
    rejected: str = ""
    """Why the request is rejected, and has no query; empty if it is not."""

    def hosts_in(self, index: HostIndex) -> int:
        """Return the hosts that could serve the request; none if rejected."""
        return 0 if self.rejected else index.find_candidates(self.query)

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """All requirements, those of the request first."""
        return (*self.from_request, *self.added)

    def own(self) -> frozenset[Condition]:
        """Return the conditions that only the service adds."""
        return frozenset(map(condition_of, self.added)).difference(
            map(condition_of, self.from_request)
        )


class _EqualImages(NamedTuple):
    """The requirements of images with one flavor."""

    flavor: str
    refused: str
    """Why Nova refuses the images at each boot; empty if it does not."""
    before: Requested
    waiting: Requested
    """After the change, while filters wait for capability reports."""
    after: Requested
    """After the change, once none waits."""


class ImageVerdict(str, Enum):
    """The effect on an image of enabling the filters, most urgent first."""

    # As in enum.StrEnum, which Python 3.10 does not have.
    __str__ = str.__str__

    REFUSED = "refused by Nova at each boot"
    REJECTED = "becomes rejected"
    UNSCHEDULABLE = "becomes unschedulable"
    LOSES = "loses hosts"
    ALREADY_REJECTED = "already rejected"
    ALREADY = "already unschedulable"
    OK = "ok"


_URGENT = tuple(ImageVerdict)
BECOMES_UNSCHEDULABLE = frozenset(
    (ImageVerdict.UNSCHEDULABLE, ImageVerdict.REJECTED)
)
CHANGED = BECOMES_UNSCHEDULABLE | {ImageVerdict.LOSES}


Counts = tuple[tuple[str, int], ...]
"""Texts, each with how many images or servers it is about, most first."""


class Cause(NamedTuple):
    """One requirement and its source."""

    trait: str
    """The name of a trait, or of a resource class."""
    rule: str
    """``required``, ``forbidden``, or ``resource class``."""
    on: str
    """The suffix of a request group; empty for the host itself."""
    by: str
    """The filters that add it, or ``request``."""
    because: str


class Loss(NamedTuple):
    """The hosts that an image loses to one requirement."""

    cause: Cause
    lacking: int
    """How many of the lost hosts fail the requirement."""
    lacking_only: int
    """How many of them meet all other requirements of the new filters."""


class SystemNeeds(NamedTuple):
    """What the operating system of images needs of a host's CPU."""

    because: str
    """The rule of ``builtin:guest-systems``, with its source."""
    traits: tuple[str, ...]
    hosts: tuple[str, ...]
    """The hosts that give a guest all of them.

    A host that reports several CPU models is one of them only if the flavor
    requires the traits.
    """
    images: int


@dataclass(slots=True)
class ImageLine:
    """Images with the same requirements, with one flavor or alone."""

    flavor: str
    names: list[str] = field(default_factory=list)
    """Their names, each as one printable line."""
    before: int = 0
    """The set of hosts before the change.

    See :mod:`os_prefilter_tools.fleet.host_index`.
    """
    waiting: int = 0
    """The set of hosts after the change, while filters wait for reports."""
    after: int = 0
    """The set of hosts once no filter waits.

    A compute node that has not reported counts as incapable; but the filter
    ``owner`` waits until each compute node has its trait, so each counts as
    having it.
    """
    verdict: ImageVerdict = ImageVerdict.OK
    """The verdict of :attr:`waiting` or :attr:`after`, whichever is worse."""
    losses: tuple[Loss, ...] = ()
    combined: int = 0
    """How many lost hosts meet each requirement alone, but not all together.
    """
    reason: str = ""
    """Why the request is rejected, if it is."""


@dataclass(frozen=True)
class Audit:
    """All images or bootable volumes against one fleet."""

    what: str
    """``image``, or ``volume``: of the image in its metadata."""
    lines: tuple[ImageLine, ...]
    """Rejected and unschedulable images first, unaffected ones last."""
    images: int
    flavors: int
    """How many flavors each image was judged with; 0 for images alone."""
    hosts: int
    unused: tuple[str, ...]
    """Hosts that no image can be scheduled to with the filters enabled."""
    newly_unused: tuple[str, ...]
    """Hosts of :attr:`unused` that some image could be scheduled to before."""
    unserved: tuple[tuple[Cause, int], ...]
    """Requirements that no host meets, and how many images have them."""
    unknown: Counts
    """Unknown values, such as misspelt ones, and how many images have them."""
    waits: Counts
    """Requirements of filters that wait, and how many images have them."""
    systems: tuple[SystemNeeds, ...]
    """The needs of operating systems, whether their rules are enabled or not.
    """
    without_cpu_features: tuple[str, ...]
    """The hosts of which it is not known which systems they start.

    They report no CPU feature, and no other architecture than x86_64.
    """

    @property
    def is_waiting(self) -> bool:
        """True if an image has other hosts once no filter waits."""
        return any(line.waiting != line.after for line in self.lines)

    def count(self, *verdicts: ImageVerdict) -> int:
        """Return how many images have one of the verdicts.

        With flavors, these are pairs of image and flavor.
        """
        return sum(
            len(line.names) for line in self.lines if line.verdict in verdicts
        )


def audit_images(  # noqa: PLR0913 - the last four have defaults
    images: Iterable[Image],
    fleet: Fleet,
    change: FilterChange,
    *,
    what: str = "image",
    flavors: Sequence[Flavor] = (),
    becoming: Fleet | None = None,
    progress: Progress = no_progress,
) -> Audit:
    """Compare the hosts of each image before and after a change of filters.

    Each image is compared with each flavor.

    :param what: ``volume`` if servers boot from volumes with these images
    :param flavors: without one, images are judged alone: each host counts as
        large enough.
    :param becoming: the fleet after the change; None if the hosts stay
    :raises PrefilterError: if a filter fails, or adds something that an audit
        cannot judge; a rejection is a verdict.
    """
    # Without a compute node everything is deferred.
    enforcing = (
        change.after.without_waiting()
        if compute_nodes(fleet)
        else change.after
    )
    groups, count, unknown, waits, systems = _group_images(
        images, flavors, change, enforcing, progress, what=what
    )
    conditions = {
        item
        for group in groups
        for each in (group.before, group.waiting, group.after)
        for item in each.query
    }
    conditions.update(
        condition_of(item) for needs in systems for item in needs
    )
    was = now = HostIndex.by_capability(
        fleet, conditions, any_size=not flavors
    )
    if becoming:
        fleet = becoming
        now = HostIndex.by_capability(fleet, conditions, any_size=not flavors)
    later = now
    gated = {
        each.name for each in change.after.filters if each.declaration.gate
    }
    deferring = {
        item.filter
        for group in groups
        for item in set(group.after.added).difference(group.waiting.added)
    }
    if not gated.isdisjoint(deferring):
        # The gate opens only once the hosts have their owner's trait.
        owned = simulate_ownership(fleet, change.after.options)
        later = HostIndex.by_capability(
            owned, conditions, any_size=not flavors
        )
    used_before = used = 0
    for number, (group, line) in enumerate(groups.items(), 1):
        _judge(line, group, was, now, later)
        used_before |= line.before
        used |= line.after
        progress(f"groups of {what}s", number, len(groups))
    unused = later.all & ~used
    lines = sorted(
        groups.values(), key=lambda line: _URGENT.index(line.verdict)
    )
    return Audit(
        what=what,
        lines=tuple(lines),
        images=count,
        flavors=len(flavors),
        hosts=len(later.names),
        unused=later.names_of(unused),
        newly_unused=later.names_of(used_before & unused),
        unserved=_find_unserved(groups, later),
        unknown=tuple(unknown.most_common()),
        waits=tuple(waits.most_common()),
        systems=tuple(
            _system_needs(needs, later, number)
            for needs, number in systems.most_common()
        ),
        without_cpu_features=_without_cpu_features(fleet),
    )


def _without_cpu_features(fleet: Fleet) -> tuple[str, ...]:
    names = []
    for host in fleet.instance_hosts:
        reported = {
            trait
            for trait in host.traits
            if trait.startswith(("HW_ARCH_", "HW_CPU_X86_"))
        }
        if reported <= {"HW_ARCH_X86_64"}:
            names.append(host.name)
    return tuple(names)


def _system_needs(
    needs: tuple[Requirement, ...], index: HostIndex, images: int
) -> SystemNeeds:
    required = tuple(item.trait for item in needs if item.required)
    hosts = index.find_candidates(condition_of(item) for item in needs)
    return SystemNeeds(
        escape_line(needs[0].source), required, index.names_of(hosts), images
    )


def _judge(
    line: ImageLine,
    group: _EqualImages,
    was: HostIndex,
    now: HostIndex,
    later: HostIndex,
) -> None:
    """Fill in the hosts of a line, its verdict, and the losses."""
    if group.refused:
        line.verdict, line.reason = ImageVerdict.REFUSED, group.refused
        return
    line.before = group.before.hosts_in(was)
    line.waiting = group.waiting.hosts_in(now)
    line.after = group.after.hosts_in(later)
    worse, left, index = group.after, line.after, later
    line.verdict = _verdict_of(group.before, worse, line.before, left)
    waiting = _verdict_of(
        group.before, group.waiting, line.before, line.waiting
    )
    if _URGENT.index(waiting) < _URGENT.index(line.verdict):
        line.verdict = waiting
        worse, left, index = group.waiting, line.waiting, now
    line.reason = worse.rejected
    lost = line.before & ~left
    if lost and not worse.rejected:
        new = worse.own() - group.before.own()
        if was is not now:
            # Hosts that change are lost to any requirement.
            new = frozenset(map(condition_of, worse.requirements))
        line.losses, line.combined = _losses(lost, new, worse, index)


def _verdict_of(
    before: Requested, after: Requested, had: int, has: int
) -> ImageVerdict:
    """Return the effect on images: hosts ``had`` before, ``has`` after."""
    if after.rejected and had:
        return ImageVerdict.REJECTED
    if after.rejected and before.rejected:
        return ImageVerdict.ALREADY_REJECTED
    if not has:
        return ImageVerdict.UNSCHEDULABLE if had else ImageVerdict.ALREADY
    return ImageVerdict.LOSES if had & ~has else ImageVerdict.OK


def _losses(
    lost: int, new: frozenset[Condition], after: Requested, index: HostIndex
) -> tuple[tuple[Loss, ...], int]:
    """Return the hosts lost to each new requirement, most first.

    Also return how many hosts only their combination excludes.
    """
    without_all = [item for item in after.query if item not in new]
    losses = []
    explained = 0
    for cause, conditions in _causes(after.requirements, new).items():
        lacking = lost & ~index.find_candidates([*without_all, *conditions])
        only = lacking & index.find_candidates(
            item for item in after.query if item not in conditions
        )
        explained |= lacking
        if lacking:
            losses.append(Loss(cause, size_of(lacking), size_of(only)))
    losses.sort(
        key=lambda loss: (-loss.lacking_only, -loss.lacking, loss.cause)
    )
    return tuple(losses), size_of(lost & ~explained)


def _causes(
    requirements: Iterable[Requirement], among: frozenset[Condition]
) -> dict[Cause, list[Condition]]:
    """Return the conditions by cause.

    A trait that is required both on the root and in the unsuffixed group is
    one cause, and so is a trait that two filters require: dropping one of them
    alone would change nothing.
    """
    found: dict[
        tuple[str, str, str], tuple[list[Condition], dict[str, str]]
    ] = {}
    for item in requirements:
        condition = condition_of(item)
        if condition in among:
            rule = "required" if item.required else "forbidden"
            cause = str(item.trait), rule, condition.suffix
            conditions, sources = found.setdefault(cause, ([], {}))
            conditions.append(condition)
            sources.setdefault(item.filter, escape_line(item.source))
    causes = {}
    for key, (conditions, sources) in found.items():
        because = " and ".join(dict.fromkeys(sources.values()))
        causes[Cause(*key, ", ".join(sources), because)] = conditions
    return causes


def _find_unserved(
    groups: Mapping[_EqualImages, ImageLine], index: HostIndex
) -> tuple[tuple[Cause, int], ...]:
    """Return what no host meets, and how many images have it.

    Requirements and resource classes.
    """
    found: Counter[Cause] = Counter()
    for group, line in groups.items():
        requested = group.after
        if requested.rejected:
            continue
        source = f"flavor {group.flavor}" if group.flavor else "the image"
        resources = [item for item in requested.query if item.kind == RESOURCE]
        for item in resources:
            if not index.find_candidates([item]):
                name = item.names[0]
                kind = "resource class"
                cause = Cause(name, kind, item.suffix, "request", source)
                found[cause] += len(line.names)
        if not index.find_candidates(resources):
            continue
        requirements = requested.requirements
        among = frozenset(map(condition_of, requirements))
        for cause, conditions in _causes(requirements, among).items():
            if not index.find_candidates([*resources, *conditions]):
                found[cause] += len(line.names)
    return tuple(found.most_common())


def _group_images(  # noqa: PLR0913 - has the arguments of audit_images
    images: Iterable[Image],
    flavors: Sequence[Flavor],
    change: FilterChange,
    enforcing: Service,
    progress: Progress,
    *,
    what: str,
) -> tuple[
    dict[_EqualImages, ImageLine],
    int,
    Counter[str],
    Counter[str],
    Counter[tuple[Requirement, ...]],
]:
    """Apply the services to each image with each flavor.

    Images with the same requirements are one group.

    :param enforcing: the filters after the change, once none of them waits;
        run where one does.
    :return: a line of each group of images, in the order of their first
        images; the number of images; unknown values, and requirements deferred
        by filters that wait, and what their systems need, each with the number
        of images that have them
    """
    groups: dict[_EqualImages, ImageLine] = {}
    unknown: Counter[str] = Counter()
    waits: Counter[str] = Counter()
    systems: Counter[tuple[Requirement, ...]] = Counter()
    floors = guest_systems()
    # Hosts with several CPU models are those that report so in the fleet.
    options = replace(change.after.options, wait_for_reports=True)
    queries: dict[str, tuple[Condition, ...]] = {}
    count = 0
    for count, image in enumerate(images, 1):
        notes: set[Note] = set()
        needs: set[tuple[Requirement, ...]] = set()
        # One text for all flavors: there may be a million images.
        name = short_line(
            str(image.name or image.id or "an image without a name")
        )
        for flavor in flavors or (ANY_FLAVOR,):
            label = ""
            if flavors:
                label = short_line(flavor.name or "a flavor without a name")
            spec = RequestSpec(flavor, image, is_bfv=what == "volume")
            # Without remarks the scheduler is another one than Nova's.
            refused = ""
            if change.after.remark:
                refused = "; ".join(problems_of_image(spec))
                notes |= {
                    Note(f"flavor {label}", text, warn=True)
                    for text in refusals_of_flavor(spec)
                }
            if refused:
                # No scheduler, and so no filter, sees a request for it.
                nothing = Requested((), rejected=refused)
                key = _EqualImages(label, refused, nothing, nothing, nothing)
            else:
                before = _requested_by(spec, change.before, queries, notes)
                deferred: set[Note] = set()
                waiting = after = _requested_by(
                    spec, change.after, queries, deferred
                )
                if any(note.waits for note in deferred):
                    after = _requested_by(spec, enforcing, queries, notes)
                notes |= deferred
                key = _EqualImages(label, "", before, waiting, after)
            if not key.after.rejected:
                found = apply_rules(
                    Request(spec), rules=floors, options=options
                )
                needs.add(found.requirements)
            line = groups.setdefault(key, ImageLine(label))
            line.names.append(name)
        systems.update(filter(None, needs))
        unknown.update({str(note) for note in notes if note.warn})
        waits.update({str(note) for note in notes if note.waits})
        progress(f"{what}s", count, None)
    return groups, count, unknown, waits, systems


def short_line(text: str) -> str:
    """Return the first :data:`LONGEST_NAME` characters, on one line."""
    return escape_line(text[:LONGEST_NAME])


def _requested_by(
    spec: RequestSpec,
    service: Service,
    queries: dict[str, tuple[Condition, ...]],
    notes: set[Note],
) -> Requested:
    """Return the conditions of a request without its own groups.

    The request stays as it is.

    :param queries: the conditions by query; those of this request are added
    :param notes: the notes of the service are added
    """
    spec = replace(spec, request_level_params=RequestLevelParams())
    try:
        from_request = requirements_without_filters(Request(spec))
        decision = service.apply(spec)
        query = query_of(spec)
    except RequestRejected as error:
        return Requested((), rejected=str(error))
    notes.update(note for note in decision.notes if note.warn or note.waits)
    text = query_string(query)
    if text not in queries:
        queries[text] = capability_of(demand_of(query))
    return Requested(
        queries[text],
        tuple(dict.fromkeys(from_request)),
        tuple(dict.fromkeys(decision.requirements)),
    )
