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

"""Two workers, forked after Nova asked Placement, ask for different things; the argument is a nova.conf."""

import os
import sys
import time

from nova import config
from nova.scheduler.client import report

from os_prefilter.nova import ReportClientAdapter

_ASKED = (("/traits?name=in:COMPUTE_NODE", "traits"), ("/resource_providers?name=none", "resource_providers"))


def main(path: str) -> None:
    config.parse_args(["nova-scheduler", "--config-file", path])
    # As its manager does, which asks for Placement's versions.
    report.report_client_singleton()
    start, children = time.time() + 0.5, []
    for url, key in _ASKED:
        child = os.fork()
        if not child:
            time.sleep(max(0.0, start - time.time()))
            adapter = ReportClientAdapter()
            answers = [list(adapter.request(url, "GET", microversion="1.22").json()) for _ in range(30)]
            os._exit(answers != [[key]] * 30)
        children.append(child)
    sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))


if __name__ == "__main__":
    main(sys.argv[1])
