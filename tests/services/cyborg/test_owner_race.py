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

"""Agents of ours beside a real Cyborg, in a process of its own: its options are not those that Nova registers."""

import sys
from pathlib import Path

from tests.support.processes import ran


def test_laws_of_ownership_hold_beside_a_cyborg_that_reports() -> None:
    laws = Path(__file__).with_name("owner_race.py")
    done = ran([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(laws)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
