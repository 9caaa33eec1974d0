# SPDX-License-Identifier: Apache-2.0

"""The rules that come with the package: which CPU a guest's system needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from os_prefilter import Options, allocation_candidates_query
from os_prefilter.common.errors import InvalidOption
from os_prefilter.request.view import Request
from os_prefilter.rules import reader
from os_prefilter.rules.filter import rules
from os_prefilter.rules.model import Rule
from os_prefilter.rules.reader import guest_systems, read_rules
from os_prefilter.rules.reload import RuleFolders
from os_prefilter.service import Service
from os_prefilter.service.facts_from_conf import rules_fact
from os_prefilter.vocabulary import BY_NAME
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from tests.conftest import conf_with, spec_of
from tests.support.reporting_fleets import fleet_of
from tests.support.rule_texts import rule, write_rules

_NAME = "builtin:guest-systems"
_FILE = Path(reader.__file__).with_name("guest-systems") / "cpus.yaml"
_V2 = {"HW_CPU_X86_SSE41", "HW_CPU_X86_SSE42", "HW_CPU_X86_SSSE3"}
_V3 = {
    "HW_CPU_X86_AVX",
    "HW_CPU_X86_AVX2",
    "HW_CPU_X86_BMI",
    "HW_CPU_X86_BMI2",
    "HW_CPU_X86_FMA3",
}
_SYSTEMS = {
    "rhel10": _V3,
    "rhel10-unknown": _V3,
    "rhel10.0": _V3,
    "rhel10.10": _V3,
    "centos-stream10": _V3,
    "rocky10": _V3,
    "almalinux10": _V3,
    "almalinux-kitten10": _V3,
    "rhel9": _V2,
    "rhel9.8": _V2,
    "centos-stream9": _V2,
    "rocky9": _V2,
    "almalinux9": _V2,
    "ol9.4": _V2,
    "sles16.0": _V2,
    "opensuse16.0": _V2,
    "win11": {"HW_CPU_X86_SSE42"},
    "win2k25": {"HW_CPU_X86_SSE42"},
    "rhel8.10": set(),
    "win10": set(),
    "debian12": set(),
    "a system of nobody": set(),
    "RHEL10": set(),
    "rhel": set(),
    "": set(),
}


def _required(
    properties: dict[str, str], extra_specs: dict[str, str] | None = None
) -> set[str]:
    request = Request(spec_of(properties, extra_specs or {}))
    found = rules(request, rules=guest_systems(), options=Options())
    return {item.trait for item in found.requirements}


def test_rules_have_no_problem() -> None:
    assert read_rules([_NAME]).problems == ()


@pytest.mark.parametrize(("distro", "traits"), _SYSTEMS.items(), ids=_SYSTEMS)
def test_system_needs_what_its_vendor_says(
    distro: str, traits: set[str]
) -> None:
    assert _required({"os_distro": distro}) == traits


@pytest.mark.parametrize(
    "each", guest_systems().rules, ids=lambda each: each.name
)
def test_each_rule_has_its_source_and_the_day_on_which_it_was_read(
    each: Rule,
) -> None:
    text = _FILE.read_text(encoding="utf-8")
    _, _, after = text.partition(f"- name: {each.name}\n")
    block = after.partition("- name: ")[0]
    assert re.search(r"# https://\S+\n    because: ", block)
    assert re.search(r", read 20\d\d-\d\d-\d\d$", each.because)


_LEVELS = {
    "rhel10": "x86-64-v3",
    "rhel9": "x86-64-v2",
    "win2k25": "SSE4.2",
}


@pytest.mark.parametrize(("distro", "level"), _LEVELS.items(), ids=_LEVELS)
def test_author_of_a_request_without_a_host_reads_what_the_system_needs(
    distro: str, level: str
) -> None:
    request = Request(spec_of({"os_distro": distro}))
    found = rules(request, rules=guest_systems(), options=Options())
    properties = {item.properties for item in found.requirements}
    assert properties == {(f"os_distro={distro} (needs {level})",)}


# Nova's libvirt driver reports CPU features of these alone.
_REPORTING = {"kqemu", "kvm", "qemu"}
_ELSEWHERE: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    **{
        architecture: ({"hw_architecture": architecture}, {})
        for architecture in ("aarch64", "ppc64le", "riscv64", "s390x")
    },
    "old name of the property": ({"architecture": "aarch64"}, {}),
    "emulated": ({"hw_emulation_architecture": "x86_64"}, {}),
    **{
        hypervisor: ({"img_hv_type": hypervisor}, {})
        for hypervisor in BY_NAME["hypervisor_type"].values
        if hypervisor not in _REPORTING
    },
    "bare metal by the flavor": ({}, {"resources:VCPU": "0"}),
}


@pytest.mark.parametrize("distro", ["rhel10", "almalinux10", "win11"])
@pytest.mark.parametrize(
    ("properties", "extra_specs"), _ELSEWHERE.values(), ids=_ELSEWHERE
)
def test_guest_without_an_x86_cpu_of_nova_needs_none(
    properties: dict[str, str], extra_specs: dict[str, str], distro: str
) -> None:
    asked = {"os_distro": distro, **properties}
    assert _required(asked, extra_specs) == set()


@pytest.mark.parametrize(
    "properties",
    [{"hw_architecture": "x86_64"}, {"img_hv_type": "kvm"}],
    ids=["x86_64", "kvm"],
)
def test_guest_that_names_what_it_is_needs_its_cpu(
    properties: dict[str, str],
) -> None:
    assert _required({"os_distro": "rhel10", **properties}) == _V3


def test_build_for_less_says_so_by_a_trait() -> None:
    second_build = {"trait:HW_CPU_X86_SSE42": "required"}
    assert _required({"os_distro": "almalinux10", **second_build}) == set()
    assert _required({"os_distro": "rhel10", **second_build}) == _V3


def test_unknown_name_is_an_error() -> None:
    (problem,) = read_rules(["builtin:guests"]).problems
    assert str(problem) == (
        "builtin:guests: no rules of this name come with the package. Write"
        " builtin:guest-systems, or the path of a directory."
    )
    with pytest.raises(InvalidOption, match=r"rules_dirs: builtin:guests: "):
        rules_fact(conf_with(rules_dirs=["builtin:guests"]))


def test_service_reads_them_together_with_the_operators_rules(
    tmp_path: Path,
) -> None:
    when = "{image_property: os_distro, is: rhel10}"
    write_rules(tmp_path / "a.yaml", rule("licensed", when, ["CUSTOM_RHEL"]))
    twice = RuleFolders([_NAME, str(tmp_path), _NAME])
    assert twice().traits == {"CUSTOM_RHEL", *_V2, *_V3}


def test_rule_of_the_same_name_is_an_error(tmp_path: Path) -> None:
    name = guest_systems().rules[0].name
    when = "{image_property: os_distro, is: mine}"
    path = write_rules(tmp_path / "a.yaml", rule(name, when, ["CUSTOM_A"]))
    problems = [str(each) for each in read_rules([_NAME, path]).problems]
    assert len(problems) == 1
    assert f"the rule name {name} is taken by " in problems[0]


_SEVERAL = "CUSTOM_COMPUTE_SEVERAL_CPU_MODELS"
_MIXED = {
    "host-0": _V2 | _V3,
    "host-1": _V2,
    "host-2": _V2 | _V3 | {_SEVERAL},
    "host-3": set(),
}
_IN_FLAVOR = {f"trait:{trait}": "required" for trait in _V3}
_OFFERED: dict[str, tuple[str, dict[str, str], list[str]]] = {
    "x86-64-v3": ("rhel10", {}, ["host-0"]),
    "x86-64-v3, also in the flavor": (
        "rhel10",
        _IN_FLAVOR,
        ["host-0", "host-2"],
    ),
    "x86-64-v2": ("rhel9", {}, ["host-0", "host-1"]),
    "no need": ("debian12", {}, [*_MIXED]),
    "unknown system": ("linux", {}, [*_MIXED]),
}


@pytest.fixture(scope="module")
def placement() -> Iterator[EmbeddedPlacement]:
    with EmbeddedPlacement(fleet_of([*_MIXED.values()])) as placement:
        yield placement


@pytest.mark.parametrize(
    ("distro", "extra_specs", "hosts"), _OFFERED.values(), ids=_OFFERED
)
def test_placement_offers_hosts_that_give_the_guest_its_cpu(
    distro: str,
    extra_specs: dict[str, str],
    hosts: list[str],
    placement: EmbeddedPlacement,
) -> None:
    """One with several CPU models gives what the flavor requires."""
    service = Service.from_names(
        "rules",
        options=Options(nova_builds_guests=True, reported_traits=("*",)),
        facts={"rules": lambda _context: guest_systems()},
    )
    spec = spec_of({"os_distro": distro}, extra_specs)
    service.apply(spec)
    query = allocation_candidates_query(spec)
    found = placement.client.allocation_candidates(query)
    assert sorted(found.hosts) == hosts
