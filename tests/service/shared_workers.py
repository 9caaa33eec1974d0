# SPDX-License-Identifier: Apache-2.0

"""Forked processes that share a reading:
``python -m tests.service.shared_workers NUMBER FATE [PORT]``.

FATE is "none", or the signal that the first reader gets while it reads: "KILL"
or "STOP". Each other one prints what it got and how long it took. With PORT of a memcached, half of them are of another host.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from oslo_cache import core as oslo_cache
from oslo_config import cfg

from os_prefilter.adapters.shared_cache import CacheStore
from os_prefilter.service import shared
from os_prefilter.service.deployment_facts import Fact, versions_of
from os_prefilter.service.shared import InheritedStore, MakeStore
from tests.support.processes import ran

INTERVAL = 30.0


class Reader:
    def __init__(self, log: Path, fate: str) -> None:
        self._log = log
        self._fate = fate

    def __call__(self, _context: Any) -> list[str]:
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"{os.getpid()}\n")
        if (
            self._fate != "none"
            and len(self._log.read_text(encoding="utf-8").splitlines()) == 1
        ):
            os.kill(os.getpid(), getattr(signal, f"SIG{self._fate}"))
        time.sleep(0.5)
        return ["read", str(os.getpid())]


class CountingReader:
    """Returns the number of its readings."""

    def __init__(self, take: Callable[[], None] = lambda: None) -> None:
        self.read = 0
        self._take = take

    def __call__(self, _context: Any = None) -> int:
        self.read += 1
        self._take()
        return self.read


def _number(document: Any) -> int:
    if type(document) is not int:
        raise TypeError
    return document


def shared_fact(
    read: Callable[[Any], Any],
    interval: float,
    stores: Iterable[MakeStore],
    whose: str = "f",
) -> Fact:
    """Return a fact of a number that is shared in these stores."""
    return Fact(
        "f",
        read,
        interval,
        make=_number,
        stores=[make(whose) for make in stores],
    )


def value_of(fact: Fact) -> Any:
    """Return the value that the fact has after it was due."""
    fact.expire()
    versions_of([fact])
    return fact.latest


def workers(
    number: int, fate: str, log: Path, *port: str
) -> list[tuple[list[str], float]]:
    """Return what each of some forked workers got: the value, and how long it
    took.
    """
    arguments = [
        sys.executable,
        "-m",
        "tests.service.shared_workers",
        str(number),
        fate,
        str(log),
        *port,
    ]
    done = ran(arguments, {**os.environ, "PYTHONWARNINGS": "ignore"})
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def cache(port: str, cloud: str) -> MakeStore:
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[])
    oslo_cache.configure(conf)
    given = {
        "enabled": True,
        "backend": "dogpile.cache.pymemcache",
        "memcache_servers": [f"127.0.0.1:{port}"],
    }
    for name, value in given.items():
        conf.set_override(name, value, "cache")
    region = oslo_cache.create_region()
    oslo_cache.configure_cache_region(conf, region)
    return partial(CacheStore, region, cloud)


def main(arguments: Sequence[str]) -> None:
    number, fate, log, *port = arguments
    if fate == "STOP":
        # Where none is stopped, no slow machine makes another one take over.
        shared.TAKE_OVER = 2.0
    stores: tuple[MakeStore, ...] = (cache(port[0], "cloud"),) if port else ()
    hosts = [
        Fact(
            "f",
            Reader(Path(log), fate),
            INTERVAL,
            stores=[make("f") for make in (InheritedStore, *stores)],
        )
        for _ in range(1 + len(port))
    ]
    children = []
    for each in range(int(number)):
        child = os.fork()
        if not child:
            begun = time.monotonic()
            value = value_of(hosts[each % len(hosts)])
            line = json.dumps([value, time.monotonic() - begun])
            os.write(1, f"{line}\n".encode())
            os._exit(0)
        children.append(child)
    for child in [
        child
        for child in children
        if os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
    ]:
        os.kill(child, signal.SIGCONT)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
