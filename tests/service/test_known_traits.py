# SPDX-License-Identifier: Apache-2.0

"""A Placement that is older than some traits: no query names one, and no
capable host is excluded.
"""

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
from tests.support.placements import Observed, answering, put_traits
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


def _pipeline(
    placement: EmbeddedPlacement, *filters: str, **options: Any
) -> Service:
    options = {
        "enabled_filters": list(filters),
        "facts_interval": 0,
        "wait_for_reports": False,
        **options,
    }
    return Service.from_conf(
        conf_with(**options), {"known_traits": KnownTraits(placement.client)}
    )


def _hosts(
    placement: EmbeddedPlacement, pipeline: Service, properties: dict[str, str]
) -> tuple[str, ...]:
    spec = spec_of(properties)
    pipeline.apply(spec)
    return placement.client.allocation_candidates(
        allocation_candidates_query(spec)
    ).hosts


@pytest.mark.parametrize("scope", ["root", "root_and_unsuffixed"])
def test_standard_trait_that_placement_lacks_is_left_out_with_a_warning(
    scope: str, placement: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UnknownTraits, match=_IGB):
        _hosts(
            placement,
            Service.from_names("image_metadata"),
            {"hw_vif_model": "igb"},
        )
    pipeline = _pipeline(placement, "image_metadata", trait_scope=scope)
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
    assert (
        _hosts(
            placement,
            pipeline,
            {"hw_vif_model": "igb", "hw_disk_bus": "virtio"},
        )
        == ()
    )


def test_custom_traits_that_filters_may_require_are_created_before_a_query_names_one(
    placement: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
) -> None:
    """Else Placement refuses the query where no host has reported yet; a user
    without that right is told of once.
    """
    observed = Observed(placement)
    caplog.set_level(logging.INFO)
    conf = conf_with(enabled_filters=["hpet"], facts_interval=0)
    needed = traits_to_create(*configured_filters(conf))
    pipeline = Service.from_conf(
        conf, {"known_traits": KnownTraits(observed.client, needed)}
    )
    for refused in (True, True, True, False, True):
        observed.hook = answering((403, {}) if refused else None, "/traits/")
        found = _hosts(placement, pipeline, {"hw_time_hpet": "yes"})
        assert (found, _HPET in placement.client.traits()) == (
            (_HOSTS, False) if refused else ((), True)
        )
        placement.client.delete_trait(_HPET)
    # First what agents read: they can begin.
    (wanted,) = (
        trait for trait in needed - {_HPET} if trait.startswith(WANTED)
    )
    assert [
        each.rpartition("/")[2] for each in observed.sent if "PUT" in each
    ] == [wanted] * 4 + [_HPET] * 2
    messages = [
        each.getMessage()
        for each in caplog.records
        if "request filters may require" in each.getMessage()
    ]
    refusal = (
        "Traits that request filters may require cannot be created in"
        " Placement: Placement refused PUT /traits/"
    )
    assert [each.partition(" with status 403")[0] for each in messages] == [
        f"{refusal}{wanted}",
        (
            "Created in Placement, as request filters may require them:"
            f" {wanted}, {_HPET}."
        ),
        f"{refusal}{_HPET}",
    ]


_LEFT_OUT: list[tuple[str, bool, set[str], bool]] = [
    # (the trait, required, in use, left out)
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


def test_only_what_excludes_no_capable_host_is_left_out() -> None:
    for trait, required, forbidden, is_left_out in _LEFT_OUT:
        item = Requirement(Trait(trait), required, ROOT, "x")
        result = Requirements((item,))
        found = leave_out_unknown({"COMPUTE_NODE"}, forbidden)(
            LoadedFilter("any", len), result, Request(spec_of())
        )
        assert found.requirements == (() if is_left_out else (item,)), trait
        assert [note.warn for note in found.notes] == (
            [required] if is_left_out else []
        ), trait


def test_what_a_new_rule_forbids_is_forbidden_at_once(
    placement: EmbeddedPlacement, tmp_path: Path
) -> None:
    """On SIGHUP the rules are read again, and the names of the traits may be
    as old as ``facts_interval``.
    """
    rules = tmp_path / "rules.yaml"
    write_rules(
        rules,
        rule(
            "other",
            "{image_property: hw_time_hpet, present: true}",
            forbid=["CUSTOM_OTHER"],
        ),
    )
    conf = conf_with(enabled_filters=["rules"], rules_dirs=[str(tmp_path)])
    facts = {"known_traits": KnownTraits(placement.client)}
    pipeline = Service.from_conf(
        conf, facts, ensure_traits=placement.client.ensure_traits
    )
    assert _hosts(placement, pipeline, {"hw_disk_bus": "virtio"}) == _HOSTS
    placement.know(["CUSTOM_KEPT"])
    put_traits(placement, lambda traits: traits.add("CUSTOM_KEPT"), "host-1")
    write_rules(
        rules,
        rule(
            "keep",
            "{image_property: hw_disk_bus, is: virtio}",
            forbid=["CUSTOM_KEPT"],
        ),
    )
    conf.mutate_config_files()
    assert _hosts(placement, pipeline, {"hw_disk_bus": "virtio"}) == (
        "host-0",
    )


def test_what_is_no_name_of_a_trait_is_an_error_of_the_filter() -> None:
    known = Fact(
        "known_traits", lambda _context: TraitNames(("COMPUTE_NODE",)), 60.0
    )
    traits: list[Any] = [None, ["COMPUTE_NODE"], "compute_node"]
    for trait in traits:
        result = Requirements((Requirement(trait, True, ROOT, "x"),))
        pipeline = Service(
            (LoadedFilter("theirs", lambda _: result),),  # noqa: B023
            facts={"known_traits": known},
        )
        with pytest.raises(FilterFailed, match="not a trait name"):
            pipeline.apply(spec_of({}))


def test_fact_is_the_same_object_until_a_trait_is_added(
    placement: EmbeddedPlacement,
) -> None:
    """Pipelines keep their results for as long."""
    fact = prepared({"known_traits": KnownTraits(placement.client)}, ())[
        "known_traits"
    ]
    before = fact(None)
    assert fact(None) is before
    placement.know([_HPET])
    assert (fact(None), repr(fact(None))) == (
        before | {_HPET},
        f"<{len(before) + 1} traits>",
    )


def test_answer_without_the_traits_of_every_placement_is_an_error(
    placement: EmbeddedPlacement,
) -> None:
    """Absence of an answer is not absence of the traits."""
    observed = Observed(placement, lambda _method, _url: (200, {"traits": []}))
    with pytest.raises(
        PlacementUnavailable, match="COMPUTE_NODE is not in it"
    ):
        KnownTraits(observed.client)()
