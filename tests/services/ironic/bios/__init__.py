# SPDX-License-Identifier: Apache-2.0

"""BIOS interfaces for the real Ironic of the tests:
:mod:`tests.services.ironic.bios.interface`.

This much is for the tests, which must not import Ironic: its options and
Nova's have the same names.
"""

NAME = "os-prefilter-test"
"""What the entry point is called, and so the ``bios_interface`` of a node."""

CONFIGURING = "prefilter-test"
"""The same one for nodes that get what their server asks for."""

_MODULE = "tests.services.ironic.bios.interface"
ENTRY_POINTS = (
    f"{NAME} = {_MODULE}:FileBIOS\n{CONFIGURING} ="
    f" {_MODULE}:ConfiguringFileBIOS"
)
"""Of the group ``ironic.hardware.interfaces.bios``."""

MACHINE = "bios_file"
"""The key of ``driver_info``: the path of the file that is the machine."""

FAILS = "FailsToApply"
"""A setting that the machine accepts and then fails to apply; the value is the
reason.
"""

HOLDS = "HoldsUntilFileExists"
"""A setting whose value is the path of a file: the step goes on, and the node
stays locked, until it exists.
"""

IGNORED = "HasNoEffect"
"""A setting that the machine accepts and does not change."""
