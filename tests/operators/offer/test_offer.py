# SPDX-License-Identifier: Apache-2.0

"""Offers: the same as a real Placement has, and two formats of them."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from markdown_it import MarkdownIt

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.common.errors import RequestRejected
from os_prefilter.request.spec import Flavor, Image, RequestSpec
from os_prefilter.service import Service
from os_prefilter.vocabulary import ROWS
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.cli.filters_and_hosts import FiltersAndHosts
from os_prefilter_tools.fleet.model import (
    Aggregate,
    Fleet,
    Inventory,
    Provider,
    aggregate_uuid,
    provider_uuid,
)
from os_prefilter_tools.fleet.reader import example_fleet
from os_prefilter_tools.operators.candidates import find_candidates
from os_prefilter_tools.operators.offer.formats import as_json, as_markdown
from os_prefilter_tools.operators.offer.offered_values import (
    Offer,
    Property,
    Status,
    Value,
    find_offer,
)
from tests.conftest import (
    ExtraSpecs,
    Properties,
    one_in,
    pipeline_of,
    times,
)

ROOM = {"VCPU": Inventory(8), "MEMORY_MB": Inventory(8192)}
UEFI = {"hw_firmware_type": "uefi"}
SEV = {**UEFI, "hw_mem_encryption": "true"}
STATELESS = {**SEV, "hw_firmware_stateless": "true"}
DEDICATED = {"hw:cpu_policy": "dedicated"}
ENCRYPTED = [{"hw_ephemeral_encryption": "true"}]
ENCRYPTED_FORMATS = {
    "luks": ENCRYPTED,
    "luksv2": ENCRYPTED,
    "plain": ENCRYPTED,
}
TPMS = [{"hw_tpm_version": "1.2"}, {"hw_tpm_version": "2.0"}]
ENCRYPTION_MODELS = {
    "amd-sev": [SEV],
    "amd-sev-es": [SEV],
    "amd-sev-snp": [STATELESS],
    "intel-tdx": [{**STATELESS, "hw_video_model": "none"}],
}
# What a value is asked for together with, since it means nothing or is refused
# alone: by hand, from Nova's pages.
TOGETHER: dict[str, dict[str, list[dict[str, str]]]] = {
    "hw_firmware_stateless": {"true": [UEFI]},
    "hw_mem_encryption": {"true": [UEFI]},
    "hw_mem_encryption_model": ENCRYPTION_MODELS,
    "hw_cpu_policy": {"mixed": [{"hw:cpu_dedicated_mask": "1"}]},
    "hw_cpu_thread_policy": {"isolate": [DEDICATED], "require": [DEDICATED]},
    "hw:emulator_threads_policy": {"isolate": [DEDICATED]},
    "hw_ephemeral_encryption_format": ENCRYPTED_FORMATS,
    "hw_tpm_model": {"tpm-tis": TPMS, "tpm-crb": TPMS},
    "hw:tpm_secret_security": {"user": TPMS, "host": TPMS, "deployment": TPMS},
}


def pipeline_for(fleet: Fleet, **options: Any) -> Service:
    return FiltersAndHosts(**options).service(fleet)


def name_of(each: Property) -> str:
    return each.image_property or each.image_field or each.extra_spec


def values_of(found: Offer) -> dict[tuple[str, str], Value]:
    """Return what is offered of each value of each property."""
    return {
        (name_of(each), value.value): value
        for each in found.properties
        for value in each.values
    }


def requests_for(each: Property, value: str) -> Iterator[RequestSpec]:
    """Yield the requests that a customer would make to get a value."""
    name = name_of(each)
    for needed in TOGETHER.get(name, {}).get(value, [{}]):
        properties: Properties = {}
        extra_specs: ExtraSpecs = {}
        for key, text in {name: value, **needed}.items():
            if key.startswith(("hw_", "os_", "img_")):
                properties[key] = text
            elif ":" in key:
                extra_specs[key] = text
        flavor = Flavor(vcpus=2, memory_mb=1, extra_specs=extra_specs)
        image = Image(properties, value if each.image_field else None)
        yield RequestSpec(flavor, image)


def hosts_for(
    specs: Iterable[RequestSpec], pipeline: Service, client: PlacementClient
) -> set[str]:
    """Return the hosts that Placement returns for any of the requests."""
    found: set[str] = set()
    for spec in specs:
        with suppress(RequestRejected):
            result = find_candidates(spec, pipeline, client)
            found.update(result.candidates.hosts)
    return found


def check_value(value: Value, hosts: set[str], every_host: set[str]) -> None:
    if value.status in (Status.OFFERED, Status.NOT_OFFERED):
        assert len(hosts) == value.hosts
        assert bool(hosts) == (value.status is Status.OFFERED)
    elif value.status is Status.REQUIRES_NOTHING:
        assert hosts == every_host
        assert value.reason


def check_agreement(fleet: Fleet, step: int) -> dict[Status, int]:
    """Compare each ``step``-th value of the offer with a Placement that holds
    the fleet; return how many it has.
    """
    pipeline = pipeline_for(fleet)
    found = find_offer(fleet, pipeline)
    pairs = [
        (each, value) for each in found.properties for value in each.values
    ]
    with EmbeddedPlacement(fleet) as placement:
        smallest = RequestSpec(Flavor(vcpus=2, memory_mb=1))
        every_host = hosts_for([smallest], pipeline, placement.client)
        assert len(every_host) == found.hosts
        for each, value in pairs[::step]:
            requests = requests_for(each, value.value)
            hosts = hosts_for(requests, pipeline, placement.client)
            check_value(value, hosts, every_host)
    return Counter(value.status for _, value in pairs)


def test_offer_of_the_example_fleet_matches_placement() -> None:
    fleet = example_fleet()
    # The smallest request fits on each, also of bare metal.
    hosts = tuple(
        replace(each, resources={**ROOM, **each.resources})
        for each in fleet.hosts
    )
    seen = check_agreement(replace(fleet, hosts=hosts), one_in(3))
    rows = [row for row in ROWS if row.required_by]
    values = [value for row in rows for value in row.values if value]
    assert min(seen[each] for each in Status) > 10
    assert sum(seen.values()) == len(values) + 2


def random_fleet(seed: int) -> Fleet:
    """Return hosts with half of the vocabulary each, and shared storage."""
    chance = random.Random(seed)  # noqa: S311 - it is to be the same every time
    traits = sorted({trait for row in ROWS for trait in row.traits})
    some = [
        chance.sample(traits, chance.randint(0, len(traits) // 2))
        for _ in range(4)
    ]
    hosts = [
        random_host(chance, f"h{number}", own)
        for number, own in enumerate(some)
    ]
    shared = Provider(
        "nfs",
        provider_uuid("nfs"),
        {"DISK_GB": Inventory(9)},
        frozenset({"MISC_SHARES_VIA_AGGREGATE"}),
    )
    return Fleet((*hosts, shared))


def random_host(
    chance: random.Random, name: str, traits: Iterable[str]
) -> Provider:
    """Return a host, disabled or not, some with PCPUs or encrypted memory."""
    having = {"COMPUTE_NODE", *traits}
    if chance.random() < 0.2:
        having.add("COMPUTE_STATUS_DISABLED")
    resources = dict(ROOM)
    if chance.random() < 0.5:
        resources["PCPU"] = Inventory(4)
    keys = Inventory(4, reserved=chance.choice([0, 4]))
    encryption = {"MEM_ENCRYPTION_CONTEXT": keys}
    below: list[Provider] = []
    if chance.random() < 0.5:
        models = ["HW_CPU_X86_AMD_SEV", "HW_CPU_X86_AMD_SEV_ES"]
        nested = frozenset(chance.sample(models, chance.randint(0, 2)))
        sev = f"{name}_sev"
        below.append(Provider(sev, provider_uuid(sev), encryption, nested))
    elif chance.random() < 0.7:
        resources |= encryption
    return Provider(
        name,
        provider_uuid(name),
        resources,
        frozenset(having),
        providers=tuple(below),
    )


@pytest.mark.parametrize("seed", range(times(1)))
def test_offer_of_a_random_fleet_matches_placement(seed: int) -> None:
    """The same, where any host may have any traits: on its root, or on the
    provider of its encrypted memory.
    """
    seen = check_agreement(random_fleet(seed), one_in(4))
    assert seen[Status.OFFERED]
    assert seen[Status.NOT_OFFERED]


def host(name: str, traits: str, *aggregates: str) -> Provider:
    everything = frozenset({"COMPUTE_NODE", *traits.split()})
    uuids = tuple(map(aggregate_uuid, aggregates))
    return Provider(name, provider_uuid(name), ROOM, everything, uuids)


_IGB = "COMPUTE_NET_VIF_MODEL_IGB"


@pytest.mark.parametrize(
    ("more", "status"),
    [((), Status.NOT_OFFERED), ((host("on", _IGB),), Status.OFFERED)],
    ids=["disabled, foreign and storage", "enabled compute node"],
)
def test_only_enabled_compute_nodes_offer_anything(
    more: tuple[Provider, ...], status: Status
) -> None:
    plain = host("plain", "")
    disabled = host("off", f"{_IGB} COMPUTE_STATUS_DISABLED")
    own_traits = frozenset({_IGB, "OWNER_CYBORG"})
    foreign = replace(host("foreign", ""), traits=own_traits)
    storage = Provider(
        "nfs",
        provider_uuid("nfs"),
        {},
        frozenset({_IGB, "MISC_SHARES_VIA_AGGREGATE"}),
    )
    fleet = Fleet((plain, disabled, foreign, storage, *more))
    found = find_offer(fleet, pipeline_for(fleet))
    assert values_of(found)["hw_vif_model", "igb"].status is status
    assert found.hosts == 1 + len(more)


_KVM = Fleet((host("a", f"CUSTOM_HYPERVISOR_TYPE_KVM {_IGB}"),))


@pytest.mark.parametrize(
    ("reported", "kvm", "xen"),
    [
        ([], Status.NOT_CHECKED, Status.NOT_CHECKED),
        (
            ["CUSTOM_HYPERVISOR_TYPE_KVM"],
            Status.OFFERED,
            Status.NOT_CHECKED,
        ),
        (["CUSTOM_HYPERVISOR_TYPE_*"], Status.OFFERED, Status.NOT_OFFERED),
    ],
    ids=["none", "one", "each"],
)
def test_value_is_offered_only_if_its_trait_is_reported(
    reported: list[str], kvm: Status, xen: Status
) -> None:
    """As reported_traits say: else a request would get any host."""
    pipeline = pipeline_of("image_metadata", reported_traits=reported)
    found = values_of(find_offer(_KVM, pipeline))
    assert found["img_hv_type", "kvm"].status is kvm
    assert found["img_hv_type", "xen"].status is xen
    assert found["hw_vif_model", "igb"].status is Status.OFFERED


def test_value_is_offered_only_if_an_enabled_filter_requires_its_trait() -> (
    None
):
    found = values_of(find_offer(_KVM, pipeline_of("noop")))
    assert found["img_hv_type", "kvm"].status is Status.NOT_CHECKED
    assert found["img_hv_type", "xen"].status is Status.NOT_CHECKED
    assert found["hw_vif_model", "igb"].status is Status.NOT_CHECKED
    # Nova's own query asks for it.
    assert found["hw_tpm_version", "2.0"].status is Status.NOT_OFFERED


_TPM = "COMPUTE_SECURITY_TPM_2_0 COMPUTE_SECURITY_TPM_TIS"
_PLACED = (
    host("a", _IGB, "rack-1"),
    host("b", f"{_IGB} HW_ARCH_X86_64", "rack-1", "rack-2", "unnamed"),
    host("c", f"HW_ARCH_X86_64 {_TPM}", "fast", "rack-2"),
    host("d", "HW_ARCH_AARCH64", "fast"),
)
_ZONES = {"rack-1": "north", "rack-2": "south", "fast": "", "empty": "west"}
_AGGREGATES = [
    Aggregate(aggregate_uuid(name), name, zone)
    for name, zone in _ZONES.items()
]
_CLOUD = Fleet(_PLACED, aggregates={each.uuid: each for each in _AGGREGATES})
_PLACES = {
    "zone": {"north": "ab", "nova": "d", "south": "bc", "west": ""},
    "aggregate": {"empty": "", "fast": "cd", "rack-1": "ab", "rack-2": "bc"},
}


@pytest.mark.parametrize("by", _PLACES)
def test_each_zone_or_aggregate_offers_what_its_hosts_do(by: str) -> None:
    """The numbers of a place are those of a cloud that has only its hosts."""
    pipeline = pipeline_for(_CLOUD)
    found = find_offer(_CLOUD, pipeline, by)
    assert found.places == tuple(_PLACES[by])
    for number, names in enumerate(_PLACES[by].values()):
        members = tuple(each for each in _PLACED if each.name in names)
        alone = values_of(find_offer(Fleet(members), pipeline))
        assert values_of(found).keys() == alone.keys()
        for key, value in values_of(found).items():
            if value.by_place:
                assert value.by_place[number] == alone[key].hosts


@pytest.mark.parametrize(
    ("by", "places"),
    [("zone", ("main",)), ("aggregate", ())],
    ids=["zone", "aggregate"],
)
def test_default_zone_has_the_name_of_the_option(
    by: str, places: tuple[str, ...]
) -> None:
    """It is an option of Nova's."""
    pipeline = pipeline_for(_CLOUD)
    alone = find_offer(Fleet(_PLACED[3:]), pipeline, by, "main")
    assert alone.places == places


