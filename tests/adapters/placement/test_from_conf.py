# SPDX-License-Identifier: Apache-2.0

"""The section [placement] of a nova.conf: what Nova accepts works, and what is
wrong is named.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nova.conf
import pytest
from keystoneauth1.identity import generic

from os_prefilter.adapters.nova_conf import load_conf
from os_prefilter.adapters.placement.client import TIMEOUT, PlacementClient
from os_prefilter.adapters.placement.from_conf import client_from
from os_prefilter.common.errors import (
    ConfigurationError,
    PlacementRefused,
    PlacementUnavailable,
)
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from tests.support.placements import lone_host, nova_conf, served

STATIC = (
    "auth_type = admin_token\nendpoint = http://placement.invalid\ntoken ="
    " admin\n"
)
KEYSTONE = (
    "auth_type = password\nauth_url = http://keystone.invalid/v3\nusername ="
    " nova\npassword = s3cr3t\n"
)


def client_of(text: str, path: Path) -> PlacementClient:
    path.write_text(text)
    return client_from(load_conf(path), path)


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "nova.conf"


def test_admin_token_is_accepted_by_placement_and_auth_type_none_is_not(
    conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real socket, and the real service behind it."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with (
        EmbeddedPlacement(lone_host()) as placement,
        served(placement) as server,
    ):
        assert (
            client_of(nova_conf(server.url), conf).traits()
            == placement.client.traits()
        )
        override = (
            "[placement]\nauth_type = none\nendpoint_override ="
            f" {server.url}\n"
        )
        with pytest.raises(PlacementRefused, match="status 403"):
            client_of(override, conf).traits()
        assert server.sent == ["GET /traits"] * 2


@pytest.mark.parametrize(
    "section", ["", "auth_section = service_user\n[service_user]\n"]
)
def test_password_auth_and_adapter_options_are_read_from_nova_conf(
    section: str, conf: Path
) -> None:
    """The credentials may be in a section of their own."""
    options = (
        "region_name = RegionOne\nvalid_interfaces = internal\nconnect_retries"
        " = 2\n"
    )
    login = (
        f"{KEYSTONE}user_domain_name = Default\nproject_name ="
        " service\nproject_domain_name = Default\n"
    )
    adapter: Any = client_of(
        f"[placement]\n{options}{section}{login}", conf
    )._adapter
    assert isinstance(adapter.auth, generic.Password)
    assert (
        adapter.service_type,
        adapter.region_name,
        adapter.connect_retries,
    ) == ("placement", "RegionOne", 2)
    assert adapter.interface == ["internal"]
    assert (adapter.auth._username, adapter.auth._password) == (
        "nova",
        "s3cr3t",
    )


def test_placement_options_and_defaults_match_nova(conf: Path) -> None:
    conf.write_text(f"[placement]\n{STATIC}version = 1\nmin_version = 2\n")
    ours = load_conf(conf)
    client_from(ours, conf)
    names = set(nova.conf.CONF.placement) - {
        "auth_type",
        "auth_section",
        "version",
        "min_version",
        "max_version",
    }
    assert {name: ours.placement[name] for name in names} == {
        name: nova.conf.CONF.placement[name] for name in names
    }


def test_client_and_session_always_have_a_timeout(conf: Path) -> None:
    """Not even Keystone's; a service must go on."""
    for line, expected in (
        ("", TIMEOUT),
        ("timeout = 7\n", 7.0),
        ("timeout = 0\n", TIMEOUT),
    ):
        client = client_of(f"[placement]\n{STATIC}{line}", conf)
        adapter: Any = client._adapter
        assert client._timeout == adapter.session.timeout == expected


WRONG = [
    ("", "no section [placement]"),
    ("[placement]\n", "[placement] auth_type: it is not set"),
    (
        "[placement]\nauth_type = nosuch\n",
        "[placement] auth_type: there is no type 'nosuch'",
    ),
    (
        "[placement]\nauth_type = password\n",
        "[placement] auth_url: it is not set",
    ),
    (
        "[placement]\nauth_type = password\nauth_url = http://k\n",
        "[placement] username: it is not set, nor is user_id",
    ),
    (
        (
            "[placement]\nauth_type = v3password\nauth_url = http://k\nuser_id"
            " = u\n"
        ),
        "[placement] password: it is not set",
    ),
    (
        "[placement]\nauth_type = admin_token\nendpoint = http://p\n",
        "[placement] token: it is not set",
    ),
    (
        "[placement]\nauth_section = x\n[x]\nauth_type = none\nendpoint = p\n",
        "[x] endpoint: it is not a URL",
    ),
    (
        f"[placement]\n{KEYSTONE}auth_url = ftp://k\n",
        "[placement] auth_url: it is not a URL",
    ),
    (
        f"[placement]\n{STATIC}endpoint = nova:s3cr3t@127.0.0.1\n",
        "[placement] endpoint: it is not a URL",
    ),
    (
        f"[placement]\n{STATIC}endpoint_override = p\n",
        "[placement] endpoint_override: it is not a URL",
    ),
    (
        f"[placement]\n{STATIC}timeout = soon\n",
        "[placement] timeout: could not convert",
    ),
    (
        f"[placement]\n{STATIC}timeout = -1\n",
        "[placement] timeout: it is not a number of seconds above 0",
    ),
    (f"[placement]\n{STATIC}insecure = perhaps\n", "[placement] insecure: "),
    (f"[placement]\n{KEYSTONE}password = s3cr3t$s3cr3t\n", "password: a $"),
    ("[placement]\npassword s3cr3t\n", "cannot be read as a nova.conf"),
]


@pytest.mark.parametrize(("text", "says"), WRONG)
def test_invalid_placement_section_error_names_the_problem_and_no_password(
    conf: Path, text: str, says: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        client_of(text, conf)
    message = str(raised.value)
    assert says in message
    assert str(conf) in message
    assert message.isprintable()
    assert "s3cr3t" not in message


def test_cafile_deleted_later_raises_placement_unavailable(
    conf: Path, tmp_path: Path
) -> None:
    """A service must survive the hour in which its certificates are
    exchanged.
    """
    authority = tmp_path / "ca.pem"
    authority.write_text("")
    client = client_of(
        f"[placement]\n{STATIC.replace('http', 'https')}cafile ="
        f" {authority}\n",
        conf,
    )
    authority.unlink()
    with pytest.raises(PlacementUnavailable):
        client.traits()
