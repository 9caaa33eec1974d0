# SPDX-License-Identifier: Apache-2.0

"""The agent's own program without a libvirt: the host, and what it can do, are
its first two arguments.
"""

from __future__ import annotations

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
        can = {
            row: frozenset((value,))
            for row, value in json.loads(sys.argv[2]).items()
        }
        return FakeFacts(host=sys.argv[1], can={**LIKE_NOVA, **can})


if __name__ == "__main__":
    host.LibvirtHost = Libvirt  # type: ignore[assignment,misc]
    sys.exit(main(sys.argv[3:]))
