# SPDX-License-Identifier: Apache-2.0

"""What tests share: requests in one line, pipelines from names, and a real
Placement that holds the example fleet.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from oslo_config import cfg
from xdist.scheduler import LoadScopeScheduling

from os_prefilter import (
    RequestSpec,
    allocation_candidates_query,
    default_service,
)
from os_prefilter.adapters import nova_compute, shared_cache
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.service import Service, deployment_facts
from os_prefilter.service.conf import GROUP, register_opts
from os_prefilter.service.option_definitions import OPTIONS
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.reader import example_fleet
from tests.support import interruption
from tests.support.placements import Observed, lone_host
from tests.support.proc import make_proc

# No test may ask the developer's own cloud.
os.environ.pop("OS_CLOUD", None)

_VARIABLE = "OS_PREFILTER_EXAMPLES"


def _examples() -> float:
    text = os.environ.get(_VARIABLE, "1")
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ValueError(
            f"{_VARIABLE} is {text!r}: give a number above 0, such as 50."
        )
    return number


_EXAMPLES = _examples()


def times(number: float) -> int:
    """Return how many examples, rounds or seconds: ``OS_PREFILTER_EXAMPLES``
    times the number, at least one.
    """
    return max(1, round(number * _EXAMPLES))


PATIENCE = deployment_facts.PATIENCE
"""The seconds that a request of the product waits."""
# Here a minute, for all that is made from now on: on a busy machine, a test
# that is not about time fails at the product's own. The tests about time set
# it.
deployment_facts.PATIENCE = 60.0
shared_cache._SLOW = 60.0
# A nova-compute of this machine is not that of a test's host.
nova_compute.PROC = Path("/nowhere/proc")

# Of each law that does not say how many examples it takes, those of the test
# kit as well, which is imported after this. In CI too, other examples each
# time: hypothesis's own profile of CI has the same ones for ever.
settings.register_profile(
    "os-prefilter", max_examples=times(20), derandomize=False, print_blob=True
)
settings.load_profile("os-prefilter")

from os_prefilter_tools.testing import (  # noqa: E402 - its laws take the profile of that moment
    request_of,
)


def one_in(number: int) -> int:
    """Return the step of a sample: one in ``number``, and with
    ``OS_PREFILTER_EXAMPLES`` so many times as many.
    """
    return max(1, round(number / _EXAMPLES))


Properties = dict[str, object]
"""Image properties."""
ExtraSpecs = dict[str, str]
"""Extra specs of a flavor."""
Required = list[tuple[str, bool, str]]
"""(trait, required, scope) of each requirement."""


spec_of = request_of
"""A small request with an image of these properties and a flavor of these
extra specs.
"""


def conf_with(**options: Any) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[])
    register_opts(conf)
    for name, value in options.items():
        conf.set_override(name, value, GROUP)
    return conf


def pipeline_of(*names: str, **options: Any) -> Service:
    """Return the pipeline of these filters in a cloud without aggregates; the
    gate of ``owner`` is open by default.
    """
    options = {"wait_for_reports": False, "reported_traits": ["*"], **options}
    facts: dict[str, Callable[[Any], Any]] = {
        "aggregates": lambda _context: (),
        "networks": lambda _context: {},
    }
    return Service.from_conf(
        conf_with(enabled_filters=list(names), **options), facts
    )


def required_by(name: str, request_spec: Any, **options: Any) -> Required:
    """Return what the filter ``name`` requires of a request."""
    decision = pipeline_of(name, **options).apply(request_spec)
    return [
        (item.trait, item.required, item.scope)
        for item in decision.requirements
    ]


def device_required_by(
    name: str, request_spec: Any, **options: Any
) -> Required:
    """Return the same without the default machine types that the device keeps
    its hosts off.
    """
    required = required_by(name, request_spec, **options)
    return [
        item
        for item in required
        if item[1] or "DEFAULT_MACHINE" not in item[0]
    ]


@pytest.fixture(autouse=True)
def _only_warnings_are_logged() -> None:
    """Commands and services set the root logger's level for their process,
    which is that of all tests.
    """
    logging.getLogger().setLevel(logging.WARNING)


@pytest.fixture(autouse=True)
def _intervals_as_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Query a fact again after its interval: not at a random moment of the
    first one, nor later for its cost.
    """
    monkeypatch.setattr(
        "os_prefilter.service.deployment_facts.uniform",
        lambda _low, high: high,
    )
    monkeypatch.setattr("os_prefilter.service.shared._PAUSE", 0)
    # On a slow machine, a request may wait long for a reload of the rules.
    monkeypatch.setattr(
        "os_prefilter.service.facts_from_conf._RELOAD_PATIENCE", 60.0
    )


