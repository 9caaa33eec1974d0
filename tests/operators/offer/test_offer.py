# SPDX-License-Identifier: Apache-2.0

"""What a cloud offers is what a real Placement returns hosts for; and the
three formats say it to customers.
"""

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
from tests.conftest import one_in, pipeline_of, times

ROOM = {"VCPU": Inventory(8), "MEMORY_MB": Inventory(8192)}
UEFI = {"hw_firmware_type": "uefi"}
SEV = {**UEFI, "hw_mem_encryption": "true"}
TPMS = [{"hw_tpm_version": "1.2"}, {"hw_tpm_version": "2.0"}]
# What a value is asked for together with, since it means nothing or is refused
# alone: by hand, from Nova's pages.
TOGETHER: dict[tuple[str, str], list[dict[str, str]]] = {
    ("hw_firmware_stateless", "true"): [UEFI],
    ("hw_mem_encryption", "true"): [UEFI],
    ("hw_mem_encryption_model", "amd-sev"): [SEV],
    ("hw_mem_encryption_model", "amd-sev-es"): [SEV],
    ("hw_mem_encryption_model", "amd-sev-snp"): [
        {**SEV, "hw_firmware_stateless": "true"}
    ],
    ("hw_mem_encryption_model", "intel-tdx"): [
        {**SEV, "hw_firmware_stateless": "true", "hw_video_model": "none"}
    ],
    ("hw_cpu_policy", "mixed"): [{"hw:cpu_dedicated_mask": "1"}],
    ("hw_cpu_thread_policy", "isolate"): [{"hw:cpu_policy": "dedicated"}],
    ("hw_cpu_thread_policy", "require"): [{"hw:cpu_policy": "dedicated"}],
    ("hw:emulator_threads_policy", "isolate"): [
        {"hw:cpu_policy": "dedicated"}
    ],
    **{
        ("hw_ephemeral_encryption_format", f): [
            {"hw_ephemeral_encryption": "true"}
        ]
        for f in ("luks", "luksv2", "plain")
    },
    **{("hw_tpm_model", model): TPMS for model in ("tpm-tis", "tpm-crb")},
    **{
        ("hw:tpm_secret_security", each): TPMS
        for each in ("user", "host", "deployment")
    },
}


def pipeline_for(fleet: Fleet, **options: Any) -> Service:
    return FiltersAndHosts(**options).service(fleet)


def requests_for(each: Property, value: str) -> Iterator[RequestSpec]:
    """Yield the requests that a customer would make to get a value."""
    name = each.image_property or each.image_field or each.extra_spec
    for beside in TOGETHER.get((name, value), [{}]):
        asked = {name: value, **beside}
        properties = {
            key: text
            for key, text in asked.items()
            if key.startswith(("hw_", "os_", "img_"))
        }
        extra_specs = {key: text for key, text in asked.items() if ":" in key}
        disk_format = value if each.image_field else None
        yield RequestSpec(
            Flavor(vcpus=2, memory_mb=1, extra_specs=extra_specs),
            Image(properties, disk_format),
        )


def check_agreement(fleet: Fleet, step: int) -> dict[Status, int]:
    """Compare each ``step``-th value of the offer with a Placement that holds
    the fleet; return how many it has.
    """
    pipeline = pipeline_for(fleet)
    found = find_offer(fleet, pipeline)
    pairs = [
        (each, value) for each in found.properties for value in each.values
    ]

    def hosts(specs: Iterable[RequestSpec]) -> set[str]:
        remaining: set[str] = set()
        for spec in specs:
            with suppress(RequestRejected):
                remaining.update(
                    find_candidates(
                        spec, pipeline, placement.client
                    ).candidates.hosts
                )
        return remaining

    with EmbeddedPlacement(fleet) as placement:
        everybody = hosts([RequestSpec(Flavor(vcpus=2, memory_mb=1))])
        assert len(everybody) == found.hosts
        for each, value in pairs[::step]:
            remaining = hosts(requests_for(each, value.value))
            if value.status in (Status.OFFERED, Status.NOT_OFFERED):
                assert (len(remaining), bool(remaining)) == (
                    value.hosts,
                    value.status is Status.OFFERED,
                ), each
            elif value.status is Status.REQUIRES_NOTHING:
                assert (remaining, bool(value.reason)) == (everybody, True), (
                    each,
                    value,
                )
    return Counter(value.status for _, value in pairs)


def test_offer_of_the_example_fleet_matches_placement() -> None:
    fleet = example_fleet()
    # The smallest request fits on each, also of bare metal.
    hosts = tuple(
        replace(each, resources={**ROOM, **each.resources})
        for each in fleet.hosts
    )
    seen = check_agreement(replace(fleet, hosts=hosts), one_in(3))
    assert min(seen[each] for each in Status) > 10
    assert (
        sum(seen.values())
        == sum(
            len([v for v in row.values if v])
            for row in ROWS
            if row.required_by
        )
        + 2
    )


