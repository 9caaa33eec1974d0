# SPDX-License-Identifier: Apache-2.0

"""A request for which Placement has no candidate gets the smallest reason, and
one that has candidates asks for nothing.
"""

from __future__ import annotations

import json
import logging
import random
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any
from urllib.parse import unquote

import pytest
from prometheus_client import REGISTRY

from os_prefilter import (
    NOTHING,
    Decision,
    Options,
    Request,
    Requirements,
    ServerOptions,
    allocation_candidates_query,
    forbid,
    require,
)
from os_prefilter.adapters.placement.reasons import ReasonReader
from os_prefilter.common.errors import NoHostLeft, NoHostServes
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.requirements import UNSUFFIXED
from os_prefilter.rules.reader import guest_systems
from os_prefilter.service import Service, deployment_facts
from os_prefilter.service.answer import (
    MOST_HOSTS,
    ReasonFinder,
    cpu_fit,
)
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
    # Facts of Placement would be asked for as well.
    service = Service.from_conf(conf_with(**options))
    shows_numbers = options.get("no_host_reason") == "counts"
    reader = ReasonReader(observed.client)
    reasons = ReasonFinder(reader, counts=shows_numbers)
    return replace(service, reasons=reasons)


def _end(
    pipeline: Service, properties: dict[str, Any], memory_mb: int = 1
) -> NoHostLeft | None:
    """Return why Placement has no candidate for a request, or None if it has
    some.
    """
    spec = spec_of(properties, memory_mb=memory_mb)
    decision = pipeline.apply(spec)
    reasons = pipeline.reasons
    assert reasons
    query = allocation_candidates_query(spec)
    if _candidates(reasons, query):
        return None
    return pipeline.reason(decision, spec)


def _candidates(reasons: ReasonFinder, query: str) -> int:
    """Return how many hosts Placement has, whatever a test does to ours."""
    client: Any = reasons._placement
    adapter = client._client._adapter
    if isinstance(adapter, Observed):
        return len(adapter.placement.client.candidates(query).by_host)
    return len(client._client.candidates(query).by_host)


def _reason(
    pipeline: Service, properties: dict[str, Any], memory_mb: int = 1
) -> str:
    """Return what the author of a request reads; empty for nothing."""
    error = _end(pipeline, properties, memory_mb)
    return str(error) if error and error.is_public else ""


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("nic_tag", "a NIC with a tag"),
        ("block_device_tag", "a block device with a tag"),
        ("trusted_certs", "trusted certificates"),
        ("multiattach", "a multi-attach volume"),
        ("shares", "a share"),
    ],
)
def test_option_that_no_host_serves_is_named_in_the_users_words(
    placement: EmbeddedPlacement, option: str, reason: str
) -> None:
    pipeline = _pipeline(
        Observed(placement), enabled_filters=["server_options"]
    )
    spec = spec_of(server_options=ServerOptions(**{option: True}))
    decision = pipeline.apply(spec)
    error = pipeline.reason(decision, spec)
    assert error.is_public
    assert str(error) == f"No host offers {reason}."


@pytest.mark.parametrize(
    ("properties", "reason", "counts"),
    _REASONS,
    ids=["served", "two-served", "one", "disabled", "smallest", "two"],
)
def test_smallest_set_of_properties_that_no_host_serves_is_named(
    placement: EmbeddedPlacement,
    properties: dict[str, Any],
    reason: str,
    counts: str,
) -> None:
    def found(option: str) -> str:
        pipeline = _pipeline(Observed(placement), no_host_reason=option)
        return _reason(pipeline, properties)

    assert found("off") == ""
    assert found("properties") == (reason and f"No {reason}.")
    assert found("counts") == (reason and f"No {reason}{counts}.")


def test_reason_that_is_not_shown_is_recorded(
    placement: EmbeddedPlacement,
) -> None:
    pipeline = _pipeline(Observed(placement), no_host_reason="off")
    assert (
        str(_end(pipeline, _NE2K)) == "No host offers hw_vif_model=ne2k_pci."
    )


