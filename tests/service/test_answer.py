# SPDX-License-Identifier: Apache-2.0

"""A request that no host can serve is rejected before Placement is asked for
candidates, with the smallest reason.
"""

import json
import logging
import random
import re
import threading
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any
from urllib.parse import unquote

import pytest
from prometheus_client import REGISTRY

from os_prefilter import (
    NOTHING,
    Request,
    Requirements,
    allocation_candidates_query,
    require,
)
from os_prefilter.adapters.placement.host_traits import HostTraitsReader
from os_prefilter.common.errors import NoHostServes
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.service import Service
from os_prefilter.service.answer import NoHostCheck, RootDemand
from os_prefilter.service.host_traits import MOST_HOSTS, HostTraits, Traits
from os_prefilter.service.loading import as_filter, load_filters
from os_prefilter.vocabulary import BY_NAME
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet, provider_uuid
from tests.conftest import conf_with, pipeline_of, spec_of, times
from tests.support.placements import (
    Answer,
    HostsInProcess,
    Observed,
    answering,
    provider,
    put_traits,
)

_UUID = "[0-9a-f-]{36}"
_CLASSES = "VCPU MEMORY_MB DISK_GB"
_IGB, _VIRTIO, _E1000E = (
    f"COMPUTE_NET_VIF_MODEL_{model}" for model in ("IGB", "VIRTIO", "E1000E")
)
_HPET, _Q35, _DISABLED = (
    "CUSTOM_COMPUTE_TIME_HPET",
    "CUSTOM_COMPUTE_MACHINE_Q35",
    "COMPUTE_STATUS_DISABLED",
)
_CUSTOM = {
    _HPET,
    _Q35,
    *(str(term.trait) for term in BY_NAME["default_machine"].values.values()),
}
_TRAITS = {
    "igb-1": f"{_IGB} {_HPET}",
    "igb-2": f"{_IGB} {_VIRTIO}",
    "q35-1": f"{_Q35} {_VIRTIO}",
    "plain-1": f"{_VIRTIO} {_HPET}",
    "off-1": f"{_IGB} {_Q35} {_HPET} {_VIRTIO} {_E1000E} {_DISABLED}",
}


def _fleet(traits: dict[str, str]) -> Fleet:
    return Fleet(
        tuple(
            provider(name, _CLASSES, f"COMPUTE_NODE {having}")
            for name, having in traits.items()
        )
    )


_NE2K, _HPET_WANTED = {"hw_vif_model": "ne2k_pci"}, {"hw_time_hpet": "true"}
_REASONS: list[tuple[dict[str, Any], str, str]] = [
    ({"hw_vif_model": "igb"}, "", ""),
    ({"hw_vif_model": "virtio", **_HPET_WANTED}, "", ""),
    (_NE2K, "host offers hw_vif_model=ne2k_pci", " (0 of 5 hosts)"),
    # The one host that has it is disabled.
    (
        {"hw_vif_model": "e1000e"},
        "available host offers hw_vif_model=e1000e",
        " (0 of 4 available hosts)",
    ),
    (
        {**_NE2K, "hw_machine_type": "q35", **_HPET_WANTED},
        "host offers hw_vif_model=ne2k_pci",
        " (0 of 5 hosts)",
    ),
    (
        {"hw_vif_model": "virtio", "hw_machine_type": "q35", **_HPET_WANTED},
        (
            "available host offers hw_machine_type=q35 together with"
            " hw_time_hpet=true"
        ),
        (
            " (0 of 4 available hosts; hw_machine_type=q35 alone: 1;"
            " hw_time_hpet=true alone: 2)"
        ),
    ),
]


@pytest.fixture(scope="module")
def placement() -> Iterator[EmbeddedPlacement]:
    with EmbeddedPlacement(_fleet(_TRAITS)) as placement:
        placement.client.ensure_traits(_CUSTOM)
        yield placement


