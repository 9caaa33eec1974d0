"""From the answers of a reporter to traits: total, and only what the reporter owns."""

from collections.abc import Callable

import pytest
from stevedore import named

from os_prefilter.capabilities import capability_traits, known_traits, owns, reporter_of
from os_prefilter.errors import UnusableReporter
from os_prefilter.plugins import load_reporter
from os_prefilter.reporters import HostFacts
from os_prefilter.reporters.fake import FakeFacts
from os_prefilter.reporters.vmware import VmwareFacts
from os_prefilter.vocabulary import QUALIFIED, ROWS
from tests.support.hosts import KVM


def test_every_trait_that_a_filter_or_nova_can_require_says_something_of_a_host() -> None:
    required = {term.trait for row in ROWS for term in row.values.values() if term.trait}
    assert set(known_traits()) == required | set(QUALIFIED.values())


def test_what_a_reporter_does_not_own_it_does_not_answer() -> None:
    facts = VmwareFacts()
    assert not owns(reporter_of(facts), "HW_CPU_HYPERTHREADING", facts)
    assert "HW_CPU_HYPERTHREADING" not in capability_traits(facts)
    assert not owns(reporter_of(facts), "CUSTOM_OF_AN_OPERATOR", facts)


def test_asking_twice_gives_the_same() -> None:
    assert capability_traits(KVM) == capability_traits(KVM)
    assert list(capability_traits(KVM)) == list(capability_traits(KVM))


def test_an_unknown_driver_is_an_error_with_the_known_ones() -> None:
    with pytest.raises(UnusableReporter, match="there are fake, ironic, libvirt, vmware"):
        load_reporter("nosuch\ndriver")


class _Point:
    def __init__(self, name: str, value: str, load: Callable[[], object]) -> None:
        self.name, self.value, self.load, self.group = name, value, load, "os_prefilter.capability_reporters"


def _fail() -> object:
    raise RuntimeError("no such library")


@pytest.mark.parametrize(
    ("points", "problem"),
    [
        ([_Point("mine", "a:B", object)], "it is a object, not an os_prefilter.reporters.Reporter"),
        ([_Point("mine", "a:B", _fail)], "a:B does not load: RuntimeError: no such library"),
        ([_Point("mine", "a:B", _fail), _Point("mine", "c:D", _fail)], "it is offered more than once: a:B, c:D"),
    ],
)
def test_a_broken_reporter_is_an_error(points: list[_Point], problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named.NamedExtensionManager, "list_entry_points", lambda _self: points)
    with pytest.raises(UnusableReporter, match=problem):
        load_reporter("mine")


def test_a_third_party_reporter_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its entry point alone: the facts name it."""
    fake = load_reporter("fake")
    monkeypatch.setattr(
        named.NamedExtensionManager, "list_entry_points", lambda _self: [_Point("mine", "a:B", lambda: fake)]
    )
    assert load_reporter("mine") is fake
    assert issubclass(FakeFacts, HostFacts)
