# SPDX-License-Identifier: Apache-2.0

"""Our flavor extra specs in nova-api: it finds their validators itself, and a
wrong value is a 400 that says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import nova.policy
import os_traits
import pytest
from nova import context, exception, objects
from nova.api.openstack import wsgi
from nova.api.openstack.compute.flavors_extraspecs import (
    FlavorExtraSpecsController,
)
from nova.api.validation.extra_specs import validators
from nova.conf import CONF

from os_prefilter.nova import extra_spec_validators
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.config_templates import BUNDLED
from tests.against_nova.nova import NOVA
from tests.against_nova.releases import releases
from tests.conftest import required_by, spec_of

objects.register_all()

_NAME = "deploy-config:hyperthreading"
_WRONG_VALUE = "Validation failed; 'on' is not one of: enabled, disabled."
_WRONG_NAME = (
    "Validation failed; extra spec 'deploy-config:turbo' does not appear to be"
    " a valid extra spec."
)

# What Nova's scheduler reads and nova-api refuses from 2.86 on: such flavors
# are made with an older microversion.
_REFUSED_BY_NOVA = {
    # Nova has no validator of that name.
    ("hw:maxphysaddr_mode", "emulate"),
    ("hw:maxphysaddr_mode", "passthrough"),
    # Only of an image; it asks for nothing.
    ("os:secure_boot", "optional"),
}


Load = Callable[..., dict[str, Any]]
Ask = Callable[..., Any]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Return a function: load the validators as nova-api does when it starts
    with these lines of ``[prefilter]``.
    """
    with (
        mock.patch.dict(validators.VALIDATORS, clear=True),
        mock.patch.object(validators, "NAMESPACES", set()),
    ):

        def load(*lines: str) -> dict[str, Any]:
            file = tmp_path / "nova.conf"
            file.write_text(
                "\n".join(["[prefilter]", *lines]), encoding="utf-8"
            )
            CONF([], project="nova", default_config_files=[str(file)])
            validators.VALIDATORS.clear()
            validators.NAMESPACES.clear()
            validators.load_validators()
            return dict(validators.VALIDATORS)

        yield load
    CONF.reset()


@pytest.fixture
def api(load: Load) -> Iterator[Ask]:
    """Return a function: ask Nova's controller of extra specs for something,
    and return its answer.
    """
    load("enabled_filters = deploy_config, hpet, packed_virtqueue")
    flavor = SimpleNamespace(extra_specs={}, save=mock.Mock())
    resource = wsgi.Resource(FlavorExtraSpecsController())

    def ask(
        body: dict[str, Any], microversion: str = "2.86", **action: str
    ) -> Any:
        request = wsgi.Request.blank(
            "/flavors/1/os-extra_specs",
            method="POST",
            headers={
                "OpenStack-API-Version": f"compute {microversion}",
                "Content-Type": "application/json",
            },
            body=json.dumps(body).encode(),
        )
        request.environ["nova.context"] = context.RequestContext(
            "user", "project", is_admin=True, roles=["admin"]
        )
        request.environ["wsgiorg.routing_args"] = (
            (),
            {"flavor_id": "1", "action": "create", **action},
        )
        return request.get_response(resource)

    with mock.patch.object(
        objects.Flavor, "get_by_flavor_id", return_value=flavor
    ):
        yield ask
    nova.policy.reset()


def test_nova_loads_a_validator_for_every_deploy_config_extra_spec(
    load: Load,
) -> None:
    """nova-api loads them when it starts, by the entry point; what passes is
    what the filter knows.
    """
    load("enabled_filters = deploy_config")
    for row in BUNDLED.rows:
        assert validators.VALIDATORS[row.extra_spec].value["enum"] == list(
            row.values
        )
        for value in row.values:
            validators.validate(row.extra_spec, value)
            required_by(
                "deploy_config",
                spec_of(extra_specs={str(row.extra_spec): value}),
                unknown_values="reject",
            )


@pytest.mark.parametrize("microversion", ["2.86", "latest"])
def test_valid_extra_spec_value_is_accepted(
    microversion: str, api: Ask
) -> None:
    answer = api({"extra_specs": {_NAME: "enabled"}}, microversion)
    assert (answer.status_int, answer.json) == (
        200,
        {"extra_specs": {_NAME: "enabled"}},
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (_NAME, "on", _WRONG_VALUE),
        ("deploy-config:turbo", "enabled", _WRONG_NAME),
    ],
    ids=["value", "name"],
)
def test_invalid_extra_spec_name_or_value_is_rejected_with_400_and_the_reason(
    name: str, value: str, message: str, api: Ask
) -> None:
    with pytest.raises(exception.ValidationError) as raised:
        validators.validate(name, value)
    assert raised.value.code == 400
    # Before that microversion nothing is validated.
    assert api({"extra_specs": {name: value}}, "2.85").status_int == 200
    for answer in (
        api({"extra_specs": {name: value}}),
        api({"extra_specs": {"hw:cpu_policy": "shared", name: value}}),
        api({name: value}, action="update", id=name),
    ):
        assert (answer.status_int, answer.json) == (
            400,
            {"badRequest": {"code": 400, "message": message}},
        )