def _pipeline(observed: Observed, **options: Any) -> Service:
    options = {
        "enabled_filters": ["image_metadata", "hpet", "compute_status"],
        "reported_traits": "*",
        "facts_interval": 1800,
        **options,
    }
    return Service.from_conf(
        conf_with(**options), host_traits=HostTraitsReader(observed.client)
    )


def _reason(pipeline: Service, properties: dict[str, Any]) -> str:
    """Return why a request is rejected, and see that it is as it was; empty if
    it is not.
    """
    spec = spec_of(properties)
    try:
        pipeline.apply(spec)
    except NoHostServes as error:
        assert (spec.root_required, spec.root_forbidden) == (set(), set())
        return str(error)
    return ""


def test_smallest_set_of_properties_that_no_host_serves_is_named(
    placement: EmbeddedPlacement,
) -> None:
    pipelines = {
        each: _pipeline(Observed(placement), no_host_reason=each)
        for each in ("counts", "off", "properties")
    }
    for properties, reason, counts in _REASONS:
        assert {
            each: _reason(pipeline, properties)
            for each, pipeline in pipelines.items()
        } == {
            "counts": reason and f"No {reason}{counts}.",
            "off": "",
            "properties": reason and f"No {reason}.",
        }


# Japanese has the longest of all translations in Nova 27.0.0 to 33.0.0.
_WORDS_OF_NOVA = "有効なホストが見つかりませんでした。Scheduling failed: "


def test_longest_reason_is_not_cut_by_nova() -> None:
    for value in (
        "q35",
        *(
            character * 300
            for character in ("x", "\x1b", "é", "\U0001f600", "\ud800")
        ),
    ):
        for number in (1, 2, 3, 10):
            properties = [
                f"hw_machine_type_{each}={value}" for each in range(number)
            ]
            reason = str(NoHostServes(properties, 50_000, [49_999] * number))
            assert len((_WORDS_OF_NOVA + reason).encode()) <= 255
            assert reason.startswith("No host offers hw_machine_type_0=")
            assert "(0 of 50000 hosts" in reason
            # Each property is named or counted.
            named = sum(
                f"hw_machine_type_{each}" in reason.partition(" (")[0]
                for each in range(number)
            )
            assert named == number or f" {number - named} more (" in reason


def test_request_that_a_known_host_serves_asks_nothing_and_a_rejection_is_confirmed_each_time(
    placement: EmbeddedPlacement,
) -> None:
    observed = Observed(placement)
    pipeline, asked = _pipeline(observed), []
    for properties in (
        {"hw_vif_model": "igb"},
        {"hw_vif_model": "igb"},
        _NE2K,
        _NE2K,
    ):
        _reason(pipeline, properties)
        sent = [
            each.removeprefix("GET /resource_providers").removeprefix(
                "?required="
            )
            for each in observed.sent
        ]
        asked.append(
            [re.sub(f"/{_UUID}/", "/HOST/", unquote(each)) for each in sent]
        )
        observed.sent.clear()
    # Those default machines have no PCI bus.
    default = ",!CUSTOM_COMPUTE_DEFAULT_MACHINE_"
    without_pci = f"{default}ISAPC{default}MICROVM{default}S390_CCW_VIRTIO"
    enabled, alone = (
        "!COMPUTE_STATUS_DISABLED",
        f"COMPUTE_NET_VIF_MODEL_NE2K_PCI{without_pci}",
    )
    confirmation = alone.replace(default, f",{enabled}{default}", 1)
    # One of the hosts that serve it is known from then on. The last one tells
    # whether a host serves it that no request may have.
    igb = "!CUSTOM_COMPUTE_DEFAULT_MACHINE_ISAPC,!CUSTOM_COMPUTE_DEFAULT_MACHINE_MICROVM"
    first = [f"{_IGB},{enabled},{igb}", "/HOST/traits"]
    assert asked == [first, [], [confirmation, alone], [confirmation, alone]]


