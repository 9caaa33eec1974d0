# SPDX-License-Identifier: Apache-2.0

"""Audits: verdicts, causes, requirements that no host meets, and unusual
fleets and images.
"""

from dataclasses import replace
from typing import Any

import pytest

from os_prefilter import (
    Flavor,
    Image,
    Options,
    RequestSpec,
    allocation_candidates_query,
)
from os_prefilter.common.errors import ConfigurationError
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.requirements import forbid, require
from os_prefilter.request.spec import RequestGroup
from os_prefilter.service import Service
from os_prefilter.service.deployment_facts import Fact
from os_prefilter.vocabulary import HPET
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.demand import Demand
from os_prefilter_tools.fleet.host_index import HostIndex, capability_of
from os_prefilter_tools.fleet.model import Fleet, Provider
from os_prefilter_tools.fleet.reader import example_fleet
from os_prefilter_tools.operators.audit.image_audit import (
    Audit,
    Cause,
    FilterChange,
    ImageLine,
    ImageVerdict,
    Loss,
    audit_images,
)
from os_prefilter_tools.operators.readiness import reports_of
from tests.conftest import conf_with, pipeline_of
from tests.support.every_trait import EVERY_GROUP, marker_of
from tests.support.placements import provider
from tests.support.reporting_fleets import fleet_of

NONE = Service()


def audit_of(
    *images: Image,
    fleet: Fleet | None = None,
    flavors: tuple[Flavor, ...] = (),
    **options: Any,
) -> Audit:
    change = FilterChange(
        NONE,
        pipeline_of(
            "image_metadata", "image_type", "hpet", "compute_status", **options
        ),
    )
    return audit_images(
        images,
        example_fleet() if fleet is None else fleet,
        change,
        flavors=flavors,
    )


def only_line(result: Audit) -> ImageLine:
    (line,) = result.lines
    return line


_REJECT = {"unknown_values": "reject"}
VERDICTS: list[
    tuple[Image, tuple[Flavor, ...], dict[str, Any], ImageVerdict]
] = [
    (Image({"hw_vif_model": "e1000e"}), (), {}, ImageVerdict.LOSES),
    (
        Image({"hw_architecture": "aarch64", "hw_time_hpet": "yes"}),
        (),
        {},
        ImageVerdict.UNSCHEDULABLE,
    ),
    (Image({"hw_vif_model": "nosuch"}), (), _REJECT, ImageVerdict.REJECTED),
    (Image({"trait:CUSTOM_NOBODY": "required"}), (), {}, ImageVerdict.ALREADY),
    (
        Image({"trait:CUSTOM_NO": "required", "hw_vif_model": "x"}),
        (),
        _REJECT,
        ImageVerdict.ALREADY,
    ),
    (
        Image({"os_secure_boot": "requird"}),
        (),
        {},
        ImageVerdict.ALREADY_REJECTED,
    ),
    (Image({"trait:a,b": "required"}), (), {}, ImageVerdict.ALREADY_REJECTED),
    (
        Image({}),
        (Flavor(1, 1, extra_specs={"resources:CUSTOM_NONE": "1"}),),
        {},
        ImageVerdict.ALREADY,
    ),
    (
        Image({}),
        (Flavor(0, 0, extra_specs={"resources:CUSTOM_BAREMETAL_GOLD": "1"}),),
        {},
        ImageVerdict.OK,
    ),
]


@pytest.mark.parametrize(
    ("image", "flavors", "options", "verdict"),
    VERDICTS,
    ids=[
        "fewer hosts",
        "no host",
        "unknown value",
        "trait of no host",
        "trait of no host, and unknown value",
        "misspelt value that Nova refuses",
        "two traits in one",
        "class of no host",
        "bare metal",
    ],
)
def test_audit_gives_the_expected_verdict_and_a_reason_if_rejected(
    image: Image,
    flavors: tuple[Flavor, ...],
    options: dict[str, Any],
    verdict: ImageVerdict,
) -> None:
    result = audit_of(image, flavors=flavors, **options)
    line = only_line(result)
    assert line.verdict == verdict
    assert result.count(verdict) == 1
    if verdict != ImageVerdict.ALREADY:
        assert bool(line.reason) == ("rejected" in verdict)


