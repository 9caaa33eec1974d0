# SPDX-License-Identifier: Apache-2.0

"""The real libvirt that tests may use: OS_PREFILTER_LIBVIRT_URI names it
(qemu:///system). In CI it must be there.
"""

from __future__ import annotations

import os

import pytest

URI = os.environ.get("OS_PREFILTER_LIBVIRT_URI", "")

needs_libvirt = pytest.mark.skipif(
    not URI and not os.environ.get("CI"),
    reason="it needs a libvirtd, and OS_PREFILTER_LIBVIRT_URI=qemu:///system",
)


def uri() -> str:
    """Return the URI; in CI, where nothing is skipped, a missing one fails."""
    assert URI, "in CI, OS_PREFILTER_LIBVIRT_URI must name a libvirt"
    return URI
