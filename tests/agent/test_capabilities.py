# SPDX-License-Identifier: Apache-2.0

"""The table of a host's traits: yes, no with its reason, or not owned."""

from dataclasses import replace

from os_prefilter.hosts.capabilities import reporter_traits
from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter_agent.capabilities import Capability, capabilities
from tests.support.hosts import KVM


def test_capability_has_a_reason_unless_the_host_has_the_trait() -> None:
    lines = capabilities(replace(KVM, hypervisor_version=(7, 2, 22)))
    too_old = "needs QEMU 8.0.0, found 7.2.22"
    assert Capability("COMPUTE_NET_VIF_MODEL_IGB", "no", too_old) in lines
    assert Capability("COMPUTE_NET_VIF_MODEL_E1000E", "yes", "") in lines
    for line in lines:
        assert bool(line.because) == (line.answer != "yes")


def test_lines_are_in_the_order_of_the_vocabulary() -> None:
    traits = [line.trait for line in capabilities(KVM)]
    assert traits == [each for each in reporter_traits() if each in traits]


def test_trait_the_reporter_does_not_own_is_listed_as_not_owned() -> None:
    (line,) = [
        line
        for line in capabilities(VmwareFacts())
        if line.trait == "HW_CPU_HYPERTHREADING"
    ]
    assert line.answer == "not owned"
