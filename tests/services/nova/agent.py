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

"""The agent's own program without a libvirt: the host, and what it can do, are its first two arguments."""

import json
import sys

from os_prefilter.adapters.libvirt import host
from os_prefilter.hosts.drivers.fake import LIKE_NOVA, FakeFacts
from os_prefilter_tools.cli.main import main


class Libvirt:
    """A host that is always the same."""

    def __init__(self, *_given: object) -> None:
        pass

    def identity(self) -> str:
        return "host"

    def facts(self, *_given: object) -> FakeFacts:
        can = {row: frozenset((value,)) for row, value in json.loads(sys.argv[2]).items()}
        return FakeFacts(host=sys.argv[1], can={**LIKE_NOVA, **can})


if __name__ == "__main__":
    host.LibvirtHost = Libvirt  # type: ignore[assignment,misc]
    sys.exit(main(sys.argv[3:]))