def test_service_without_a_placement_does_not_know_the_reason() -> None:
    service = Service.from_names("hpet")
    decision = service.apply(spec_of({}))
    error = service.reason(decision)
    assert str(error) == "This service has no Placement."
    assert not error.is_public


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


def _asked(observed: Observed) -> list[str]:
    """Return the queries for hosts and traits since the last time."""
    sent = [
        unquote(each.removeprefix("GET /resource_providers"))
        for each in observed.sent
    ]
    observed.sent.clear()
    return [
        re.sub(f"/{_UUID}/", "/HOST/", each).removeprefix("?required=")
        for each in sent
    ]


def test_request_with_candidates_asks_nothing_and_a_reason_is_confirmed_each_time(
    placement: EmbeddedPlacement,
) -> None:
    observed = Observed(placement)
    pipeline = _pipeline(observed)
    assert _reason(pipeline, {"hw_vif_model": "igb"}) == ""
    assert _asked(observed) == []
    # Those default machines have no PCI bus.
    default = ",!CUSTOM_COMPUTE_DEFAULT_MACHINE_"
    without_pci = f"{default}ISAPC{default}MICROVM{default}S390_CCW_VIRTIO"
    alone = f"COMPUTE_NET_VIF_MODEL_NE2K_PCI{without_pci}"
    enabled = "!COMPUTE_STATUS_DISABLED"
    confirmation = alone.replace(default, f",{enabled}{default}", 1)
    assert _reason(pipeline, _NE2K)
    # Some host is known from then on. The last one tells whether a host serves
    # it that no request may have.
    assert _asked(observed) == [
        confirmation,
        f"COMPUTE_NODE,{enabled}",
        "/HOST/traits",
        alone,
    ]
    assert _reason(pipeline, _NE2K)
    assert _asked(observed) == [confirmation, alone]


def test_for_want_of_memory_the_traits_of_one_known_host_are_read_again(
    placement: EmbeddedPlacement,
) -> None:
    observed = Observed(placement)
    pipeline = _pipeline(observed)
    short = "No available host has room for this flavor's memory."
    assert _reason(pipeline, {"hw_vif_model": "igb"}, 99) == short
    _asked(observed)
    assert _reason(pipeline, {"hw_vif_model": "igb"}, 99) == short
    assert _asked(observed)[0] == "/HOST/traits"


@pytest.mark.parametrize(
    ("options", "numbers", "steps"),
    [
        pytest.param({}, "", 0, id="neither"),
        pytest.param({"records": True}, "", 3, id="recorded"),
        pytest.param(
            {"counts": True},
            " (memory: 0 of 4 hosts, CPUs: 4 of 4 hosts, disk: 4 of 4 hosts)",
            3,
            id="shown",
        ),
    ],
)
def test_numbers_of_hosts_are_recorded_or_shown_with_a_short_resource(
    options: dict[str, bool],
    numbers: str,
    steps: int,
    placement: EmbeddedPlacement,
) -> None:
    finder = ReasonFinder(ReasonReader(Observed(placement).client), **options)
    spec = spec_of({}, memory_mb=99)
    decision = Service(_requiring(())).apply(spec)
    error = finder.find(decision, allocation_candidates_query(spec))
    short = "No available host has room for this flavor's memory"
    assert str(error) == f"{short}{numbers}."
    assert len(error.hosts) == steps


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
        finder = ReasonFinder(HostsInProcess(known))
        usable = {
            host for host, traits in known.items() if _DISABLED not in traits
        }
        for _ in range(5):
            wanted = _some(chance, names[:-1])
            error = finder.find(_decision(wanted), "")
            served = any(wanted <= known[host] for host in usable)
            if not isinstance(error, NoHostServes):
                assert served or not usable or not wanted
                continue
            rejected += 1
            assert not served
            named = error.properties
            assert not any(set(named) <= known[host] for host in usable)
            for fewer in combinations(named, len(named) - 1):
                assert any(set(fewer) <= known[host] for host in usable), (
                    fewer,
                    named,
                )
        assert len(finder._sample) <= MOST_HOSTS
    assert rejected