def test_audit_loss_names_the_filter_the_source_and_the_number_of_hosts() -> (
    None
):
    line = only_line(audit_of(Image({"hw_time_hpet": "yes"}, "vmdk")))
    by_trait = {loss.cause.trait: loss for loss in line.losses}
    vmdk = Cause(
        "COMPUTE_IMAGE_TYPE_VMDK",
        "required",
        "",
        "image_type",
        "image field disk_format=vmdk",
    )
    assert by_trait[vmdk.trait] == Loss(vmdk, 10, 6)
    assert by_trait[HPET][1:] == (4, 1)
    assert by_trait[HPET].cause.because == "image property hw_time_hpet=true"
    always = "every request: no disabled compute service"
    disabled = Cause(
        "COMPUTE_STATUS_DISABLED", "forbidden", "", "compute_status", always
    )
    assert by_trait[disabled.trait] == Loss(disabled, 1, 0)
    assert (
        line.before.bit_count(),
        line.after.bit_count(),
        line.combined,
    ) == (11, 0, 0)


_MARKER = marker_of(HPET)


def waiting_pipeline(fleet: Fleet, *names: str, **options: Any) -> Service:
    options = {
        "enabled_filters": list(names),
        "reported_traits": ["*"],
        "wait_for_reports": True,
        **options,
    }
    reported = fleet.every_compute_has("OWNER_NOVA")
    facts = {
        "reports": lambda _context: reports_of(fleet, EVERY_GROUP),
        "owner_coverage": lambda _context: reported,
    }
    return Service.from_conf(conf_with(**options), facts)


_REPORTS: list[tuple[list[set[str]], tuple[int, int], ImageVerdict]] = [
    ([{_MARKER}, {_MARKER}, set()], (3, 0), ImageVerdict.UNSCHEDULABLE),
    ([set(), set(), set()], (3, 0), ImageVerdict.UNSCHEDULABLE),
    ([{_MARKER, HPET}, {_MARKER}, set()], (3, 1), ImageVerdict.LOSES),
    ([{_MARKER, HPET}, {_MARKER, HPET}, {HPET}], (3, 3), ImageVerdict.OK),
    ([{_MARKER, HPET}, {_MARKER}, {_MARKER}], (1, 1), ImageVerdict.LOSES),
]


@pytest.mark.parametrize(
    "enabled", [False, True], ids=["to be enabled", "enabled already"]
)
@pytest.mark.parametrize(("traits", "hosts", "verdict"), _REPORTS)
def test_audit_judges_waiting_filters_as_they_are_now_and_once_all_hosts_have_reported(
    traits: list[set[str]],
    hosts: tuple[int, int],
    verdict: ImageVerdict,
    enabled: bool,
) -> None:
    """The verdict is that of the worse; a Placement where the silent hosts
    report the marker has the same hosts.
    """
    fleet = fleet_of(traits)
    after, image = (
        waiting_pipeline(fleet, "hpet"),
        Image({"hw_time_hpet": "yes"}),
    )
    result = audit_images(
        [image, Image({})],
        fleet,
        FilterChange(after if enabled else NONE, after),
    )
    line, plain = sorted(
        result.lines, key=lambda line: line.after.bit_count()
    )[:2]
    is_open = hosts[0] == hosts[1] == 1
    assert (line.waiting.bit_count(), line.after.bit_count()) == hosts
    assert line.verdict == (
        ImageVerdict.OK if enabled and is_open else verdict
    )
    assert (
        plain.waiting.bit_count(),
        plain.after.bit_count(),
        plain.verdict,
    ) == (3, 3, ImageVerdict.OK)
    assert result.is_waiting == (hosts[0] != hosts[1])
    assert bool(result.waits) == any(
        each.isdisjoint({_MARKER, HPET}) for each in traits
    )
    for text, images in result.waits:
        assert "CUSTOM_COMPUTE_TIME_HPET is not required yet: " in text
        assert images == 1
    later, spec = (
        fleet_of([{*each, _MARKER} for each in traits]),
        RequestSpec(Flavor(1, 512), image),
    )
    waiting_pipeline(later, "hpet").apply(spec)
    with EmbeddedPlacement(later) as placement:
        placement.know([HPET])
        found = placement.client.allocation_candidates(
            allocation_candidates_query(spec)
        ).hosts
    assert len(found) == hosts[1]


