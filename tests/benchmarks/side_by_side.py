"""Measures things next to each other in one process, so that a slower minute of the machine falls on all of them."""

import os
import platform
import sqlite3
import statistics
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

MARIADB = "OS_PREFILTER_MARIADB_URL"
"""The environment variable with the URL of a MariaDB, as SQLAlchemy writes it, without a database's name."""


def side_by_side(sides: Mapping[str, Callable[[], object]], *, rounds: int, calls: int = 1) -> dict[str, float]:
    """Run the sides turn by turn; return the median seconds of one call of each.

    Each side is called once before, so that caches are warm. Garbage is collected as in any process.

    :param rounds: how often each side has its turn
    :param calls: how many calls a turn has, for sides that are too quick for the clock
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for call in sides.values():
        call()
    for _ in range(rounds):
        for name, call in sides.items():
            start = time.perf_counter()
            for _ in range(calls):
                call()
            seconds[name].append((time.perf_counter() - start) / calls)
    return {name: statistics.median(each) for name, each in seconds.items()}


def machine() -> str:
    """Return one line about where and when this is measured, and how busy it was in 1, 5 and 15 minutes."""
    parts = [
        f"{datetime.now(timezone.utc):%Y-%m-%d}",
        f"{_processor()}, {os.cpu_count()} cores",
        f"Python {platform.python_version()}",
        *filter(None, map(_installed, ("nova", "openstack-placement"))),
        f"SQLite {sqlite3.sqlite_version}",
        *filter(None, [_mariadb()]),
        f"load average {' '.join(f'{each:.1f}' for each in os.getloadavg())}",
    ]
    return "; ".join(parts)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _installed(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""


def _mariadb() -> str:
    url = os.environ.get(MARIADB)
    if not url:
        return ""
    from sqlalchemy import create_engine, text  # noqa: PLC0415 - the one thing here that is not in the standard library

    try:
        engine = create_engine(url)
    except ImportError:
        # Without its driver nothing here can have used it.
        return ""
    with engine.connect() as connection:
        answer = str(connection.execute(text("SELECT VERSION()")).scalar())
    engine.dispose()
    return f"MariaDB {answer.partition('-')[0]}"
