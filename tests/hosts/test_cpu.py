"""Guests' CPUs on hosts: fits, does not fit, or not known; and the CPU that hosts have in common."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from os_prefilter.hosts.cpu import NO_DEFINITIONS, Cpu, CpuDefinitions, Model, UnknownCpu, baseline, compare
from tests.support.cpus import DEFINITIONS, FEATURES, MODELS, NEW, OLD, cpu

_ALL = frozenset(MODELS)


@pytest.mark.parametrize(
    ("host", "guest", "fits", "reason"),
    [
        ("New", "New", True, ""),
        ("New", "Old", True, ""),
        ("New", "Old +c +d", True, ""),
        ("New +e", "New", True, ""),
        ("New", "New +e", False, "the host lacks e"),
        ("Old", "New", False, "the host lacks c, d"),
        ("Old", "New -c -d", True, ""),
        ("Old", "New ?c =d", True, ""),
        ("New -d", "New", False, "the host lacks d"),
        ("New -d", "New -d", True, ""),
        ("New", "Old !e", True, ""),
        ("New", "Old !c", False, "the host has forbidden features: c"),
        # A feature that no definition names: a host has it where it says so.
        ("New +zz", "New +zz", True, ""),
        ("New", "New +zz", False, "the host lacks zz"),
        ("New", "New -zz", True, ""),
        ("New -zz", "New -zz", True, ""),
        ("New -zz", "New", None, "the host disables 'zz', a CPU feature that is not in the test"),
        ("New", "Old -zz", None, "the guest names 'zz', a CPU feature that is not in the test"),
        ("New", "Old ?zz", None, "the guest names 'zz', a CPU feature that is not in the test"),
        ("New", "Old =zz", None, "the guest names 'zz', a CPU feature that is not in the test"),
        ("New -zz", "Old -zz", True, ""),
        ("New", "New !zz", None, "the guest forbids 'zz', a CPU feature that is not in the test"),
        # A model that no definition names: of the same model, the features' names decide.
        ("Next +e", "Next", True, ""),
        ("Next", "Next -c", True, ""),
        ("Next", "Next +e", None, "the CPU model 'Next' is not in the test"),
        ("Next -c", "Next", None, "the CPU model 'Next' is not in the test"),
        ("Next", "New", None, "the CPU model 'Next' is not in the test"),
        ("New", "Next", None, "the CPU model 'Next' is not in the test"),
        ("Next", "Next ?e", None, "the CPU model 'Next' is not in the test"),
    ],
)
def test_guest_fits_a_host_that_has_its_features(host: str, guest: str, fits: bool | None, reason: str) -> None:
    found = compare(cpu(host), cpu(guest), DEFINITIONS)
    assert (found.fits, found.reason) == (fits, reason)


def test_vendor_of_a_guest_is_that_of_the_host_unless_it_states_none() -> None:
    assert compare(cpu(NEW), cpu(OLD, "Other"), DEFINITIONS).reason == "the vendor is Acme, not Other"
    assert compare(cpu(NEW, ""), cpu(OLD), DEFINITIONS).reason == "the vendor is not stated, not Acme"
    assert compare(cpu(NEW), cpu(OLD, ""), DEFINITIONS).fits


@pytest.mark.parametrize("architecture", ["aarch64", "s390x", "ppc64le"])
def test_architectures_never_mix_and_others_than_x86_are_compared_by_their_text(architecture: str) -> None:
    other = cpu("gen15a-base +aen", "", architecture)
    assert compare(other, cpu(NEW), DEFINITIONS).fits is False
    assert compare(cpu(NEW), other, DEFINITIONS).fits is False
    assert compare(other, other, NO_DEFINITIONS).fits
    less = cpu("gen15a-base", "", architecture)
    assert compare(other, less, DEFINITIONS).fits is None
    assert architecture in compare(other, less, DEFINITIONS).reason
    assert compare(cpu(NEW), cpu(OLD, architecture="i686"), DEFINITIONS).fits


def test_strict_guest_fits_no_host_with_more_features() -> None:
    strict = Cpu("", OLD, features=(("c", "require"),), strict=True)
    assert compare(cpu(NEW), strict, DEFINITIONS).reason == "match='strict', and the host also has d"
    assert compare(cpu("New -d"), strict, DEFINITIONS).fits
    assert compare(cpu("Next"), Cpu("", "Next", strict=True), DEFINITIONS).fits is None


def test_without_definitions_only_the_same_model_can_fit() -> None:
    assert compare(cpu("New +e"), cpu(NEW), NO_DEFINITIONS).fits
    assert compare(cpu(NEW), cpu(OLD), NO_DEFINITIONS).fits is None
    assert "--cpu-map" in compare(cpu(NEW), cpu(OLD), NO_DEFINITIONS).reason


def test_host_model_guests_never_have_invtsc() -> None:
    assert cpu("New +invtsc +e").migratable() == cpu("New +e")
    assert baseline([cpu("New +invtsc")], _ALL, DEFINITIONS) == cpu(NEW)


@pytest.mark.parametrize(
    ("cpus", "wanted"),
    [
        (["New"], "New"),
        (["New", "New +e"], "New"),
        (["New +e", "New +e"], "New +e"),
        (["New", "Old"], "Old"),
        (["New -d", "New"], "Old +c"),
        (["Old +c +e", "New +e"], "Old +c +e"),
        (["New +zz", "Old +zz"], "Old +zz"),
        # QEMU's model has a feature that its definition has not.
        (["New -zz", "New"], "New -zz"),
        (["New -zz", "Old"], "Old"),
    ],
)
def test_baseline_is_the_nearest_model_and_what_all_hosts_have(cpus: list[str], wanted: str) -> None:
    assert baseline([cpu(text) for text in cpus], _ALL, DEFINITIONS) == cpu(wanted)


@pytest.mark.parametrize(
    ("cpus", "allowed", "reason"),
    [
        (["New"], frozenset(), "no CPU model in common"),
        (["New"], frozenset(["Hidden"]), "no CPU model in common"),
        (["New", "Next"], _ALL, "the CPU model 'Next' is not in the test"),
    ],
)
def test_no_baseline_without_a_model_that_each_qemu_has(cpus: list[str], allowed: frozenset[str], reason: str) -> None:
    with pytest.raises(UnknownCpu, match=reason):
        baseline([cpu(text) for text in cpus], allowed, DEFINITIONS)


def test_baseline_is_no_model_with_more_than_the_hosts_have_that_cannot_be_disabled() -> None:
    """A feature of several bits, of which a host has some: QEMU cannot leave out the others."""
    features = {"a": 0b001, "part": 0b010, "wide": 0b110}
    models = {name: Model(name, "", bits) for name, bits in (("Small", 0b001), ("Part", 0b011), ("Wide", 0b111))}
    definitions = CpuDefinitions("the test", features, models)
    hosts = [Cpu("x86_64", "Wide"), Cpu("x86_64", "Part")]
    assert baseline(hosts, frozenset(models), definitions).model == "Part"
    with pytest.raises(UnknownCpu, match="no CPU model in common"):
        baseline(hosts, frozenset(("Wide",)), definitions)


_CPUS = st.builds(
    lambda model, features: Cpu("x86_64", model, "Acme", tuple(sorted(features.items()))),
    st.sampled_from(["Plain", OLD, NEW]),
    st.dictionaries(st.sampled_from((*FEATURES, "zz")), st.sampled_from(["require", "disable"])),
)


@given(st.lists(_CPUS, min_size=1, max_size=4))
def test_baseline_fits_each_host_it_is_of(cpus: list[Cpu]) -> None:
    """It is what goes into nova.conf, so nova-compute must start with it on each of them."""
    found = baseline(cpus, _ALL, DEFINITIONS)
    for each in cpus:
        fit = compare(each, found, DEFINITIONS)
        # Not known where the host disables what only a newer definition of another model may have.
        assert fit.fits or (fit.fits is None and "zz" in fit.reason and each.model != found.model)


@given(_CPUS, _CPUS, _CPUS)
def test_fits_is_an_order(one: Cpu, other: Cpu, third: Cpu) -> None:
    """Each CPU fits itself; and what fits a host fits each host that has all of its features."""
    assert compare(one, one, DEFINITIONS).fits
    if compare(other, one, DEFINITIONS).fits and compare(third, other, DEFINITIONS).fits:
        assert compare(third, one, DEFINITIONS).fits is not False


@given(_CPUS, _CPUS)
def test_definitions_never_turn_fits_into_no(host: Cpu, guest: Cpu) -> None:
    """What is known without a CPU map is also true with one."""
    if compare(host, guest, NO_DEFINITIONS).fits:
        assert compare(host, guest, DEFINITIONS).fits
