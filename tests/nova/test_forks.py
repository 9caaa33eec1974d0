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
