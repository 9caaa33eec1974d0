# SPDX-License-Identifier: Apache-2.0

"""Relations between the values of one request."""

from __future__ import annotations

import pytest

from os_prefilter import Destination, Request
from os_prefilter.request.guest_platform import guest_of
from os_prefilter.request.values import (
    Relations,
    relations_of,
    resolve,
    value_named,
)
from os_prefilter.vocabulary import row_named
from tests.conftest import spec_of


def _relations(request: Request, name: str, *, by_nova: bool) -> Relations:
    row, found = row_named(name), value_named(request, name)
    assert found
    return relations_of(
        request, guest_of(request), row, found, by_nova=by_nova
    )


_SECURE_BOOT = {"os_secure_boot": "required", "hw_architecture": "x86_64"}


def test_secure_boot_without_uefi_is_incompatible_where_nova_builds_the_guest() -> (
    None
):
    relations = _relations(
        Request(spec_of(_SECURE_BOOT)), "secure_boot", by_nova=True
    )
    ((pair, source),) = relations.incompatible
    assert pair.row == "architecture"
    assert source == "image property hw_architecture=x86_64"


@pytest.mark.parametrize(
    ("more", "by_nova"),
    [
        pytest.param({}, False, id="another driver"),
        pytest.param({"hw_firmware_type": "uefi"}, True, id="with UEFI"),
    ],
)
def test_secure_boot_is_compatible_elsewhere(
    more: dict[str, str], by_nova: bool
) -> None:
    request = Request(spec_of(_SECURE_BOOT | more))
    relations = _relations(request, "secure_boot", by_nova=by_nova)
    assert relations == Relations()


def test_firmware_is_implied_by_secure_boot() -> None:
    request = Request(spec_of(_SECURE_BOOT | {"hw_firmware_type": "uefi"}))
    relations = _relations(request, "firmware_type", by_nova=False)
    assert relations == Relations(is_implied=True)


def test_relations_are_computed_once_for_a_request() -> None:
    request = Request(spec_of(_SECURE_BOOT))
    relations = _relations(request, "secure_boot", by_nova=True)
    assert _relations(request, "secure_boot", by_nova=True) is relations


def test_value_with_whose_forbidden_trait_the_server_has_lived_is_noted() -> (
    None
):
    spec = spec_of(
        {"hw_vif_model": "igb"},
        {"trait:COMPUTE_NET_VIF_MODEL_IGB": "forbidden"},
        requested_destination=Destination(cell="one"),
    )
    read = resolve(Request(spec), row_named("vif_model"))
    assert read.problem is None
    assert read.value is None
    (note,) = read.notes
    assert note.source == "image property hw_vif_model=igb"
    assert note.warn