def test_sample_that_another_request_replaces_meanwhile_is_read_as_it_was() -> (
    None
):
    nodes = {
        host: frozenset(("COMPUTE_NODE", trait))
        for host, trait in (("igb-1", _IGB), ("hpet-1", _HPET))
    }
    finder = ReasonFinder(HostsInProcess(nodes))

    class Replaced(dict[str, frozenset[str]]):
        def values(self) -> Any:
            finder._sample = Replaced(reversed(self.items()))
            return super().values()

    finder._sample = Replaced(nodes)
    error = finder.find(_decision({_IGB, _HPET}), "")
    assert isinstance(error, NoHostServes)
    assert set(error.properties) == {_IGB, _HPET}


def _decision(wanted: Iterable[str]) -> Decision:
    """Return a decision: each trait by a property, and no disabled host."""
    return Service(_requiring(wanted)).apply(spec_of({}))


def _requiring(wanted: Iterable[str]) -> tuple[LoadedFilter, ...]:
    def of_test(_request: Request) -> Requirements:
        found = forbid(_DISABLED, "every request")
        for name in wanted:
            found += require(name, f"property {name}", properties=[name])
        return found

    return (as_filter("of_test", of_test),)


def _some(chance: random.Random, names: Sequence[str]) -> frozenset[str]:
    return frozenset(name for name in names if chance.random() < 0.3)