EVIL = (
    "<b onclick='x'>|`*_[a](http://x.invalid) www.x.invalid & \\ \n# \u202e{{"
    " 7*7 }}"
)
SHOWN = (
    "<b onclick='x'>|`*_[a](http://x.invalid) www.x.invalid & \\\\ \\n#"
    " \\u202e{{ 7*7 }}"
)


def evil_offer() -> Offer:
    igb = Value("igb", Status.OFFERED, "", 3, (3, 0))
    evil = Value(EVIL, Status.OFFERED, "", 1, (0, 1))
    none = Value("none", Status.REQUIRES_NOTHING, "it is nothing")
    properties = (
        Property("hw_vif_model", "", "", (igb, evil)),
        Property("", "", EVIL, (none,)),
    )
    places = ("north", EVIL)
    return Offer(properties, 4, "zone", places, "2026-11-21T18:00:00Z")


def test_markdown_shows_hostile_names_as_text() -> None:
    """Whatever is in a name, a reader sees that name."""
    text = as_markdown(evil_offer())
    markdown = MarkdownIt("gfm-like", {"html": True, "linkify": False})
    rendered = markdown.render(text)
    cells = [
        unescape(re.sub("<[^>]*>", "", each)).strip()
        for each in re.findall("(?s)<t[dh].*?</t[dh]>", rendered)
    ]
    assert cells[:4] == ["Image property", "Flavor extra spec", "north", SHOWN]
    assert cells[4:8] == ["hw_vif_model", "", "igb", SHOWN]
    assert not re.search("<(b|a|script|img)[ >]", rendered)
    assert r"www\.x\." in text
    assert all(line.isprintable() for line in text.splitlines())