@pytest.fixture(autouse=True)
def _clean_default_pipeline() -> Iterator[None]:
    """Undo what a test, or an example of the documentation, did to the one
    global and to oslo.config's CONF.
    """
    yield
    default_service.use(None)
    register_opts(cfg.CONF)
    for option in OPTIONS:
        cfg.CONF.clear_override(option.dest, GROUP)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the first of oslo.config's default directories."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".nova"
    folder.mkdir()
    return folder


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the /proc in which nova-compute is looked for."""
    folder = make_proc(tmp_path / "proc")
    monkeypatch.setattr("os_prefilter.adapters.nova_compute.PROC", folder)
    return folder


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> set[float]:
    """Return the times until which requests wait, of all waits."""
    found: set[float] = set()
    seconds_to = deployment_facts.seconds_to

    def noting(until: float) -> float:
        found.add(until)
        return seconds_to(until)

    monkeypatch.setattr(deployment_facts, "seconds_to", noting)
    return found


@pytest.fixture(scope="session")
def placement() -> Iterator[PlacementClient]:
    """Return a client of a real Placement with the example fleet in it."""
    with EmbeddedPlacement(example_fleet()) as embedded:
        yield embedded.client


@pytest.fixture
def install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], None]:
    """Return a function that makes an installed package be of a version, as
    its metadata says.
    """

    def install(name: str, version: str) -> None:
        folder = tmp_path / "first" / f"{name.replace('-', '_')}-0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        monkeypatch.syspath_prepend(str(folder.parent))

    return install


@pytest.fixture
def observed() -> Iterator[Observed]:
    with EmbeddedPlacement(lone_host()) as embedded:
        yield Observed(embedded)


@pytest.fixture
def hosts(placement: PlacementClient) -> Callable[..., tuple[str, ...]]:
    """Return a function: the hosts that Placement offers for a request, after
    these filters.
    """

    def hosts_for(
        request_spec: RequestSpec, *names: str, **options: Any
    ) -> tuple[str, ...]:
        decision = pipeline_of(*names, **options).apply(request_spec)
        placement.ensure_traits(
            {
                item.trait
                for item in decision.requirements
                if item.trait.startswith("CUSTOM_")
            }
        )
        return tuple(
            placement.allocation_candidates(
                allocation_candidates_query(request_spec)
            ).hosts
        )

    return hosts_for


def pytest_configure(config: pytest.Config) -> None:
    interruption.install(config)


# Parts whose tests share one service that takes long to start.
_TOGETHER = (
    "tests/services/nova/",
    "tests/services/packages/test_deployment_tools.py",
    "tests/services/ironic/",
    "tests/services/cloud/",
    "tests/services/browser/test_site.py",
)


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps the tests that share a cloud in one process; all others go where
    there is room.
    """

    def _split_scope(self, nodeid: str) -> str:
        return next(
            (part for part in _TOGETHER if nodeid.startswith(part)), nodeid
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """``--dist loadgroup`` is for this; with pytest 9.2 it does nothing
    (pytest-xdist issue 1386).
    """
    return (
        _Scheduling(config, log) if config.getvalue("dist") == "load" else None
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many cases the enumeration of the law had, over all processes
    of the run.
    """
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
    ]
    numbers = [
        number
        for report in reports
        for name, number in report.user_properties
        if name == "law_cases"
    ]
    if numbers:
        terminalreporter.write_line(
            f"The law: {sum(numbers):,} requests on hosts compared in"
            f" {len(numbers)} tests."
        )
