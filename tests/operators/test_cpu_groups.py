"""Groups of hosts by CPU, where servers can be migrated to, and what hosts have in common."""

from dataclasses import replace

import pytest

from os_prefilter.common.errors import DocumentError
from os_prefilter.hosts.cpu import NO_DEFINITIONS, Cpu, Fit, HostCpu
from os_prefilter.operators.cpu_groups import Common, Group, common_cpus, fit, group_hosts, guest_on, migrations
from tests.support.cpus import DEFINITIONS, NEW, OLD, cpu, host


def _groups(*hosts: HostCpu) -> list[tuple[str, ...]]:
    return [group.names for group in group_hosts(hosts, DEFINITIONS)]


def test_hosts_with_the_same_features_are_one_group() -> None:
    """However they are written; what is not migrated does not count."""
    found = _groups(host("b", "New"), host("a", "New +c"), host("d", "New +invtsc"), host("c", "New -d"))
    assert found == [("a", "b", "d"), ("c",)]


@pytest.mark.parametrize(
    "other",
    [
        host("b", architecture="i686"),
        host("b", domain_type="qemu"),
        host("b", vendor="Other"),
        host("b", "New +e"),
        host("b", "New +zz"),
        host("b", "New -zz"),
        host("b", "New -e"),
        host("b", "Old +c +d"),
        host("b", "Next"),
        host("b", ""),
    ],
)
def test_hosts_that_differ_are_never_one_group(other: HostCpu) -> None:
    assert sorted(_groups(host("a"), other)) == [("a",), ("b",)]


def test_groups_are_numbered_by_architecture_domain_type_vendor_and_size() -> None:
    arm = host("z", "", architecture="aarch64")
    found = group_hosts([host("a", OLD), host("b"), host("c"), host("d", domain_type="qemu"), arm], DEFINITIONS)
    assert [(group.number, group.names) for group in found] == [(1, ("z",)), (2, ("b", "c")), (3, ("a",)), (4, ("d",))]


def test_two_documents_of_one_host_are_an_error() -> None:
    with pytest.raises(DocumentError, match=r"a\.xml: the host 'a' is also in a\.xml\. Leave one of them out"):
        group_hosts([host("a"), host("a", OLD)], DEFINITIONS)


def test_servers_migrate_to_hosts_with_at_least_the_features() -> None:
    hosts = [host("old", OLD), host("new"), host("more", "New +e"), host("kin", "Old +c +d"), host("none", "")]
    groups = {group.names[0]: group.number for group in group_hosts(hosts, DEFINITIONS)}
    found = {each.group.names[0]: each for each in migrations(group_hosts(hosts, DEFINITIONS), DEFINITIONS)}

    def numbers(*names: str) -> tuple[int, ...]:
        return tuple(sorted(groups[name] for name in names))

    assert found["old"].targets == numbers("new", "more", "kin")
    assert found["new"].targets == numbers("more", "kin")
    assert found["kin"].targets == numbers("more", "new")
    assert found["more"].targets == ()
    assert found["more"].sources == numbers("old", "new", "kin")
    assert all(found[name].unknown == numbers("none") for name in ("old", "new", "more", "kin"))
    assert found["none"].unknown == numbers("old", "new", "more", "kin", "none")


@pytest.mark.parametrize(
    "other",
    [
        host("b", architecture="aarch64", vendor=""),
        host("b", domain_type="qemu"),
        host("b", vendor="Other"),
        host("b", "", architecture="aarch64"),
    ],
)
def test_servers_migrate_neither_way_between_kinds_of_hosts(other: HostCpu) -> None:
    """And that is known, whatever else is not."""
    for each in migrations(group_hosts([host("a"), other], DEFINITIONS), DEFINITIONS):
        assert not each.targets
        assert set(each.unknown) <= {each.group.number}


def test_i686_servers_fit_x86_64_hosts_and_not_the_other_way_round() -> None:
    (group,) = group_hosts([host("a")], DEFINITIONS)
    assert fit(group, cpu(OLD, architecture="i686"), DEFINITIONS).fits
    (group,) = group_hosts([host("a", architecture="i686")], DEFINITIONS)
    assert fit(group, cpu(OLD), DEFINITIONS).reason == "the architecture is i686, not x86_64"


def test_qemu_of_each_host_must_have_the_model() -> None:
    (group,) = group_hosts([host("a"), host("b", models={OLD: True})], DEFINITIONS)
    found = fit(group, cpu(NEW), DEFINITIONS)
    assert (found.fits, found.reason) == (False, "the QEMU of 1 host has no CPU model 'New': b")
    assert fit(group, cpu(OLD), DEFINITIONS).fits
    # One that lists no models says nothing about them.
    (group,) = group_hosts([host("a", models={})], DEFINITIONS)
    assert fit(group, cpu(NEW), DEFINITIONS).fits


def test_model_that_libvirt_calls_unusable_fits_only_with_the_feature_disabled() -> None:
    """QEMU's model may have features that its definition has not, such as xsaves of EPYC-Rome."""
    (group,) = group_hosts([host("a", "New -zz", models={NEW: False, OLD: False})], DEFINITIONS)
    assert fit(group, Cpu("", NEW), DEFINITIONS).reason.startswith("the host disables 'zz'")
    assert fit(group, cpu("New -zz"), DEFINITIONS).fits
    (group,) = group_hosts([host("a", "New -e", models={NEW: False, OLD: False})], DEFINITIONS)
    assert fit(group, Cpu("", NEW), DEFINITIONS).reason == "the host runs New only without e"
    found = fit(group, Cpu("", OLD), DEFINITIONS)
    assert found.reason == "libvirt says that 1 host cannot run Old with all its features: a"
    assert fit(group, cpu("New -e"), DEFINITIONS).fits


