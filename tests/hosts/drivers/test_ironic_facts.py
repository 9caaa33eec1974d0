# SPDX-License-Identifier: Apache-2.0

"""ironic: a node is read as the API and the command line show it, and what is
not one is an error that says where.
"""

from __future__ import annotations

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
from tests.support.tables import cases

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
 {"Name": "AssetTag", "Value": "", "Attribute Type": "String", "Lower Bound": null, "Minimum Length": 2,
  "Maximum Length": 8}]
"""
_API = """
{"bios": [{"name": "LogicalProc", "value": "Enabled", "allowable_values": ["Enabled", "Disabled"], "read_only": false,
           "attribute_type": "Enumeration", "links": []},
          {"name": "SystemModelName", "value": "R660", "attribute_type": "String", "min_length": 2, "read_only": true},
          {"name": "Fans", "value": "4", "attribute_type": "Integer", "lower_bound": 1, "upper_bound": 9},
          {"name": "AssetTag", "value": "", "attribute_type": "String", "max_length": 8},
          {"name": "Quiet", "value": "1", "attribute_type": "Boolean", "lower_bound": null}]}
"""


def _node(properties: object = None, **fields: Any) -> dict[str, Any]:
    return {
        "uuid": "6d85",
        "traits": [],
        "properties": properties or {},
        **fields,
    }


_UNTYPED = BiosSetting("Enabled", attribute_type=None)


def test_node_printed_by_the_openstack_client_becomes_facts() -> None:
    assert facts_from_node(_NODE, json.loads(_SHORT)) == IronicFacts(
        host="6d85703a-565d-469a-96ce-30b6de53079d",
        architecture="x86_64",
        other_traits=frozenset(("CUSTOM_GOLD", "HW_CPU_X86_AVX2")),
        bios={"LogicalProc": _UNTYPED},
        hardware_type="idrac",
        bios_interface="idrac-redfish",
        boot_mode="uefi",
        secure_boot=True,
    )


_ABORTED = "By request, the service operation was aborted"


@pytest.mark.parametrize(
    ("fields", "is_uncertain"),
    [
        ({"provision_state": "active", "last_error": None}, False),
        ({"provision_state": "active", "last_error": _ABORTED}, True),
        ({"provision_state": "servicing"}, False),
        ({"provision_state": "service failed"}, True),
    ],
    ids=["no-error", "aborted", "servicing", "service-failed"],
)
def test_bios_settings_are_uncertain_after_an_operation_that_failed(
    fields: dict[str, Any], *, is_uncertain: bool
) -> None:
    facts = facts_from_node(_node(**fields))
    assert facts.bios_may_differ is is_uncertain


def test_hardware_type_of_this_library_is_that_of_ironic() -> None:
    facts = facts_from_node(_node(driver="prefilter-redfish"))
    assert facts.hardware_type == "redfish"


_DOCUMENTS = {"short": _SHORT, "long": _LONG, "API": _API}
_SETTINGS = cases("""
# Document | setting | value | changeable | allowed | type | least | most
# Only with all columns are types shown.
short | LogicalProc     | Enabled | yes |                  | None        |   |
long  | LogicalProc     | Enabled | yes | Enabled Disabled | Enumeration |   |
long  | SystemModelName | R660    |     |                  | String      |   |
long  | ProcSettings    | On      |     | On               |             |   |
long  | Fans            | 4       | yes |                  | Integer     | 1 | 9
long  | AssetTag        |         | yes |                  | String      | 2 | 8
API   | LogicalProc     | Enabled | yes | Enabled Disabled | Enumeration |   |
API   | SystemModelName | R660    |     |                  | String      | 2 |
API   | Fans            | 4       | yes |                  | Integer     | 1 | 9
API   | AssetTag        |         | yes |                  | String      |   | 8
API   | Quiet           | 1       | yes |                  | Boolean     |   |
""")


@pytest.mark.parametrize(
    (
        "document",
        "name",
        "value",
        "changeable",
        "allowed",
        "kind",
        "least",
        "most",
    ),
    _SETTINGS,
)
def test_bios_settings_are_read_in_every_format(  # noqa: PLR0913, PLR0917 - columns
    document: str,
    name: str,
    value: str,
    changeable: str,
    allowed: str,
    kind: str,
    least: str,
    most: str,
) -> None:
    bios = facts_from_node(_node(), json.loads(_DOCUMENTS[document])).bios
    assert bios[name] == BiosSetting(
        value,
        bool(changeable),
        tuple(allowed.split()),
        None if kind == "None" else kind,
        int(least) if least else None,
        int(most) if most else None,
    )


@pytest.mark.parametrize("document", _DOCUMENTS)
def test_no_other_bios_settings_are_read(document: str) -> None:
    bios = facts_from_node(_node(), json.loads(_DOCUMENTS[document])).bios
    expected = [
        case.values[1] for case in _SETTINGS if case.values[0] == document
    ]
    assert list(bios) == expected


def test_node_without_bios_settings_is_read() -> None:
    assert facts_from_node(_node(), {"bios": []}).bios == {}


_EMPTY = {"boot_mode": None, "secure_boot": None}
_SECURE = {"boot_mode": "uefi", "secure_boot": True}


@pytest.mark.parametrize(
    ("capabilities", "fields", "boot_mode", "secure_boot"),
    [
        (None, {}, "", None),
        ("", _EMPTY, "", None),
        ("boot_mode:UEFI , secure_boot:True", {}, "uefi", True),
        # The capability is what Ironic deploys with, whatever the machine is
        # in now.
        ("boot_mode:bios,secure_boot:false", _SECURE, "bios", False),
        ("gpu:2", _SECURE, "uefi", True),
        # As Ironic reads them: what is malformed is passed over, the first of
        # two counts.
        (
            "boot_mode,boot_mode:,:uefi,a:b:c,boot_mode:bios,boot_mode:uefi,",
            {},
            "bios",
            None,
        ),
    ],
)
def test_boot_mode_and_secure_boot_come_from_capabilities_before_node_fields(
    capabilities: str | None,
    fields: dict[str, Any],
    boot_mode: str,
    *,
    secure_boot: bool | None,
) -> None:
    facts = facts_from_node(_node({"capabilities": capabilities}, **fields))
    assert facts.boot_mode == boot_mode
    assert facts.secure_boot == secure_boot


_NAMES = ("AMD64", "i386", "I586", "AArch64", "x86", "64-bit", "", None)


@pytest.mark.parametrize("text", [*BY_NAME["architecture"].values, *_NAMES])
def test_cpu_arch_is_normalized_as_nova_does(text: str | None) -> None:
    properties = {"cpu_arch": text}
    node = SimpleNamespace(id="n", properties=properties)
    nova = IronicDriver._parse_node_properties(None, node)
    ours = facts_from_node(_node(properties)).architecture
    assert ours == (nova["cpu_arch"] or "")


def test_an_unknown_cpu_arch_is_warned_of_and_leaves_all_else_of_the_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in Nova: one property must not end the report of the others."""
    properties = {**_NODE["properties"], "cpu_arch": "x86\x1b"}
    bios = json.loads(_SHORT)
    facts = facts_from_node({**_NODE, "properties": properties}, bios)
    assert facts == replace(facts_from_node(_NODE, bios), architecture="")
    (message,) = caplog.messages
    assert message.startswith(
        r"Node 6d85703a-565d-469a-96ce-30b6de53079d: properties.cpu_arch is"
        r" 'x86\x1b', no architecture that Nova knows"
    )