def test_sample_stays_small_and_what_it_suggests_is_the_smallest_set_in_any_fleet() -> (
    None
):
    chance = random.Random(34)  # noqa: S311
    names = [
        _E1000E,
        _IGB,
        _VIRTIO,
        "COMPUTE_NET_VIF_MODEL_NE2K_PCI",
        _HPET,
        _Q35,
        _DISABLED,
    ]
    rejected = 0
    for _ in range(times(300)):
        fleet = {
            str(provider_uuid(str(number))): _some(chance, names)
            for number in range(chance.randint(1, 90))
        }
        known = {
            host: traits | {"COMPUTE_NODE"} for host, traits in fleet.items()
        }
        check = NoHostCheck(HostTraits(HostsInProcess(known), 60))
        for _ in range(5):
            properties: dict[tuple[str, ...], Traits] = {
                (name,): Traits(frozenset((name,)))
                for name in _some(chance, names[:-1])
            }
            every = Traits(forbidden=frozenset((_DISABLED,)))
            total = every
            for part in properties.values():
                total |= part
            demand = RootDemand(total, every, properties)
            served = any(total.met_by(traits) for traits in known.values())
            usable = {
                host for host, traits in known.items() if every.met_by(traits)
            }
            try:
                check.check(demand, None)
            except NoHostServes as error:
                rejected += 1
                assert not served
                assert not any(
                    set(error.properties) <= known[host] for host in usable
                )
                for size in range(1, len(error.properties)):
                    for fewer in combinations(error.properties, size):
                        assert any(
                            set(fewer) <= known[host] for host in usable
                        ), (fewer, error.properties)
            else:
                assert served or not usable or not properties
        assert len(check._host_traits.sample.traits) <= MOST_HOSTS
    assert rejected


def _some(chance: random.Random, names: Sequence[str]) -> frozenset[str]:
    return frozenset(name for name in names if chance.random() < 0.3)


