# SPDX-License-Identifier: Apache-2.0

"""The small scheduler of the documentation, as a process of its own that is
asked over HTTP.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import requests

from os_prefilter.adapters.nova_conf import load_conf
from os_prefilter.service.option_definitions import OPTIONS
from os_prefilter.service.traits_to_report import traits_to_create
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from tests.support.hosts import ARM, KVM
from tests.support.pages import DOCS, blocks, files_of
from tests.support.placements import put_traits
from tests.support.programs import Program, running, until
from tests.support.reporting_fleets import (
    by_nova_alone,
    by_the_agent,
    fleet_of,
)

SERVICE = DOCS / "examples" / "scheduler_service"
PAGE = DOCS / "scheduler.rst"
SMALL = {"vcpus": 1, "ram": 512}


def start(folder: Path, conf: str) -> Any:
    """Run the service with this configuration, on a port that is free."""
    shutil.copy(SERVICE / "scheduler.py", folder)
    (folder / "scheduler.conf").write_text(conf, encoding="utf-8")
    return running(
        ["python", "scheduler.py", "--config-file", "scheduler.conf"],
        folder,
        "scheduler",
    )


def configuration() -> str:
    text = (SERVICE / "scheduler.conf").read_text(encoding="utf-8")
    names = re.findall(
        r"^(\w+) =", text.partition("[prefilter]")[2], re.MULTILINE
    )
    assert set(names) <= {option.name for option in OPTIONS}
    changed = text.replace("port = 8080", "port = 0")
    assert changed != text
    return changed


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Program, str]]:
    with start(tmp_path_factory.mktemp("service"), configuration()) as program:
        listening = re.search(
            r"Listening on (http://127\.0\.0\.1:\d+)",
            program.wait_for_log("Listening on"),
        )
        assert listening
        yield program, listening[1]


@pytest.fixture(scope="module")
def example() -> Any:
    """Import the service as a module."""
    spec = spec_from_file_location(
        "scheduler_of_the_documentation", SERVICE / "scheduler.py"
    )
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ask(
    url: str, body: bytes | str, path: str = "/hosts"
) -> requests.Response:
    return requests.post(url + path, data=body, timeout=60)


def test_scheduler_rst_shows_the_real_responses_and_log_lines(
    service: tuple[Program, str],
) -> None:
    """Each ``$ curl`` of the page, with the file that the page shows, gives
    what the page says.
    """
    program, url = service
    files, texts = (
        files_of(PAGE),
        [text for language, _, text in blocks(PAGE) if language == "console"],
    )
    shown = [
        match
        for text in texts
        if (match := re.match(r"\$ curl -s --data @(\S+) \S+/hosts\n", text))
    ]
    assert len(shown) == 2
    for command in shown:
        assert (
            ask(url, files[command[1]]).text == command.string[command.end() :]
        )
    for line in next(
        text for text in texts if text.startswith("$ python3 scheduler.py")
    ).splitlines()[1:]:
        # Not the time, the process, the id of a request, nor the port.
        before, message = re.sub(r":\d+$", ":", line).split(" [-] ")
        level, logger = before.split()[-2:]
        assert re.search(
            rf" {level} {logger} \[.*\] {re.escape(message)}", program.log
        )


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (
            {
                "image": {"properties": {"hw_vif_model": "igb"}},
                "flavor": SMALL,
            },
            200,
            "kvm-new-1",
        ),
        (
            {
                "image": {"properties": {"hw_vif_model": "lan9118"}},
                "flavor": SMALL,
            },
            422,
            "No host offers hw_vif_model",
        ),
        (
            {"availability_zone": "north", "flavor": SMALL},
            200,
            "(availability zone 'north': aggregate rack-1)",
        ),
        (
            {"availability_zone": "x&y", "flavor": SMALL},
            422,
            "unknown value 'x&y'. Correct it.",
        ),
        (
            {
                "requested_networks": [
                    {"network_id": "b4c1f1f0-9f0e-4d0b-8a57-3a2b6d1c7e10"}
                ],
                "flavor": SMALL,
            },
            200,
            (
                "member_of=in:1033faf3-2238-52d3-98b2-a1d3762f5977 by"
                " routed_networks"
            ),
        ),
        (
            {
                "requested_networks": [
                    {"port_id": "p", "vnic_type": "remote-managed"}
                ],
                "flavor": SMALL,
            },
            422,
            "No host has the trait COMPUTE_REMOTE_MANAGED_PORTS.",
        ),
        (
            {"availability_zone": 5, "flavor": SMALL},
            400,
            "availability_zone is 5",
        ),
        ({"image": {}}, 400, "no flavor in it"),
        (
            {"image": {}, "flavor": {"vcpus": "one"}},
            400,
            "flavor.vcpus is 'one'",
        ),
        (
            {
                "flavor": {
                    **SMALL,
                    "properties": {"resources:CUSTOM_NO_SUCH_THING": "1"},
                }
            },
            500,
            "The log of the scheduler",
        ),
        (b"", 400, "is empty; expected JSON"),
        (b'{"image": ' * 5000, 400, "nested too deep"),
    ],
    ids=str,
)
def test_each_request_is_answered_with_hosts_or_with_the_reason(
    service: tuple[Program, str], body: Any, status: int, told: str
) -> None:
    program, url = service
    # Nothing else is served.
    assert (
        ask(url, b"{}", "/").status_code
        == requests.get(f"{url}/hosts", timeout=60).status_code
        == 404
    )
    answer = ask(url, body if isinstance(body, bytes) else json.dumps(body))
    assert (answer.status_code, answer.headers["Content-Type"]) == (
        status,
        "application/json",
    )
    assert told in answer.text
    assert set(answer.json()) == (
        {"hosts", "required"} if status == 200 else {"error"}
    )
    if status == 500:
        assert "CUSTOM_NO_SUCH_THING" in program.log


def test_wrong_configuration_ends_the_service_with_exit_code_1_and_one_line(
    tmp_path: Path,
) -> None:
    with start(
        tmp_path, "[prefilter]\nenabled_filters = image_metdata\n"
    ) as program:
        assert program.exit_code() == 1
        # What the pipeline says at its start may be there as well.
        (line,) = (
            line for line in program.log.splitlines() if " INFO " not in line
        )
        assert line.startswith("scheduler: ")
        assert "the request filter 'image_metdata' cannot be used: " in line


def _report(placement: EmbeddedPlacement, host: str, traits: set[str]) -> None:
    placement.know(traits)
    put_traits(placement, lambda there: there.update(traits), host)


def test_scheduler_enforces_once_all_hosts_have_reported_what_it_wants(
    tmp_path: Path, example: Any
) -> None:
    """What its own section wants, as the agents read it in Placement."""
    path = tmp_path / "scheduler.conf"
    text = configuration().replace(
        "wait_for_reports = false", "wait_for_reports = true"
    )
    path.write_text(f"{text}facts_interval = 0\n", encoding="utf-8")
    conf = load_conf(path)
    hosts = [
        KVM,
        replace(KVM, architecture="aarch64", guests={"aarch64": ARM}),
        KVM,
    ]
    fleet = fleet_of([by_nova_alone(each) for each in hosts])
    body = json.dumps(
        {"image": {"properties": {"hw_time_hpet": "yes"}}, "flavor": SMALL}
    ).encode()
    with EmbeddedPlacement(fleet) as placement:
        pipeline = example.load_service(conf, placement.client, fleet)
        wanted = traits_to_create(pipeline.filters, pipeline.options)
        until(
            lambda: wanted <= placement.client.traits(),
            lambda: "the traits were not created after the start",
        )

        def found() -> list[str]:
            status, answer = example.schedule(body, pipeline, placement.client)
            assert status == "200 OK", answer
            return list(answer["hosts"])

        for number, each in enumerate(hosts):
            assert found() == ["host-0", "host-1", "host-2"]
            _report(
                placement,
                f"host-{number}",
                by_the_agent(each, placement.client.wanted()),
            )
        assert found() == ["host-0", "host-2"]
