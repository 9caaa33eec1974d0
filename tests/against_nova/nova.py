# SPDX-License-Identifier: Apache-2.0

"""Nova's own code on Nova's own objects, as tests ask it; and ours beside
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any
from unittest import mock

import nova.conf
from nova import exception, objects
from nova.scheduler import request_filter
from nova.scheduler.utils import ResourceRequest

from os_prefilter import allocation_candidates_query
from os_prefilter.common.errors import RequestRejected
from os_prefilter.nova.activation import SAME_PURPOSE
from os_prefilter.request.named_traits import written_requirements
from os_prefilter.request.view import Request
from os_prefilter.service import Service
from tests.against_nova.becomes import FAILED, REFUSED, Answer, Required
from tests.against_nova.differences import DIFFERENCES, QUERY

NOVA = int(version("nova").partition(".")[0])
# Older Novas do not have all of them.
FILTERS = tuple(
    name
    for name, function in SAME_PURPOSE.items()
    if hasattr(request_filter, function)
)


class NovaCode:
    """Nova's filter of the same purpose as ours, or Nova's query."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._function = (
            None
            if name == QUERY
            else getattr(request_filter, SAME_PURPOSE[name])
        )

    def __call__(self, spec: Any) -> Answer:
        """Return what it answers; the request spec is left as it is."""
        try:
            if self._function is None:
                return str(
                    ResourceRequest.from_request_spec(
                        spec.obj_clone()
                    ).to_querystring()
                )
            clone = spec.obj_clone()
            self._function(None, clone)
        except (
            exception.ObjectActionError,
            AttributeError,
            NotImplementedError,
        ):
            # A field that is not set, or null: for the scheduler, an error of
            # its own.
            return FAILED
        except (exception.NovaException, ValueError):
            return REFUSED
        return _traits(clone) - _traits(spec)

    @staticmethod
    def completed(spec: Any) -> Any:
        """Return a copy of the request spec with an empty image and no extra
        specs where those are not set.
        """
        clone = spec.obj_clone()
        if "image" not in clone or clone.image is None:
            clone.image = objects.ImageMeta.from_dict({})
            # What else could it boot from.
            clone.is_bfv = True
        if "extra_specs" not in clone.flavor:
            clone.flavor.extra_specs = {}
        if "is_bfv" not in clone:
            clone.is_bfv = False
        return clone


def our_query(spec: Any) -> Answer:
    try:
        return allocation_candidates_query(spec)
    except RequestRejected:
        return REFUSED


def our_filter(pipeline: Service, spec: Any) -> Answer:
    clone = spec.obj_clone()
    try:
        pipeline.apply(clone)
    except RequestRejected:
        return REFUSED
    return _traits(clone) - _traits(spec)


def expected(name: str, spec: Any) -> Answer:
    """Return what we must answer: what Nova does, and then each difference."""
    code = NovaCode(name)
    answer = code(spec)
    for difference in DIFFERENCES:
        if name in difference.of:
            answer = difference.becomes(answer, spec, code)
    return answer if isinstance(answer, str) else answer - _traits(spec)


def _traits(spec: Any) -> frozenset[Required]:
    """Return what is asked for: the traits, and the resources of the flavor's
    groups.
    """
    written = {
        (item.scope, str(item.trait), item.required)
        for item in written_requirements(Request(spec))
    }
    required = {("root", trait, True) for trait in spec.root_required}
    resources = {
        (suffix, f"{name}:{amount}", True)
        for suffix, group in Request(spec).flavor_groups.items()
        for name, amount in group.resources.items()
    }
    return frozenset(
        written
        | resources
        | required
        | {("root", trait, False) for trait in spec.root_forbidden}
    )


@contextmanager
def filters_switched_on() -> Iterator[None]:
    """Let Nova's filters run that its configuration or a gate would stop."""
    conf = nova.conf.CONF
    conf.set_override("image_metadata_prefilter", True, "scheduler")
    conf.set_override(
        "query_placement_for_image_type_support", True, "scheduler"
    )
    with mock.patch.object(
        objects.service, "get_minimum_version_all_cells", return_value=10_000
    ):
        try:
            yield
        finally:
            conf.clear_override("image_metadata_prefilter", "scheduler")
            conf.clear_override(
                "query_placement_for_image_type_support", "scheduler"
            )
