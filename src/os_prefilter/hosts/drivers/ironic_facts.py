# SPDX-License-Identifier: Apache-2.0

"""The facts of a bare-metal node, read from Ironic's documents.

Sources: Ironic's API reference (nodes, node BIOS settings), the headings of
its command line (``ironicclient/v1/resource_fields.py``),
``ironic/drivers/utils.py`` and ``ironic/drivers/modules/boot_mode_utils.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Union

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import escape_line, join_names, quote
from os_prefilter.common.trait_names import is_trait_name
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.vocabulary import BY_NAME

LOG = get_logger(__name__)


BiosValue = Union[str, int, bool]
"""The value of a BIOS setting, as Redfish types it."""

BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
"""The texts of a Boolean: those of templates, and those of Ironic."""


class BiosSetting(NamedTuple):
    """One BIOS setting of a node."""

    value: object = None
    changeable: bool = True
    """False if the BIOS says that it is read-only, or allows one value."""
    allowed: tuple[str, ...] = ()
    """The values that the BIOS allows; empty if it does not say."""
    attribute_type: str | None = ""
    """``Boolean``, ``Integer``, ...; empty if unknown to Ironic.

    None if the document does not show it.
    """
    least: int | None = None
    """The lowest integer, or shortest length; None if not limited."""
    most: int | None = None
    """The highest integer, or the length of the longest string."""

    def parse(self, text: str) -> BiosValue | None:
        """Return the typed value that a text stands for; None if not possible.

        Ironic keeps all values as text, a Boolean as ``1`` or ``0``, and takes
        each text but ``true`` for false. Until May 2026 it sent a text to the
        machine as it was. Both take a value that has its type.
        """
        if self.attribute_type == "Boolean":
            return BOOLEANS.get(text.lower())
        if self.attribute_type == "Integer":
            try:
                number = int(text)
            except ValueError:
                return None
            return number if self._is_within(number) else None
        if self.attribute_type == "String" and not self._is_within(len(text)):
            return None
        return text if not self.allowed or text in self.allowed else None

    def has(self, value: BiosValue) -> bool:
        """Return True if this is its value, in any case of letters."""
        return (
            self.value is not None
            and str(self.current).lower() == str(value).lower()
        )

    @property
    def current(self) -> object:
        """Its value, with its type if that is known."""
        typed = self.parse(str(self.value))
        return self.value if typed is None else typed

    def describe(self) -> str:
        """Return which values it takes."""
        if self.attribute_type == "Boolean":
            return "true, false"
        if self.attribute_type in ("Integer", "String"):
            texts = ["texts of a length"]
            if self.attribute_type == "Integer":
                texts = ["integers"]
            if self.least is not None:
                texts.append(f"from {self.least}")
            if self.most is not None:
                texts.append(f"to {self.most}")
            return " ".join(texts)
        return join_names(map(quote, self.allowed))

    def _is_within(self, number: int) -> bool:
        if self.least is not None and number < self.least:
            return False
        return self.most is None or number <= self.most


@dataclass(frozen=True, kw_only=True)
class IronicFacts(HostFacts):
    """The facts of a node. :attr:`other_traits` are the traits on the node."""

    driver: ClassVar[str] = "ironic"

    bios: Mapping[str, BiosSetting] = field(default_factory=dict)
    """BIOS settings by name."""
    bios_may_differ: bool = False
    """True if the machine may have other BIOS settings than Ironic shows.

    Its last operation on the node failed, and Ironic reads them after an
    operation that succeeds.
    """
    hardware_type: str = ""
    """Ironic's driver of the node: ``idrac``, ``redfish``; or empty."""
    vendor: str = ""
    """Its maker, as its properties have it; empty if they do not."""
    bios_interface: str = ""
    """Ironic's interface for BIOS settings; ``no-bios`` if there is none.

    Empty if that is not known.
    """
    boot_mode: str = ""
    """``bios`` or ``uefi``: how it is deployed; empty if that is not known."""
    secure_boot: bool | None = None
    """True if it boots with signatures enforced, or Ironic can make it so.

    None if that is not known.
    """


