# SPDX-License-Identifier: Apache-2.0

"""A pytest plugin: every nova-scheduler that Nova's own tests start has our
filters, by configuration alone.

It changes the defaults of the two options, not their values: a test that sets
one of them still does, and Nova's fixture, which resets the configuration
after each test, leaves defaults as they are. Beside each nova-compute is an
agent (:mod:`tests.novas.suites.agents`). It counts what our filters did over
all processes of the run, and a run in which those that need the reports did
nothing fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
from oslo_config import cfg

from os_prefilter.pipeline.decision import Decision
from os_prefilter.service import Service
from os_prefilter.service.option_definitions import OPTIONS
from tests.novas.suites.agents import FAILURES, REPORTS, Agents
from tests.novas.suites.from_wheel import runs_tests

AVAILABLE_FILTERS = [
    "nova.scheduler.filters.all_filters",
    "os_prefilter.nova.activate",
]

ENABLED_FILTERS = [
    *(
        "accelerators",
        "compute_status",
        "deploy_config",
        "ephemeral_encryption",
        "hpet",
        "image_metadata",
        "image_type",
        "noop",
        "owner",
    ),
    *("packed_virtqueue", "server_options", "sound_model"),
    "tpm_secret_security",
]

# They compare the whole fault of a server that no host can run, which is
# Nova's own without a reason of ours.
COMPARE_THE_FAULT = [
    "test_boot_with_vif_model_igb_old_libvirt",
    "test_boot_with_vif_model_igb_old_qemu",
]

# They compare the whole set of a provider's traits: their hosts have no agent,
# and the filters wait for its report.
COMPARE_TRAITS = ["ProviderTreeTests", "TraitsTrackingTests"]

# They boot VHD images on hosts whose libvirt driver reports no such type: Nova's
# own filter of that, off unless configured, refuses them as well.
BOOT_VHD = [
    "nova.tests.functional.libvirt.test_evacuate",
    "nova.tests.functional.libvirt.test_rescue_deleted_base",
    "nova.tests.functional.libvirt.test_uefi",
]

ACTIVATIONS = "activations"
REQUESTS = "requests"
DECISIONS = "decisions"


class Activated:
    """What our filters did in one process; where pytest-xdist hands out tests,
    in all of its workers.
    """

    def __init__(self) -> None:
        self.numbers: Counter[str] = Counter()
        # Schedulers are threads, and appending is atomic.
        self._seen: list[str] = []
        self._agents = Agents(self._seen.append)

    def start(self) -> None:
        """Activate once, for tests that start no scheduler, and count what
        happens from here on.
        """
        from nova.conf import (  # noqa: PLC0415 - nova.tests.unit comes first
            scheduler,
        )

        from os_prefilter import nova as door  # noqa: PLC0415
        from os_prefilter.nova.entry import (  # noqa: PLC0415
            RequestFilters,
        )

        cfg.set_defaults(
            scheduler.filter_scheduler_opts,
            available_filters=AVAILABLE_FILTERS,
        )
        cfg.set_defaults(OPTIONS, enabled_filters=ENABLED_FILTERS)
        door.activate()
        door.activate = self._counted(ACTIVATIONS, door.activate)
        RequestFilters.__call__ = self._counted(  # type: ignore[method-assign]
            REQUESTS, RequestFilters.__call__
        )
        Service.apply = self._counted(DECISIONS, Service.apply)  # type: ignore[method-assign]
        self._agents.start()

    def _counted(
        self, what: str, function: Callable[..., Any]
    ) -> Callable[..., Any]:
        @wraps(function)
        def counted(*args: Any, **named: Any) -> Any:
            self._seen.append(what)
            result = function(*args, **named)
            if isinstance(result, Decision):
                self._seen.extend(item.filter for item in result.requirements)
            return result

        return counted

    def pytest_runtest_setup(self, item: Any) -> None:
        """Leave out what a test compares, before it starts a service."""
        reason = "off" if item.name in COMPARE_THE_FAULT else "properties"
        enabled = [
            each
            for each in ENABLED_FILTERS
            if each != "image_type" or item.cls.__module__ not in BOOT_VHD
        ]
        cfg.set_defaults(
            OPTIONS, enabled_filters=enabled, no_host_reason=reason
        )
        self._agents.enabled = item.cls.__name__ not in COMPARE_TRAITS

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.numbers.update(
            getattr(node, "workeroutput", {}).get("os_prefilter", {})
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the numbers on, or fail the run if they prove nothing."""
        self.numbers.update(self._seen)
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["os_prefilter"] = dict(self.numbers)
        elif self._problems() and not session.config.getoption("collectonly"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        counts = sorted(
            each for each in self.numbers.items() if each[0] in ENABLED_FILTERS
        )
        asked = ", ".join(f"{name} {number:,}" for name, number in counts)
        terminalreporter.write_line(
            f"os-prefilter: activated by {self.numbers[ACTIVATIONS]:,}"
            f" schedulers, ran for {self.numbers[REQUESTS]:,} requests, on"
            f" {self.numbers[REPORTS]:,} reports of agents;"
            f" requirements by filter: {asked or 'none'}."
        )
        for each in self._problems():
            terminalreporter.write_line(f"ERROR: {each}", red=True)

    def _problems(self) -> list[str]:
        """Return why these tests prove nothing; empty if they do."""
        found = []
        if not self.numbers[ACTIVATIONS] or not self.numbers[REQUESTS]:
            found.append(
                "our filters never ran, so these tests prove nothing."
            )
        elif self.numbers[FAILURES]:
            found.append(
                f"{self.numbers[FAILURES]:,} reports of agents failed."
            )
        found += [
            f"the filter {name} required nothing of any host."
            for name in ("image_metadata", "image_type")
            if not self.numbers[name]
        ]
        return found


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Activate in each process that runs tests, after Nova was made to run
    there.
    """
    activated = Activated()
    config.pluginmanager.register(activated)
    if runs_tests(config):
        activated.start()