def test_vendor_is_a_property_of_the_node() -> None:
    properties = {**_NODE["properties"], "vendor": "HPE"}
    node = {**_NODE, "properties": properties}
    assert facts_from_node(node).vendor == "HPE"


def test_separately_given_traits_replace_those_of_the_node() -> None:
    node = {**_NODE, "traits": None}
    facts = facts_from_node(node, traits=iter(["CUSTOM_A"]))
    assert facts.other_traits == {"CUSTOM_A"}
    assert facts_from_node(_NODE, traits=[]).other_traits == frozenset()


# A value in JSON, in place of a node's own | the problem
_FIELDS = cases(r"""
uuid           | ""           | uuid is ''; expected the node's UUID
uuid           | 7            | uuid is 7; expected a string
driver         | 7            | driver is 7; expected a string
bios_interface | 7            | bios_interface is 7; expected a string
boot_mode      | ["uefi"]     | boot_mode is a list
secure_boot    | "on"         | secure_boot is 'on'; expected true, false or null
traits         | null         | traits is None; expected a list of names of traits (show the node with API version 1.37
traits         | "CUSTOM_A"   | traits is 'CUSTOM_A'
traits         | ["CUSTOM_A", "b\u001b"] | an item of traits is 'b\x1b'; expected the name of a trait
properties     | {"cpu_arch": 64} | properties.cpu_arch is 64; expected a string
properties     | {"capabilities": {"boot_mode": "uefi"}} | properties.capabilities is a dict; expected a string
properties     | {"vendor": 7} | properties.vendor is 7; expected a string
""")


def _problem(node: object, **paths: str) -> str:
    with pytest.raises(DocumentError) as caught:
        facts_from_node(node, **paths)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize(("field", "value", "problem"), _FIELDS)
def test_invalid_node_error_names_the_field(
    field: str, value: str, problem: str
) -> None:
    node = _node() | {field: json.loads(value)}
    assert _problem(node).startswith(f"node: {problem}")
    assert _problem(node, path="a.json").startswith(f"a.json: {problem}")


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        ([], "the document is a list; expected names with values"),
        ({}, "properties is None; expected names with values"),
    ],
)
def test_document_that_is_no_node_is_an_error(
    node: object, problem: str
) -> None:
    assert _problem(node).startswith(f"node: {problem}")
    assert _problem(node, path="a.json").startswith(f"a.json: {problem}")


_INVALID_BIOS = cases("""
# BIOS settings in JSON | the problem
7                                 | the document is 7; expected a list of BIOS settings
["LogicalProc"]                   | item 1 is 'LogicalProc'; expected names with values
[{"name": "A"}, {"value": "On"}]  | the name in item 2 is None; expected a string
{"bios": [{"name": 1}]}           | the name in item 1 is 1
{"LogicalProc": "Enabled"}        | the document is None; expected a list of BIOS settings
""")


@pytest.mark.parametrize(("bios", "problem"), _INVALID_BIOS)
def test_invalid_bios_settings_error_names_the_item(
    bios: str, problem: str
) -> None:
    with pytest.raises(DocumentError) as caught:
        facts_from_node(_NODE, json.loads(bios), bios_path="bios.json")
    assert str(caught.value).startswith(f"bios.json: {problem}")
