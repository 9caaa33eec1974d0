#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""A nova-scheduler that must not start says why, in one line, and ends."""

from pathlib import Path

import pytest

from tests.services.nova.cloud import ACTIVATION, Cloud
from tests.support.programs import needs_services

pytestmark = needs_services


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Return a folder with an installed distribution whose filter does not import."""
    metadata = tmp_path / "broken-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[os_prefilter.request_filters]\nbroken = broken_filter:run\n")
    (tmp_path / "broken_filter.py").write_text("import a_module_that_is_not_there\n")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("enabled_filters = rules\nrules_dirs = /no/such/place", ("rules_dirs: /no/such/place: ", "cannot be read")),
        ("enabled_filters = hpet,broken", ("'broken'", "does not load", "a_module_that_is_not_there")),
    ],
)
def test_misconfiguration_stops_the_scheduler_with_one_line_naming_the_mistake(
    options: str, said: tuple[str, ...], broken: Path, cloud: Cloud
) -> None:
    with cloud.starting_scheduler(f"{ACTIVATION}[prefilter]\n{options}\n", {"PYTHONPATH": str(broken)}) as program:
        assert program.exit_code() == 1
        (line,) = (line for line in program.log.splitlines() if " ERROR os_prefilter" in line)
    for words in ("nova-scheduler cannot start", *said):
        assert words in line
