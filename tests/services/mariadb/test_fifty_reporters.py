"""50 reporters of one Placement at the same time: all converge, and no trait is lost."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from os_prefilter.fleet.model import provider_uuid
from tests.conftest import times
from tests.services.mariadb.reporters import (
    BASE,
    SHARED,
    Operator,
    Reporter,
    goal_of,
    placement_on_mariadb,
    placement_on_sqlite,
    report_at_once,
)

REPORTERS = 50
HOSTS = REPORTERS // 2
# The Placement on SQLite answers one request after the other; what is found is found where they all begin at once.
ROUNDS = min(times(2), 6)
OPERATORS = 3
_MARIADB = "OS_PREFILTER_MARIADB_URL"

needs_mariadb = pytest.mark.skipif(
    not os.environ.get(_MARIADB) and not os.environ.get("CI"), reason=f"it needs a MariaDB: {_MARIADB}"
)


@pytest.fixture(params=["sqlite", pytest.param("mariadb", marks=needs_mariadb)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return where a Placement is that has the hosts."""
    if request.param == "sqlite":
        with placement_on_sqlite(HOSTS) as url:
            yield url
        return
    assert os.environ.get(_MARIADB), f"in CI, {_MARIADB} must name a MariaDB"
    with placement_on_mariadb(HOSTS, tmp_path, os.environ[_MARIADB]) as url:
        yield url


def test_fifty_reporters_and_operators_converge_without_losing_a_write(url: str) -> None:
    """Two reporters write to each host, each the traits that it owns, and operators the same hosts' traits and groups.

    Afterwards each host has what each of them said last, and an unchanged host costs each reporter one request.
    """
    story, crowd = report_at_once(url, REPORTERS, ROUNDS, OPERATORS)
    assert story.errors == []
    assert story.gave_up < REPORTERS * ROUNDS / 4
    assert story.counts["conflicts"]
    for reporter in crowd:
        reporter.report(ROUNDS - 1)
    _check_hosts(url)
    for reporter in crowd:
        _check_that_one_read_is_enough(reporter)
        reporter.close()


def _check_hosts(url: str) -> None:
    said = {**goal_of("a", ROUNDS - 1).traits, **goal_of("b", ROUNDS - 1).traits}
    own = {trait for trait, has in said.items() if has}
    operators = {f"CUSTOM_OPERATOR_{number}" for number in range(OPERATORS)}
    expected = (BASE - {trait for trait, has in said.items() if not has}) | own | operators | {"OWNER_NOVA"}
    with closing(Operator(url, 0, 0)) as operator:
        assert operator.client.traits() >= SHARED
        for number in range(HOSTS):
            path = f"/resource_providers/{provider_uuid(f'host-{number}')}"
            assert set(operator.client.request("GET", f"{path}/traits")["traits"]) == expected
            assert len(operator.client.request("GET", f"{path}/aggregates")["aggregates"]) == 3


def _check_that_one_read_is_enough(reporter: Reporter) -> None:
    """Report twice: the other reporter of the host may have written since, which the first round reads again."""
    for _ in range(2):
        reporter.counts.clear()
        reporter.report(ROUNDS - 1)
    assert dict(reporter.counts) == {"GET": 1, "conflicts": 0}
