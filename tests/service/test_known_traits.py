# SPDX-License-Identifier: Apache-2.0

"""A Placement that lacks some traits: no query names one."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import os_traits
import pytest

from os_prefilter import allocation_candidates_query
from os_prefilter.adapters.placement.facts import KnownTraits
from os_prefilter.common.errors import (
    FilterFailed,
    PlacementUnavailable,
    UnknownTraits,
)
from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts.marker_traits import WANTED
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.requirements import ROOT, Requirement, Requirements
from os_prefilter.request.view import Request
from os_prefilter.service import Service
from os_prefilter.service.deployment_facts import Fact
from os_prefilter.service.facts_from_conf import prepared
from os_prefilter.service.known_traits import TraitNames, leave_out_unknown
from os_prefilter.service.traits_to_report import (
    configured_filters,
    traits_to_create,
)
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from tests.conftest import conf_with, spec_of
from tests.support.placements import Answer, Observed, answering, put_traits
from tests.support.reporting_fleets import fleet_of
from tests.support.rule_texts import rule, write_rules

_IGB = "COMPUTE_NET_VIF_MODEL_IGB"
_HPET = "CUSTOM_COMPUTE_TIME_HPET"
_HOSTS = ("host-0", "host-1")


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
    facts = {"known_traits": KnownTraits(placement.client)}
    pipeline = Service.from_conf(conf, facts)
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


def test_custom_traits_that_filters_may_require_are_created_before_a_query_names_one(
    placement: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
) -> None:
    """Else Placement refuses the query where no host has reported yet.

    One warning says that the user of the service has no right to create them.
    """
    observed = Observed(placement)
    caplog.set_level(logging.INFO)
    conf = conf_with(enabled_filters=["hpet"], facts_interval=0)
    needed = traits_to_create(*configured_filters(conf))
    facts = {"known_traits": KnownTraits(observed.client, needed)}
    pipeline = Service.from_conf(conf, facts)
    for is_refused in (True, True, True, False, True):
        response: Answer | None = (403, {}) if is_refused else None
        observed.hook = answering(response, "/traits/")
        found = _hosts(placement, pipeline, {"hw_time_hpet": "yes"})
        is_created = _HPET in placement.client.traits()
        if is_refused:
            assert found == _HOSTS
            assert not is_created
        else:
            assert found == ()
            assert is_created
        placement.client.delete_trait(_HPET)
    # First what agents read: they can begin.
    (wanted,) = (
        trait for trait in needed - {_HPET} if trait.startswith(WANTED)
    )
    writes = [each for each in observed.sent if "PUT" in each]
    traits = [each.rpartition("/")[2] for each in writes]
    assert traits == [wanted] * 4 + [_HPET] * 2
    messages = [
        each.getMessage()
        for each in caplog.records
        if "request filters may require" in each.getMessage()
    ]
    refusal = (
        "Traits that request filters may require cannot be created in"
        " Placement: Placement refused PUT /traits/"
    )
    created = "Created in Placement, as request filters may require them: "
    first, second, third = messages
    assert first.startswith(f"{refusal}{wanted} with status 403")
    assert second == f"{created}{wanted}, {_HPET}."
    assert third.startswith(f"{refusal}{_HPET} with status 403")


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
    facts = {"known_traits": KnownTraits(placement.client)}
    pipeline = Service.from_conf(
        conf, facts, ensure_traits=placement.client.ensure_traits
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
    readers = prepared({"known_traits": KnownTraits(placement.client)}, ())
    read = readers["known_traits"]
    before = read(None)
    assert read(None) is before
    placement.know([_HPET])
    assert read(None) == before | {_HPET}
    assert repr(read(None)) == f"<{len(before) + 1} traits>"


def test_response_without_the_traits_of_every_placement_is_an_error(
    placement: EmbeddedPlacement,
) -> None:
    """Absence of a response is not absence of the traits."""
    observed = Observed(placement, lambda _method, _url: (200, {"traits": []}))
    message = "COMPUTE_NODE is not in it"
    with pytest.raises(PlacementUnavailable, match=message):
        KnownTraits(observed.client)()
