# SPDX-License-Identifier: Apache-2.0

"""ironic: a node is read as the API and the command line show it, and what is
not one is an error that says where.
"""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from nova.virt.ironic.driver import IronicDriver

from os_prefilter.common.errors import DocumentError
from os_prefilter.hosts.drivers.ironic_facts import (
    BiosSetting,
    IronicFacts,
    facts_from_node,
)
from os_prefilter.vocabulary import BY_NAME

# What openstackclient prints (python-ironicclient 5), shortened.
_NODE: dict[str, Any] = json.loads("""
{
  "bios_interface": "idrac-redfish",
  "boot_mode": "uefi",
  "driver": "idrac",
  "name": "rack-1-node-2",
  "properties": {"cpu_arch": "x86_64", "cpus": 64, "capabilities": "boot_mode:uefi,secure_boot:true"},
  "provision_state": "available",
  "resource_class": "baremetal.gold",
  "secure_boot": false,
  "traits": ["CUSTOM_GOLD", "HW_CPU_X86_AVX2"],
  "uuid": "6d85703a-565d-469a-96ce-30b6de53079d"
}
""")
_SHORT = (
    '[{"BIOS setting name": "LogicalProc", "BIOS setting value": "Enabled"}]'
)
_LONG = """
[{"Name": "LogicalProc", "Value": "Enabled", "Attribute Type": "Enumeration",
  "Allowable Values": ["Enabled", "Disabled"], "Read Only": false, "Reset Required": true, "Unique": false},
 {"Name": "SystemModelName", "Value": "R660", "Attribute Type": "String", "Allowable Values": [], "Read Only": true},
 {"Name": "ProcSettings", "Value": "On", "Attribute Type": null, "Allowable Values": ["On"], "Read Only": null},
 {"Name": "Fans", "Value": "4", "Attribute Type": "Integer", "Lower Bound": 1, "Upper Bound": 9},
 {"Name": "AssetTag", "Value": "", "Attribute Type": "String", "Lower Bound": null, "Maximum Length": 8}]
"""
_API = """
{"bios": [{"name": "LogicalProc", "value": "Enabled", "allowable_values": ["Enabled", "Disabled"], "read_only": false,
           "attribute_type": "Enumeration", "links": []},
          {"name": "SystemModelName", "value": "R660", "attribute_type": "String", "min_length": 2, "read_only": true},
          {"name": "Quiet", "value": "1", "attribute_type": "Boolean", "lower_bound": null}]}
"""


def _node(properties: object = None, **fields: Any) -> dict[str, Any]:
    return {
        "uuid": "6d85",
        "traits": [],
        "properties": properties or {},
        **fields,
    }


def test_node_printed_by_the_openstack_client_becomes_facts() -> None:
    assert facts_from_node(_NODE, json.loads(_SHORT)) == IronicFacts(
        host="6d85703a-565d-469a-96ce-30b6de53079d",
        architecture="x86_64",
        other_traits=frozenset(("CUSTOM_GOLD", "HW_CPU_X86_AVX2")),
        bios={"LogicalProc": BiosSetting("Enabled", attribute_type=None)},
        hardware_type="idrac",
        bios_interface="idrac-redfish",
        boot_mode="uefi",
        secure_boot=True,
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"provision_state": "active", "last_error": None}, False),
        ({"provision_state": "servicing"}, False),
        ({"provision_state": "service failed"}, True),
        (
            {
                "provision_state": "active",
                "last_error": "By request, the service operation was aborted",
            },
            True,
        ),
    ],
)
def test_bios_settings_are_uncertain_after_an_operation_that_failed(
    fields: dict[str, Any], *, expected: bool
) -> None:
    facts = facts_from_node(_node(**fields, driver="prefilter-redfish"))
    assert (facts.bios_may_differ, facts.hardware_type) == (
        expected,
        "redfish",
    )


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        # Only with all columns are types shown.
        (_SHORT, {"LogicalProc": BiosSetting("Enabled", attribute_type=None)}),
        (
            _LONG,
            {
                "LogicalProc": BiosSetting(
                    "Enabled",
                    allowed=("Enabled", "Disabled"),
                    attribute_type="Enumeration",
                ),
                "SystemModelName": BiosSetting(
                    "R660", changeable=False, attribute_type="String"
                ),
                "ProcSettings": BiosSetting(
                    "On", changeable=False, allowed=("On",)
                ),
                "Fans": BiosSetting(
                    "4", attribute_type="Integer", least=1, most=9
                ),
                "AssetTag": BiosSetting("", attribute_type="String", most=8),
            },
        ),
        (
            _API,
            {
                "LogicalProc": BiosSetting(
                    "Enabled",
                    allowed=("Enabled", "Disabled"),
                    attribute_type="Enumeration",
                ),
                "SystemModelName": BiosSetting(
                    "R660", changeable=False, attribute_type="String", least=2
                ),
                "Quiet": BiosSetting("1", attribute_type="Boolean"),
            },
        ),
        ('{"bios": []}', {}),
    ],
)
def test_bios_settings_are_read_in_every_format(
    document: str, expected: dict[str, BiosSetting]
) -> None:
    assert facts_from_node(_node(), json.loads(document)).bios == expected


