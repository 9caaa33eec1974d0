"""All images against the fleet: which hosts each has before and after filters are enabled, and what it loses them to.

An audit judges capability: traits, and that a resource class is there. Amounts and usage are not judged. Filters that
wait for compute nodes to report are judged twice: as they are now, and as they are once none waits. The worse counts.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from os_prefilter.common.quoting import escape_line
from os_prefilter.fleet.capability_index import CapabilityIndex, union
from os_prefilter.fleet.model import Fleet
from os_prefilter.operators.audit.image_groups import Asked, Change, ImageGroup, grouped
from os_prefilter.operators.readiness import coverage_of, once_owned
from os_prefilter.request.demand import RESOURCE, Condition, condition_of
from os_prefilter.request.requirements import Requirement
from os_prefilter.request.spec import Flavor, Image

Progress = Callable[[str, int, int | None], None]
"""(what is done, how many of it, out of how many; None if that is not known)"""


class Verdict(StrEnum):
    """What enabling the filters does to an image."""

    OK = "ok"
    LOSES = "loses hosts"
    UNSCHEDULABLE = "becomes unschedulable"
    REJECTED = "becomes rejected"
    ALREADY = "already unschedulable"
    ALREADY_REJECTED = "already rejected"


# What has to be looked at first.
_URGENT = (
    Verdict.REJECTED,
    Verdict.UNSCHEDULABLE,
    Verdict.LOSES,
    Verdict.ALREADY_REJECTED,
    Verdict.ALREADY,
    Verdict.OK,
)
BECOMES_UNSCHEDULABLE = frozenset((Verdict.UNSCHEDULABLE, Verdict.REJECTED))
CHANGED = BECOMES_UNSCHEDULABLE | {Verdict.LOSES}


class Cause(NamedTuple):
    """One requirement, who asked for it, and because of what."""

    trait: str
    """The name of a trait, or of a resource class."""
    rule: str
    """``required``, ``forbidden``, or ``resource class``."""
    on: str
    """The suffix of a request group; empty for the host itself."""
    by: str
    because: str


class Loss(NamedTuple):
    """What a requirement costs an image."""

    cause: Cause
    lacking: int
    """Of the hosts that the image loses, how many do not meet the requirement."""
    lacking_only: int
    """How many of them meet all others that the filters to enable bring, so that this one alone costs them."""


@dataclass(frozen=True, slots=True)
class Line:
    """Images that ask for the same, with one flavor or alone."""

    names: tuple[str, ...]
    """Of the images, as far as they are kept."""
    images: int
    flavor: str
    before: int
    """The set of hosts before (:mod:`os_prefilter.fleet.capability_index`)."""
    waiting: int
    """The set of hosts after the change, while filters wait for compute nodes that have not reported."""
    after: int
    """The set of hosts once no filter waits.

    A compute node that has not reported counts as one that cannot; but the filter ``owner`` waits until each compute
    node has its trait, so that each counts as having it.
    """
    verdict: Verdict
    """Of :attr:`waiting` or :attr:`after`, whichever is worse."""
    losses: tuple[Loss, ...] = ()
    combined: int = 0
    """Lost hosts that meet each requirement alone, and not all together."""
    reason: str = ""
    """Why the request is rejected."""


class HostGroup(NamedTuple):
    """Hosts that nothing which any image asks for tells apart."""

    names: tuple[str, ...]
    hosts: int


@dataclass(frozen=True, slots=True)
class Audit:
    """All images against one fleet."""

    lines: tuple[Line, ...]
    """Those that become unschedulable first, those to which nothing happens last."""
    images: int
    flavors: int
    """How many flavors each image was judged with; 0 for images alone."""
    host_groups: tuple[HostGroup, ...]
    """The largest first."""
    hosts: int
    unused: tuple[str, ...]
    """Hosts that no image can be scheduled to with the filters enabled."""
    newly_unused: tuple[str, ...]
    """Those of them that some image could be scheduled to before."""
    unserved: tuple[tuple[Cause, int], ...]
    """What no host meets at all, and how many images ask for it."""
    unknown: tuple[tuple[str, int], ...]
    """What nobody knows, such as a misspelt value, and in how many images it is."""
    waits: tuple[tuple[str, int], ...]
    """What filters do not ask for yet because they wait, and of how many images."""

    @property
    def is_waiting(self) -> bool:
        """Whether an image has other hosts once no filter waits."""
        return any(line.waiting != line.after for line in self.lines)

    def count(self, *verdicts: Verdict) -> int:
        """Return how many images have one of the verdicts; with flavors, how many pairs of image and flavor."""
        return sum(line.images for line in self.lines if line.verdict in verdicts)


def audit(
    images: Iterable[Image],
    fleet: Fleet,
    change: Change,
    *,
    flavors: Sequence[Flavor] = (),
    progress: Progress = lambda _what, _done, _of: None,
) -> Audit:
    """Compare which hosts remain for each image, with each flavor, before and after a change of the filters.

    :param flavors: without one, images are judged alone: each host counts as large enough.
    :raises PrefilterError: if a filter fails, or asks for what an audit cannot judge; what it rejects is a verdict.
    """
    # A gate does not open before there is a compute node.
    enforcing = change.after.without_waiting() if coverage_of(fleet).compute_nodes else change.after
    found = grouped(images, flavors, change, enforcing, lambda count: progress("images", count, None))
    conditions = {item for group in found.groups for asked in group.key[1:] for item in asked.query}
    now = sets = CapabilityIndex(fleet, conditions, any_size=not flavors)
    gated = {each.name for each in change.after.filters if each.declaration.gate}
    if any(group.key.is_deferred_by(gated) for group in found.groups):
        sets = CapabilityIndex(once_owned(fleet, change.after.options), conditions, any_size=not flavors)
    lines = []
    for number, group in enumerate(found.groups, 1):
        lines.append(_line(group, now, sets))
        progress("kinds of images", number, len(found.groups))
    used_before, used = union(line.before for line in lines), union(line.after for line in lines)
    kinds = sorted(sets.kinds.values(), key=lambda hosts: -hosts.bit_count())
    return Audit(
        lines=tuple(sorted(lines, key=lambda line: _URGENT.index(line.verdict))),
        images=found.images,
        flavors=len(flavors),
        host_groups=tuple(HostGroup(sets.names_of(hosts), hosts) for hosts in kinds),
        hosts=len(sets.names),
        unused=sets.names_of(sets.all & ~used),
        newly_unused=sets.names_of(used_before & ~used),
        unserved=_unserved(found.groups, sets),
        unknown=tuple(found.unknown.most_common()),
        waits=tuple(found.waits.most_common()),
    )


def _line(group: ImageGroup, now: CapabilityIndex, later: CapabilityIndex) -> Line:
    flavor, before, waiting, after = group.key
    had, has_now = (0 if each.rejected else now.serving(each.query) for each in (before, waiting))
    has = 0 if after.rejected else later.serving(after.query)
    states = (
        (_verdict(before, asked, had, hosts), asked, hosts, sets)
        for asked, hosts, sets in ((after, has, later), (waiting, has_now, now))
    )
    verdict, worse, left, sets = min(states, key=lambda state: _URGENT.index(state[0]))
    losses: tuple[Loss, ...] = ()
    combined = 0
    if lost := had & ~left if not worse.rejected else 0:
        losses, combined = _losses(lost, before, worse, sets)
    return Line(
        names=tuple(group.names),
        images=group.images,
        flavor=flavor,
        before=had,
        waiting=has_now,
        after=has,
        verdict=verdict,
        losses=losses,
        combined=combined,
        reason=worse.rejected,
    )


def _verdict(before: Asked, after: Asked, had: int, has: int) -> Verdict:
    if after.rejected:
        if had:
            return Verdict.REJECTED
        return Verdict.ALREADY_REJECTED if before.rejected else Verdict.ALREADY
    if not has:
        return Verdict.UNSCHEDULABLE if had else Verdict.ALREADY
    return Verdict.LOSES if had & ~has else Verdict.OK


def _losses(lost: int, before: Asked, after: Asked, sets: CapabilityIndex) -> tuple[tuple[Loss, ...], int]:
    """Return what each requirement that is new costs, the most expensive first, and what they cost together alone."""
    new = after.own() - before.own()
    without_all = [item for item in after.query if item not in new]
    losses = []
    explained = 0
    for cause, conditions in _causes(after.added, new).items():
        lacking = lost & ~sets.serving([*without_all, *conditions])
        only = lacking & sets.serving(item for item in after.query if item not in conditions)
        explained |= lacking
        if lacking:
            losses.append(Loss(cause, lacking.bit_count(), only.bit_count()))
    losses.sort(key=lambda loss: (-loss.lacking_only, -loss.lacking, loss.cause))
    return tuple(losses), (lost & ~explained).bit_count()


def _causes(requirements: Iterable[Requirement], among: frozenset[Condition]) -> dict[Cause, list[Condition]]:
    """Return the conditions by what they mean to people.

    One trait asked for on the root and without a suffix is one cause, and so is one that two filters ask for: neither
    could be left out alone to any effect.
    """
    conditions: dict[tuple[str, bool, str], list[Condition]] = {}
    by: dict[tuple[str, bool, str], dict[str, str]] = {}
    for item in requirements:
        condition = condition_of(item)
        if condition in among:
            key = item.trait, item.required, condition.suffix
            conditions.setdefault(key, []).append(condition)
            by.setdefault(key, {}).setdefault(item.filter, escape_line(item.source))
    return {
        Cause(
            trait=key[0],
            rule="required" if key[1] else "forbidden",
            on=key[2],
            by=", ".join(by[key]),
            because=" and ".join(dict.fromkeys(by[key].values())),
        ): conditions[key]
        for key in conditions
    }


def _unserved(groups: Iterable[ImageGroup], sets: CapabilityIndex) -> tuple[tuple[Cause, int], ...]:
    """Return the requirements and resource classes that no host meets, and the images that ask for them."""
    found: Counter[Cause] = Counter()
    for group in groups:
        asked = group.key.after
        if asked.rejected:
            continue
        resources = [item for item in asked.query if item.kind == RESOURCE]
        for item in resources:
            if not sets.serving([item]):
                found[Cause(item.names[0], "resource class", item.suffix, "request", _flavor(group))] += group.images
        if not sets.serving(resources):
            continue
        requirements = (*asked.stated, *asked.added)
        for cause, conditions in _causes(requirements, frozenset(map(condition_of, requirements))).items():
            if not sets.serving([*resources, *conditions]):
                found[cause] += group.images
    return tuple(found.most_common())


def _flavor(group: ImageGroup) -> str:
    return f"flavor {group.key.flavor}" if group.key.flavor else "the image"
