# SPDX-License-Identifier: Apache-2.0

"""What is known of a node of a real Ironic, and what its reporter makes of
it.
"""

from __future__ import annotations

import pytest

from os_prefilter.adapters.ironic.errors import (
    IronicRefused,
    NodeNotReady,
    UnknownNode,
)
from os_prefilter.adapters.ironic.node import IronicNode
from os_prefilter.adapters.ironic.traits import EXTRA
from os_prefilter.common.errors import ProbeFailed
from os_prefilter.hosts.capabilities import capability_traits
from tests.services.ironic.bios import NAME
from tests.services.ironic.ironics import LOGICAL_PROC, Ironic, connect
from tests.services.recorder import Answer, Recorder

HYPERTHREADING = "HW_CPU_HYPERTHREADING"


def test_ironic_node_facts_include_its_traits_and_changeable_bios_settings(
    ironic: Ironic,
) -> None:
    node = ironic.node("manageable")
    ironic.add_traits(node, "CUSTOM_GOLD", "HW_CPU_X86_AVX2")
    facts = IronicNode(ironic.baremetal, node).facts()
    assert (facts.host, facts.architecture, facts.boot_mode) == (
        node,
        "x86_64",
        "uefi",
    )
    assert facts.other_traits == {"CUSTOM_GOLD", "HW_CPU_X86_AVX2"}
    assert facts.bios_interface == NAME
    settings = {
        name: (setting.value, setting.changeable)
        for name, setting in facts.bios.items()
    }
    assert settings == {
        "LogicalProc": ("Enabled", True),
        "SystemModelName": ("R660", False),
    }
    assert capability_traits(facts)[HYPERTHREADING]
    assert (
        IronicNode(ironic.baremetal, ironic.show(node)["name"]).facts()
        == facts
    )


def test_read_only_setting_and_the_no_bios_interface_are_no_capabilities(
    ironic: Ironic,
) -> None:
    """It may be on: the trait says that it can be switched. Settings from
    before count no more.
    """
    node = ironic.node(
        "manageable", bios=[{**LOGICAL_PROC, "read_only": True}]
    )
    facts = IronicNode(ironic.baremetal, node).facts()
    assert (
        facts.bios["LogicalProc"].value,
        facts.bios["LogicalProc"].changeable,
    ) == ("Enabled", False)
    assert not capability_traits(facts)[HYPERTHREADING]
    ironic.patch(node, {"/bios_interface": "no-bios"})
    facts = IronicNode(ironic.baremetal, node).facts()
    assert (facts.bios_interface, dict(facts.bios)) == ("no-bios", {})
    assert not capability_traits(facts)[HYPERTHREADING]


def test_traits_we_reported_are_not_taken_for_operator_traits(
    ironic: Ironic,
) -> None:
    """Else a capability that was once reported would be there for ever."""
    node = ironic.node("manageable")
    ironic.add_traits(node, "CUSTOM_GOLD")
    there = IronicNode(ironic.baremetal, node)
    there.report({HYPERTHREADING: True})
    assert there.facts().other_traits == {"CUSTOM_GOLD"}
    ironic.patch(node, {"/bios_interface": "no-bios"})
    there.report(
        {HYPERTHREADING: capability_traits(there.facts())[HYPERTHREADING]}
    )
    assert ironic.traits(node) == {"CUSTOM_GOLD"}


def test_missing_node_or_malformed_name_raises_unknown_node(
    ironic: Ironic,
) -> None:
    """And no name is another part of the URL."""
    for name in (
        "no-such-node",
        "6d85703a-565d-469a-96ce-30b6de53079d",
        "../conductors",
        "a/b",
        "",
        "..",
    ):
        with pytest.raises(UnknownNode, match="^Ironic has no node"):
            IronicNode(ironic.baremetal, name).facts()


def test_unknown_cpu_arch_leaves_the_node_without_an_architecture(
    ironic: Ironic,
) -> None:
    """Ironic takes any text, and Nova passes over one that it does not
    know.
    """
    node = ironic.node(
        "manageable",
        properties={"cpu_arch": "x86", "capabilities": "boot_mode:uefi"},
    )
    facts = IronicNode(ironic.baremetal, node).facts()
    assert facts.architecture == ""
    assert facts.boot_mode == "uefi"


def test_bad_bios_response_raises_instead_of_reading_as_no_settings(
    ironic: Ironic, proxy: Recorder
) -> None:
    node = IronicNode(connect(proxy.url).baremetal, ironic.node("manageable"))
    answers: list[Answer] = [
        (404, {}),
        (200, {"error": "maintenance"}),
        (200, {"bios": {"a": "b"}}),
        (200, []),
    ]
    for answer in answers:
        proxy.before = lambda _method, path, answer=answer: (
            answer if "/bios" in path else None
        )  # type: ignore[misc]
        wrong = pytest.raises(
            ProbeFailed, match="the response has no list bios"
        )
        with pytest.raises(UnknownNode) if answer[0] == 404 else wrong:
            node.facts()


def test_forbidden_request_raises_with_the_message_from_ironic(
    ironic: Ironic, proxy: Recorder
) -> None:
    words = {
        "error_message": {
            "faultstring": "Access was denied:\nbaremetal:node:get\x1b[2J",
            "faultcode": "Client",
        }
    }
    proxy.before = lambda _method, path: (
        (403, words) if "/nodes/" in path else None
    )
    with pytest.raises(
        IronicRefused, match="403: 'Access was denied: baremetal:node:get"
    ) as raised:
        IronicNode(connect(proxy.url).baremetal, "node").facts()
    assert str(raised.value).isprintable()


def test_invalid_trait_note_in_node_extra_stops_probe_and_report(
    ironic: Ironic,
) -> None:
    """It would decide which traits are removed."""
    node = ironic.node("manageable")
    there = IronicNode(ironic.baremetal, node)
    for note in ("CUSTOM_A", {"CUSTOM_A": 1}, ["custom\n"], [None], 7):
        ironic.patch(node, {"/extra": {EXTRA: note}})
        for act in (there.facts, lambda: there.report({HYPERTHREADING: True})):
            with pytest.raises(
                NodeNotReady, match="node unset .* --extra os_prefilter_traits"
            ):
                act()
    assert ironic.traits(node) == set()
