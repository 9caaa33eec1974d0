# SPDX-License-Identifier: Apache-2.0

"""Nova's scheduler as nova-scheduler makes it when it starts, but without a
message bus, a database and Placement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import nova.conf
import nova.policy
from nova import context as nova_context
from nova.scheduler import manager, request_filter
from nova.scheduler.client import report
from nova.scheduler.host_manager import HostManager

from os_prefilter.nova import activation
from os_prefilter.nova.entry import RequestFilters

if TYPE_CHECKING:
    from tests.support.placements import Observed

Start = Callable[..., Any]
"""``(enabled_filters, *lines of nova.conf) -> SchedulerManager``; or with the
whole file as ``conf``.
"""
_TWO_LINES = """[filter_scheduler]
available_filters = nova.scheduler.filters.all_filters
available_filters = os_prefilter.nova.activate
[prefilter]"""


@contextmanager
def starting(folder: Path) -> Iterator[Start]:
    """Yield a function that starts the scheduler with the two lines of the
    documentation; then undo all of it.
    """
    before = list(request_filter.ALL_REQUEST_FILTERS)

    def start(enabled: str, *lines: str, conf: str = "") -> Any:
        path = folder / "nova.conf"
        waits = (
            ()
            if any(line.startswith("wait_for_reports") for line in lines)
            else ("wait_for_reports = false",)
        )
        text = conf or "\n".join(
            (_TWO_LINES, f"enabled_filters = {enabled}", *waits, *lines)
        )
        path.write_text(text, encoding="utf-8")
        nova.conf.CONF([], project="nova", default_config_files=[str(path)])
        return manager.SchedulerManager()

    with ExitStack() as patches:
        for name in (
            "refresh_cells_caches",
            "_init_aggregates",
            "_init_instance_info",
        ):
            patches.enter_context(mock.patch.object(HostManager, name))
        patches.enter_context(mock.patch.object(manager.rpc, "get_notifier"))
        patches.enter_context(
            mock.patch.object(manager.report, "report_client_singleton")
        )
        # No thread outlives a test; those about it start one themselves.
        patches.enter_context(
            mock.patch.object(activation, "_AFTER_START", 3600.0)
        )
        # No cell, so no compute node of which the fact nested_providers looks
        # at the tree.
        patches.enter_context(
            mock.patch.object(
                nova_context, "scatter_gather_skip_cell0", return_value={}
            )
        )
        try:
            yield start
        finally:
            for each in request_filter.ALL_REQUEST_FILTERS:
                if isinstance(each, RequestFilters):
                    placement = each.service.placement
                    if placement:
                        placement.stop()
            nova.conf.CONF.reset()
            nova.policy.reset()
            request_filter.ALL_REQUEST_FILTERS[:] = before


def entries() -> list[str]:
    """Return what runs, in order: Nova's filters and those of others by name,
    and ``ours``.
    """
    return [
        "ours" if isinstance(each, RequestFilters) else each.__name__
        for each in request_filter.ALL_REQUEST_FILTERS
        if isinstance(each, RequestFilters) or hasattr(each, "__name__")
    ]


def our_entry() -> Any:
    """Return our entry of Nova's list, which is the last."""
    return request_filter.ALL_REQUEST_FILTERS[-1]


def user_context() -> Any:
    return nova_context.RequestContext("user", "project")


def ask(placement: Observed) -> None:
    """Let Nova's own client of Placement, in the scheduler that was started,
    ask this one.
    """
    adapter: Any = _SdkAdapter(placement)
    client: Any = report.report_client_singleton
    client.return_value = report.SchedulerReportClient(adapter=adapter)


class _SdkAdapter:
    """What Nova's client of Placement has: openstacksdk's adapter for it."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed

    def get(self, url: str, **options: Any) -> Any:
        """Send a request, as ``openstack.proxy.Proxy`` does."""
        return self._send("GET", url, options)

    def put(self, url: str, **options: Any) -> Any:
        assert options.pop("json") is None
        return self._send("PUT", url, options)

    def _send(self, method: str, url: str, options: dict[str, Any]) -> Any:
        assert options["microversion"] == "1.36"
        headers = {"OpenStack-API-Version": "placement 1.36"}
        return self._observed.request(
            url, method, headers=headers, raise_exc=False
        )
