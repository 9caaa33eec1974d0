"""Groups of images with the same requirements: thousands of images make tens of groups."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from os_prefilter.common.quoting import escape_line
from os_prefilter.errors import RequestRejected
from os_prefilter.filters.nova_translation import stated_requirements
from os_prefilter.fleet.capability_index import capability_of
from os_prefilter.pipeline.pipeline import Pipeline
from os_prefilter.pipeline.query import allocation_candidates_query, demand_of
from os_prefilter.request.demand import Condition, condition_of
from os_prefilter.request.requirements import Note, Requirement
from os_prefilter.request.spec import Flavor, Image, RequestSpec
from os_prefilter.request.view import Request

MOST_NAMES = 100_000
"""The most image names that are kept in all groups together; further images are only counted."""
MOST_UNKNOWN = 10_000
"""The most distinct unknown values that are counted."""
_LONGEST_NAME = 255

# For images alone, where every host counts as large enough.
_ANY_FLAVOR = Flavor(vcpus=1, memory_mb=1)


class Change(NamedTuple):
    """The filters before and after a change."""

    before: Pipeline
    after: Pipeline


class Requested(NamedTuple):
    """The conditions of a request after a pipeline."""

    query: tuple[Condition, ...]
    stated: tuple[Requirement, ...] = ()
    """From flavor and image."""
    added: tuple[Requirement, ...] = ()
    """By the pipeline."""
    rejected: str = ""
    """Why the request is rejected, so that it has no query; empty if it is not."""

    def own(self) -> frozenset[Condition]:
        """Return the conditions that only the pipeline adds."""
        return frozenset(map(condition_of, self.added)).difference(map(condition_of, self.stated))


class GroupKey(NamedTuple):
    """The flavor and the requirements that the images of a group share."""

    flavor: str
    before: Requested
    waiting: Requested
    """After the change, while filters wait for capability reports."""
    after: Requested
    """After the change, once none waits."""

    def is_deferred_by(self, filters: Collection[str]) -> bool:
        """Whether one of these filters defers a requirement."""
        return any(item.filter in filters for item in set(self.after.added).difference(self.waiting.added))


@dataclass(slots=True)
class ImageGroup:
    """Images with the same requirements with one flavor."""

    key: GroupKey
    names: list[str] = field(default_factory=list)
    """The names that are kept (:data:`MOST_NAMES`), each as one printable line."""
    images: int = 0


@dataclass(slots=True)
class ImageGroups:
    """All images in groups, in the order of their first images."""

    groups: list[ImageGroup]
    images: int
    unknown: Counter[str]
    """Unknown values, such as misspelt ones, and how many images have them, counted with the filters to enable."""
    waits: Counter[str]
    """Requirements deferred by filters that wait, and how many images have them."""


def group_images(
    images: Iterable[Image],
    flavors: Sequence[Flavor],
    change: Change,
    enforcing: Pipeline,
    progress: Callable[[int], None] = lambda _images: None,
) -> ImageGroups:
    """Apply the pipelines to each image with each flavor, and group images with the same requirements.

    :param flavors: if empty, each image alone.
    :param enforcing: the filters after the change, once none of them waits; run where one does.
    :param progress: called with the number of images that are done.
    :raises PrefilterError: if a filter fails; a request that it rejects is a result.
    """
    groups: dict[GroupKey, ImageGroup] = {}
    unknown: Counter[str] = Counter()
    waits: Counter[str] = Counter()
    queries: dict[str, tuple[Condition, ...]] = {}
    count = kept = 0
    for count, image in enumerate(images, 1):
        notes: set[Note] = set()
        name = escape_line(str(image.name or image.id or "an image without a name")[:_LONGEST_NAME])
        for flavor in flavors or (_ANY_FLAVOR,):
            label = escape_line((flavor.name or "a flavor without a name")[:_LONGEST_NAME]) if flavors else ""
            before = _requested_by(image, flavor, change.before, queries, notes)
            deferred: set[Note] = set()
            waiting = after = _requested_by(image, flavor, change.after, queries, deferred)
            if any(note.waits for note in deferred):
                after = _requested_by(image, flavor, enforcing, queries, notes)
            notes |= deferred
            key = GroupKey(label, before, waiting, after)
            group = groups.setdefault(key, ImageGroup(key))
            group.images += 1
            if kept < MOST_NAMES:
                group.names.append(name)
                kept += 1
        _count(unknown, {str(note) for note in notes if note.warn})
        _count(waits, {str(note) for note in notes if note.waits})
        progress(count)
    return ImageGroups(list(groups.values()), count, unknown, waits)


def _count(counter: Counter[str], texts: set[str]) -> None:
    counter.update(text for text in texts if text in counter or len(counter) < MOST_UNKNOWN)


def _requested_by(
    image: Image, flavor: Flavor, pipeline: Pipeline, queries: dict[str, tuple[Condition, ...]], notes: set[Note]
) -> Requested:
    """Return the conditions of a request; add its notes to ``notes``, those of its query to ``queries``."""
    spec = RequestSpec(flavor=flavor, image=image)
    try:
        stated = stated_requirements(Request(spec))
        decision = pipeline.apply(spec)
        text = allocation_candidates_query(spec, limit=None)
    except RequestRejected as error:
        return Requested((), rejected=str(error))
    notes.update(note for note in decision.notes if note.warn or note.waits)
    if text not in queries:
        queries[text] = capability_of(demand_of(spec))
    return Requested(queries[text], tuple(dict.fromkeys(stated)), tuple(dict.fromkeys(decision.requirements)))
