"""Workers that nova-scheduler forks; not for a Nova with eventlet, which this process would run as well."""

import sys
from pathlib import Path

from tests.support.placements import Observed, nova_conf, served
from tests.support.processes import ran


def test_each_forked_worker_reads_the_answers_to_its_own_requests(observed: Observed, tmp_path: Path) -> None:
    """Nova leaves a connection to Placement open when it forks."""
    conf = tmp_path / "nova.conf"
    with served(observed.placement) as state:
        conf.write_text(nova_conf(state.url), encoding="utf-8")
        done = ran([sys.executable, "-m", "tests.nova.forked_clients", str(conf)], seconds=60)
    assert done.returncode == 0, done.stderr
