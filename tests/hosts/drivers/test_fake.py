# SPDX-License-Identifier: Apache-2.0

"""fake: a host can do what it was told that it can, by default what Nova's
fake driver says of itself.
"""

from __future__ import annotations

import pytest
from nova.virt import fake as nova_fake

from os_prefilter.hosts.desired_traits import Mode, goal_of
from os_prefilter.hosts.drivers.fake import LIKE_NOVA, FakeFacts, refusal
from os_prefilter.vocabulary import BY_NAME, ROWS
from tests.support.every_trait import EVERY_KEY
from tests.support.hosts import declared_by_nova
from tests.support.zipping import zip_equal


def _traits(facts: FakeFacts) -> set[str]:
    found: set[str] = set()
    for row in ROWS:
        for value, term in row.values.items():
            lacks = refusal(facts, row.name, value, "")
            if term.trait and term.required and not lacks:
                found.add(term.trait)
    return found


def test_default_capabilities_match_the_fake_driver_of_nova() -> None:
    declared = declared_by_nova(nova_fake.FakeDriver)
    said = {trait for trait, supported in declared.items() if supported}
    known = {trait for row in ROWS for trait in row.traits}
    status = nova_fake.FakeDriver(None).host_status_base
    (supported,) = status["supported_instances"]
    rows = ("architecture", "hypervisor_type", "vm_mode")
    runs = {
        BY_NAME[row].values[value].trait
        for row, value in zip_equal(rows, supported)
    }
    assert FakeFacts().can == LIKE_NOVA
    assert _traits(FakeFacts()) == (said & known) | runs
    assert FakeFacts().architecture == supported[0]


def test_agent_reports_the_architecture_that_the_driver_of_nova_does_not() -> (
    None
):
    assert "HW_ARCH_X86_64" not in declared_by_nova(nova_fake.FakeDriver)
    goal = goal_of(FakeFacts(), EVERY_KEY, Mode.BESIDE)
    assert goal.traits["HW_ARCH_X86_64"]
    assert "COMPUTE_IMAGE_TYPE_RAW" not in goal.traits


@pytest.mark.parametrize("architecture", ["", "x86_64", "aarch64", "sparc"])
def test_configured_value_is_supported(architecture: str) -> None:
    for row in ROWS:
        for value in row.values:
            told = FakeFacts(can={row.name: frozenset({value})})
            assert refusal(told, row.name, value, architecture) == "", value


@pytest.mark.parametrize("architecture", ["", "x86_64", "aarch64", "sparc"])
def test_unconfigured_value_is_refused(architecture: str) -> None:
    """The thread policy "isolate" is the one that asks for a host that
    cannot.
    """
    nothing = FakeFacts(can={})
    for row in ROWS:
        for value, term in row.values.items():
            reason = refusal(nothing, row.name, value, architecture)
            assert bool(reason) == bool(term.trait and term.required), value
            assert reason == "" or row.name in reason


def test_an_exact_machine_type_is_one_of_its_family() -> None:
    facts = FakeFacts(can={"machine_type": frozenset(("q35",))})
    assert refusal(facts, "machine_type", "pc-q35-9.1", "") == ""
    assert refusal(facts, "machine_type", "pc-i440fx-9.1", "") != ""
    assert refusal(facts, "machine_type", "no\nsuch", "") != ""


@pytest.mark.parametrize(
    ("row", "values", "unknown"),
    [("disc_bus", "scsi", "scsi"), ("disk_bus", "scsi pata", "pata")],
)
def test_unknown_row_or_value_raises_value_error(
    row: str, values: str, unknown: str
) -> None:
    message = f"'{row}' with '{unknown}', which the vocabulary does not have"
    with pytest.raises(ValueError, match=message):
        FakeFacts(can={row: frozenset(values.split())})
