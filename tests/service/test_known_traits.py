# SPDX-License-Identifier: Apache-2.0

"""A Placement that lacks some traits: no query names one."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import os_traits
import pytest

from os_prefilter import allocation_candidates_query
from os_prefilter.adapters.placement.facts import (
    CloudPlacement,
    PlacementFacts,
)
from os_prefilter.common.errors import (
    FilterFailed,
    PlacementUnavailable,
    UnknownTraits,
)
from os_prefilter.common.trait_names import Trait
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.requirements import ROOT, Requirement, Requirements
from os_prefilter.request.view import Request
from os_prefilter.service import Service
from os_prefilter.service.deployment_facts import Fact, versions_of
from os_prefilter.service.facts_from_conf import facts_of
from os_prefilter.service.known_traits import TraitNames, leave_out_unknown
from os_prefilter.service.traits_to_report import traits_to_create
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.operators.readiness import configured_filters
from tests.conftest import conf_with, spec_of
from tests.support.placements import Answer, Observed, put_traits
from tests.support.reporting_fleets import fleet_of
from tests.support.rule_texts import rule, write_rules

_IGB = "COMPUTE_NET_VIF_MODEL_IGB"
_HPET = "CUSTOM_COMPUTE_TIME_HPET"
_HOSTS = ("host-0", "host-1")
_MODULE = "os_prefilter.adapters.placement.facts"
_REFUSED = (
    "Traits that request filters may require cannot be created in Placement"
    " yet: "
)
_CREATED = "Created in Placement, as request filters may require them: "


@pytest.fixture
def placement(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedPlacement]:
    """Return a real Placement whose os-traits has no igb yet, as that of
    OpenStack 2024.1.
    """
    old = [trait for trait in os_traits.get_traits() if trait != _IGB]
    monkeypatch.setattr(os_traits, "get_traits", lambda *_: old)
    with EmbeddedPlacement(fleet_of([set() for _ in _HOSTS])) as placement:
        yield placement


def _hosts(
    placement: EmbeddedPlacement, pipeline: Service, properties: dict[str, str]
) -> tuple[str, ...]:
    spec = spec_of(properties)
    pipeline.apply(spec)
    query = allocation_candidates_query(spec)
    return placement.client.allocation_candidates(query).hosts


def test_placement_refuses_a_query_with_a_trait_that_it_lacks(
    placement: EmbeddedPlacement,
) -> None:
    service = Service.from_names("image_metadata")
    with pytest.raises(UnknownTraits, match=_IGB):
        _hosts(placement, service, {"hw_vif_model": "igb"})


@pytest.mark.parametrize("scope", ["root", "root_and_unsuffixed"])
def test_standard_trait_that_placement_lacks_is_left_out_with_a_warning(
    scope: str, placement: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
) -> None:
    conf = conf_with(
        enabled_filters=["image_metadata"],
        facts_interval=0,
        wait_for_reports=False,
        trait_scope=scope,
    )
    pipeline = Service.from_conf(
        conf, placement=CloudPlacement(placement.client)
    )
    assert _hosts(placement, pipeline, {"hw_vif_model": "igb"}) == _HOSTS
    reason = (
        "image property hw_vif_model=igb: this cloud's Placement has no trait"
        f" {_IGB}: not required"
    )
    warnings = [
        each.getMessage()
        for each in caplog.records
        if each.levelno == logging.WARNING
    ]
    assert warnings == [f"Ignored part of the request: {reason}"]
    # The others are required as ever.
    both = {"hw_vif_model": "igb", "hw_disk_bus": "virtio"}
    assert _hosts(placement, pipeline, both) == ()


def _until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_custom_traits_that_filters_may_require_are_created_without_a_request(
    placement: EmbeddedPlacement,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else Placement refuses the query where no host has reported yet.

    One warning says that the user of the service has no right to create them.
    """
    monkeypatch.setattr(f"{_MODULE}._CREATE_AGAIN", 0.01)
    caplog.set_level(logging.INFO)
    answers: list[Answer | None] = [(403, {})] * 3

    def refuse(method: str, _url: str) -> Answer | None:
        return answers.pop() if method == "PUT" and answers else None

    observed = Observed(placement, refuse)
    conf = conf_with(enabled_filters=["hpet"])
    needed = traits_to_create(*configured_filters(conf))
    Service.from_conf(conf, placement=CloudPlacement(observed.client))
    _until(lambda: needed <= placement.client.traits())
    first, second = _until_logged(caplog, 2)
    assert first.startswith(f"{_REFUSED}PlacementRefused: Placement refused")
    assert second == f"{_CREATED}{', '.join(sorted(needed))}."


