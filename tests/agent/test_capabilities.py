# SPDX-License-Identifier: Apache-2.0

"""The table of a host's traits: yes, no with its reason, or not owned."""

from __future__ import annotations

from dataclasses import replace

from os_prefilter.hosts.capabilities import reporter_traits
from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter_agent.capabilities import Capability, capabilities
from tests.support.hosts import KVM, X86


def test_capability_has_a_reason_unless_the_host_has_the_trait() -> None:
    lines = capabilities(replace(KVM, libvirt_version=(9, 2, 0)))
    too_old = "needs libvirt 9.3.0, found 9.2.0"
    assert Capability("COMPUTE_NET_VIF_MODEL_IGB", "no", too_old) in lines
    assert Capability("COMPUTE_NET_VIF_MODEL_E1000E", "yes", "") in lines
    for line in lines:
        assert bool(line.because) == (line.answer != "yes")


def test_capability_that_is_not_known_has_the_reason() -> None:
    guest = replace(X86, devices=None, devices_unknown="it hangs")
    lines = capabilities(replace(KVM, guests={"x86_64": guest}))
    reason = "QEMU's devices are not known: it hangs"
    trait = "COMPUTE_NET_VIF_MODEL_E1000"
    assert Capability(trait, "not known", reason) in lines


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
