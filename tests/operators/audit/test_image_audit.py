# SPDX-License-Identifier: Apache-2.0

"""Audits of images: verdicts, causes, and unusual fleets and images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from os_prefilter import (
    Flavor,
    Image,
    Options,
    RequestSpec,
    allocation_candidates_query,
)
from os_prefilter.common.errors import ConfigurationError
from os_prefilter.common.host_sets import size_of
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.requirements import forbid, require
from os_prefilter.request.spec import RequestGroup
from os_prefilter.service import Service
from os_prefilter.service.deployment_facts import Fact
from os_prefilter.vocabulary import HPET
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.demand import Condition, Demand
from os_prefilter_tools.fleet.host_index import HostIndex, capability_of
from os_prefilter_tools.fleet.model import Fleet
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
from tests.conftest import Properties, conf_with, pipeline_of
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
    names = ("image_metadata", "image_type", "hpet", "compute_status")
    change = FilterChange(NONE, pipeline_of(*names, **options))
    hosts = example_fleet() if fleet is None else fleet
    return audit_images(images, hosts, change, flavors=flavors)


def only_line(result: Audit) -> ImageLine:
    (line,) = result.lines
    return line


def by_name(result: Audit) -> dict[str, ImageLine]:
    """Return the line of each image."""
    return {name: line for line in result.lines for name in line.names}


_REJECT = {"unknown_values": "reject"}
_NO_HOST = {"trait:CUSTOM_NOBODY": "required"}
_NO_AARCH64 = {"hw_architecture": "aarch64", "hw_time_hpet": "yes"}
_VERDICTS = {
    "fewer hosts": ({"hw_vif_model": "e1000e"}, ImageVerdict.LOSES),
    "no host": (_NO_AARCH64, ImageVerdict.UNSCHEDULABLE),
    "trait of no host": (_NO_HOST, ImageVerdict.ALREADY),
}
_REJECTIONS = {
    "trait of no host, and unknown value": (
        {**_NO_HOST, "hw_vif_model": "x"},
        _REJECT,
        ImageVerdict.ALREADY,
    ),
    "unknown value": (
        {"hw_vif_model": "nosuch"},
        _REJECT,
        ImageVerdict.REJECTED,
    ),
    "misspelt value that Nova refuses": (
        {"os_secure_boot": "requird"},
        {},
        ImageVerdict.ALREADY_REJECTED,
    ),
    "two traits in one": (
        {"trait:a,b": "required"},
        {},
        ImageVerdict.ALREADY_REJECTED,
    ),
}


@pytest.mark.parametrize(
    ("properties", "verdict"), _VERDICTS.values(), ids=_VERDICTS
)
def test_audit_gives_the_expected_verdict(
    properties: Properties, verdict: ImageVerdict
) -> None:
    result = audit_of(Image(properties))
    assert only_line(result).verdict == verdict
    assert only_line(result).reason == ""
    assert result.count(verdict) == 1


@pytest.mark.parametrize(
    ("flavors", "verdict"),
    [
        ((), ImageVerdict.OK),
        ((Flavor(1, 512, name="small"),), ImageVerdict.REJECTED),
    ],
    ids=["alone", "with a flavor without a limit"],
)
def test_image_with_video_memory_is_rejected_by_a_flavor_that_allows_none(
    flavors: tuple[Flavor, ...], verdict: ImageVerdict
) -> None:
    image = Image({"hw_video_ram": "16"}, disk_format="qcow2", name="desktop")
    options = Options(nova_builds_guests=True)
    service = Service.from_names("image_metadata", options=options)
    change = FilterChange(NONE, service)
    result = audit_images([image], example_fleet(), change, flavors=flavors)
    assert only_line(result).verdict is verdict


@pytest.mark.parametrize(
    ("properties", "options", "verdict"), _REJECTIONS.values(), ids=_REJECTIONS
)
def test_audit_gives_a_reason_if_the_request_is_rejected(
    properties: Properties, options: dict[str, Any], verdict: ImageVerdict
) -> None:
    result = audit_of(Image(properties), **options)
    assert only_line(result).verdict == verdict
    assert only_line(result).reason
    assert result.count(verdict) == 1


@pytest.mark.parametrize(
    ("flavor", "verdict"),
    [
        (
            Flavor(1, 1, extra_specs={"resources:CUSTOM_NONE": "1"}),
            ImageVerdict.ALREADY,
        ),
        (
            Flavor(0, 0, extra_specs={"resources:CUSTOM_BAREMETAL_GOLD": "1"}),
            ImageVerdict.OK,
        ),
    ],
    ids=["class of no host", "bare metal"],
)
def test_resource_classes_of_a_flavor_count(
    flavor: Flavor, verdict: ImageVerdict
) -> None:
    result = audit_of(Image({}), flavors=(flavor,))
    assert only_line(result).verdict == verdict
    assert only_line(result).reason == ""
    assert result.count(verdict) == 1


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
    disabled = Cause(
        "COMPUTE_STATUS_DISABLED",
        "forbidden",
        "",
        "compute_status",
        "every request: no disabled compute service",
    )
    hpet = by_trait[HPET]
    assert by_trait[vmdk.trait] == Loss(vmdk, 10, 6)
    assert by_trait[disabled.trait] == Loss(disabled, 1, 0)
    assert hpet.lacking == 4
    assert hpet.lacking_only == 1
    assert hpet.cause.because == "image property hw_time_hpet=true"
    assert size_of(line.before) == 11
    assert line.after == 0
    assert line.combined == 0


def waiting_pipeline(fleet: Fleet, *names: str) -> Service:
    reported = fleet.every_compute_has("OWNER_NOVA")
    facts = {
        "reports": lambda _context: reports_of(fleet, EVERY_GROUP),
        "owner_coverage": lambda _context: reported,
    }
    conf = conf_with(
        enabled_filters=list(names),
        reported_traits=["*"],
        wait_for_reports=True,
    )
    return Service.from_conf(conf, facts)


class _Reports(NamedTuple):
    """The traits of three hosts, and the result for an image with HPET."""

    traits: list[set[str]]
    waiting: int
    after: int
    verdict: ImageVerdict
    if_enabled: ImageVerdict


_MARKER = marker_of(HPET)
_HAS = {_MARKER, HPET}
_LACKS = {_MARKER}
_SILENT: set[str] = set()
_REPORTS = {
    "one is silent, none has it": _Reports(
        [_LACKS, _LACKS, _SILENT],
        3,
        0,
        ImageVerdict.UNSCHEDULABLE,
        ImageVerdict.UNSCHEDULABLE,
    ),
    "all are silent": _Reports(
        [_SILENT, _SILENT, _SILENT],
        3,
        0,
        ImageVerdict.UNSCHEDULABLE,
        ImageVerdict.UNSCHEDULABLE,
    ),
    "one is silent, one has it": _Reports(
        [_HAS, _LACKS, _SILENT], 3, 1, ImageVerdict.LOSES, ImageVerdict.LOSES
    ),
    "each has it": _Reports(
        [_HAS, _HAS, {HPET}], 3, 3, ImageVerdict.OK, ImageVerdict.OK
    ),
    "each has reported, one has it": _Reports(
        [_HAS, _LACKS, _LACKS], 1, 1, ImageVerdict.LOSES, ImageVerdict.OK
    ),
}
_ASKING = Image({"hw_time_hpet": "yes"}, name="asking")
each_report = pytest.mark.parametrize("case", _REPORTS.values(), ids=_REPORTS)
before_and_after = pytest.mark.parametrize(
    "enabled", [False, True], ids=["to be enabled", "enabled already"]
)


def _audit_hpet(traits: list[set[str]], enabled: bool) -> Audit:
    fleet = fleet_of(traits)
    after = waiting_pipeline(fleet, "hpet")
    change = FilterChange(after if enabled else NONE, after)
    images = [_ASKING, Image({}, name="plain")]
    return audit_images(images, fleet, change)


@before_and_after
@each_report
def test_audit_judges_waiting_filters_as_they_are_now_and_once_all_hosts_have_reported(
    case: _Reports, enabled: bool
) -> None:
    """The verdict is that of the worse."""
    line = by_name(_audit_hpet(case.traits, enabled))["asking"]
    verdict = case.if_enabled if enabled else case.verdict
    assert size_of(line.waiting) == case.waiting
    assert size_of(line.after) == case.after
    assert line.verdict == verdict


@before_and_after
@each_report
def test_filters_that_wait_take_no_host_from_an_image_without_requirement(
    case: _Reports, enabled: bool
) -> None:
    plain = by_name(_audit_hpet(case.traits, enabled))["plain"]
    assert size_of(plain.waiting) == 3
    assert size_of(plain.after) == 3
    assert plain.verdict == ImageVerdict.OK


@before_and_after
@each_report
def test_audit_names_what_is_not_required_until_all_hosts_have_reported(
    case: _Reports, enabled: bool
) -> None:
    result = _audit_hpet(case.traits, enabled)
    assert result.is_waiting == (case.waiting != case.after)
    assert bool(result.waits) == any(
        each.isdisjoint(_HAS) for each in case.traits
    )
    for text, images in result.waits:
        assert "CUSTOM_COMPUTE_TIME_HPET is not required yet: " in text
        assert images == 1


@each_report
def test_placement_has_the_same_hosts_once_all_hosts_have_reported(
    case: _Reports,
) -> None:
    later = fleet_of([{*each, _MARKER} for each in case.traits])
    spec = RequestSpec(Flavor(1, 512), _ASKING)
    waiting_pipeline(later, "hpet").apply(spec)
    query = allocation_candidates_query(spec)
    with EmbeddedPlacement(later) as placement:
        placement.know([HPET])
        found = placement.client.allocation_candidates(query)
    assert len(found.hosts) == case.after


def test_audit_counts_the_worse_verdict_if_a_deferred_requirement_contradicts_another_one() -> (
    None
):
    fleet = fleet_of([_HAS, {HPET}])
    filters = (
        LoadedFilter("hpet", lambda _request: require(HPET, "a rule")),
        LoadedFilter("without", lambda _request: forbid(HPET, "another rule")),
    )
    fact = Fact("reports", lambda _context: reports_of(fleet, EVERY_GROUP), 60)
    change = FilterChange(NONE, Service(filters, Options(), {"reports": fact}))
    line = only_line(audit_images([Image({})], fleet, change))
    assert line.waiting == 0
    assert line.after == 0
    assert line.verdict == ImageVerdict.REJECTED
    assert "is both required (hpet: a rule) and forbidden" in line.reason


_NODE = "VCPU MEMORY_MB"
_GPU = provider("nova-gpu", "VGPU")
_CYBORG_GPU = provider("its-gpu", "VGPU", "OWNER_CYBORG OWNER_NOVA")
_OWNED = (
    provider("nova", _NODE, "COMPUTE_NODE", (_GPU,)),
    provider("cyborg", _NODE, "COMPUTE_NODE", (_CYBORG_GPU,)),
    provider("ready", _NODE, "COMPUTE_NODE OWNER_NOVA"),
)


def _audit_owner(fleet: Fleet, *flavors: Flavor) -> Audit:
    change = FilterChange(NONE, waiting_pipeline(fleet, "owner"))
    return audit_images([Image({})], fleet, change, flavors=flavors)


@pytest.mark.parametrize("has_inventories", [True, False])
def test_audit_judges_the_filter_owner_as_if_every_compute_node_had_its_trait(
    has_inventories: bool,
) -> None:
    fleet = Fleet(_OWNED, has_inventories=has_inventories)
    gpu = Flavor(1, 1, extra_specs={"resources:VGPU": "1"}, name="gpu")
    result = _audit_owner(fleet, Flavor(1, 1, name="plain"), gpu)
    _, line = sorted(result.lines, key=lambda each: each.flavor)
    assert size_of(line.waiting) == 3
    assert size_of(line.after) == 3
    assert line.verdict == ImageVerdict.OK
    assert result.waits == (
        ("not every compute node has OWNER_NOVA yet: not required yet", 1),
    )


def test_filter_owner_excludes_a_gpu_of_another_owner_before_all_have_reported() -> (
    None
):
    gpu = Flavor(1, 1, extra_specs={"resources:VGPU": "1"})
    line = only_line(_audit_owner(Fleet(_OWNED), gpu))
    assert line.before == 0b011
    assert line.waiting == 0b011
    assert line.after == 0b001
    assert line.verdict == ImageVerdict.LOSES


def test_audit_of_a_fleet_without_compute_nodes_enforces_nothing_that_waits() -> (
    None
):
    fleet = Fleet((provider("a"),))
    change = FilterChange(NONE, waiting_pipeline(fleet, "hpet", "owner"))
    line = only_line(audit_images([_ASKING], fleet, change))
    assert line.waiting == 1
    assert line.after == 1
    assert line.verdict == ImageVerdict.OK


_UNSERVED = Image({"hw_sound_model": "virtio", **_NO_HOST}, "raw")


def test_audit_lists_a_trait_that_no_host_has_once_with_its_image_count() -> (
    None
):
    images = [replace(_UNSERVED, name=name) for name in "abc"]
    because = "image property trait:CUSTOM_NOBODY=required"
    cause = Cause("CUSTOM_NOBODY", "required", "", "request", because)
    assert audit_of(*images).unserved == ((cause, 3),)


def test_audit_lists_a_resource_class_that_no_host_has() -> None:
    flavor = Flavor(1, 1, extra_specs={"resources:FPGA": "1"}, name="fpga")
    cause = Cause("FPGA", "resource class", "", "request", "flavor fpga")
    result = audit_of(_UNSERVED, flavors=(flavor,))
    assert result.unserved == ((cause, 1),)


_POOR_FLEETS = {
    "no host": (Fleet(()), ImageVerdict.ALREADY),
    "no inventory": (
        Fleet((provider("bare", classes=""),)),
        ImageVerdict.UNSCHEDULABLE,
    ),
    "no trait": (
        Fleet((provider("no traits"),)),
        ImageVerdict.UNSCHEDULABLE,
    ),
}


@pytest.mark.parametrize(
    ("fleet", "verdict"), _POOR_FLEETS.values(), ids=_POOR_FLEETS
)
def test_audit_handles_fleets_without_hosts_inventories_or_traits(
    fleet: Fleet, verdict: ImageVerdict
) -> None:
    """None of the hosts is a compute node."""
    result = audit_of(Image({"hw_vif_model": "igb"}, "raw"), fleet=fleet)
    nothing = audit_of(fleet=fleet)
    assert only_line(result).verdict == verdict
    assert result.hosts == len(fleet.hosts)
    assert nothing.lines == ()
    assert nothing.unused == tuple(host.name for host in fleet.hosts)


def test_audit_escapes_and_cuts_names() -> None:
    names = ["\u202e\x1b[31m\n", "x" * 10_000, None]
    line = only_line(audit_of(*(Image({}, name=name) for name in names)))
    escaped, cut, missing = line.names
    assert escaped == r"\u202e\x1b[31m\n"
    assert cut == "x" * 255
    assert missing == "an image without a name"


def test_audit_escapes_and_counts_unknown_values() -> None:
    values = ["no\n0", "no\n1", "no\n0", "no\n1"]
    images = [Image({"hw_vif_model": value}) for value in values]
    result = audit_of(*images)
    first, second = result.unknown
    assert result.waits == ()
    text = "image property hw_vif_model: unknown value {}: not required"
    assert first == (text.format(r"'no\n0'"), 2)
    assert second == (text.format(r"'no\n1'"), 2)


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
        ("groups of images", 1, 1),
    ]


_ROOT = capability_of(
    Demand({"": RequestGroup("", {"VCPU": 1}, {"HW_ARCH_X86_64"})})
)
_OWN_GROUP = capability_of(
    Demand({"_a": RequestGroup("_a", {"VGPU": 1}, {"OWNER_CYBORG"})})
)
_CHILD = replace(provider("gpu", "", "OWNER_CYBORG"), uuid="1")
_HOSTS = (
    provider("plain", "", "HW_ARCH_X86_64"),
    provider("tree", "", "", (_CHILD,)),
)


@pytest.mark.parametrize(
    ("query", "name"),
    [(_ROOT, "plain"), (_OWN_GROUP, "tree")],
    ids=["class of the root", "class of any provider"],
)
def test_fleet_read_without_inventories_is_matched_by_traits_alone(
    query: tuple[Condition, ...], name: str
) -> None:
    """The host's own classes are on its root, others on any provider."""
    fleet = Fleet(_HOSTS, has_inventories=False)
    index = HostIndex.by_capability(fleet, [*_ROOT, *_OWN_GROUP])
    assert index.names_of(index.find_candidates(query)) == (name,)