def test_trait_that_a_reading_misses_is_created_while_no_request_waits(
    placement: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a trait that no host had was deleted by hand."""
    caplog.set_level(logging.INFO)
    may_create = threading.Event()

    def wait(method: str, _url: str) -> None:
        if method == "PUT":
            may_create.wait(60)

    observed = Observed(placement, wait)
    conf = conf_with(enabled_filters=["hpet"], facts_interval=0)
    may_create.set()
    pipeline = Service.from_conf(
        conf, placement=CloudPlacement(observed.client)
    )
    _until_logged(caplog, 1)
    placement.client.delete_trait(_HPET)
    may_create.clear()
    for _ in range(3):
        asked = {"hw_time_hpet": "yes"}
        assert _hosts(placement, pipeline, asked) == _HOSTS
    may_create.set()
    _, again = _until_logged(caplog, 2)
    assert again == f"{_CREATED}{_HPET}."
    writes = [each for each in observed.sent if f"PUT /traits/{_HPET}" in each]
    # At the start, and once for three readings that missed it.
    assert len(writes) == 2


def test_no_trait_is_created_after_the_placement_is_stopped(
    placement: EmbeddedPlacement,
) -> None:
    stopped = CloudPlacement(placement.client)
    stopped.stop()
    stopped.create_traits([_HPET])
    _until(lambda: not _threads_that_create())
    assert _HPET not in placement.client.traits()


def test_traits_are_created_in_a_child_while_the_parent_creates_them(
    placement: EmbeddedPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of the parent is not in the child."""
    created: list[Collection[str]] = []

    def create(names: Collection[str]) -> Collection[str]:
        created.append(names)
        return ()

    ours = CloudPlacement(placement.client, create=create, delay=3600)
    ours.create_traits([_HPET])
    ours.create_traits([_HPET])
    assert len(_threads_that_create()) == 1
    monkeypatch.setattr(os, "getpid", lambda: -1)
    ours.create_traits([_HPET])
    assert len(_threads_that_create()) == 2
    ours.stop()
    _until(lambda: not _threads_that_create())
    assert created == []


def test_later_reading_creates_traits_where_no_thread_could_be_started(
    placement: EmbeddedPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = CloudPlacement(placement.client)
    with monkeypatch.context() as patched:
        error = RuntimeError("can't start new thread")
        patched.setattr(threading.Thread, "start", Mock(side_effect=error))
        ours.create_traits([_HPET])
    assert _HPET not in placement.client.traits()
    ours.create_traits([_HPET])
    _until(lambda: _HPET in placement.client.traits())


_OF_OTHER_TESTS: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _threads_of_this_test_alone() -> None:
    """One of another test may wait for a Placement that never responds."""
    _OF_OTHER_TESTS.update(threading.enumerate())


def _threads_that_create() -> list[threading.Thread]:
    """Return the threads of this test that create traits."""
    ours = set(threading.enumerate()) - _OF_OTHER_TESTS
    return [each for each in ours if each.name == "wanted traits"]


def _until_logged(caplog: pytest.LogCaptureFixture, number: int) -> list[str]:
    """Return so many lines about the creation of traits, and no more."""

    def logged() -> list[str]:
        return [
            each.getMessage()
            for each in caplog.records
            if each.name == _MODULE
        ]

    _until(lambda: len(logged()) >= number)
    _until(lambda: not _threads_that_create())
    assert len(logged()) == number
    return logged()


_LEFT_OUT: list[tuple[str, bool, set[str], bool]] = [
    # (the trait, required, traits of rules, left out)
    (_IGB, True, set(), True),
    (_IGB, False, set(), True),
    # What Placement is too old for, no host has.
    (_IGB, False, {_IGB}, True),
    (_HPET, True, set(), True),
    ("CUSTOM_OF_A_RULE", False, set(), True),
    # Without it, a request would get hosts that an operator keeps from it.
    ("CUSTOM_OF_A_RULE", True, set(), False),
    ("COMPUTE_NODE", True, set(), False),
    ("COMPUTE_NODE", False, set(), False),
]


@pytest.mark.parametrize(
    ("trait", "required", "rule_traits", "is_left_out"), _LEFT_OUT
)
def test_only_what_excludes_no_capable_host_is_left_out(
    trait: str, required: bool, rule_traits: set[str], is_left_out: bool
) -> None:
    item = Requirement(Trait(trait), required, ROOT, "x")
    adjust = leave_out_unknown({"COMPUTE_NODE"}, rule_traits)
    found = adjust(
        LoadedFilter("any", len), Requirements((item,)), Request(spec_of())
    )
    if is_left_out:
        assert found.requirements == ()
        assert [note.warn for note in found.notes] == [required]
    else:
        assert found.requirements == (item,)
        assert not found.notes


def test_what_a_new_rule_forbids_is_forbidden_at_once(
    placement: EmbeddedPlacement, tmp_path: Path
) -> None:
    """On SIGHUP the rules are read again.

    The names of the traits may be as old as ``facts_interval``.
    """
    rules = tmp_path / "rules.yaml"
    with_hpet = "{image_property: hw_time_hpet, present: true}"
    write_rules(rules, rule("other", with_hpet, forbid=["CUSTOM_OTHER"]))
    conf = conf_with(enabled_filters=["rules"], rules_dirs=[str(tmp_path)])
    pipeline = Service.from_conf(
        conf, placement=CloudPlacement(placement.client)
    )
    properties = {"hw_disk_bus": "virtio"}
    assert _hosts(placement, pipeline, properties) == _HOSTS
    placement.know(["CUSTOM_KEPT"])
    put_traits(placement, lambda traits: traits.add("CUSTOM_KEPT"), "host-1")
    with_virtio = "{image_property: hw_disk_bus, is: virtio}"
    write_rules(rules, rule("keep", with_virtio, forbid=["CUSTOM_KEPT"]))
    conf.mutate_config_files()
    assert _hosts(placement, pipeline, properties) == ("host-0",)


@pytest.mark.parametrize(
    "trait",
    [None, ["COMPUTE_NODE"], "compute_node"],
    ids=["None", "list", "small letters"],
)
def test_what_is_no_name_of_a_trait_is_an_error_of_the_filter(
    trait: Any,
) -> None:
    names = TraitNames(("COMPUTE_NODE",))
    known = Fact("known_traits", lambda _context: names, 60.0)
    result = Requirements((Requirement(trait, True, ROOT, "x"),))
    theirs = LoadedFilter("theirs", lambda _request: result)
    service = Service((theirs,), facts={"known_traits": known})
    with pytest.raises(FilterFailed, match="not a trait name"):
        service.apply(spec_of({}))


def test_fact_is_the_same_object_until_a_trait_is_added(
    placement: EmbeddedPlacement,
) -> None:
    """Pipelines keep their results for as long."""
    read = PlacementFacts(placement.client).known_traits
    fact = facts_of({"known_traits": read}, (), 0.0)["known_traits"]
    (version,) = versions_of([fact])
    before = fact.latest
    assert versions_of([fact]) == (version,)
    assert fact.latest is before
    placement.know([_HPET])
    assert versions_of([fact]) == (version + 1,)
    assert fact.latest == before | {_HPET}
    assert repr(fact.latest) == f"<{len(before) + 1} traits>"


def test_response_without_the_traits_of_every_placement_is_an_error(
    placement: EmbeddedPlacement,
) -> None:
    """Absence of a response is not absence of the traits."""
    observed = Observed(placement, lambda _method, _url: (200, {"traits": []}))
    message = "COMPUTE_NODE is not in it"
    with pytest.raises(PlacementUnavailable, match=message):
        PlacementFacts(observed.client).known_traits()
