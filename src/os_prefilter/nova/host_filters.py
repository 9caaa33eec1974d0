# SPDX-License-Identifier: Apache-2.0

"""Count the hosts that Nova's host filters leave, and say which left none.

No choice of a host changes. Nova's map of host filters takes the later of two
classes of one name: :func:`counting` returns a subclass of each enabled one
that counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from inspect import isclass
from typing import Any, ClassVar

import nova.conf
from nova.scheduler import filters
from oslo_utils import importutils

from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import describe_error
from os_prefilter.nova.scheduling import SchedulingWatch

LOG = get_logger(__name__)

OURS = "os_prefilter.nova.activate"

# Not an attribute of the filters: all threads share them. A greenlet has its
# own value, as a thread has.
_INDEX: ContextVar[int] = ContextVar("index", default=0)


class _Counting:
    """Mixin for a host filter class that counts hosts before and after."""

    watch: ClassVar[SchedulingWatch]

    def run_filter_for_index(self, index: int) -> Any:
        # Nova calls this before each run, and filter_all without the index
        # (nova/filters.py, 27 to 34).
        _INDEX.set(index)
        return super().run_filter_for_index(index)  # type: ignore[misc]

    def filter_all(self, hosts: Iterable[Any], spec: Any) -> Any:
        hosts = list(hosts)
        found = super().filter_all(hosts, spec)  # type: ignore[misc]
        left = list(found or ())
        self.watch.count(
            type(self).__name__, len(hosts), len(left), spec, _INDEX.get()
        )
        # With None, Nova has no host either, and runs no other filter.
        return None if found is None else left


def counting(watch: SchedulingWatch, ours: type) -> list[type]:
    """Return a class in place of each enabled host filter, also of ours.

    No function in ``available_filters`` is called: Nova has called those
    before ours, and one may do more than return classes.
    """
    options = nova.conf.CONF.filter_scheduler
    lines = [each.strip() for each in options.available_filters]
    if OURS not in lines:
        # A function of an operator's own has called it, and must not be called
        # again by it.
        LOG.warning(
            "[filter_scheduler] available_filters does not name %s: hosts are"
            " not counted.",
            OURS,
        )
        return []
    place = len(lines) - lines[::-1].index(OURS)
    if lines[place:]:
        LOG.warning(
            "[filter_scheduler] available_filters: hosts are not counted at"
            " filters of the lines after %s: make it the last one.",
            OURS,
        )
    found = _classes_of(each for each in lines[:place] if each != OURS)
    found[ours.__name__] = ours
    return [
        _counting(found[name], watch)
        for name in dict.fromkeys(options.enabled_filters)
        if name in found
    ]


def _classes_of(lines: Iterable[str]) -> dict[str, type]:
    """Return the classes of these lines of ``available_filters`` by name.

    A class that is not certain is left out.
    """
    found: dict[str, type] = {}
    for line in lines:
        offered = importutils.import_class(line)
        if offered is filters.all_filters:
            for each in filters.HostFilterHandler().get_all_classes():
                found[each.__name__] = each
        elif isclass(offered):
            found[offered.__name__] = offered
        else:
            # It may have returned a class in place of one of an earlier line.
            found.clear()
            LOG.warning(
                "[filter_scheduler] available_filters: hosts are not counted"
                " at filters of %s, which is a function, and of the lines"
                " before it. Name its classes, each in a line after it.",
                line,
            )
    return found


def _counting(host_filter: type, watch: SchedulingWatch) -> type:
    fields = {
        "watch": watch,
        "__module__": host_filter.__module__,
        "__doc__": host_filter.__doc__,
    }
    try:
        return type(host_filter.__name__, (_Counting, host_filter), fields)
    except Exception as error:  # noqa: BLE001 - any class of another package; it runs as it is
        LOG.warning(
            "Hosts are not counted at the host filter %s: %s",
            host_filter.__name__,
            describe_error(error),
        )
        return host_filter