def test_audit_counts_the_worse_verdict_if_a_deferred_requirement_contradicts_another_one() -> (
    None
):
    fleet = fleet_of([{_MARKER, HPET}, {HPET}])
    filters = [
        LoadedFilter("hpet", lambda _request: require(HPET, "a rule")),
        LoadedFilter("without", lambda _request: forbid(HPET, "another rule")),
    ]
    fact = Fact("reports", lambda _context: reports_of(fleet, EVERY_GROUP), 60)
    pipeline = Service(tuple(filters), Options(), {"reports": fact})
    line = only_line(
        audit_images([Image({})], fleet, FilterChange(NONE, pipeline))
    )
    assert (line.waiting, line.after, line.verdict) == (
        0,
        0,
        ImageVerdict.REJECTED,
    )
    assert "is both required (hpet: a rule) and forbidden" in line.reason


@pytest.mark.parametrize("has_inventories", [True, False])
def test_audit_judges_the_filter_owner_as_if_every_compute_node_had_its_trait(
    has_inventories: bool,
) -> None:
    hosts = (
        provider(
            "nova",
            "VCPU MEMORY_MB",
            "COMPUTE_NODE",
            (provider("nova-gpu", "VGPU"),),
        ),
        provider(
            "cyborg",
            "VCPU MEMORY_MB",
            "COMPUTE_NODE",
            (provider("its-gpu", "VGPU", "OWNER_CYBORG OWNER_NOVA"),),
        ),
        provider("ready", "VCPU MEMORY_MB", "COMPUTE_NODE OWNER_NOVA"),
    )
    fleet = Fleet(hosts, has_inventories=has_inventories)
    flavors = (
        Flavor(1, 1, name="plain"),
        Flavor(1, 1, extra_specs={"resources:VGPU": "1"}, name="gpu"),
    )
    after = waiting_pipeline(fleet, "owner", wait_for_reports=True)
    result = audit_images(
        [Image({})], fleet, FilterChange(NONE, after), flavors=flavors
    )
    gpu, plain = sorted(result.lines, key=lambda line: line.flavor)
    assert (
        plain.waiting.bit_count(),
        plain.after.bit_count(),
        plain.verdict,
    ) == (3, 3, ImageVerdict.OK)
    if has_inventories:
        assert (gpu.before, gpu.waiting, gpu.after, gpu.verdict) == (
            0b011,
            0b011,
            0b001,
            ImageVerdict.LOSES,
        )
    assert result.waits == (
        ("not every compute node has OWNER_NOVA yet: not required yet", 1),
    )


def test_audit_of_a_fleet_without_compute_nodes_enforces_nothing_that_waits() -> (
    None
):
    fleet = Fleet((provider("a"),))
    after = waiting_pipeline(fleet, "hpet", "owner", wait_for_reports=True)
    line = only_line(
        audit_images(
            [Image({"hw_time_hpet": "yes"})], fleet, FilterChange(NONE, after)
        )
    )
    assert (line.waiting, line.after, line.verdict) == (1, 1, ImageVerdict.OK)


def test_audit_lists_each_requirement_no_host_meets_once_with_its_image_count() -> (
    None
):
    images = [
        Image(
            {"hw_sound_model": "virtio", "trait:CUSTOM_NOBODY": "required"},
            "raw",
            name=str(n),
        )
        for n in range(3)
    ]
    flavor = Flavor(1, 1, extra_specs={"resources:FPGA": "1"}, name="fpga")
    assert audit_of(*images).unserved == (
        (
            Cause(
                "CUSTOM_NOBODY",
                "required",
                "",
                "request",
                "image property trait:CUSTOM_NOBODY=required",
            ),
            3,
        ),
    )
    assert audit_of(images[0], flavors=(flavor,)).unserved == (
        (Cause("FPGA", "resource class", "", "request", "flavor fpga"), 1),
    )