def facts_from_node(
    node: Mapping[str, Any],
    bios: Iterable[Mapping[str, Any]] | Mapping[str, Any] = (),
    *,
    traits: Iterable[str] | None = None,
    path: str | Path = "node",
    bios_path: str | Path = "BIOS settings",
) -> IronicFacts:
    """Return the facts of a node, from Ironic's API or command line.

    The API is 1.37 or later.

    :param node: ``GET /v1/nodes/ID``, or ``openstack baremetal node show ID -f
        json``
    :param bios: ``GET /v1/nodes/ID/bios``, or ``openstack baremetal node bios
        setting list ID -f json``; with ``?detail=True`` or ``--long`` settings
        that are read-only are distinguished
    :param traits: the traits on the node, if not those in ``node``
    :param path: the name of the first document in errors
    :param bios_path: the name of the second
    :raises DocumentError: if one of them is not what it should be.
    """
    data = _mapping(node, path, "the document")
    properties = _mapping(data.get("properties"), path, "properties")
    capabilities = _capabilities(
        _text(properties, "capabilities", path, "properties.")
    )
    named = _text(properties, "cpu_arch", path, "properties.")
    architecture = BY_NAME["architecture"].canonical(named) or ""
    secure_boot = data.get("secure_boot")
    if secure_boot is not None and not isinstance(secure_boot, bool):
        raise _unexpected(
            path, "secure_boot", secure_boot, "true, false or null"
        )
    if "secure_boot" in capabilities:
        secure_boot = capabilities["secure_boot"].lower() == "true"
    host = _text(data, "uuid", path)
    if not host:
        raise _unexpected(path, "uuid", data.get("uuid"), "the node's UUID")
    if named and not architecture:
        # No error: Nova reports, boots and cleans such a node, without an
        # architecture and with a warning.
        LOG.warning(
            "Node %s: properties.cpu_arch is %s, no architecture that Nova"
            " knows (x86_64, aarch64, ...): the node is reported without one."
            " Correct it in Ironic.",
            escape_line(host),
            quote(named),
        )
    if traits is None:
        traits = data.get("traits")
    other_traits = _traits(traits, path)
    settings = bios_from(bios, bios_path)
    hardware_type = _text(data, "driver", path)
    vendor = _text(properties, "vendor", path, "properties.")
    bios_interface = _text(data, "bios_interface", path)
    # Ironic deploys in the mode of the capability; without one, in that which
    # the machine is in.
    boot_mode = capabilities.get("boot_mode") or _text(data, "boot_mode", path)
    # An operation that is aborted leaves an error, and then the state that was
    # before it.
    has_failed = (
        bool(data.get("last_error"))
        or data.get("provision_state") == "service failed"
    )
    return IronicFacts(
        # So Nova names the node, and Placement its provider.
        host=host,
        architecture=architecture,
        other_traits=other_traits,
        bios=settings,
        bios_may_differ=has_failed,
        # Ours are Ironic's with another BIOS interface.
        hardware_type=hardware_type.removeprefix("prefilter-"),
        vendor=vendor,
        bios_interface=bios_interface,
        boot_mode=boot_mode.lower(),
        secure_boot=secure_boot,
    )


def _capabilities(text: str) -> dict[str, str]:
    """Return capabilities in the form ``a:1,b:2``, as Ironic and Nova do.

    What is not of that form is passed over, and of equal names the first
    counts.
    """
    found: dict[str, str] = {}
    for item in text.split(","):
        name, _, value = item.partition(":")
        if name and value and ":" not in value:
            found.setdefault(name.strip(), value.strip())
    return found


def _traits(names: object, path: str | Path) -> frozenset[str]:
    # Not there is not "none": what an operator has set would seem to be gone.
    expected = (
        "a list of names of traits (show the node with API version 1.37 or"
        " later)"
    )
    if isinstance(names, (str, bytes, Mapping)) or not isinstance(
        names, Iterable
    ):
        raise _unexpected(path, "traits", names, expected)
    found = list(names)
    for name in found:
        if not is_trait_name(name):
            raise _unexpected(
                path, "an item of traits", name, "the name of a trait"
            )
    return frozenset(found)


def bios_from(
    document: object, path: str | Path = "BIOS settings"
) -> dict[str, BiosSetting]:
    """Return BIOS settings by name, from an API or command line document.

    :raises DocumentError: if it is not what it should be.
    """
    settings = (
        document.get("bios") if isinstance(document, Mapping) else document
    )
    if isinstance(settings, (str, bytes)) or not isinstance(
        settings, Iterable
    ):
        raise _unexpected(
            path, "the document", settings, "a list of BIOS settings"
        )
    found = {}
    for number, each in enumerate(settings, start=1):
        setting = _mapping(each, path, f"item {number}")
        name = _first(setting, "name", "Name", "BIOS setting name")
        if not isinstance(name, str):
            raise _unexpected(
                path, f"the name in item {number}", name, "a string"
            )
        values = _first(setting, "allowable_values", "Allowable Values")
        allowed = tuple(map(str, values)) if isinstance(values, list) else ()
        read_only = _first(setting, "read_only", "Read Only")
        changeable = read_only is not True and len(allowed) != 1
        value = _first(setting, "value", "Value", "BIOS setting value")
        kind, least, most = _type_of(setting)
        found[name] = BiosSetting(
            value, changeable, allowed, kind, least, most
        )
    return found


def _type_of(
    setting: Mapping[str, Any],
) -> tuple[str | None, int | None, int | None]:
    """Return the type of a setting, and the limits that hold for it."""
    if "attribute_type" not in setting and "Attribute Type" not in setting:
        return None, None, None
    kind = _first(setting, "attribute_type", "Attribute Type")
    if kind == "Integer":
        limits = (
            _first(setting, "lower_bound", "Lower Bound"),
            _first(setting, "upper_bound", "Upper Bound"),
        )
    else:
        limits = (
            _first(setting, "min_length", "Minimum Length"),
            _first(setting, "max_length", "Maximum Length"),
        )
    least, most = (each if isinstance(each, int) else None for each in limits)
    return str(kind or ""), least, most


def _first(setting: Mapping[str, Any], *names: str) -> Any:
    """Return the value under the API's name or the command line's heading."""
    return next((setting[name] for name in names if name in setting), None)


def _mapping(value: object, path: str | Path, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(
        isinstance(key, str) for key in value
    ):
        raise _unexpected(path, where, value, "names with values")
    return value


def _text(
    data: Mapping[str, Any], name: str, path: str | Path, within: str = ""
) -> str:
    value = data.get(name)
    if value is not None and not isinstance(value, str):
        raise _unexpected(path, within + name, value, "a string")
    return value or ""


def _unexpected(
    path: str | Path, where: str, value: object, expected: str
) -> DocumentError:
    return DocumentError(
        path, f"{where} is {quote(value)}; expected {expected}."
    )
