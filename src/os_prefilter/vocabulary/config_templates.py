# SPDX-License-Identifier: Apache-2.0

"""Configuration templates of bare-metal nodes.

What ``deploy-config:TYPE=VALUE`` needs of a node, and how Ironic applies it.

The request filter ``deploy_config``, the reporter ``ironic`` and the driver's
side read the same templates: the bundled ones, and those of the file that
``[prefilter] config_templates`` names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, NamedTuple

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.trait_names import Trait
from os_prefilter.vocabulary.filter_rows import HYPERTHREADING
from os_prefilter.vocabulary.model import Row, Term, nothing

PREFIX = "deploy-config:"
"""Prefix of extra specs and image properties that request one."""

INTERFACES = (
    "bios",
    "deploy",
    "firmware",
    "management",
    "power",
    "raid",
    "vendor",
)
"""The interfaces of Ironic that have deploy steps.

``DEPLOYING_INTERFACE_PRIORITY`` in its ``conductor/steps.py``.
"""

BIOS_STEP = ("bios", "apply_configuration")
"""The interface and the step that change BIOS settings."""

NODE_FIELDS = ("driver", "vendor")
"""Fields of a node that a variant may require.

Its driver, and ``vendor`` in its properties.
"""

RECORD = "deploy_config"
"""Key in a node's ``instance_info``: its server's configuration.

After a change, by type.
"""


class Step(NamedTuple):
    """One step of Ironic's."""

    interface: str
    step: str
    args: Mapping[str, Any]
    priority: int
    """Higher ones run first; Ironic's own deployment of the image has 100."""

    @property
    def key(self) -> tuple[str, str]:
        """Interface and step, which a list of steps may have once."""
        return self.interface, self.step

    def for_ironic(self) -> dict[str, Any]:
        """Return the step as Ironic's API takes it."""
        return {
            "interface": self.interface,
            "step": self.step,
            "args": dict(self.args),
            "priority": self.priority,
        }


class BiosChange(NamedTuple):
    """A BIOS setting that a variant gives a value."""

    name: str
    """With ``*`` for any characters: some makers number their settings."""
    values: tuple[str, ...]
    """Spellings of the value; the first that the BIOS allows is taken."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the steps and BIOS settings that apply a configuration.

    It fits a node that has all its BIOS settings and is as ``node`` says.
    """

    bios: tuple[BiosChange, ...] = ()
    steps: tuple[Step, ...] = ()
    node: Mapping[str, str] = field(default_factory=dict)
    """Field of :data:`NODE_FIELDS` -> pattern, in any case, with ``*``."""
    in_use: bool = False
    """True if ``steps`` may run on a node that is in use.

    Those of a RAID controller would erase its disks.
    """


@dataclass(frozen=True, slots=True)
class Template:
    """The meaning of one configuration."""

    config_type: str
    value: str
    traits: tuple[Trait, ...] = ()
    """The traits that a node must have."""
    variants: tuple[Variant, ...] = ()
    """Its variants; the first one that fits a node is taken."""
    is_default: bool = False
    """True if nodes are configured so for a server that names no value."""

    @property
    def extra_spec(self) -> str:
        """The name of the extra spec that requests it."""
        return PREFIX + self.config_type

    @property
    def is_found(self) -> bool:
        """True if a node says itself whether it can be configured so.

        By its BIOS settings, its driver or its maker.
        """
        return bool(self.variants) and all(
            each.bios or each.node for each in self.variants
        )

    def __str__(self) -> str:
        return f"{self.extra_spec}={self.value}"


