# SPDX-License-Identifier: Apache-2.0

"""The service as an entry of Nova's list of request filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nova import exception
from nova.scheduler import request_filter

from os_prefilter.common import errors
from os_prefilter.common.logs import get_logger
from os_prefilter.nova.connections import forget_inherited_connections
from os_prefilter.nova.scheduling import SchedulingWatch
from os_prefilter.request.extra_specs import trait_key
from os_prefilter.request.fields import clone_of, field_of
from os_prefilter.request.view import Request
from os_prefilter.service import Service
from os_prefilter.service.deployment_facts import latest_end, seconds_to

LOG = get_logger("os_prefilter.nova")

NovaFilter = Callable[[Any, Any], object]


class RequestFilters:
    """The service as one entry of Nova's list of request filters.

    :param isolate: a filter of Nova that runs after the service, with the
        traits that it required
    """

    def __init__(
        self,
        service: Service,
        isolate: NovaFilter | None = None,
        watch: SchedulingWatch | None = None,
    ) -> None:
        self.service = service
        self._isolate = isolate
        self._watch = watch

    def __call__(self, context: Any, request_spec: Any) -> bool:
        """Run the filters on Nova's request spec.

        :raises nova.exception.RequestFilterFailed: if the request cannot be
            scheduled as it is; Nova shows the user why
        :raises nova.exception.NoValidHost: if a Nova-style filter raised it
        """
        until = latest_end()
        forget_inherited_connections()
        try:
            decision = self.service.apply(request_spec, context, until=until)
        except errors.RejectedByFilter as error:
            # As in Nova's own list: the message is the filter's, and Nova adds
            # its words once. A class of the filter's package would not pass
            # Nova's message bus.
            kind = exception.RequestFilterFailed
            if isinstance(error.__cause__, exception.NoValidHost):
                kind = exception.NoValidHost
            raise kind(error.reason) from error
        except errors.RequestRejected as error:
            raise exception.RequestFilterFailed(reason=str(error)) from error
        except errors.PrefilterError as error:
            # An operator error: do not expose details to the end user.
            LOG.exception(
                "A request was not scheduled because a request filter failed."
            )
            raise exception.RequestFilterFailed(
                reason=(
                    "a request filter of this cloud failed; its operator finds"
                    " the cause in the scheduler's log"
                )
            ) from error
        if self._isolate:
            _run_with_all_traits(self._isolate, context, request_spec)
        if self._watch:
            self._watch.begin(
                request_spec, context, decision, seconds_to(until)
            )
            _expect_query_after(self, self._watch)
        return True


class LastFilter:
    """The end of Nova's list, where request filters of others follow ours.

    They may ask Placement too, before Nova does.
    """

    def __init__(self, watch: SchedulingWatch) -> None:
        self._watch = watch

    def __call__(self, _context: Any, _request_spec: Any) -> bool:
        """Note that Nova's query is next, unless another filter follows."""
        _expect_query_after(self, self._watch)
        return False


def _expect_query_after(entry: object, watch: SchedulingWatch) -> None:
    last = next(reversed(request_filter.ALL_REQUEST_FILTERS), entry)
    if last is entry:
        watch.expect_query()
    elif not isinstance(last, LastFilter):
        # Nova's loop over the list comes to it for this request already.
        request_filter.ALL_REQUEST_FILTERS.append(LastFilter(watch))


def _run_with_all_traits(
    function: NovaFilter, context: Any, request_spec: Any
) -> None:
    """Run a filter of Nova so that it counts required traits of the root too.

    It reads those of request groups alone. So it gets a copy whose flavor
    names those of the root; of what it writes, the destination is taken over.
    """
    seen = clone_of(request_spec)
    written = seen.flavor.extra_specs if "extra_specs" in seen.flavor else {}
    # Over the flavor's own value: Nova ignores a misspelt one, and the root is
    # to have the trait all the same.
    of_root = {
        trait_key(trait, ""): "required"
        for trait in Request(request_spec).root_required
    }
    seen.flavor.extra_specs = {**written, **of_root}
    function(context, seen)
    destination = field_of(seen, "requested_destination")
    if destination is not None:
        request_spec.requested_destination = destination
