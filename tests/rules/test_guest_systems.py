# SPDX-License-Identifier: Apache-2.0

"""The rules that come with the package: which CPU a guest's system needs."""

import re
from pathlib import Path

import pytest

from os_prefilter import Options
from os_prefilter.common.errors import InvalidOption
from os_prefilter.request.view import Request
from os_prefilter.rules import reader
from os_prefilter.rules.filter import rules
from os_prefilter.rules.model import Rule
from os_prefilter.rules.reader import guest_systems, read_rules
from os_prefilter.rules.reload import RuleFolders
from os_prefilter.service.facts_from_conf import rules_fact
from tests.conftest import conf_with, spec_of
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


_ELSEWHERE = {
    **{
        architecture: ({"hw_architecture": architecture}, {})
        for architecture in ("aarch64", "ppc64le", "s390x")
    },
    "old name of the property": ({"architecture": "aarch64"}, {}),
    "emulated": ({"hw_emulation_architecture": "x86_64"}, {}),
    "vmware": ({"img_hv_type": "vmware"}, {}),
    "bare metal by the image": ({"img_hv_type": "baremetal"}, {}),
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
    folders = RuleFolders([_NAME, str(tmp_path)])
    assert folders().traits == {"CUSTOM_RHEL", *_V2, *_V3}


def test_rule_of_the_same_name_is_an_error(tmp_path: Path) -> None:
    name = guest_systems().rules[0].name
    when = "{image_property: os_distro, is: mine}"
    path = write_rules(tmp_path / "a.yaml", rule(name, when, ["CUSTOM_A"]))
    problems = [str(each) for each in read_rules([_NAME, path]).problems]
    assert len(problems) == 1
    assert f"the rule name {name} is taken by " in problems[0]