def test_host_of_a_fleet_with_inventories_has_no_class_without_one() -> None:
    index = HostIndex.by_capability(Fleet(_HOSTS), _ROOT)
    assert index.find_candidates(_ROOT) == 0


_VCPU = RequestGroup("", {"VCPU": 1})
_NOT_MEMBER = RequestGroup("_x", {"VGPU": 1}, forbidden_aggregates={"1"})
_MEMBER = replace(_VCPU, aggregates=[["1"]])
_IN_TREE = replace(_VCPU, in_tree="1")
_SUBTREE = Demand({"": _VCPU}, same_subtree=(("_a", "_b"),))
_REFUSED = {
    "member_of": ("member_of", Demand({"": _MEMBER})),
    "not member_of": ("member_of_x", Demand({"_x": _NOT_MEMBER})),
    "in_tree": ("in_tree", Demand({"": _IN_TREE})),
    "same_subtree": ("same_subtree", _SUBTREE),
}


@pytest.mark.parametrize(("name", "demand"), _REFUSED.values(), ids=_REFUSED)
def test_audit_refuses_query_parameters_it_cannot_evaluate(
    name: str, demand: Demand
) -> None:
    message = f"A request filter adds {name} to the query, which an audit"
    with pytest.raises(ConfigurationError, match=message):
        capability_of(demand)