def test_each_spelling_of_a_preference_is_accepted_by_the_microversions_that_its_page_names(
    api: Ask,
) -> None:
    assert (
        api(
            {"extra_specs": {"trait:CUSTOM_A": "preferred"}}, "2.85"
        ).status_int
        == 200
    )
    refused = api({"extra_specs": {"trait:CUSTOM_A": "preferred"}}, "2.86")
    assert refused.json["badRequest"]["message"].endswith(
        "'preferred' is not one of: required, forbidden."
    )
    for microversion in ("2.85", "2.86", "latest"):
        assert (
            api(
                {"extra_specs": {"preferred_trait:CUSTOM_A": "true"}},
                microversion,
            ).status_int
            == 200
        )


def test_nova_api_accepts_every_vocabulary_value_but_the_known_exceptions() -> (
    None
):
    """By its own validators or by ours, but for what Nova refuses although it
    reads it, and what an old one lacks.
    """
    known = releases()[NOVA].extra_specs
    for row in ROWS:
        refused = set()
        for value in row.values if row.extra_spec else ():
            try:
                validators.validate(row.extra_spec, value)
            except exception.ValidationError:
                refused.add(value)
        assert refused == set(known.get(str(row.extra_spec), ())), row.name


def test_newest_nova_refuses_only_what_it_also_reads() -> None:
    """So the lists of older ones have nothing that is merely forgotten
    there.
    """
    found = releases()[max(releases())].extra_specs
    assert {
        (name, value) for name, values in found.items() for value in values
    } == _REFUSED_BY_NOVA


def test_validators_include_the_values_of_the_operators_config_templates(
    load: Load, tmp_path: Path
) -> None:
    """nova-api reads its configuration before it loads the validators."""
    file = tmp_path / "templates.yaml"
    file.write_text(
        "templates: [{config-type: raid, config-value: '10'}]",
        encoding="utf-8",
    )
    found = load(
        "enabled_filters = deploy_config", f"config_templates = {file}"
    )
    assert found[_NAME].value["enum"] == ["enabled", "disabled"]
    assert found["deploy-config:raid"].value["enum"] == ["10"]


@pytest.mark.parametrize(
    "lines",
    [(), ("enabled_filters = hpet, image_metadata",)],
    ids=["none", "others"],
)
def test_installed_package_refuses_nothing_of_a_filter_that_is_not_enabled(
    load: Load, lines: tuple[str, ...]
) -> None:
    """Nova's validators alone are loaded: an installed package changes
    nothing.
    """
    of_nova = {
        each.name
        for point in distribution("nova").entry_points
        if point.group == "nova.api.extra_spec_validators"
        for each in point.load().register()
    }
    assert load(*lines).keys() == of_nova
    validators.validate("deploy-config:turbo", "on")


# Nova refuses a standard trait that its os-traits lacks.
_DEVICES = [
    row
    for row in ROWS
    if row.device
    and (str(row.device) in os_traits.get_traits() or "CUSTOM_" in row.device)
]
_ALONE = [
    pytest.param({f"trait:{row.device}": "required"}, id=row.name)
    for row in _DEVICES
]
_BESIDE = [
    pytest.param(
        {f"trait:{row.device}": "required", row.extra_spec: "true"},
        id=f"{row.name} beside its property",
    )
    for row in _DEVICES
    if row.extra_spec
]


@pytest.mark.parametrize("extra_specs", [*_ALONE, *_BESIDE])
def test_trait_of_a_switched_device_is_accepted_in_a_flavor(
    api: Ask, extra_specs: dict[str, str]
) -> None:
    """Its property may be in the same flavor or in the image, which no
    validator sees; the scheduler sees both.
    """
    assert api({"extra_specs": extra_specs}).status_int == 200


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("trait_scope = rooot", "trait_scope"),
        ("config_templates = /none/such.yaml", "/none/such.yaml"),
        ("facts_interval = soon", "facts_interval"),
        ("reported_traits = NO_SUCH", "NO_SUCH"),
        ("owner_trait = $none", "$$"),
    ],
)
def test_wrong_value_is_logged_and_nova_api_starts_without_our_validators(
    load: Load, caplog: pytest.LogCaptureFixture, line: str, told: str
) -> None:
    """The schedulers do not start with it; a public API must not go down with
    them.
    """
    found = load("enabled_filters = deploy_config", line)
    assert _NAME not in found
    assert "hw:cpu_policy" in found
    (record,) = [
        each
        for each in caplog.records
        if each.name == extra_spec_validators.__name__
    ]
    assert record.levelname == "ERROR"
    assert told in record.getMessage()
