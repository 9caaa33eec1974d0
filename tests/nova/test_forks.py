# SPDX-License-Identifier: Apache-2.0

"""Workers that nova-scheduler forks; not for a Nova with eventlet, which this
process would run as well.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from nova import config
from nova.scheduler.client import report

from os_prefilter.nova.connections import ReportClientAdapter
from tests.support.placements import Observed, nova_conf, served
from tests.support.processes import ran

_ASKED = (
    ("/traits?name=in:COMPUTE_NODE", "traits"),
    ("/resource_providers?name=none", "resource_providers"),
)


def test_each_forked_worker_reads_the_answers_to_its_own_requests(
    observed: Observed, tmp_path: Path
) -> None:
    """Nova leaves a connection to Placement open when it forks."""
    conf = tmp_path / "nova.conf"
    with served(observed.placement) as state:
        conf.write_text(nova_conf(state.url), encoding="utf-8")
        done = ran([sys.executable, "-m", __name__, str(conf)], seconds=60)
    assert done.returncode == 0, done.stderr


def _fork(path: str) -> None:
    """Fork two workers after Nova asked Placement, which ask for different
    things at the same time.
    """
    config.parse_args(["nova-scheduler", "--config-file", path])
    # As its manager does, which asks for Placement's versions.
    report.report_client_singleton()
    start, children = time.time() + 0.5, []
    for url, key in _ASKED:
        child = os.fork()
        if not child:
            time.sleep(max(0.0, start - time.time()))
            adapter = ReportClientAdapter()
            answers = [
                list(adapter.request(url, "GET", microversion="1.22").json())
                for _ in range(30)
            ]
            os._exit(answers != [[key]] * 30)
        children.append(child)
    sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))


if __name__ == "__main__":
    _fork(sys.argv[1])
