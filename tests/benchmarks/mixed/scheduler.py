#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""Nova's own scheduler on an embedded Placement, and what its conductor does where a host fails.

Real: the scheduler's manager, its request filters, query, host filters, choice, claims and alternates, its client of
Placement, and Placement. Not there: a message bus, Nova's databases, and compute services. The late check of this
library stands for the virt driver's own.
"""

import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from nova import exception, objects
from nova.scheduler import manager, utils
from nova.scheduler.client import report
from nova.scheduler.host_manager import HostState

from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from tests.benchmarks.mixed.hosts import Kind, kind_of
from tests.benchmarks.mixed.requests import Boot, spec_of
from tests.benchmarks.mixed.ways import Way
from tests.support.nova_start import starting, user_context

_NEWEST_COMPUTE = 10_000
_CELL = "00000000-0000-4000-8000-00000000ce11"
_PREFIX = "/allocation_candidates?"

LateCheck = Callable[[str], bool]
"""Whether the host of that name can do it."""


class Outcome(NamedTuple):
    host: str
    """Empty if there was none."""
    failed: tuple[str, ...]
    """The hosts on which the late check failed, in order."""
    candidates: int
    """Hosts that Placement returned."""
    query: str
    """What Placement was asked; empty if the request was refused before."""
    query_seconds: float
    """Of the processor, in Placement, for the candidates."""
    seconds: float
    """The same for all that the request took: candidates, claims, what was given back."""


class Placement:
    """What Nova's client of Placement talks to: an embedded one, with a clock."""

    def __init__(self, placement: EmbeddedPlacement) -> None:
        self._adapter: Any = placement.client._adapter
        self.begin()

    def begin(self) -> None:
        self.query = ""
        self.query_seconds = self.seconds = 0.0

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(self._send, method.upper())

    def _send(self, method: str, url: str, *, microversion: str | None = None, **options: Any) -> Any:
        options.pop("global_request_id", None)
        versions = {"microversion": microversion, "microversion_service_type": "placement"}
        headers, start = {"Accept": "application/json"}, time.process_time()
        answer = self._adapter.request(url, method, raise_exc=False, headers=headers, **versions, **options)
        seconds = time.process_time() - start
        self.seconds += seconds
        if url.startswith(_PREFIX):
            self.query, self.query_seconds = url.removeprefix(_PREFIX), seconds
        return answer


class Scheduler:
    """Nova's scheduler, started with the configuration of one way."""

    def __init__(self, nova_manager: Any, placement: Placement, names: dict[str, str]) -> None:
        self._manager = nova_manager
        self._placement = placement
        self._client = manager.report.report_client_singleton()
        self._names = names
        self._candidates = 0
        self._manager.host_manager.get_host_states_by_uuids = self._states
        self.context = user_context()

    def boot(self, boot: Boot, late_check: LateCheck) -> Outcome:
        """Schedule one request, and build it on the host, or on the next one where that fails."""
        # Each request has its own luck, so that it does not depend on how many hosts the ones before could choose from.
        random.seed(f"choice {boot.number}")
        self._candidates = 0
        self._placement.begin()
        host, failed = "", []
        for selection in self._selected(boot):
            claimed = not failed or self._claim(boot, selection)
            if claimed and late_check(selection.nodename):
                host = selection.nodename
                break
            if claimed:
                failed.append(selection.nodename)
                self._client.delete_allocation_for_instance(self.context, boot.uuid, force=True)
        spent = self._placement
        return Outcome(host, tuple(failed), self._candidates, spent.query, spent.query_seconds, spent.seconds)

    def end(self, boot: Boot) -> None:
        self._client.delete_allocation_for_instance(self.context, boot.uuid, force=True)

    def passing(self, boot: Boot, kinds: Sequence[Kind]) -> set[str]:
        """Return the names of the kinds whose hosts pass the enabled host filters."""
        states = [_state(f"{kind.name}-0", "", kind) for kind in kinds]
        found = self._manager.host_manager.get_filtered_hosts(states, spec_of(boot))
        return {kind_of(state.nodename).name for state in found}

    def _selected(self, boot: Boot) -> Sequence[Any]:
        """Return Nova's selections: the host that it has claimed, and the alternates."""
        spec = spec_of(boot)
        try:
            (found,) = self._manager.select_destinations(
                self.context, spec_obj=spec, instance_uuids=[boot.uuid], return_objects=True, return_alternates=True
            )
        except manager.messaging.ExpectedException as error:
            if not isinstance(error.exc_info[1], exception.NoValidHost):
                raise
            return ()
        selections: Sequence[Any] = found
        return selections

    def _claim(self, boot: Boot, selection: Any) -> bool:
        """Claim an alternate, as Nova's conductor does."""
        request = json.loads(selection.allocation_request)
        version = selection.allocation_request_version
        return bool(utils.claim_resources(self.context, self._client, spec_of(boot), boot.uuid, request, version))

    def _states(self, _context: object, uuids: Sequence[str], _spec: object) -> Iterator[Any]:
        """Return the host states in the place of those that Nova reads from its cells."""
        names = sorted((self._names[uuid], uuid) for uuid in uuids)
        self._candidates = len(names)
        return iter([_state(name, uuid, kind_of(name)) for name, uuid in names])


def _state(name: str, uuid: str, kind: Kind) -> Any:
    state = HostState(name, name, _CELL)
    state.uuid = uuid
    state.supported_instances = [list(each) for each in kind.supported]
    state.cpu_info = {}
    state.hypervisor_version = 0
    return state


@contextmanager
def scheduler(way: Way, placement: EmbeddedPlacement, names: dict[str, str]) -> Iterator[Scheduler]:
    """Start Nova's scheduler; afterwards Nova is as it was.

    :param names: of the hosts, by UUID
    """
    spoken_to = Placement(placement)
    versions = mock.patch.object(objects.service, "get_minimum_version_all_cells", return_value=_NEWEST_COMPUTE)
    with ExitStack() as stack:
        start = stack.enter_context(starting(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        # No PCI devices and NUMA cells to count down, which is what it is for.
        stack.enter_context(mock.patch.object(HostState, "consume_from_request"))
        stack.enter_context(mock.patch.object(manager.compute_utils, "notify_about_scheduler_action"))
        stack.enter_context(versions)
        patched: Any = report.report_client_singleton
        patched.return_value = report.SchedulerReportClient(adapter=spoken_to)
        yield Scheduler(start("", conf=way.nova_conf), spoken_to, names)
