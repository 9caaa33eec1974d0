# SPDX-License-Identifier: Apache-2.0

"""Each law of reporters is broken by some reporter, and its author is told
how.
"""

from __future__ import annotations

import pytest

from os_prefilter.hosts.drivers.fake import FakeFacts
from os_prefilter_tools.testing import reporter_conformance
from tests.testing.test_broken_filters import _outcome

pytest_plugins = ["pytester"]

_GOOD = """
import random, time
from dataclasses import field
from os_prefilter.common.dataclasses import dataclass
from typing import ClassVar
from os_prefilter import HostFacts, Reporter
from os_prefilter_tools.testing import reporter_conformance

CAN = {"vif_model": {"virtio"}, "disk_bus": {"virtio"}, "cdrom_bus": {"virtio"}, "video_model": {"vga"}}
OWNS = frozenset((*CAN, "machine_type"))
ASKED = []


@dataclass(frozen=True, kw_only=True)
class AcmeFacts(HostFacts):
    driver: ClassVar[str] = "acme"
    found: list[str] = field(default_factory=list)


def refusal(facts, row, value, architecture):
    if row == "machine_type":
        return "" if value.startswith("q35") or value.startswith("pc-q35") else "acme has q35"
    return "" if value in CAN[row] else f"acme has no {row} of that kind"


TestAcme = reporter_conformance(Reporter(AcmeFacts, refusal, OWNS), facts=[AcmeFacts()], one_in=10)
"""
_REFUSAL = "def refusal(facts, row, value, architecture):\n"


def _with(line: str) -> str:
    return _GOOD.replace(_REFUSAL, f"{_REFUSAL}    {line}\n")


@pytest.mark.parametrize(
    ("law", "code", "message"),
    [
        (
            "every_value",
            _GOOD.replace(", OWNS)", ', OWNS | {"tpm_model"})'),
            "KeyError: 'tpm_model'",
        ),
        (
            "every_value",
            _with('if value == "igb": return None'),
            "returns None. Expected one line",
        ),
        (
            "every_value",
            _with('if value == "igb": return "no\\nyes"'),
            "returns 'no\\nyes'. Expected one line",
        ),
        (
            "name_the_driver",
            _GOOD.replace('driver: ClassVar[str] = "acme"', "pass"),
            "AcmeFacts names no driver. Add",
        ),
        (
            "rows_that_exist",
            _GOOD.replace(", OWNS)", ', OWNS | {"vif_modle"})'),
            "owns vif_modle, no row",
        ),
        (
            "same_answer",
            _with(
                'ASKED.append(1); return "" if len(ASKED) > 20 else "tired"'
            ),
            "It must keep no state",
        ),
        (
            "same_answer",
            _with("facts.found.append(value)"),
            "The reporter changes the facts",
        ),
        (
            "every_value",
            _with('if value == "igb": open("/dev/null").close()'),
            "must read its facts alone",
        ),
        (
            "each_request_is",
            _GOOD.replace('"disk_bus": {"virtio"}', '"disk_bus": {"scsi"}'),
            "break the law",
        ),
        (
            "each_request_is",
            _GOOD.replace('{"vga"}}', '{"vga"}, "architecture": {"x86_64"}}'),
            (
                "missing ['HW_ARCH_X86_64'], which mean ['architecture=i686',"
                " 'architecture=x86_64'], late check []"
            ),
        ),
        (
            "each_request_is",
            _with(
                'ASKED.append(value); return "no" if row == "vif_model" and'
                ' ASKED.count(value) > 1 else ""'
            ),
            "requests break the law",
        ),
        (
            "each_request_is",
            _with(
                'ASKED.append(value); return "not both" if ASKED[-2:-1] =='
                ' ["virtio"] else ""'
            ),
            "requests break the law",
        ),
    ],
    ids=lambda value: value if len(value) < 30 else "",
)
def test_a_reporter_that_breaks_a_law_fails_its_test_with_the_reason(
    law: str, code: str, message: str, pytester: pytest.Pytester
) -> None:
    passed, failed, printed = _outcome(pytester, code, law)
    assert (passed, failed) == (0, 1), printed
    assert message in printed


def test_conforming_reporter_passes(pytester: pytest.Pytester) -> None:
    passed, failed, printed = _outcome(pytester, _GOOD, "")
    assert (passed, failed) == (5, 0), printed


def test_reporter_that_is_not_installed_or_has_no_facts_fails_with_advice() -> (
    None
):
    with pytest.raises(pytest.fail.Exception, match="must be installed again"):
        reporter_conformance("acme", facts=[FakeFacts()])().test_it_loads()
    with pytest.raises(
        ValueError,
        match="reporter_conformance needs the facts of at least one host",
    ):
        reporter_conformance("fake", facts=[])