def test_each_end_without_a_host_is_counted_and_recorded_once(
    placement: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pipeline = _pipeline(
        Observed(placement), decision_history=True, metrics=True
    )

    def ends() -> float:
        labels = {"stage": "traits", "by": ""}
        name = "os_prefilter_no_host_total"
        return REGISTRY.get_sample_value(name, labels) or 0.0

    before = ends()
    for model in ("igb", "virtoi", "ne2k_pci", "ne2k_pci"):
        _reason(pipeline, {"hw_vif_model": model})
    assert ends() == before + 2
    lines = [
        json.loads(each.getMessage())
        for each in caplog.records
        if each.name == "os_prefilter.decisions"
    ]
    results = [line["result"] for line in lines]
    assert results == ["passed"] * 3 + ["no_host", "passed", "no_host"]
    assert lines[3]["reason"] == "No host offers hw_vif_model=ne2k_pci."


def test_what_a_filter_written_for_nova_takes_back_is_no_reason(
    placement: EmbeddedPlacement,
) -> None:
    def relax(_context: Any, request_spec: Any) -> bool:
        request_spec.root_required.discard("COMPUTE_NET_VIF_MODEL_NE2K_PCI")
        return True

    def reason(*others: LoadedFilter) -> str:
        filters = (*load_filters(["image_metadata"], provided=None), *others)
        reader = ReasonReader(Observed(placement).client)
        service = Service(filters, reasons=ReasonFinder(reader))
        return _reason(service, _NE2K, memory_mb=99)

    assert reason() == "No host offers hw_vif_model=ne2k_pci."
    assert reason(as_filter("relax", relax)).endswith("flavor's memory.")


def _finder(**hosts: set[str]) -> ReasonFinder:
    """Return a finder that knows the first of these hosts."""
    traits = {
        name: frozenset(("COMPUTE_NODE", *names))
        for name, names in hosts.items()
    }
    return ReasonFinder(HostsInProcess(traits, some=[*hosts][:1]))


def _blamed(
    finder: ReasonFinder, decision: Decision, query: str = ""
) -> tuple[str, ...]:
    error = finder.find(decision, query)
    return error.properties if isinstance(error, NoHostServes) else ()


def test_what_is_taken_back_is_no_reason_where_the_query_is_not_known() -> (
    None
):
    def relax(_context: Any, request_spec: Any) -> bool:
        request_spec.root_required.discard(_IGB)
        return True

    def blamed(*others: LoadedFilter) -> tuple[str, ...]:
        service = Service((*_requiring({_IGB}), *others))
        return _blamed(_finder(plain=set()), service.apply(spec_of({})))

    assert blamed() == (_IGB,)
    assert blamed(as_filter("relax", relax)) == ()


def test_what_a_later_filter_takes_back_is_no_reason() -> None:
    """The scheduler's own list goes on after ours."""
    spec = spec_of({})
    decision = Service(_requiring((_IGB, _HPET))).apply(spec)
    finder = _finder(plain=set())
    query = allocation_candidates_query(spec)
    assert _blamed(finder, decision, query) == (_IGB,)
    spec.root_required.discard(_IGB)
    query = allocation_candidates_query(spec)
    assert _blamed(finder, decision, query) == (_HPET,)
    spec.root_required.discard(_HPET)
    query = allocation_candidates_query(spec)
    assert _blamed(finder, decision, query) == ()


def test_trait_that_a_storage_or_a_device_may_have_is_no_reason() -> None:
    def of_test(_request: Request) -> Requirements:
        device = require(
            "CUSTOM_FAST", "a device", UNSUFFIXED, properties=["of=device"]
        )
        return device + require(_IGB, "a host", properties=["of=host"])

    service = Service((as_filter("of_test", of_test),))
    decision = service.apply(spec_of({}))
    assert _blamed(_finder(plain=set()), decision) == ("of=host",)
    assert _blamed(_finder(plain={_IGB}), decision) == ()


def test_properties_that_require_one_trait_together_are_named_together() -> (
    None
):
    def of_test(_request: Request) -> Requirements:
        return require(_IGB, "properties", properties=["a=1", "b=2"])

    service = Service((as_filter("of_test", of_test),))
    decision = service.apply(spec_of({}))
    assert _blamed(_finder(plain=set()), decision) == ("a=1 and b=2",)


def test_host_of_the_sample_that_is_gone_serves_nothing() -> None:
    node = frozenset(("COMPUTE_NODE",))
    hosts = {"igb": node | {_IGB}, "plain": node}
    finder = ReasonFinder(HostsInProcess(hosts, some=["igb"]))
    decision = _decision({_IGB})
    assert _blamed(finder, decision) == ()
    del hosts["igb"]
    assert _blamed(finder, decision) == (_IGB,)


def test_disabled_host_of_the_sample_serves_nothing() -> None:
    finder = _finder(off={_IGB, _DISABLED}, plain=set())
    error = finder.find(_decision({_IGB}), "")
    assert str(error) == f"No available host offers {_IGB}."


class _Asked(HostsInProcess):
    """Notes what it is asked."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.contexts: list[object] = []
        self.read: list[str] = []
        self.questions = 0

    def some_hosts(self, context: object) -> tuple[str, ...]:
        self.contexts.append(context)
        return super().some_hosts(context)

    def traits(self, host: str) -> frozenset[str] | None:
        self.read.append(host)
        return super().traits(host)

    def hosts(self, *arguments: Any) -> list[str]:
        self.questions += 1
        return super().hosts(*arguments)


def test_some_hosts_are_read_for_the_first_failure_with_properties() -> None:
    asked = _Asked({"plain": frozenset(("COMPUTE_NODE",))}, some=["plain"])
    finder = ReasonFinder(asked)
    finder.find(_decision(()), "", "context 1")
    assert asked.contexts == []
    assert asked.questions == 0
    for number in (2, 3):
        finder.find(_decision({_IGB}), "", f"context {number}")
    assert asked.contexts == ["context 2"]
    assert asked.read == ["plain"]


def test_trait_of_a_provider_that_is_no_compute_node_is_asked_for_once() -> (
    None
):
    """Placement does not mind which service a provider is of."""
    node = frozenset(("COMPUTE_NODE",))
    asked = _Asked({"other": frozenset((_IGB,)), "plain": node})
    assert _blamed(ReasonFinder(asked), _decision({_IGB})) == ()
    assert asked.questions == 1


def test_trait_that_placement_does_not_know_is_named_and_no_property() -> None:
    class Unknown(HostsInProcess):
        def hosts(self, *_arguments: Any) -> Any:
            return None

    spec = spec_of({})
    decision = Service(_requiring({_IGB})).apply(spec)
    query = allocation_candidates_query(spec)
    finder = ReasonFinder(Unknown({"plain": frozenset(("COMPUTE_NODE",))}))
    error = finder.find(decision, query)
    assert str(error) == f"No host has the trait {_IGB}."


def test_many_hosts_of_the_sample_that_changed_are_not_all_read_again() -> (
    None
):
    node = frozenset(("COMPUTE_NODE",))
    hosts = {f"igb-{number}": node for number in range(50)}
    asked = _Asked(hosts)
    finder = ReasonFinder(asked)
    finder._sample = dict.fromkeys(hosts, node | {_IGB})
    assert _blamed(finder, _decision({_IGB})) == ()
    assert len(asked.read) == 40
    assert asked.questions == 0


@pytest.mark.parametrize(
    ("share", "kind"),
    [
        pytest.param(0.2, "host", id="in time"),
        pytest.param(0.25, "host", id="just in time"),
        pytest.param(0.3, "available host", id="slow"),
    ],
)
def test_second_half_of_the_time_is_for_what_must_be_asked(
    share: float, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it, two questions: whether any host is available, and whether one
    of these serves the request. That no host offers it takes a third.
    """
    clock = [0.0]

    class Slow(HostsInProcess):
        def hosts(self, *arguments: Any) -> list[str]:
            clock[0] += share * deployment_facts.PATIENCE
            return super().hosts(*arguments)

    monkeypatch.setattr(
        "os_prefilter.service.answer.monotonic", lambda: clock[0]
    )
    finder = ReasonFinder(Slow({"plain": frozenset(("COMPUTE_NODE",))}))
    error = finder.find(_decision({_IGB}), "")
    assert str(error) == f"No {kind} offers {_IGB}."


def test_a_hundred_new_traits_of_rules_cost_one_request(
    placement: EmbeddedPlacement,
) -> None:
    names = [f"CUSTOM_RULE_{number}" for number in range(100)]
    placement.client.ensure_traits(names)
    observed = Observed(placement)
    reader = ReasonReader(
        observed.client, lambda _context: [str(provider_uuid("igb-1"))]
    )

    def of_rules(request: Request) -> Requirements:
        found = NOTHING
        for name in names:
            found += require(
                name, "image property of=rules", properties=["of=rules"]
            )
        return found

    service = Service(
        (as_filter("of_rules", of_rules),), reasons=ReasonFinder(reader)
    )
    decision = service.apply(spec_of({}))
    assert str(service.reason(decision)) == "No host offers of=rules."
    # One for the traits of the known host, one for the first fifty, which no
    # host has.
    assert len(observed.sent) == 2


def test_hosts_with_many_traits_are_looked_for_by_the_required_ones_first(
    placement: EmbeddedPlacement,
) -> None:
    names = [f"CUSTOM_RULE_{number}" for number in range(60)]
    placement.client.ensure_traits(names)
    observed = Observed(placement)
    traits = [names[-1], *(f"!{name}" for name in names[:-1])]
    assert ReasonReader(observed.client).hosts(traits) == []
    (sent,) = observed.sent
    assert f"required={names[-1]}" in sent


@pytest.mark.parametrize(
    ("traits", "reason"),
    [
        (
            {"off-1": f"{_DISABLED} {_IGB}"},
            "The compute service of each host that this request allows is"
            " disabled.",
        ),
        ({}, "No host has the trait COMPUTE_NET_VIF_MODEL_IGB."),
    ],
    ids=["disabled", "none"],
)
def test_no_property_is_blamed_where_no_host_is_available_at_all(
    traits: dict[str, str], reason: str
) -> None:
    with EmbeddedPlacement(_fleet(traits)) as placement:
        placement.client.ensure_traits(_CUSTOM)
        pipeline = _pipeline(Observed(placement))
        assert _reason(pipeline, {"hw_vif_model": "igb"}) == reason


def test_host_of_the_sample_that_changed_is_read_again() -> None:
    with EmbeddedPlacement(_fleet(_TRAITS)) as placement:
        placement.client.ensure_traits(_CUSTOM)
        observed = Observed(placement)
        pipeline = _pipeline(observed)
        igb = {"hw_vif_model": "igb"}
        assert "memory" in _reason(pipeline, igb, 99)
        for name in ("igb-1", "igb-2"):
            put_traits(placement, lambda found: found.discard(_IGB), name)
        reason = "No available host offers hw_vif_model=igb."
        assert _reason(pipeline, igb, 99) == reason


_UNKNOWN = "The reason is not known: "


@pytest.mark.parametrize(
    "failing", ["NE2K_PCI%2C%21COMPUTE_STATUS_DISABLED", "/traits"]
)
@pytest.mark.parametrize(
    "answer",
    [(503, {}), (200, {"resource_providers": [{}]}), (400, {})],
    ids=["503", "no-listing", "400"],
)
def test_placement_that_fails_gives_no_reason(
    failing: str, answer: Answer, placement: EmbeddedPlacement
) -> None:
    observed = Observed(placement, answering(answer, failing))
    pipeline = _pipeline(observed)
    for _ in range(3):
        error = _end(pipeline, _NE2K)
        assert error
        assert not error.is_public
        assert str(error).startswith(_UNKNOWN)
    observed.hook = answering(None)
    assert _reason(pipeline, _NE2K)


def test_question_that_ends_with_no_exception_gives_no_reason(
    placement: EmbeddedPlacement,
) -> None:
    """As eventlet's Timeout, which is no Exception."""

    def fail(_method: str, url: str) -> None:
        if "NE2K_PCI" in url:
            raise SystemExit

    pipeline = _pipeline(Observed(placement, fail))
    assert str(_end(pipeline, _NE2K)).startswith(_UNKNOWN)


def test_request_waits_no_longer_for_a_reason_than_it_may(
    placement: EmbeddedPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of them asks and waits; each would leave a thread behind for
    as long as Placement hangs.
    """
    released = threading.Event()

    def hang(_method: str, url: str) -> None:
        if "NE2K_PCI" in url:
            released.wait(60)

    observed = Observed(placement, hang)
    pipeline = _pipeline(observed)
    monkeypatch.setattr("os_prefilter.service.deployment_facts.PATIENCE", 0.1)
    try:
        first, *others = [str(_end(pipeline, _NE2K)) for _ in range(5)]
        assert sum("NE2K_PCI" in each for each in observed.sent) == 1
    finally:
        released.set()
    assert first == f"{_UNKNOWN}Placement did not respond in 0.1 seconds."
    earlier = "Placement has not responded to an earlier question."
    assert others == [_UNKNOWN + earlier] * 4
    assert pipeline.reasons
    assert pipeline.reasons._late
    pipeline.reasons._late.result(60)
    monkeypatch.undo()
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
def test_never_a_false_reason_while_the_fleet_changes(seed: int) -> None:
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
        named = served = 0
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
            error = _end(pipeline, properties)
            if isinstance(error, NoHostServes):
                named += 1
                # Whatever else is there, no host has these together.
                blamed = dict(
                    each.split("=")
                    for name in error.properties
                    for each in name.split(" and ")
                )
                spec = spec_of(blamed, memory_mb=1)
                plain.apply(spec)
                able = placement.client.allocation_candidates(
                    allocation_candidates_query(spec)
                ).hosts
                assert not able, (step, str(error), able)
            served += error is None
    assert named
    assert served


def _with_guest_systems(placement: EmbeddedPlacement) -> Service:
    service = Service.from_names(
        "rules",
        options=Options(nova_builds_guests=True, reported_traits=("*",)),
        facts={"rules": lambda _context: guest_systems()},
    )
    reasons = ReasonFinder(ReasonReader(placement.client))
    return replace(service, reasons=reasons)


def test_author_reads_which_cpu_the_system_needs_that_no_host_has(
    placement: EmbeddedPlacement,
) -> None:
    service = _with_guest_systems(placement)
    decision = service.apply(spec_of({"os_distro": "rhel10"}))
    assert str(service.reason(decision)) == (
        "No host offers os_distro=rhel10 (needs x86-64-v3)."
    )


def test_author_reads_what_the_flavor_lacks_where_hosts_have_several_models() -> (
    None
):
    cpu = "HW_CPU_X86_SSSE3 HW_CPU_X86_SSE41 HW_CPU_X86_SSE42"
    fleet = _fleet({"several-1": f"{cpu} CUSTOM_COMPUTE_SEVERAL_CPU_MODELS"})
    with EmbeddedPlacement(fleet) as placement:
        service = _with_guest_systems(placement)
        decision = service.apply(spec_of({"os_distro": "rhel9"}))
        reason = str(service.reason(decision))
    assert reason == (
        "No host offers os_distro=rhel9 (needs x86-64-v2) without its traits in"
        " the flavor."
    )


_SSE, _AVX, _THREADS = (
    "HW_CPU_X86_SSE42",
    "HW_CPU_X86_AVX2",
    "HW_CPU_HYPERTHREADING",
)
_GROUP, _OTHER_GROUP = "CUSTOM_PREFILTER_CPU_AAA", "CUSTOM_PREFILTER_CPU_BBB"


@pytest.mark.parametrize(
    ("source", "host", "expected"),
    [
        pytest.param(f"{_SSE}", f"{_SSE}", 1.0, id="the same traits"),
        pytest.param(f"{_SSE}", f"{_SSE} {_AVX}", 0.5, id="more traits"),
        pytest.param(f"{_SSE} {_AVX}", f"{_SSE}", 0.0, id="fewer traits"),
        pytest.param(f"{_SSE}", f"{_AVX}", 0.0, id="other traits"),
        pytest.param(f"{_SSE}", "", 0.0, id="host without traits"),
        pytest.param("", f"{_SSE}", 0.0, id="source without traits"),
        pytest.param("", "", 0.0, id="neither has traits"),
        pytest.param(
            f"{_SSE} {_THREADS}", f"{_SSE}", 1.0, id="threads do not count"
        ),
        pytest.param(_THREADS, _THREADS, 0.0, id="threads alone say nothing"),
        pytest.param(
            f"{_SSE} {_GROUP}", f"{_SSE} {_GROUP}", 1.0, id="one group"
        ),
        pytest.param(
            f"{_SSE} {_GROUP}",
            f"{_SSE} {_OTHER_GROUP}",
            0.5,
            id="two groups with the same traits",
        ),
        pytest.param(
            f"{_SSE} {_GROUP}",
            f"{_SSE} {_GROUP} {_OTHER_GROUP}",
            0.5,
            id="a host in two groups",
        ),
        pytest.param(_GROUP, _GROUP, 1.0, id="one group, no traits"),
        pytest.param(_GROUP, _OTHER_GROUP, 0.0, id="two groups, no traits"),
        pytest.param(
            f"{_SSE} {_GROUP}", f"{_SSE}", 1.0, id="host reports no group"
        ),
        pytest.param(
            f"{_SSE}", f"{_SSE} {_GROUP}", 1.0, id="source reports no group"
        ),
        pytest.param(
            f"{_SSE} {_GROUP}",
            f"{_SSE} CUSTOM_PREFILTER_CPU2_AAA",
            1.0,
            id="a group of another release",
        ),
        pytest.param(
            f"{_SSE} {_AVX}",
            f"{_SSE} {_AVX} CUSTOM_COMPUTE_SEVERAL_CPU_MODELS",
            1.0,
            id="several models have the same traits together",
        ),
    ],
)
def test_cpu_fits_by_the_group_that_libvirt_vouches_for_and_by_traits(
    source: str, host: str, expected: float
) -> None:
    assert cpu_fit(source.split(), host.split()) == expected
