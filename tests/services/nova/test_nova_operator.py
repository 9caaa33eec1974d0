# SPDX-License-Identifier: Apache-2.0

"""nova-scheduler as Red Hat's operator configures it, which switches Nova's own
image filters on, without us and with the recipe of deployment-tools.rst.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qs

import pytest
import yaml

from tests.services.nova.api import Api, Server
from tests.services.nova.cloud import Cloud
from tests.support.deployment_tools import FILES
from tests.support.nova_operator import FILE, OVERRIDE, conf_text
from tests.support.programs import Program, needs_services

pytestmark = needs_services

_PLANE = yaml.safe_load(FILES["openstackcontrolplane.yaml"])
_RECIPE = _PLANE["spec"]["nova"]["template"]["schedulerServiceTemplate"][
    "customServiceConfig"
]
_NOT_RUN = "Request filters of Nova that are not run, because ours take their"
_CARD = "COMPUTE_NET_VIF_MODEL_E1000E"


@pytest.fixture(scope="module")
def operator(cloud: Cloud) -> Iterator[Program]:
    """Run nova-scheduler with the recipe of the page."""
    with cloud.scheduler_without_arguments(
        "rhoso", {FILE: conf_text(), OVERRIDE: _RECIPE}
    ) as program:
        yield program


def _boot(
    cloud: Cloud, api: Api, properties: dict[str, str]
) -> tuple[Server, str]:
    """Boot a server; return it, and what Placement was asked to require of the
    root, by its own log.
    """
    placement = cloud.programs[0]
    before = len(placement.log)
    server = api.server(properties)
    (query,) = re.findall(
        r'"GET /allocation_candidates\?(\S+)"', placement.log[before:]
    )
    (required,) = parse_qs(query)["root_required"]
    return server, required


# The first one: beside a second scheduler, either may take a request.
def test_operators_file_alone_runs_novas_own_filters(
    cloud: Cloud, api: Api
) -> None:
    with cloud.scheduler_without_arguments(
        "rhoso-alone", {FILE: conf_text()}
    ) as program:
        server, required = _boot(
            cloud, api, {"hw_vif_model": "e1000e", "hw_time_hpet": "true"}
        )
        assert "Request filters enabled" not in program.log
    assert _CARD in required
    # Nova knows no trait of the timer, and boots a guest without one.
    assert server.status == "ACTIVE"
    assert server.host == "e1000e-host"


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    ("properties", "hosts"),
    [
        ({}, {"timer-host", "e1000e-host", "plain-host"}),
        ({"hw_vif_model": "e1000e"}, {"e1000e-host"}),
        ({"hw_time_hpet": "true"}, {"timer-host"}),
    ],
    ids=["any host", "a network card", "a timer"],
)
def test_server_boots_on_a_host_that_can_run_it(
    properties: dict[str, str], hosts: set[str], api: Api
) -> None:
    server = api.server(properties)
    assert server.status == "ACTIVE"
    assert server.host in hosts


@pytest.mark.usefixtures("operator")
def test_no_host_can_do_both_and_the_user_reads_why(api: Api) -> None:
    server = api.server({"hw_vif_model": "e1000e", "hw_time_hpet": "true"})
    assert server.status == "ERROR"
    assert "No host offers hw_vif_model=e1000e together with" in server.fault


def test_of_each_pair_one_filter_runs_and_requires_its_trait(
    cloud: Cloud, api: Api, operator: Program
) -> None:
    """``image_type`` is not in the recipe: Nova's own runs."""
    lines = {
        line.partition(_NOT_RUN)[2]
        for line in operator.log.splitlines()
        if _NOT_RUN in line
    }
    assert len(lines) == 1
    assert "transform_image_metadata (image_metadata)" in lines.pop()
    _, required = _boot(cloud, api, {"hw_vif_model": "e1000e"})
    assert _CARD in required
    assert "COMPUTE_IMAGE_TYPE_RAW" in required