def test_libvirts_own_answer_counts_where_definitions_are_missing() -> None:
    (group,) = group_hosts([host("a", "Next", models={"Other": True, "Next": True, "Third": None})], NO_DEFINITIONS)
    assert fit(group, Cpu("", "Other"), NO_DEFINITIONS).fits
    assert fit(group, Cpu("", "Third"), NO_DEFINITIONS).fits is None
    assert fit(group, Cpu("", "Other", features=(("e", "require"),)), NO_DEFINITIONS).fits is None
    # Of each host of the group.
    both = [host(name, "Next", models={"Next": True, "Other": usable}) for name, usable in (("a", True), ("b", None))]
    (group,) = group_hosts(both, NO_DEFINITIONS)
    assert fit(group, Cpu("", "Other"), NO_DEFINITIONS).fits is None


def test_guest_of_a_host_is_its_cpu_without_what_is_not_migrated() -> None:
    groups = group_hosts([host("a", "New +invtsc"), host("b", "")], DEFINITIONS)
    assert guest_on("a", groups) == (cpu(NEW), "kvm")
    for name, says in (
        ("b", "libvirt lists no host-model for it. Give --guest or --model."),
        ("c", "there is no such host"),
    ):
        with pytest.raises(DocumentError, match=f"--from-host '{name}': {says}"):
            guest_on(name, groups)


def test_hosts_have_a_cpu_in_common_for_each_vendor() -> None:
    s390x = "only the libvirts of the hosts can compare CPUs of s390x"
    hosts = [host("b", "New +e"), host("a", OLD), host("c", vendor="Other"), host("d", "", architecture="aarch64")]
    found = common_cpus([*hosts, host("e", "gen15a", architecture="s390x", vendor="")], DEFINITIONS)
    assert found == [
        Common("aarch64", "kvm", "", ("d",), None, "libvirt lists no host-model for d", ("Old", "Plain")),
        Common("s390x", "kvm", "", ("e",), None, s390x, ("Old", "Plain")),
        Common("x86_64", "kvm", "Acme", ("a", "b"), cpu(OLD), "", ("Old", "Plain"), ("c", "d", "e")),
        Common("x86_64", "kvm", "Other", ("c",), cpu("Plain +b +c +d", "Other"), "", ("Old", "Plain")),
    ]


def test_usable_models_are_those_that_each_host_can_run() -> None:
    hosts = [host("a", models={OLD: True, NEW: True}), host("b", models={OLD: True, NEW: False, "Next": True})]
    (found,) = common_cpus(hosts, DEFINITIONS)
    assert found.usable == (OLD,)
    assert found.cpu == cpu(NEW)
    (found,) = common_cpus([host("a", models={})], DEFINITIONS)
    assert (found.cpu, found.reason) == (
        None,
        "the QEMUs of the hosts have no CPU model in common that the CPU map defines",
    )


def test_connected_libvirt_decides_unless_it_is_known_that_the_guest_does_not_fit() -> None:
    asked: list[Cpu] = []

    def group_of(text: str, answer: Fit) -> Group:
        def ask(guest: Cpu) -> Fit:
            asked.append(guest)
            return answer

        (group,) = group_hosts([replace(host("a", text), ask=ask)], DEFINITIONS)
        return group

    no, unknown = Fit(False, "libvirt says: no"), Fit(None, "libvirt says: Unknown CPU model")
    assert fit(group_of("New", no), cpu(OLD), DEFINITIONS) == no
    assert fit(group_of("Next", Fit(True)), cpu(OLD), DEFINITIONS).fits
    assert fit(group_of("", Fit(True)), cpu(OLD), DEFINITIONS).fits
    assert fit(group_of("New", unknown), cpu(OLD), DEFINITIONS).fits
    assert asked == [cpu(OLD)] * 4
    assert fit(group_of("Old", Fit(True)), cpu(NEW), DEFINITIONS).fits is False
    assert len(asked) == 4


def test_answer_of_one_libvirt_is_not_that_of_hosts_whose_cpu_is_not_known() -> None:
    """Such hosts are one group although their CPUs may differ; and one "no" is enough in any group."""

    def asked(name: str, answer: bool | None, text: str = "") -> HostCpu:
        return replace(host(name, text), ask=lambda _guest: Fit(answer))

    def answer(*hosts: HostCpu) -> bool | None:
        (group,) = group_hosts(hosts, DEFINITIONS)
        return fit(group, cpu(OLD), DEFINITIONS).fits

    assert answer(asked("a", True), host("b", "")) is None
    assert answer(asked("a", True), asked("b", None)) is None
    assert answer(asked("a", True), asked("b", True)) is True
    assert answer(asked("a", True), asked("b", False)) is False
    assert answer(asked("a", True, "New"), host("b")) is True
    assert answer(asked("a", True, "New"), asked("b", False, "New")) is False
    assert answer(asked("a", None, "New"), host("b")) is True