def test_json_offer_keeps_names_unescaped() -> None:
    """It is for programs: escaped by its own rules alone."""
    document = json.loads(as_json(evil_offer()))
    vif_model, evil = document["properties"]
    none = {"value": "none", "status": "requires nothing"}
    assert document["places"] == ["north", EVIL]
    assert vif_model["values"] == [
        {"value": "igb", "status": "offered", "places": ["north"]},
        {"value": EVIL, "status": "offered", "places": [EVIL]},
    ]
    assert evil == {
        "extra_spec": EVIL,
        "values": [{**none, "reason": "it is nothing"}],
    }


def test_json_offer_counts_hosts_if_asked() -> None:
    document = json.loads(as_json(evil_offer(), count=True))
    assert document["properties"][0]["values"][0] == {
        "value": "igb",
        "status": "offered",
        "hosts": 3,
        "places": {"north": 3},
    }


def _hidden_fleet() -> Fleet:
    hosts = example_fleet().hosts
    return Fleet(
        tuple(replace(each, name=f"hidden-{each.name}") for each in hosts)
    )


def _on_one_host(each: Property) -> Property:
    values = [
        value._replace(hosts=min(value.hosts, 1)) for value in each.values
    ]
    return each._replace(values=tuple(values))


each_format = pytest.mark.parametrize("form", [as_markdown, as_json])


@each_format
def test_offer_shows_customers_no_host_and_no_trait(form: Any) -> None:
    """Customers get the words of image properties: not who serves them, or by
    which trait.
    """
    fleet = _hidden_fleet()
    text = form(find_offer(fleet, pipeline_for(fleet), "zone"))
    descriptions = {each.description for each in fleet.walk()}
    assert "hidden" not in text
    for hidden in fleet.traits | descriptions - {""}:
        assert hidden not in text


@each_format
def test_offer_shows_customers_the_number_of_hosts_only_if_asked(
    form: Any,
) -> None:
    fleet = _hidden_fleet()
    found = find_offer(fleet, pipeline_for(fleet), "zone")
    fewer = tuple(map(_on_one_host, found.properties))
    text = form(found)
    assert text == form(replace(found, properties=fewer, hosts=1))
    assert form(found, count=True) != text