_V2 = {"HW_CPU_X86_SSE41", "HW_CPU_X86_SSE42", "HW_CPU_X86_SSSE3"}
_V3 = {
    "HW_CPU_X86_AVX",
    "HW_CPU_X86_AVX2",
    "HW_CPU_X86_BMI",
    "HW_CPU_X86_BMI2",
    "HW_CPU_X86_FMA3",
}
_CPUS = fleet_of(
    [
        {*_V2, *_V3},
        _V2,
        set(),
        {*_V2, *_V3, "CUSTOM_COMPUTE_SEVERAL_CPU_MODELS"},
    ]
)
_STARTING = {
    "v3": ("rhel10", ["host-0"]),
    "v2": ("rhel9", ["host-0", "host-1"]),
    "SSE4.2": ("win2k25", ["host-0", "host-1"]),
}


def _audit_systems(*images: Image, flavor: Flavor | None = None) -> Audit:
    options = Options(nova_builds_guests=True, wait_for_reports=False)
    after = Service.from_names("image_metadata", options=options)
    flavors = [flavor] if flavor else []
    return audit_images(
        images, _CPUS, FilterChange(NONE, after), flavors=flavors
    )


@pytest.mark.parametrize(
    ("distro", "hosts"), _STARTING.values(), ids=_STARTING
)
def test_audit_names_the_hosts_that_start_a_system_with_its_rules_disabled(
    distro: str, hosts: list[str]
) -> None:
    """Of several CPU models, Nova chooses one without the features."""
    images = [Image({"os_distro": distro}, name=name) for name in ("a", "b")]
    result = _audit_systems(*images, Image({"os_distro": "debian12"}))
    (needs,) = result.systems
    assert list(needs.hosts) == hosts
    assert needs.images == 2
    assert f"image property os_distro={distro} (" in needs.because
    assert {line.verdict for line in result.lines} == {ImageVerdict.OK}