class Templates:
    """All templates of a deployment."""

    def __init__(self, templates: Iterable[Template] = ()) -> None:
        self._by_key = {
            (each.config_type, each.value): each for each in templates
        }
        values: dict[str, dict[str, Term]] = {}
        for each in self:
            term = nothing("its template needs no trait")
            if each.traits:
                term = Term(each.traits[0], more_traits=each.traits[1:])
            values.setdefault(each.extra_spec, {})[each.value] = term
        self.traits = frozenset(
            trait for each in self for trait in each.traits
        )
        """All traits that templates need."""
        not_found = {
            trait
            for each in self
            if not each.is_found
            for trait in each.traits
        }
        self.found_traits = self.traits - not_found
        """The traits that a node itself reports; its operator sets the others.
        """
        self.rows = tuple(
            Row(
                name,
                terms,
                image_property=name,
                extra_spec=name,
                required_by=("deploy_config",),
                namespace=PREFIX,
            )
            for name, terms in values.items()
        )
        """A row for each type, named after its extra spec.

        Its values stand for the traits of their templates.
        """

    def __iter__(self) -> Iterator[Template]:
        return iter(self._by_key.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Templates) and self._by_key == other._by_key

    def __hash__(self) -> int:
        return hash(tuple(self._by_key))

    def of(self, row: str, value: str) -> Template:
        """Return the template for a value of one of :attr:`rows`."""
        return self._by_key[row.removeprefix(PREFIX), value]

    def replace_with(self, others: Iterable[Template]) -> Templates:
        """Return these templates, with others in place of equal ones.

        They are equal in type and value.

        A type whose default ``others`` do not name keeps its own: else a
        forgotten word hands on what a tenant left.
        """
        both = {
            **self._by_key,
            **{(each.config_type, each.value): each for each in others},
        }
        defaults = {
            each.config_type: each.value
            for each in (*self, *both.values())
            if each.is_default
        }
        return Templates(
            replace(
                each, is_default=defaults.get(each.config_type) == each.value
            )
            for each in both.values()
        )


# Setting, and its spellings of on and off; the first that the BIOS allows is
# taken. "*" stands for any characters.
_HYPERTHREADING = (
    ("LogicalProc", "Enabled", "Disabled"),  # Dell
    ("ProcHyperthreading", "Enabled", "Disabled"),  # HPE
    ("ProcSMT", "Enabled", "Disabled"),  # HPE, processors of AMD
    (
        "Processors_HyperThreading",
        "Enabled Enable",
        "Disabled Disable",
    ),  # Lenovo
    (
        "Processors_SMTMode",
        "Enabled Enable",
        "Disabled Disable",
    ),  # Lenovo, processors of AMD
    ("IntelHyperThread", "enabled Enabled", "disabled Disabled"),  # Cisco
    (
        "IntelHyperThreadingTech",
        "Enabled enabled",
        "Disabled disabled",
    ),  # Cisco
    (
        "SMTMode",
        "Auto enabled Enabled",
        "Off disabled Disabled",
    ),  # Cisco, processors of AMD
    (
        "Intel(R) Hyper-Threading Tech",
        "Enabled Enable",
        "Disabled Disable",
    ),  # Intel
    (
        "Hyper-Threading*",
        "Enabled Enable",
        "Disabled Disable",
    ),  # Supermicro: Hyper-Threading[ALL]
    ("HyperThreading*", "Enabled Enable", "Disabled Disable"),  # Supermicro
    (
        "SMTControl*",
        "Enabled Enable Auto",
        "Disabled Disable",
    ),  # Supermicro, processors of AMD
)


def _hyperthreading(value: str, spellings: Mapping[str, str]) -> Template:
    # Both are about a node that can switch: only there is either of them
    # certain.
    variants = tuple(
        Variant((BiosChange(name, tuple(each.split())),))
        for name, each in spellings.items()
    )
    return Template(
        "hyperthreading",
        value,
        (HYPERTHREADING,),
        variants,
        is_default=value == "enabled",
    )


_ENABLED = {name: on for name, on, _ in _HYPERTHREADING}
_DISABLED = {name: off for name, _, off in _HYPERTHREADING}
BUNDLED = Templates(
    (
        _hyperthreading("enabled", _ENABLED),
        _hyperthreading("disabled", _DISABLED),
    )
)
"""The templates of a deployment that has no file of its own."""
