"""The index of a fleet by capability: the sets of hosts, also of more hosts than one block has."""

from random import Random

import pytest

from os_prefilter.common.host_sets import numbers_in, set_of
from os_prefilter.request.requirements import ROOT, UNSUFFIXED
from os_prefilter_tools.fleet.capability_index import BLOCK, CapabilityIndex, join
from os_prefilter_tools.fleet.demand import RESOURCE, TRAIT, Condition
from os_prefilter_tools.fleet.model import Fleet
from tests.support.placements import provider

HOSTS = 2 * BLOCK + 100
TRAITS = tuple(f"CUSTOM_{number}" for number in range(40))
CONDITIONS = (
    *(
        Condition(TRAIT, scope, wanted, (name,))
        for name in TRAITS
        for scope in (ROOT, UNSUFFIXED)
        for wanted in (True, False)
    ),
    Condition(RESOURCE, UNSUFFIXED, True, ("VCPU",)),
    Condition(RESOURCE, UNSUFFIXED, True, ("VGPU",)),
)


def fleet_of(traits: int) -> Fleet:
    """Return hosts that each have half of the first ``traits`` traits; one in three has them on a nested VGPU too."""
    random = Random(1)  # noqa: S311 - the same at each run
    hosts = []
    for number in range(HOSTS):
        own = " ".join(random.sample(TRAITS[:traits], traits // 2))
        gpu = (provider(f"gpu-{number}", "VGPU", own),) if not number % 3 else ()
        hosts.append(provider(f"host-{number}", traits=own, children=gpu))
    return Fleet(tuple(hosts))


@pytest.mark.parametrize("traits", [2, len(TRAITS)], ids=["few kinds", "every host different"])
def test_sets_of_hosts_are_those_that_have_the_trait(traits: int) -> None:
    """As counted host by host; each is in one group of its kind, and the largest comes first."""
    fleet = fleet_of(traits)
    index = CapabilityIndex(fleet, CONDITIONS)
    # A number of all hosts for each kind would take HOSTS bits each.
    assert max(hosts.bit_length() for members in index.kinds.values() for hosts in members.values()) <= BLOCK
    groups = index.host_groups()
    assert sorted(number for group in groups for number in group) == list(range(HOSTS))
    assert [len(group) for group in groups] == sorted(map(len, groups), reverse=True)
    assert (len(groups) > HOSTS // 2) == (traits == len(TRAITS))
    gpu = Condition(RESOURCE, UNSUFFIXED, True, ("VGPU",))
    for name in TRAITS:
        having = {host.name for host in fleet.hosts if name in host.traits}
        lacking = {host.name for host in fleet.hosts} - having
        with_gpu = {host.name for host in fleet.hosts if host.providers}
        for scope, also, among in ((ROOT, (), having | lacking), (UNSUFFIXED, (gpu,), with_gpu)):
            for wanted, expected in ((True, having), (False, lacking)):
                found = index.find_serving([Condition(TRAIT, scope, wanted, (name,)), *also])
                assert set(index.names_of(found)) == expected & among
                assert found.bit_count() == len(expected & among)


def test_sets_and_numbers_are_the_same_hosts() -> None:
    """``numbers_in(set_of(numbers)) == numbers``, with gaps of whole blocks; ``join`` is the union."""
    for numbers in ([], [0], [7, 8, 9], [BLOCK - 1, BLOCK, 5 * BLOCK + 3]):
        assert numbers_in(set_of(numbers)) == numbers
    assert join([]) == 0
    assert numbers_in(join([{0: 1, 3: 2}, {3: 1}])) == [0, 3 * BLOCK, 3 * BLOCK + 1]
