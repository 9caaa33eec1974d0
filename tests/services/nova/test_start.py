# SPDX-License-Identifier: Apache-2.0

"""The start of nova-scheduler: what hosts are to report is written, and a
mistake is named in one line at its end.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from os_prefilter.hosts.marker_traits import WANTED
from tests.services.nova.cloud import ACTIVATION, LISTENING, Cloud
from tests.support.programs import needs_services, until

pytestmark = needs_services


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Return a folder with an installed distribution whose filter does not
    import.
    """
    metadata = tmp_path / "broken-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[os_prefilter.request_filters]\nbroken = broken_filter:run\n"
    )
    (tmp_path / "broken_filter.py").write_text(
        "import a_module_that_is_not_there\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "enabled_filters = rules\nrules_dirs = /no/such/place",
            ("rules_dirs: /no/such/place: ", "cannot be read"),
        ),
        (
            "enabled_filters = hpet,broken",
            ("'broken'", "does not load", "a_module_that_is_not_there"),
        ),
    ],
)
def test_misconfiguration_stops_the_scheduler_with_one_line_naming_the_mistake(
    options: str, said: tuple[str, ...], broken: Path, cloud: Cloud
) -> None:
    with cloud.starting_scheduler(
        f"{ACTIVATION}[prefilter]\n{options}\n", {"PYTHONPATH": str(broken)}
    ) as program:
        assert program.exit_code() == 1
        (line,) = (
            line
            for line in program.log.splitlines()
            if " ERROR os_prefilter" in line
        )
    for words in ("nova-scheduler cannot start", *said):
        assert words in line


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "greens", ["true", "false"], ids=["threads", "eventlet"]
)
def test_hosts_read_what_to_report_before_the_first_request(
    greens: str, workers: int, cloud: Cloud
) -> None:
    """Older Novas have eventlet alone. No request comes; in two minutes agents
    are to have reported.
    """
    for name in cloud.placement.get_list(
        f"/traits?name=startswith:{WANTED}", "traits"
    ):
        cloud.placement.delete_trait(name)
    more = (
        f"{ACTIVATION}[prefilter]\nenabled_filters ="
        f" hpet\n[scheduler]\nworkers = {workers}\n"
    )
    environment = {"OS_NOVA_DISABLE_EVENTLET_PATCHING": greens}
    with cloud.starting_scheduler(more, environment) as program:
        program.wait_for_log(LISTENING, workers)
        until(cloud.placement.wanted, lambda: program.log[-5000:])
        assert (
            "Created in Placement, as request filters may require them: "
            in program.log
        )
        assert "Starting to schedule for instances" not in program.log
