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

"""The simulated mixed cloud, a small one: what it says of each way but for times."""

import sys

from tests.benchmarks.mixed_cloud import KEPT
from tests.support.processes import ran


def test_os_prefilter_has_no_late_failure_and_excludes_no_capable_host_as_others_do() -> None:
    """The law of the project, on a Placement with claims and through Nova's own scheduler.

    Each other way has the fault that it is known for: without it, the comparison would show nothing.
    """
    done = ran([sys.executable, "-W", "ignore", "-m", "tests.benchmarks.mixed_cloud", "small"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"{KEPT}\n")
    rows = {line[:35].strip(): line[35:] for line in done.stdout.splitlines() if len(line) == 100}
    # No filter, Nova's host filter for properties, its prefilters, both, and os-prefilter.
    late = list(map(int, rows["late failures"].split()))
    assert late[0] > late[1] > 0 == late[4]
    assert late[0] > late[2] > 0
    excluded = rows["able hosts excluded, of all able"].split()[::2]
    assert (excluded[0], excluded[1], excluded[4]) == ("0", "0", "0")
    assert excluded[2] == excluded[3] != "0"
    assert rows["that ran"].split()[4] == rows["requests that some host could do"].split()[4] != "0"
    assert rows["refused before any was tried"].split()[4] == rows["requests that no host could do"].split()[4]
