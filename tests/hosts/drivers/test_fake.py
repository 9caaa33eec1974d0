# SPDX-License-Identifier: Apache-2.0

"""fake: a host can do what it was told that it can, by default what Nova's
fake driver says of itself.
"""

from itertools import product

import pytest
from nova.virt import fake as nova_fake

from os_prefilter.hosts.drivers.fake import LIKE_NOVA, FakeFacts, refusal
from os_prefilter.vocabulary import BY_NAME, ROWS
from tests.support.hosts import declared_by_nova


def _traits(facts: FakeFacts) -> set[str]:
    return {
        term.trait
        for row in ROWS
        for value, term in row.values.items()
        if term.trait
        and term.required
        and not refusal(facts, row.name, value, "")
    }


def test_default_capabilities_match_the_fake_driver_of_nova() -> None:
    said = {
        trait
        for trait, supported in declared_by_nova(nova_fake.FakeDriver).items()
        if supported
    }
    known = {trait for row in ROWS for trait in row.traits}
    ((architecture, hypervisor_type, vm_mode),) = nova_fake.FakeDriver(
        None
    ).host_status_base["supported_instances"]
    runs = {
        "architecture": architecture,
        "hypervisor_type": hypervisor_type,
        "vm_mode": vm_mode,
    }
    assert FakeFacts().can == LIKE_NOVA
    assert _traits(FakeFacts()) == (said & known) | {
        BY_NAME[row].values[value].trait for row, value in runs.items()
    }
    assert FakeFacts().architecture == architecture


def test_configured_value_is_supported_and_an_unconfigured_one_is_refused() -> (
    None
):
    """The thread policy "isolate" is the one that asks for a host that
    cannot.
    """
    for row, architecture in product(ROWS, ("", "x86_64", "aarch64", "sparc")):
        for value, term in row.values.items():
            told, nothing = (
                FakeFacts(can={row.name: frozenset((value,))}),
                FakeFacts(can={}),
            )
            assert refusal(told, row.name, value, architecture) == "", value
            reason = refusal(nothing, row.name, value, architecture)
            assert bool(reason) == bool(term.trait and term.required), value
            assert reason == "" or row.name in reason


def test_an_exact_machine_type_is_one_of_its_family() -> None:
    facts = FakeFacts(can={"machine_type": frozenset(("q35",))})
    assert refusal(facts, "machine_type", "pc-q35-9.1", "") == ""
    assert refusal(facts, "machine_type", "pc-i440fx-9.1", "") != ""
    assert refusal(facts, "machine_type", "no\nsuch", "") != ""


@pytest.mark.parametrize(
    ("can", "message"),
    [
        ({"disc_bus": frozenset(("scsi",))}, "'disc_bus' with 'scsi'"),
        ({"disk_bus": frozenset(("scsi", "pata"))}, "'disk_bus' with 'pata'"),
    ],
)
def test_unknown_row_or_value_raises_value_error(
    can: dict[str, frozenset[str]], message: str
) -> None:
    with pytest.raises(
        ValueError, match=f"{message}, which the vocabulary does not have"
    ):
        FakeFacts(can=can)