@pytest.mark.parametrize(
    ("capabilities", "fields", "expected"),
    [
        (None, {}, ("", None)),
        ("", {"boot_mode": None, "secure_boot": None}, ("", None)),
        ("boot_mode:UEFI , secure_boot:True", {}, ("uefi", True)),
        # The capability is what Ironic deploys with, whatever the machine is
        # in now.
        (
            "boot_mode:bios,secure_boot:false",
            {"boot_mode": "uefi", "secure_boot": True},
            ("bios", False),
        ),
        ("gpu:2", {"boot_mode": "uefi", "secure_boot": True}, ("uefi", True)),
        # As Ironic reads them: what is malformed is passed over, the first of
        # two counts.
        (
            "boot_mode,boot_mode:,:uefi,a:b:c,boot_mode:bios,boot_mode:uefi,",
            {},
            ("bios", None),
        ),
    ],
)
def test_boot_mode_and_secure_boot_come_from_capabilities_before_node_fields(
    capabilities: str | None,
    fields: dict[str, Any],
    expected: tuple[str, bool | None],
) -> None:
    facts = facts_from_node(_node({"capabilities": capabilities}, **fields))
    assert (facts.boot_mode, facts.secure_boot) == expected


def test_cpu_arch_is_normalized_as_nova_does() -> None:
    for text in (
        *BY_NAME["architecture"].values,
        "AMD64",
        "i386",
        "I586",
        "AArch64",
        "x86",
        "64-bit",
        "",
        None,
    ):
        nova = IronicDriver._parse_node_properties(
            None, SimpleNamespace(id="n", properties={"cpu_arch": text})
        )
        assert facts_from_node(_node({"cpu_arch": text})).architecture == (
            nova["cpu_arch"] or ""
        )


def test_an_unknown_cpu_arch_is_warned_of_and_leaves_all_else_of_the_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in Nova: one property must not end the report of the others."""
    node = {
        **_NODE,
        "properties": {**_NODE["properties"], "cpu_arch": "x86\x1b"},
    }
    facts = facts_from_node(node, json.loads(_SHORT))
    assert facts == replace(
        facts_from_node(_NODE, json.loads(_SHORT)), architecture=""
    )
    assert len(caplog.messages) == 1
    assert (
        r"Node 6d85703a-565d-469a-96ce-30b6de53079d: properties.cpu_arch is"
        r" 'x86\x1b', no architecture that Nova knows" in caplog.text
    )


def test_separately_given_traits_replace_those_of_the_node() -> None:
    node = {**_NODE, "traits": None}
    assert facts_from_node(node, traits=iter(["CUSTOM_A"])).other_traits == {
        "CUSTOM_A"
    }
    assert facts_from_node(_NODE, traits=[]).other_traits == frozenset()


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ([], "the document is a list; expected names with values"),
        ({}, "properties is None; expected names with values"),
        (_node(uuid=""), "uuid is ''; expected the node's UUID"),
        (_node(driver=7), "driver is 7; expected a string"),
        (_node(bios_interface=7), "bios_interface is 7; expected a string"),
        (_node(uuid=7), "uuid is 7; expected a string"),
        (
            _node({"cpu_arch": 64}),
            "properties.cpu_arch is 64; expected a string",
        ),
        (
            _node({"capabilities": {"boot_mode": "uefi"}}),
            "properties.capabilities is a dict; expected a string",
        ),
        (_node({"vendor": 7}), "properties.vendor is 7; expected a string"),
        (_node(boot_mode=["uefi"]), "boot_mode is a list"),
        (
            _node(secure_boot="on"),
            "secure_boot is 'on'; expected true, false or null",
        ),
        (
            _node(traits=None),
            (
                r"traits is None; expected a list of names of traits \(show"
                r" the node with API version 1.37"
            ),
        ),
        (_node(traits="CUSTOM_A"), "traits is 'CUSTOM_A'"),
        (
            _node(traits=["CUSTOM_A", "b\x1b"]),
            r"an item of traits is 'b\\x1b'; expected the name of a trait",
        ),
    ],
)
def test_invalid_node_error_names_the_field(node: Any, message: str) -> None:
    with pytest.raises(DocumentError, match=f"^node.json: {message}"):
        facts_from_node(node, path="node.json")
    with pytest.raises(DocumentError, match=f"^node: {message}"):
        facts_from_node(node)


@pytest.mark.parametrize(
    ("bios", "message"),
    [
        (7, "the document is 7; expected a list of BIOS settings"),
        (
            ["LogicalProc"],
            "item 1 is 'LogicalProc'; expected names with values",
        ),
        (
            [{"name": "A"}, {"value": "Enabled"}],
            "the name in item 2 is None; expected a string",
        ),
        ({"bios": [{"name": 1}]}, "the name in item 1 is 1"),
        (
            {"LogicalProc": "Enabled"},
            "the document is None; expected a list of BIOS settings",
        ),
    ],
)
def test_invalid_bios_settings_error_names_the_item(
    bios: Any, message: str
) -> None:
    with pytest.raises(DocumentError, match=f"^bios.json: {message}"):
        facts_from_node(_NODE, bios, bios_path="bios.json")