def test_host_with_several_models_counts_if_the_flavor_has_the_traits() -> (
    None
):
    extra_specs = {f"trait:{trait}": "required" for trait in _V3}
    flavor = Flavor(vcpus=1, memory_mb=64, extra_specs=extra_specs)
    result = _audit_systems(Image({"os_distro": "rhel10"}), flavor=flavor)
    (needs,) = result.systems
    assert needs.hosts == ("host-0", "host-3")
    assert set(needs.traits) == _V3


def test_audit_names_the_hosts_whose_cpu_is_not_known() -> None:
    traits = [
        {"HW_CPU_X86_SSE2"},
        {"HW_ARCH_X86_64", "HW_CPU_HYPERTHREADING"},
        {"HW_ARCH_AARCH64"},
        set(),
    ]
    result = audit_of(Image({}), fleet=fleet_of(traits))
    assert result.without_cpu_features == ("host-1", "host-3")


def test_audit_counts_an_image_once_for_all_flavors() -> None:
    change = FilterChange(NONE, pipeline_of("image_metadata"))
    flavors = [Flavor(name=name, vcpus=1, memory_mb=64) for name in "ab"]
    images = [Image({"os_distro": "rhel10"})]
    result = audit_images(images, _CPUS, change, flavors=flavors)
    assert [needs.images for needs in result.systems] == [1]


_NO_NEEDS = {
    "other architecture": {"hw_architecture": "aarch64"},
    "rejected": {"hw_vif_model": "no such"},
}


@pytest.mark.parametrize("properties", _NO_NEEDS.values(), ids=_NO_NEEDS)
def test_image_without_a_guest_of_x86_has_no_needs(
    properties: dict[str, str],
) -> None:
    image = Image({"os_distro": "rhel10", **properties})
    assert audit_of(image, fleet=_CPUS, unknown_values="reject").systems == ()