def random_fleet(seed: int) -> Fleet:
    """Return a few hosts, each with half of the vocabulary, disabled or not,
    some with PCPUs or encrypted memory.
    """
    chance = random.Random(seed)  # noqa: S311 - it is to be the same every time
    traits = sorted({trait for row in ROWS for trait in row.traits})
    own = [
        {
            "COMPUTE_NODE",
            *chance.sample(traits, chance.randint(0, len(traits) // 2)),
        }
        for _ in range(4)
    ]
    hosts = []
    for number, having in enumerate(own):
        if chance.random() < 0.2:
            having.add("COMPUTE_STATUS_DISABLED")
        resources = dict(ROOM) | (
            {"PCPU": Inventory(4)} if chance.random() < 0.5 else {}
        )
        keys = {
            "MEM_ENCRYPTION_CONTEXT": Inventory(
                4, reserved=chance.choice([0, 4])
            )
        }
        below: tuple[Provider, ...] = ()
        if chance.random() < 0.5:
            nested = frozenset(
                chance.sample(
                    ["HW_CPU_X86_AMD_SEV", "HW_CPU_X86_AMD_SEV_ES"],
                    chance.randint(0, 2),
                )
            )
            below = (
                Provider(
                    f"h{number}_sev",
                    provider_uuid(f"h{number}_sev"),
                    keys,
                    nested,
                ),
            )
        elif chance.random() < 0.7:
            resources |= keys
        hosts.append(
            Provider(
                f"h{number}",
                provider_uuid(f"h{number}"),
                resources,
                frozenset(having),
                (),
                below,
            )
        )
    shared = Provider(
        "nfs",
        provider_uuid("nfs"),
        {"DISK_GB": Inventory(9)},
        frozenset({"MISC_SHARES_VIA_AGGREGATE"}),
    )
    return Fleet((*hosts, shared))


@pytest.mark.parametrize("seed", range(times(1)))
def test_offer_of_a_random_fleet_matches_placement(seed: int) -> None:
    """The same, where any host may have any traits: on its root, or on the
    provider of its encrypted memory.
    """
    seen = check_agreement(random_fleet(seed), one_in(4))
    assert seen[Status.OFFERED]
    assert seen[Status.NOT_OFFERED]


def statuses(found: Offer) -> dict[tuple[str, str], Status]:
    return {
        (
            each.image_property or each.image_field or each.extra_spec,
            value.value,
        ): value.status
        for each in found.properties
        for value in each.values
    }


def host(name: str, traits: str, *aggregates: str) -> Provider:
    everything = frozenset({"COMPUTE_NODE", *traits.split()})
    return Provider(
        name,
        provider_uuid(name),
        ROOM,
        everything,
        tuple(map(aggregate_uuid, aggregates)),
    )


def test_only_enabled_compute_nodes_offer_anything() -> None:
    igb = "COMPUTE_NET_VIF_MODEL_IGB"
    others = (
        host("off", f"{igb} COMPUTE_STATUS_DISABLED"),
        replace(host("foreign", ""), traits=frozenset({igb, "OWNER_CYBORG"})),
        Provider(
            "nfs",
            provider_uuid("nfs"),
            {},
            frozenset({igb, "MISC_SHARES_VIA_AGGREGATE"}),
        ),
    )
    for more, status in (
        ((), Status.NOT_OFFERED),
        ((host("on", igb),), Status.OFFERED),
    ):
        fleet = Fleet((host("plain", ""), *others, *more))
        found = find_offer(fleet, pipeline_for(fleet))
        assert statuses(found)["hw_vif_model", "igb"] is status
        assert found.hosts == 1 + len(more)


def test_reported_value_is_offered_only_if_an_enabled_filter_requires_its_trait() -> (
    None
):
    """As reported_traits and the enabled filters say: else a request would get
    any host.
    """
    fleet = Fleet(
        (host("a", "CUSTOM_HYPERVISOR_TYPE_KVM COMPUTE_NET_VIF_MODEL_IGB"),)
    )
    kvm, xen, igb = (
        ("img_hv_type", "kvm"),
        ("img_hv_type", "xen"),
        ("hw_vif_model", "igb"),
    )
    for reported, expected in (
        ([], (Status.NOT_CHECKED, Status.NOT_CHECKED)),
        (["CUSTOM_HYPERVISOR_TYPE_KVM"], (Status.OFFERED, Status.NOT_CHECKED)),
        (["CUSTOM_HYPERVISOR_TYPE_*"], (Status.OFFERED, Status.NOT_OFFERED)),
    ):
        found = statuses(
            find_offer(
                fleet, pipeline_of("image_metadata", reported_traits=reported)
            )
        )
        assert (found[kvm], found[xen], found[igb]) == (
            *expected,
            Status.OFFERED,
        )
    found = statuses(find_offer(fleet, pipeline_of("noop")))
    assert {found[kvm], found[xen], found[igb]} == {Status.NOT_CHECKED}
    assert (
        found["hw_tpm_version", "2.0"] is Status.NOT_OFFERED
    )  # Nova's own query asks for it


@pytest.mark.parametrize(
    ("by", "places"),
    [
        (
            "zone",
            {
                "north": {"a", "b"},
                "nova": {"d"},
                "south": {"b", "c"},
                "west": set(),
            },
        ),
        (
            "aggregate",
            {
                "empty": set(),
                "fast": {"c", "d"},
                "rack-1": {"a", "b"},
                "rack-2": {"b", "c"},
            },
        ),
    ],
)
def test_each_zone_or_aggregate_offers_what_its_hosts_do(
    by: str, places: dict[str, set[str]]
) -> None:
    """The numbers of a place are those of a cloud that has only its hosts."""
    named = {"rack-1": "north", "rack-2": "south", "fast": "", "empty": "west"}
    aggregates = {
        aggregate_uuid(name): Aggregate(aggregate_uuid(name), name, zone)
        for name, zone in named.items()
    }
    hosts = (
        host("a", "COMPUTE_NET_VIF_MODEL_IGB", "rack-1"),
        host(
            "b",
            "COMPUTE_NET_VIF_MODEL_IGB HW_ARCH_X86_64",
            "rack-1",
            "rack-2",
            "unnamed",
        ),
        host(
            "c",
            "HW_ARCH_X86_64 COMPUTE_SECURITY_TPM_2_0 COMPUTE_SECURITY_TPM_TIS",
            "fast",
            "rack-2",
        ),
        host("d", "HW_ARCH_AARCH64", "fast"),
    )
    fleet = Fleet(hosts, aggregates=aggregates)
    pipeline = pipeline_for(fleet)
    found = find_offer(fleet, pipeline, by)
    # The name of the default zone is an option of Nova's.
    alone = find_offer(Fleet(hosts[3:]), pipeline, by, "main")
    assert (alone.places, found.places) == (
        ("main",) if by == "zone" else (),
        tuple(places),
    )
    for number, members in enumerate(places.values()):
        alone = find_offer(
            Fleet(tuple(each for each in hosts if each.name in members)),
            pipeline,
        )
        mine = [
            [value.by_place[number] for value in each.values if value.by_place]
            for each in found.properties
        ]
        theirs = [
            [
                value.hosts
                for value, whole in zip(
                    each.values, all_of.values, strict=True
                )
                if whole.by_place
            ]
            for each, all_of in zip(
                alone.properties, found.properties, strict=True
            )
        ]
        assert mine == theirs


EVIL = (
    "<b onclick='x'>|`*_[a](http://x.invalid) www.x.invalid & \\ \n# \u202e{{"
    " 7*7 }}"
)


def evil_offer() -> Offer:
    values = (
        Value("igb", Status.OFFERED, "", 3, (3, 0)),
        Value(EVIL, Status.OFFERED, "", 1, (0, 1)),
    )
    none = Property(
        "",
        "",
        EVIL,
        (Value("none", Status.REQUIRES_NOTHING, "it is nothing"),),
    )
    return Offer(
        (Property("hw_vif_model", "", "", values), none),
        4,
        "zone",
        ("north", EVIL),
        "2026-11-21T18:00:00Z",
    )


SHOWN = (
    "<b onclick='x'>|`*_[a](http://x.invalid) www.x.invalid & \\\\ \\n#"
    " \\u202e{{ 7*7 }}"
)


def test_markdown_shows_hostile_names_as_text() -> None:
    """Whatever is in a name, a reader sees that name."""
    text = as_markdown(evil_offer())
    rendered = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(
        text
    )
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
    assert document["places"] == ["north", EVIL]
    assert document["properties"][0]["values"] == [
        {"value": "igb", "status": "offered", "places": ["north"]},
        {"value": EVIL, "status": "offered", "places": [EVIL]},
    ]
    assert document["properties"][1] == {
        "extra_spec": EVIL,
        "values": [
            {
                "value": "none",
                "status": "requires nothing",
                "reason": "it is nothing",
            }
        ],
    }
    igb = json.loads(as_json(evil_offer(), count=True))["properties"][0][
        "values"
    ][0]
    assert igb == {
        "value": "igb",
        "status": "offered",
        "hosts": 3,
        "places": {"north": 3},
    }


@pytest.mark.parametrize("form", [as_markdown, as_json])
def test_offer_shows_customers_no_host_trait_or_count(form: Any) -> None:
    """Customers get the words of image properties: not who serves them, how
    many do, or by which trait.
    """
    fleet = Fleet(
        tuple(
            replace(each, name=f"hidden-{each.name}")
            for each in example_fleet().hosts
        )
    )
    found = find_offer(fleet, pipeline_for(fleet), "zone")
    text = form(found)
    assert "hidden" not in text
    for trait in fleet.traits | {
        each.description for each in fleet.walk() if each.description
    }:
        assert trait not in text
    fewer = tuple(
        each._replace(
            values=tuple(
                value._replace(hosts=min(value.hosts, 1))
                for value in each.values
            )
        )
        for each in found.properties
    )
    assert text == form(replace(found, properties=fewer, hosts=1))
    assert form(found, count=True) != text
