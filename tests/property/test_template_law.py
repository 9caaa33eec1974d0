# SPDX-License-Identifier: Apache-2.0

"""The law for configurations by request: operators' templates on nodes of all
kinds, enumerated.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from itertools import product

import pytest

from os_prefilter import Flavor, RequestSpec
from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.driver_check import unsupported
from os_prefilter.hosts.drivers.fake import FakeFacts
from os_prefilter.hosts.drivers.ironic_facts import BiosSetting, IronicFacts
from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.service import Service
from os_prefilter.vocabulary.config_templates import (
    BUNDLED,
    BiosChange,
    Step,
    Template,
    Variant,
)
from os_prefilter.vocabulary.options import Options

_STEP = Step("raid", "apply_configuration", {}, 90)
_A, _B = Trait("CUSTOM_A"), Trait("CUSTOM_B")
_BY_BIOS = Variant((BiosChange("Setting*", ("On",)),))
_TEMPLATES = BUNDLED.replace_with(
    [
        Template("x", "bios", (_A,), (_BY_BIOS,)),
        Template(
            "x",
            "maker",
            (_A,),
            (Variant(steps=(_STEP,), node={"vendor": "dell*"}), _BY_BIOS),
        ),
        # Only the operator knows which node has it.
        Template("y", "always", (_B,), (Variant(steps=(_STEP,)),)),
        Template("y", "nothing", (_B,)),
        Template("z", "both", (_A, _B), (_BY_BIOS,)),
        Template("free", "on", (), (Variant(steps=(_STEP,)),)),
        Template("plain", "on"),
    ]
)
_BIOS: tuple[dict[str, BiosSetting], ...] = (
    {},
    {"Setting1": BiosSetting()},
    {"Setting1": BiosSetting(changeable=False)},
    {"Setting1": BiosSetting("Off", allowed=("Off", "Maybe"))},
    {
        "Setting1": BiosSetting("On", allowed=("On", "Off")),
        "LogicalProc": BiosSetting(),
    },
    {"LogicalProc": BiosSetting("Enabled", allowed=("Enabled", "Disabled"))},
)
_TRAITS: tuple[frozenset[str], ...] = (
    frozenset(),
    frozenset((_A,)),
    frozenset((_B,)),
    frozenset((_A, _B, "HW_CPU_HYPERTHREADING")),
)


@cache
def _hosts() -> list[tuple[HostFacts, dict[str, bool]]]:
    fields = product(
        _BIOS, ("", "Dell Inc.", "HPE"), ("", "no-bios", "redfish"), _TRAITS
    )
    nodes = [
        IronicFacts(
            bios=bios,
            vendor=vendor,
            bios_interface=interface,
            other_traits=traits,
            templates=_TEMPLATES,
        )
        for bios, vendor, interface, traits in fields
    ]
    others = [
        kind(other_traits=each, templates=_TEMPLATES)
        for kind in (VmwareFacts, FakeFacts)
        for each in _TRAITS
    ]
    return [
        (facts, dict(capability_traits(facts))) for facts in (*nodes, *others)
    ]


@pytest.mark.parametrize("template", _TEMPLATES, ids=str)
def test_host_has_the_template_traits_if_and_only_if_its_late_check_accepts(
    template: Template,
) -> None:
    """Some hosts meet each template with traits, and some do not."""
    spec = RequestSpec(
        Flavor(extra_specs={template.extra_spec: template.value})
    )
    pipeline = Service.from_names(
        "deploy_config", options=Options(templates=_TEMPLATES)
    )
    required = {
        item.trait for item in pipeline.apply(deepcopy(spec)).requirements
    }
    assert required == set(template.traits)
    met = set()
    for facts, reported in _hosts():
        has = {
            trait
            for trait in required
            if reported.get(trait, trait in facts.other_traits)
        }
        refused = unsupported(spec, facts)
        assert (has == required) == (not refused), (
            f"{template} on {facts}: {refused}"
        )
        met.add(not refused)
    assert met == ({True, False} if template.traits else {True})
