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
