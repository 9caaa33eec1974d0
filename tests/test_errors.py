# SPDX-License-Identifier: Apache-2.0

"""Messages are one short ASCII line, whatever a tenant wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from os_prefilter import allocation_candidates_query, unsupported
from os_prefilter.common.errors import (
    RequestRejected,
    UnknownValue,
    UnsupportedByHost,
)
from os_prefilter.common.quoting import quote
from os_prefilter.service import Service
from os_prefilter.vocabulary import ROWS
from os_prefilter_tools.testing.law import list_requiring_filters
from tests.conftest import conf_with, spec_of
from tests.support.hosts import KVM


@given(
    st.text()
    | st.integers()
    | st.floats()
    | st.binary()
    | st.none()
    | st.lists(st.text())
)
def test_any_value_is_shown_as_one_short_printable_ascii_line(
    value: object,
) -> None:
    text = quote(value)
    assert text.isascii()
    assert text.isprintable()
    assert len(text) <= 83


def test_untrusted_value_is_quoted_escaped_or_described_by_its_kind() -> None:
    assert [quote(each) for each in ("a\nb", "\x1b[31m", [1], None)] == [
        r"'a\nb'",
        r"'\x1b[31m'",
        "a list",
        "None",
    ]
    assert quote(10**5000) == "a huge number"


_LONG = "A" * 20_000
_LONG_REQUESTS = {
    "malformed trait": spec_of({f"trait:{_LONG}": "required"}),
    "malformed class": spec_of({}, {f"resources:CUSTOM_{_LONG}": "1"}),
    "huge amount": spec_of({}, {"resources:VGPU": "9" * 4_000}),
    "unknown values": spec_of(
        {row.image_property: _LONG for row in ROWS if row.image_property}
    ),
    "configuration": spec_of({}, {f"deploy-config:{_LONG}": _LONG}),
    "machine type": spec_of(
        {"hw_machine_type": f"pc-q35-{_LONG}", "hw_disk_bus": "ide"}
    ),
    "distribution": spec_of({"os_distro": _LONG}),
}


@pytest.mark.parametrize("what", _LONG_REQUESTS)
def test_message_shows_little_of_a_long_text_of_a_tenant(what: str) -> None:
    """It goes into the fault of a server, the log, and over the message
    bus.
    """
    spec = _LONG_REQUESTS[what]
    conf = conf_with(
        enabled_filters=[*list_requiring_filters()],
        wait_for_reports=False,
        unknown_values="reject",
    )
    for find in (
        lambda: Service.from_conf(conf, in_nova=True).decide(spec).notes,
        lambda: allocation_candidates_query(spec),
        lambda: unsupported(spec, KVM),
        lambda: unsupported(spec, replace(KVM, guests={})),
    ):
        shown: list[object] = []
        try:
            found: object = find()
        except RequestRejected as error:
            shown.append(error)
        else:
            shown += found if isinstance(found, (list, tuple)) else []
        assert all(len(str(each)) < 600 for each in shown), what


def test_rejection_is_cut_whatever_its_parts_are() -> None:
    refusals = [
        f"image property hw_{number}=x: no" for number in range(10_000)
    ]
    assert len(str(UnsupportedByHost("h", refusals))) == 2_000
    assert (
        len(
            str(
                UnknownValue(
                    "hint",
                    "x",
                    [f"CUSTOM_{number}" for number in range(10_000)],
                )
            )
        )
        == 2_000
    )


@pytest.mark.parametrize("length", [1_975, 1_985, 1_999, 2_001])
def test_rejection_that_is_cut_in_a_password_shows_nothing_of_it(
    length: int,
) -> None:
    start = "a" * length
    shown = str(RequestRejected(f"{start} http://admin:secret@keystone"))
    assert shown == f"{start} http://***@keystone"[:2_000]
