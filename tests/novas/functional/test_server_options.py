# SPDX-License-Identifier: Apache-2.0

"""Servers with tags, trusted certificates and shares, beside a host that is
tried first and can serve none of them.
"""

from __future__ import annotations

from typing import Any

import pytest
from nova.tests.fixtures import NeutronFixture

from tests.novas.functional.cloud import Cloud, Server

_INCAPABLE, _CAPABLE, _NEXT = "nothing", "lxc", "arm"
_NETWORK = NeutronFixture.network_1["id"]
_ROOT_DISK = {
    "boot_index": 0,
    "source_type": "image",
    "destination_type": "local",
    "tag": "root",
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "a NIC with a tag": {"networks": [{"uuid": _NETWORK, "tag": "nic"}]},
    "a block device with a tag": {"block_device_mapping_v2": [_ROOT_DISK]},
    "trusted certificates": {"trusted_image_certificates": [_NETWORK]},
}
_each_option = pytest.mark.parametrize("option", _OPTIONS)


@_each_option
def test_server_starts_on_a_host_that_serves_its_options(
    cloud: Cloud, option: str
) -> None:
    server = cloud.server(**_OPTIONS[option])
    assert server.status == "ACTIVE"
    assert server.host == _CAPABLE


@_each_option
def test_server_without_the_filter_fails_beside_a_host_that_serves_it(
    cloud: Cloud, option: str
) -> None:
    """Nova does not try another host."""
    with cloud.not_activated():
        server = cloud.server(**_OPTIONS[option])
    assert server.status == "ERROR"
    assert server.host is None
    assert server.attempts == ()


_MOVES = ("migrate", "resize")


def _move(cloud: Cloud, verb: str, server: Server) -> Server:
    body = None
    if verb == "resize":
        body = {"flavorRef": cloud.flavor({"hw:watchdog_action": "disabled"})}
    return cloud.act(server, {verb: body}, "VERIFY_RESIZE")


def _with_share(cloud: Cloud) -> Server:
    server = cloud.server(host=_CAPABLE)
    stopped = cloud.act(server, {"os-stop": None}, "SHUTOFF")
    cloud.attach_share(stopped)
    return stopped


@pytest.mark.parametrize("verb", _MOVES)
def test_server_with_a_share_moves_to_a_host_with_virtiofs(
    cloud: Cloud, verb: str
) -> None:
    moved = _move(cloud, verb, _with_share(cloud))
    assert moved.status == "VERIFY_RESIZE"
    assert moved.host == _NEXT


@pytest.mark.parametrize("verb", _MOVES)
def test_server_with_a_share_moves_to_any_host_without_the_filter(
    cloud: Cloud, verb: str
) -> None:
    server = _with_share(cloud)
    with cloud.not_activated():
        moved = _move(cloud, verb, server)
    assert moved.host == _INCAPABLE


@_each_option
def test_server_moves_to_a_host_that_serves_its_options(
    cloud: Cloud, option: str
) -> None:
    moved = _move(cloud, "migrate", cloud.server(**_OPTIONS[option]))
    assert moved.status == "VERIFY_RESIZE"
    assert moved.host == _NEXT


def test_named_host_that_serves_no_option_is_refused(cloud: Cloud) -> None:
    option = _OPTIONS["trusted certificates"]
    server = cloud.server(host=_INCAPABLE, **option)
    assert server.status == "ERROR"
    assert server.attempts == ()
    assert server.fault.startswith("No valid host was found.")


def test_rebuild_with_certificates_is_refused_on_a_host_that_cannot_use_them(
    cloud: Cloud,
) -> None:
    server = cloud.server()
    assert server.host == _INCAPABLE
    options = _OPTIONS["trusted certificates"]
    refused = cloud.act(
        server, {"rebuild": {"imageRef": cloud.image(), **options}}, "ACTIVE"
    )
    assert refused.status == "ERROR"
    assert refused.attempts == (_INCAPABLE,)
    assert "This host does not offer trusted certificates." in refused.fault


def test_server_with_tags_and_certificates_is_rebuilt(cloud: Cloud) -> None:
    options = _OPTIONS["trusted certificates"] | _OPTIONS["a NIC with a tag"]
    server = cloud.server(**options)
    rebuilt = cloud.act(
        server, {"rebuild": {"imageRef": cloud.image()}}, "ACTIVE"
    )
    assert rebuilt.status == "ACTIVE"
    assert rebuilt.attempts == (_CAPABLE, _CAPABLE)