def test_history_and_metrics_count_rejections(
    placement: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pipeline = _pipeline(
        Observed(placement), decision_history=True, metrics=True
    )
    before = (
        REGISTRY.get_sample_value(
            "os_prefilter_no_host_total", {"stage": "traits", "by": ""}
        )
        or 0.0
    )
    for model in ("igb", "virtoi", "ne2k_pci", "ne2k_pci"):
        _reason(pipeline, {"hw_vif_model": model})
    assert (
        REGISTRY.get_sample_value(
            "os_prefilter_no_host_total", {"stage": "traits", "by": ""}
        )
        == before + 2
    )
    lines = [
        json.loads(each.getMessage())
        for each in caplog.records
        if each.name == "os_prefilter.decisions"
    ]
    assert [line["result"] for line in lines] == [
        "passed",
        "passed",
        "rejected",
        "rejected",
    ]


def test_what_a_filter_written_for_nova_takes_back_rejects_nothing(
    placement: EmbeddedPlacement,
) -> None:
    def relax(_context: Any, request_spec: Any) -> bool:
        request_spec.root_required.discard("COMPUTE_NET_VIF_MODEL_NE2K_PCI")
        return True

    def reason(*others: LoadedFilter) -> str:
        host_traits = HostTraits(
            HostTraitsReader(Observed(placement).client), 60
        )
        filters = (*load_filters(["image_metadata"], provided=None), *others)
        return _reason(
            Service(filters, no_host=NoHostCheck(host_traits)), _NE2K
        )

    assert (reason(), reason(as_filter("relax", relax))) == (
        "No host offers hw_vif_model=ne2k_pci.",
        "",
    )


def test_a_hundred_new_traits_of_rules_cost_one_request(
    placement: EmbeddedPlacement,
) -> None:
    names = [f"CUSTOM_RULE_{number}" for number in range(100)]
    placement.client.ensure_traits(names)
    observed = Observed(placement)
    reader = HostTraitsReader(
        observed.client, lambda _context: [str(provider_uuid("igb-1"))]
    )

    def of_rules(request: Request) -> Requirements:
        return sum(
            (
                require(
                    name, "image property of=rules", properties=["of=rules"]
                )
                for name in names
            ),
            NOTHING,
        )

    service = Service(
        (as_filter("of_rules", of_rules),),
        no_host=NoHostCheck(HostTraits(reader, 60)),
    )
    assert _reason(service, {}) == "No host offers of=rules."
    # One for the traits of the known host, one for the first fifty, which no
    # host has.
    assert len(observed.sent) == 2


def test_no_property_is_blamed_where_no_host_is_available_at_all() -> None:
    fleets: list[dict[str, str]] = [{"off-1": _DISABLED}, {}]
    for traits in fleets:
        with EmbeddedPlacement(_fleet(traits)) as placement:
            assert (
                _reason(
                    _pipeline(Observed(placement)), {"hw_vif_model": "igb"}
                )
                == ""
            )


def test_host_added_since_the_sample_was_read_gets_its_guest_and_is_asked_for_once() -> (
    None
):
    with EmbeddedPlacement(_fleet(_TRAITS)) as placement:
        placement.client.ensure_traits(_CUSTOM)
        observed = Observed(placement)
        pipeline = _pipeline(observed)
        assert _reason(pipeline, _NE2K)
        _add_host(
            placement,
            "new-1",
            {"COMPUTE_NODE", "COMPUTE_NET_VIF_MODEL_NE2K_PCI"},
        )
        observed.sent.clear()
        assert [_reason(pipeline, _NE2K) for _ in range(3)] == ["", "", ""]
        # Then its traits are read.
        assert len(observed.sent) == 2


@pytest.mark.parametrize(
    "failing", ["NE2K_PCI%2C%21COMPUTE_STATUS_DISABLED", "/traits"]
)
def test_placement_that_fails_rejects_nothing(
    failing: str,
    placement: EmbeddedPlacement,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[Answer] = [
        (503, {}),
        (200, {"resource_providers": [{}]}),
        (400, {}),
    ]
    for answer in answers:
        caplog.clear()
        pipeline = _pipeline(Observed(placement, answering(answer, failing)))
        assert [_reason(pipeline, _NE2K) for _ in range(3)] == [
            "",
            "",
            "",
        ], answer
        assert (
            sum(each.levelno == logging.WARNING for each in caplog.records)
            == 1
        ), answer
    assert _reason(_pipeline(Observed(placement)), _NE2K)


def test_confirmation_that_fails_in_any_way_rejects_nothing_and_is_one_warning(
    placement: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
) -> None:
    """Also by what is no Exception, as eventlet's Timeout."""

    def fail(_method: str, url: str) -> None:
        if "%21COMPUTE_STATUS_DISABLED" in url and "NE2K_PCI" in url:
            raise SystemExit

    caplog.set_level(logging.INFO, "os_prefilter.service.answer")
    observed = Observed(placement)
    pipeline = _pipeline(observed)
    for hook, rejected in (
        (fail, [False] * 3),
        (answering(None), [True]),
        (fail, [False] * 3),
    ):
        observed.hook = hook
        assert [bool(_reason(pipeline, _NE2K)) for _ in rejected] == rejected
    told = [
        each.getMessage()
        for each in caplog.records
        if each.name == "os_prefilter.service.answer"
    ]
    warning = (
        "Whether any host serves a request is not known, so such requests are"
        " scheduled: "
    )
    assert [each.startswith(warning) for each in told] == [True, False, True]
    assert (
        told[1]
        == "Placement confirms again whether any host serves a request."
    )


def test_request_is_scheduled_while_the_confirmation_has_no_answer(
    placement: EmbeddedPlacement,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    released, observed = threading.Event(), Observed(placement)
    pipeline = _pipeline(observed)
    assert _reason(pipeline, {"hw_vif_model": "igb", "hw_machine_type": "q35"})
    monkeypatch.setattr("os_prefilter.service.deployment_facts.PATIENCE", 0.1)

    def hang(_method: str, url: str) -> None:
        if "NE2K_PCI" in url:
            released.wait(60)

    observed.hook = hang
    try:
        # The first of them asks and waits; each would leave a thread behind
        # for as long as Placement hangs.
        assert [_reason(pipeline, _NE2K) for _ in range(5)] == [""] * 5
        assert sum("NE2K_PCI" in each for each in observed.sent) == 1
        assert pipeline.no_host
        assert pipeline.no_host._late
    finally:
        released.set()
    pipeline.no_host._late[0].result(60)
    (warning,) = (
        each.getMessage()
        for each in caplog.records
        if each.levelno == logging.WARNING
    )
    assert "Placement did not respond in 0.1 seconds" in warning
    monkeypatch.undo()
    # It is no refutation.
    assert _reason(pipeline, _NE2K)


def _add_host(
    placement: EmbeddedPlacement, name: str, traits: set[str]
) -> None:
    uuid = provider_uuid(name)
    placement.client.request(
        "POST", "/resource_providers", {"name": name, "uuid": uuid}
    )
    body = {
        "resource_provider_generation": 0,
        "inventories": {each: {"total": 16} for each in _CLASSES.split()},
    }
    placement.client.request(
        "PUT", f"/resource_providers/{uuid}/inventories", body
    )
    put_traits(placement, lambda found: found.update(traits), name)


@pytest.mark.parametrize("seed", range(times(1)))
def test_never_a_false_rejection_while_the_fleet_changes(seed: int) -> None:
    """Against a real Placement: hosts come, go and change between the fact and
    the requests.
    """
    chance = random.Random(seed)  # noqa: S311
    models = ["igb", "virtio", "e1000e", "ne2k_pci"]
    pool = [
        _HPET,
        _Q35,
        _DISABLED,
        *(f"COMPUTE_NET_VIF_MODEL_{model.upper()}" for model in models),
    ]

    def some() -> str:
        return " ".join(trait for trait in pool if chance.random() < 0.3)

    with EmbeddedPlacement(
        _fleet(
            {
                f"host-{number}": some()
                for number in range(chance.randint(1, 6))
            }
        )
    ) as placement:
        placement.client.ensure_traits(_CUSTOM)
        pipeline = _pipeline(Observed(placement))
        plain = pipeline_of("image_metadata", "hpet", "compute_status")
        rejected = served = 0
        for step in range(30):
            if chance.random() < 0.3:
                name = f"host-{chance.randint(0, 9)}"
                if name in {
                    each.name for each in placement.client.providers()
                }:
                    put_traits(
                        placement,
                        lambda found: found.intersection_update(
                            ["COMPUTE_NODE"]
                        ),
                        name,
                    )
                    put_traits(
                        placement,
                        lambda found: found.update(some().split()),
                        name,
                    )
                else:
                    _add_host(
                        placement, name, {"COMPUTE_NODE", *some().split()}
                    )
            if chance.random() < 0.2:
                assert pipeline.host_traits
                pipeline.host_traits._fact.expire()
            every = {
                "hw_vif_model": chance.choice(models),
                "hw_time_hpet": "true",
                "hw_machine_type": "q35",
            }
            properties = {
                name: value
                for name, value in every.items()
                if chance.random() < 0.6
            }
            # The hosts are small.
            spec = spec_of(properties, memory_mb=1)
            plain.apply(spec)
            able = placement.client.allocation_candidates(
                allocation_candidates_query(spec)
            ).hosts
            reason = _reason(pipeline, properties)
            assert not (reason and able), (step, reason, able)
            rejected += bool(reason)
            served += bool(able)
    assert rejected
    assert served
