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

"""The real libvirt that tests may use: OS_PREFILTER_LIBVIRT_URI names it (qemu:///system). In CI it must be there."""

import os

import pytest

URI = os.environ.get("OS_PREFILTER_LIBVIRT_URI", "")

needs_libvirt = pytest.mark.skipif(
    not URI and not os.environ.get("CI"), reason="it needs a libvirtd, and OS_PREFILTER_LIBVIRT_URI=qemu:///system"
)


def uri() -> str:
    """Return the URI; in CI, where nothing is skipped, a missing one fails."""
    assert URI, "in CI, OS_PREFILTER_LIBVIRT_URI must name a libvirt"
    return URI
