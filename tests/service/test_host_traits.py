# SPDX-License-Identifier: Apache-2.0

"""The sample of hosts, and the hosts that have a preferred trait, as
Placement's answers are read.
"""

import time
from collections.abc import Iterable
from math import inf
from threading import Event
from typing import Any

import pytest

from os_prefilter.service.host_traits import (
    HostSample,
    HostTraits,
    Traits,
    _SampleReader,
    _TraitReader,
)
from os_prefilter.service.shared import InheritedStore

_UUIDS = [
    f"{number}d2590ae-fb85-4080-9306-058b4c915e3f" for number in range(1, 5)
]
_NODE, _FAST = "COMPUTE_NODE", "CUSTOM_FAST"


class _Placement:
    """Answers as Placement does, once it may."""

    def __init__(self, fast: int) -> None:
        self.hosts_traits = {
            uuid: {_NODE} | ({_FAST} if at < fast else set())
            for at, uuid in enumerate(_UUIDS)
        }
        self.asked: list[Any] = []
        self.in_time: list[bool] = []
        self.may_answer = Event()
        self.may_answer.set()

    def some_hosts(self, context: Any) -> Iterable[str]:
        if context == "down":
            raise OSError("the network is down")
        self.in_time.append(self.may_answer.wait(60))
        return self.hosts_traits

    def traits(self, host: str) -> frozenset[str] | None:
        return frozenset(self.hosts_traits[host])

    def hosts(
        self, required: Iterable[str], forbidden: Iterable[str]
    ) -> Iterable[str] | None:
        self.in_time.append(self.may_answer.wait(60))
        self.asked.append((tuple(required), tuple(forbidden)))
        if "CUSTOM_NO_SUCH" in required:
            return None
        wanted = Traits(frozenset(required), frozenset(forbidden))
        return [
            host
            for host in self.hosts_traits
            if wanted.met_by(frozenset(self.hosts_traits[host]))
        ]


@pytest.mark.parametrize("fast", [0, 1, 2, 3, 4])
def test_those_that_have_a_trait_are_asked_for_or_those_that_lack_it_whichever_are_fewer(
    fast: int,
) -> None:
    placement = _Placement(fast)
    known = HostTraits(placement, 60).preferred(
        [_FAST, "CUSTOM_NO_SUCH"], None, inf
    )
    question = ((_NODE,), (_FAST,)) if fast > 2 else ((_NODE, _FAST), ())
    assert placement.asked == [question, ((_NODE, "CUSTOM_NO_SUCH"), ())]
    assert [known[_FAST].has(uuid) for uuid in _UUIDS] == [
        at < fast for at in range(4)
    ]
    assert not any(map(known["CUSTOM_NO_SUCH"].has, _UUIDS))


def test_only_a_first_reading_is_waited_for_and_no_longer_than_the_request_may() -> (
    None
):
    slow, placement = _Placement(1), _Placement(1)
    slow.may_answer.clear()
    assert HostTraits(slow, 0).preferred([_FAST], None, time.monotonic()) == {}
    slow.may_answer.set()
    hosts = HostTraits(placement, 0)
    assert hosts.preferred([_FAST], None, inf)
    placement.may_answer.clear()
    assert hosts.preferred([_FAST], None, inf)
    placement.may_answer.set()
    hosts.preferred([_FAST], None, inf)
    assert all((*slow.in_time, *placement.in_time))


def test_sample_has_hosts_once_the_last_added_last_and_is_another_if_it_has_none() -> (
    None
):
    one, two = ({uuid: frozenset({_NODE})} for uuid in _UUIDS[:2])
    sample = HostSample({**one, **two})
    assert [*sample.with_hosts(one).traits] == [_UUIDS[1], _UUIDS[0]]
    assert (
        HostSample(one) == HostSample(two),
        HostSample(one) == HostSample({}),
    ) == (True, False)
    assert (HostSample({}) == HostSample({}), HostSample({}) == {}) == (
        True,
        False,
    )


def test_what_is_read_is_shared_by_name_and_read_oneself_if_it_is_malformed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stores: dict[tuple[str, ...], InheritedStore] = {}
    hosts, other = (
        HostTraits(
            _Placement(fast),
            60,
            (lambda *what: stores.setdefault(what, InheritedStore(*what)),),
        )
        for fast in (1, 4)
    )
    assert [*stores] == [
        ("host_sample", ""),
        *((f"preferred_{slot}", "") for slot in range(16)),
    ]
    assert hosts.sample.traits == {}
    assert (
        hosts.refresh().traits
        == other.refresh().traits
        == _Placement(1).hosts_traits
    )
    assert (
        hosts.preferred([_FAST], None, inf)
        == other.preferred([_FAST], None, inf)
        != {}
    )
    HostTraits(_Placement(1), 60).refresh("down")
    assert "deployment fact host_sample" in caplog.text
    wrong: list[Any] = [{"x": [_NODE]}, {_UUIDS[0]: ["a b"]}]
    for document in wrong:
        with pytest.raises(TypeError):
            _SampleReader.from_json(document)
    reader = _TraitReader(_Placement(1), _FAST, lambda: HostSample({}))
    for document in (
        [_NODE, True, _UUIDS],
        [_FAST, 1, _UUIDS],
        [_FAST, True, ["x"]],
    ):
        with pytest.raises(TypeError):
            reader.from_json(document)
