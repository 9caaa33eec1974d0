# SPDX-License-Identifier: Apache-2.0

"""A pytest plugin: every nova-scheduler that Nova's own tests start has our
filters, by configuration alone.

It changes the defaults of the two options, not their values: a test that sets
one of them still does, and Nova's fixture, which resets the configuration
after each test, leaves defaults as they are. It counts what our filters did
over all processes of the run, and a run in which they did nothing fails.
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
        "noop",
        "owner",
    ),
    *("packed_virtqueue", "server_options", "sound_model"),
    "tpm_secret_security",
]

# Nova's fake driver reports neither architectures nor device models, and the
# images of Nova's tests say x86_64: Nova's own filter, off unless configured,
# excludes those hosts as well. image_type is left out everywhere for a like
# reason: they boot AMI and VHD images on hosts that report neither.
LIBVIRT_ONLY = ["image_metadata"]

# They compare the whole fault of a server that no host can run, which is
# Nova's own without a reason of ours.
COMPARE_THE_FAULT = [
    "test_boot_with_vif_model_igb_old_libvirt",
    "test_boot_with_vif_model_igb_old_qemu",
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
        # No agent reports here: like Nova itself, ours waits for nothing.
        cfg.set_defaults(
            OPTIONS, enabled_filters=ENABLED_FILTERS, wait_for_reports=False
        )
        door.activate()
        door.activate = self._counted(ACTIVATIONS, door.activate)
        RequestFilters.__call__ = self._counted(  # type: ignore[method-assign]
            REQUESTS, RequestFilters.__call__
        )
        Service.apply = self._counted(DECISIONS, Service.apply)  # type: ignore[method-assign]

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
        """Enable what the hosts of this test can answer, before it starts a
        scheduler.
        """
        reason = "off" if item.name in COMPARE_THE_FAULT else "properties"
        cfg.set_defaults(
            OPTIONS,
            enabled_filters=enabled_for(item.cls),
            no_host_reason=reason,
        )

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
        elif not self._prove_something() and not session.config.getoption(
            "collectonly"
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        counts = sorted(
            each
            for each in self.numbers.items()
            if each[0] not in (ACTIVATIONS, REQUESTS, DECISIONS)
        )
        asked = ", ".join(f"{name} {number:,}" for name, number in counts)
        terminalreporter.write_line(
            f"os-prefilter: activated by {self.numbers[ACTIVATIONS]:,}"
            f" schedulers, ran for {self.numbers[REQUESTS]:,} requests;"
            f" requirements by filter: {asked or 'none'}."
        )
        if not self._prove_something():
            terminalreporter.write_line(
                "ERROR: our filters never ran, so these tests prove nothing.",
                red=True,
            )

    def _prove_something(self) -> bool:
        return bool(self.numbers[ACTIVATIONS] and self.numbers[REQUESTS])


def enabled_for(case: type) -> list[str]:
    """Return the filters for a test case, according to its hosts."""
    on_libvirt = any(
        base.__module__.startswith("nova.tests.functional.libvirt.")
        for base in case.__mro__
    )
    names = ENABLED_FILTERS + LIBVIRT_ONLY if on_libvirt else ENABLED_FILTERS
    return sorted(names)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Activate in each process that runs tests, after Nova was made to run
    there.
    """
    activated = Activated()
    config.pluginmanager.register(activated)
    if runs_tests(config):
        activated.start()
