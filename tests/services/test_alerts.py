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

"""The alert rules and the dashboard of the documentation, by Prometheus itself and by the names of our metrics."""

import json
import re
import subprocess

from os_prefilter.service.metrics import _families
from tests.support.pages import DOCS
from tests.support.programs import needs_services

pytestmark = needs_services

_RULES, _DASHBOARD = (DOCS / "examples" / "nova" / name for name in ("alerts.yaml", "dashboard.json"))


def test_rules_are_valid_and_name_metrics_that_exist() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(_RULES)], capture_output=True, text=True, check=False)  # noqa: S607
    assert (done.returncode, "3 rules found" in done.stdout) == (0, True), done.stdout + done.stderr
    ours = {each._name for each in vars(_families()).values()}
    ours |= {f"{name}_total" for name in ours}
    json.loads(_DASHBOARD.read_text(encoding="utf-8"))
    for path in (_RULES, _DASHBOARD):
        assert set(re.findall(r"os_prefilter_\w+", path.read_text(encoding="utf-8"))) <= ours
