# SPDX-License-Identifier: Apache-2.0

"""Two nova-schedulers of two workers each, while workers, memcached and
Placement are killed, hang or go wrong.

From a fixed seed, each round does one thing at random, and then has servers
scheduled by several clients at once. OS_PREFILTER_ROUNDS is the number of
rounds.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from math import inf
from random import Random
from signal import SIGCONT, SIGKILL, SIGSTOP, Signals
from uuid import uuid4

import pytest
from pymemcache.exceptions import MemcacheError

from os_prefilter.adapters.shared_cache import _LEFT_ALONE
from os_prefilter.common.errors import GenerationConflict
from os_prefilter.hosts.marker_traits import REPORTED, keys_in, names_with
from os_prefilter.vocabulary import HPET, row_named
from tests.conftest import PATIENCE
from tests.services.nova.cloud import (
    ACTIVATION,
    HOSTS,
    LISTENING,
    WORKERS,
    Answer,
    Clients,
    Cloud,
)
from tests.services.own_services import (
    Memcached,
    Outages,
    Service,
    needs,
    own_memcached,
)
from tests.support.every_trait import EVERY_GROUP
from tests.support.programs import Program, needs_services, until
from tests.support.zipping import zip_equal

pytestmark = [needs_services, needs("memcached")]
LOG = logging.getLogger(__name__)
LOG.setLevel(logging.INFO)

ROUNDS, SEED, INTERVAL = (
    int(os.environ.get("OS_PREFILTER_ROUNDS", "20")),
    34,
    1,
)
BOUND = PATIENCE + 5
"""Seconds that a request takes, at most: ours, and 5 for Nova's own part on a
machine that does other things.
"""
LONGEST = 6.0
"""Seconds for which something hangs, at most: longer than requests wait."""
CARD, NONE, TIMER = (
    ("vif_model", "e1000e"),
    ("vif_model", "ne2k_pci"),
    ("time_hpet", "true"),
)
"""What one host serves, what none serves, and what one serves and another may
not have reported.
"""
_TRAITS = {
    asked: str(row_named(asked[0]).values[asked[1]].trait)
    for asked in (CARD, NONE, TIMER)
}
_TIMER_KEYS = next(group.keys for group in EVERY_GROUP if HPET in group.traits)
_OFTEN = (
    4 * WORKERS
)  # Handed to the workers by turns, so that each of all gets some.
_ACTIONS = (
    *(
        "kill worker",
        "stop worker",
        "kill placement",
        "stop placement",
        "fill memcached",
    )
    * 2,
    *(
        "kill memcached",
        "stop memcached",
        "flush memcached",
        "change ability",
        "change report",
        "change hosts",
    ),
)
_OPTIONS = """
[cache]
enabled = true
backend = dogpile.cache.pymemcache
memcache_servers = 127.0.0.1:{port}
[placement]
endpoint_override = {placement}
[prefilter]
enabled_filters = image_metadata,hpet,compute_status,owner
facts_interval = {interval}
"""
# What a killed worker had is lost after this time. Nothing hangs for as long.
_CLIENT_OPTIONS = "[DEFAULT]\nrpc_response_timeout = 12\n"
Asked = tuple[str, str]


class Chaos:
    """What is done to the cloud, what is true of it, and what went wrong."""

    def __init__(
        self,
        cloud: Cloud,
        clients: Clients,
        schedulers: list[Program],
        placement: Service,
        memcached: Memcached,
    ) -> None:
        self.cloud, self.clients, self.schedulers = cloud, clients, schedulers
        self.services: dict[str, Service] = {
            "placement": placement,
            "memcached": memcached,
        }
        self.memcached, self.random = memcached, Random(SEED)  # noqa: S311 - to be repeated
        self.problems: list[str] = []
        self.done: Counter[str] = Counter()
        self.slowest, self.readings, self.what = 0.0, 0, ""
        self.away, self.calm_since = Outages(), 0.0
        (host,) = cloud.placement.providers("name=plain-host")
        # Of older releases, only where an agent has run.
        self._hosts_have_owner = not cloud.placement.providers(
            "required=COMPUTE_NODE,!OWNER_NOVA"
        )
        self._uuid, self._traits = (
            host.uuid,
            {*cloud.placement.provider_traits(host.uuid)[1]},
        )
        self._every_key = self._keys = keys_in(REPORTED, self._traits)
        self._ability: str | None = None
        self._new_hosts: list[str] = []
        self.log = (placement.folder / "log").open(
            encoding="utf-8", errors="replace"
        )
        self._queries: dict[str, str] = {}

    def act(self, what: str, name: str) -> None:
        """Do one thing; what hangs or is gone comes back later."""
        length = self.random.choice(
            (*[self.random.uniform(0.3, 2)] * 3, LONGEST)
        )
        if what in ("kill", "stop"):
            if name not in self.away:
                self._stop(what, name, length)
        elif what == "flush":
            with (
                suppress(OSError, MemcacheError),
                self.memcached.client() as client,
            ):
                client.flush_all()
        elif what == "fill":
            with suppress(OSError, MemcacheError):
                self.done["wrong values"] += self.memcached.fill(self.random)
        elif what == "change":
            self._change(name)

    def _stop(self, what: str, name: str, length: float) -> None:
        """Kill or stop a worker or a service, which comes back later."""
        if name == "worker":
            pid = self._worker()
            # It may have a request by then, or read.
            now, later, seconds = (
                (0, SIGKILL, length / 8)
                if what == "kill"
                else (SIGSTOP, SIGCONT, length)
            )
            _signal(pid, now)
            self.away.begin(name, seconds, lambda: _signal(pid, later), pid)
            if what == "kill":
                self.away.of[pid] = [[0, inf]]
        elif what == "kill":
            self.services[name].kill()
            self.away.begin(name, length / 2, self.services[name].start)
        else:
            self.services[name].stop()
            self.away.begin(name, length, self.services[name].go_on)

    def _change(self, what: str) -> None:
        """Do as an agent does, or have one more compute node, which has not
        reported, or one less of these.
        """
        client = self.cloud.placement
        if what == "hosts" and self._new_hosts:
            client.request(
                "DELETE", f"/resource_providers/{self._new_hosts.pop()}"
            )
        elif what == "hosts":
            self._new_hosts.append(uuid := str(uuid4()))
            client.request(
                "POST", "/resource_providers", {"name": uuid, "uuid": uuid}
            )
            client.set_provider_traits(uuid, 0, ["COMPUTE_NODE"])
        elif what == "report":
            self._keys = self._every_key - (_TIMER_KEYS & self._keys)
        elif what == "ability":
            self._ability = self.random.choice([None, *_TRAITS.values()])
        until(
            self._is_written, lambda: "the traits of a host cannot be written"
        )

    def _is_written(self) -> bool:
        generation, found = self.cloud.placement.provider_traits(self._uuid)
        others = {
            each for each in found if not each.startswith(REPORTED)
        }.difference(_TRAITS.values())
        self._traits = others.union(
            names_with(REPORTED, self._keys), filter(None, (self._ability,))
        )
        self.cloud.placement.ensure_traits(self._traits)
        with suppress(GenerationConflict):
            return bool(
                self.cloud.placement.set_provider_traits(
                    self._uuid, generation, self._traits
                )
            )
        return False

    def _worker(self) -> int:
        scheduler = self.random.choice(self.schedulers)
        until(scheduler.workers, lambda: "no worker was replaced")
        return self.random.choice(sorted(scheduler.workers()))

    def ask(self, *asked: Asked) -> list[tuple[Asked, Answer]]:
        """Have servers scheduled at the same time."""
        answers = self.clients.ask(
            [{f"hw_{row}": value} for row, value in asked], self.away.end
        )
        for line in self.log:
            if found := re.search(
                r"(req-\S{36}).*\"GET /allocation_candidates\?(\S+)\"", line
            ):
                self._queries[found[1]] = found[2]
            self.readings += '"GET /traits"' in line
        return [
            (each, self._judged(each, *answer))
            for each, answer in zip_equal(asked, answers)
        ]

    def _judged(
        self, asked: Asked, answer: Answer, begun: float, ended: float
    ) -> Answer:
        away = partial(self.away.seconds, since=begun, to=ended)
        problem, serving, is_lost = (
            "",
            self._serving(asked),
            answer.error == "no answer",
        )
        took, without = (
            ended - begun - away("placement"),
            away("placement") > 0,
        )
        pid = self._taken_by(answer) if took > BOUND or is_lost else 0
        took -= away(pid)
        self.slowest = max(self.slowest, took)
        # Before a worker has begun, it is not known which one has it.
        if is_lost and not any(map(away, [pid] if pid else self.away.of)):
            problem = "lost"
        elif took > BOUND and not is_lost:
            problem = f"it took {took:.1f} seconds"
        elif serving and "ost offers" in answer.error:
            problem = f"it was rejected, and {serving} serve it"
        elif serving and not answer.hosts and not without and not is_lost:
            problem = f"it got no host, and {serving} serve it"
        if problem:
            self.problems.append(
                f"{self.what}: {asked} {answer}, by {pid}, in"
                f" {ended - begun:.1f} seconds: {problem}"
            )
            LOG.error("%s", self.problems[-1])
        return answer

    def _serving(self, asked: Asked) -> set[str]:
        row, value = asked
        by_report = {"plain-host"} if _TRAITS[asked] in self._traits else set()
        return by_report.union(
            host for host, can in HOSTS.items() if can.get(row) == value
        )

    def _misjudged(self, asked: Asked, answer: Answer) -> str:
        """Return what is wrong where it is known which compute nodes there
        are, and what they have reported.
        """
        by_plain_host = (
            asked != TIMER or HPET in self._traits or self._keys >= _TIMER_KEYS
        )
        is_deferred, must_be = (
            bool(set(answer.hosts) - self._serving(asked)),
            self._new_hosts or not by_plain_host,
        )
        query = self._queries.get(answer.request, "")
        requires_owner = self._hosts_have_owner and not self._new_hosts
        if is_deferred != bool(must_be) or (
            query and ("OWNER_NOVA" in query) != requires_owner
        ):
            return (
                f"{len(self._new_hosts)} compute nodes have not reported,"
                f" deferred is {is_deferred}: {query}"
            )
        return ""

    def _taken_by(self, answer: Answer) -> int:
        found = (
            re.search(rf"(?m)^\S+ \S+ (\d+) .*{answer.request}", each.log)
            for each in self.schedulers
        )
        return next((int(match[1]) for match in found if match), 0)

    def calm(self) -> None:
        """Let all come back, and see that facts are right within their age;
        then that a reason is given.
        """
        self.away.end(everything=True)
        for each in self.schedulers:
            until(
                lambda each=each: len(each.workers()) >= WORKERS,  # type: ignore[misc]
                lambda: "a worker was not replaced",
            )
        self._empty_hosts()
        self._ability, self._keys = None, self._every_key
        for changed in ("hosts", "hosts", *["hosts"] * len(self._new_hosts)):
            self._change(changed)
            self.what, begun = (
                f"calm with {len(self._new_hosts)} new compute nodes",
                time.monotonic(),
            )
            # A fact is read again, at most, after 60 seconds until another
            # worker reads in the place of one that hangs, then 20 times what a
            # reading takes: of two requests, each may have hung with
            # Placement.
            age = 60 + 20 * (
                2 + self.away.seconds("placement", self.calm_since, begun)
            )
            while wrong := [
                each
                for each in self.ask(*[CARD, TIMER] * _OFTEN)
                if self._misjudged(*each)
            ]:
                if time.monotonic() - begun > age:
                    pytest.fail(
                        self.evidence(
                            f"{self.what}: {wrong},"
                            f" {[self._misjudged(*each) for each in wrong]}"
                        )
                    )
                # Else a fast machine fills them before a fact is due.
                self._empty_hosts()
            LOG.info(
                "%s: right after %.1f s", self.what, time.monotonic() - begun
            )
        self.calm_since = time.monotonic()
        self.ask(*[NONE] * _OFTEN)
        second = {answer.error for _, answer in self.ask(*[NONE] * _OFTEN)}
        if [
            error
            for error in second
            if not error.endswith("No host offers hw_vif_model=ne2k_pci.")
        ]:
            self.problems.append(
                f"{self.what}: {second} at the second request"
            )

    def _empty_hosts(self) -> None:
        """Give back what the scheduled servers took: 1,561 fill a host."""
        client = self.cloud.placement
        for host in HOSTS:
            path = f"/resource_providers/{client.provider_named(host).uuid}/allocations"
            for server in client.request("GET", path)["allocations"]:
                client.request("DELETE", f"/allocations/{server}")

    def evidence(self, problem: str) -> str:
        """Return a problem with what is needed to have it again."""
        return (
            f"seed {SEED}: {problem}; done: {dict(self.done)}; slowest:"
            f" {self.slowest:.1f} s"
        )


def _signal(pid: int, number: Signals | int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@pytest.fixture(scope="module")
def chaos(cloud: Cloud) -> Iterator[Chaos]:
    with ExitStack() as ending:
        memcached = ending.enter_context(own_memcached())
        # Of the schedulers alone.
        placement, url = ending.enter_context(cloud.other_placement())
        options = ACTIVATION + _OPTIONS.format(
            port=memcached.port, placement=url, interval=INTERVAL
        )
        hosts = ("scheduler", "second-scheduler")
        schedulers = [
            ending.enter_context(cloud.starting_scheduler(options, host=host))
            for host in hosts
        ]
        for each in schedulers:
            each.wait_for_log(LISTENING, WORKERS)
        clients = ending.enter_context(cloud.clients(3, _CLIENT_OPTIONS))
        ending.callback(cloud.report, "plain-host", HOSTS["plain-host"])
        found = Chaos(cloud, clients, schedulers, placement, memcached)
        ending.callback(found.away.end, everything=True)
        ending.enter_context(found.log)
        yield found


def test_faults_delay_no_request_and_neither_reject_nor_enforce_wrongly(
    chaos: Chaos,
) -> None:
    chaos.calm()
    for number in range(1, ROUNDS + 1):
        action = chaos.random.choice(_ACTIONS)
        chaos.what, chaos.done[action] = (
            f"round {number}, {action}",
            chaos.done[action] + 1,
        )
        LOG.info("%s", chaos.what)
        chaos.act(*action.split())
        chaos.ask(*chaos.random.sample([CARD, NONE, TIMER] * 2, 6))
        if number % 20 == 0:
            chaos.calm()
    LOG.info("%s", chaos.evidence("the end"))
    assert chaos.done["wrong values"], "nothing of ours was in memcached"
    assert not chaos.problems, chaos.evidence("\n".join(chaos.problems))


def test_workers_of_all_services_read_as_one(chaos: Chaos) -> None:
    """Each fact once an interval or less often, also after faults."""
    chaos.away.end(everything=True)
    time.sleep(_LEFT_ALONE)
    chaos.calm()
    before, begun = chaos.readings, time.monotonic()
    while (seconds := time.monotonic() - begun) < min(60, ROUNDS):
        chaos.ask(CARD, NONE, TIMER)
    LOG.info(
        "%d readings of a fact in %.0f s", chaos.readings - before, seconds
    )
    assert chaos.readings - before <= seconds / INTERVAL + 2


def test_facts_are_right_while_memcached_hangs(chaos: Chaos) -> None:
    """As after its machine went: no connection is refused or closed."""
    memcached = chaos.services["memcached"]
    memcached.stop()
    try:
        chaos.calm()
    finally:
        memcached.go_on()
    assert not chaos.problems, chaos.evidence("\n".join(chaos.problems))