@pytest.mark.parametrize(
    "fleet",
    [
        Fleet(()),
        Fleet((provider("bare", classes=""),)),
        Fleet((provider("no traits"),)),
    ],
)
def test_audit_handles_fleets_without_hosts_inventories_or_traits(
    fleet: Fleet,
) -> None:
    """No host, hosts without inventories or traits, none of which is a compute
    node.
    """
    result = audit_of(
        Image({"hw_vif_model": "igb"}, "raw", name="image"), fleet=fleet
    )
    assert only_line(result).verdict == (
        ImageVerdict.UNSCHEDULABLE if fleet.hosts else ImageVerdict.ALREADY
    )
    assert result.hosts == len(fleet.hosts)
    assert audit_of(fleet=fleet).lines == ()
    assert audit_of(fleet=fleet).unused == tuple(
        host.name for host in fleet.hosts
    )


def test_audit_escapes_and_cuts_names() -> None:
    line = only_line(
        audit_of(
            *(
                Image({}, name=name)
                for name in ["\u202e\x1b[31m\n", "x" * 10_000, None]
            )
        )
    )
    assert (line.names, line.images) == (
        [r"\u202e\x1b[31m\n", "x" * 255, "an image without a name"],
        3,
    )
    assert audit_of(
        *[Image({"hw_vif_model": f"no\n{number % 2}"}) for number in range(4)]
    ).unknown == tuple(
        (
            (
                rf"image property hw_vif_model: unknown value 'no\n{number}':"
                r" not required"
            ),
            2,
        )
        for number in range(2)
    )


def test_audit_calls_progress_with_stage_count_and_total() -> None:
    calls: list[tuple[str, int, int | None]] = []
    images = [Image({"hw_vif_model": value}) for value in ("igb", "e1000")]
    audit_images(
        images,
        example_fleet(),
        FilterChange(NONE, NONE),
        progress=lambda *state: calls.append(state),
    )
    assert calls == [
        ("images", 1, None),
        ("images", 2, None),
        ("kinds of images", 1, 1),
    ]


def test_fleet_read_without_inventories_is_matched_by_traits_alone() -> None:
    """The host's own classes are on its root, any other may be on each
    provider of its tree.
    """
    gpu = replace(provider("gpu", "", "OWNER_CYBORG"), uuid="1")
    hosts: tuple[Provider, ...] = (
        provider("plain", "", "HW_ARCH_X86_64"),
        provider("tree", "", "", (gpu,)),
    )
    query = capability_of(
        Demand({"": RequestGroup("", {"VCPU": 1}, {"HW_ARCH_X86_64"})})
    )
    own = capability_of(
        Demand({"_a": RequestGroup("_a", {"VGPU": 1}, {"OWNER_CYBORG"})})
    )
    sets = HostIndex.by_capability(
        Fleet(hosts, has_inventories=False), [*query, *own]
    )
    assert sets.names_of(sets.find_candidates(query)) == ("plain",)
    assert sets.names_of(sets.find_candidates(own)) == ("tree",)
    assert (
        HostIndex.by_capability(Fleet(hosts), query).find_candidates(query)
        == 0
    )


@pytest.mark.parametrize(
    ("name", "demand"),
    [
        (
            "member_of",
            Demand({"": RequestGroup("", {"VCPU": 1}, aggregates=[["1"]])}),
        ),
        (
            "member_of_x",
            Demand(
                {
                    "_x": RequestGroup(
                        "_x", {"VGPU": 1}, forbidden_aggregates={"1"}
                    )
                }
            ),
        ),
        ("in_tree", Demand({"": RequestGroup("", {"VCPU": 1}, in_tree="1")})),
        (
            "same_subtree",
            Demand(
                {"": RequestGroup("", {"VCPU": 1})},
                same_subtree=(("_a", "_b"),),
            ),
        ),
    ],
    ids=["member_of", "not member_of", "in_tree", "same_subtree"],
)
def test_audit_refuses_query_parameters_it_cannot_evaluate(
    name: str, demand: Demand
) -> None:
    with pytest.raises(
        ConfigurationError,
        match=f"A request filter adds {name} to the query, which an audit",
    ):
        capability_of(demand)
