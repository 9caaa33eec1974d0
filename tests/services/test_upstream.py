# SPDX-License-Identifier: Apache-2.0

"""Bugs of projects that this layer installs, by the same list as
``tests/against_nova/test_upstream.py``.
"""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

from tests.against_nova.upstream import BUGS, IN_SERVICES, Bug


def _prints_true(code: str) -> bool:
    """Run code beside Nova, whose options are in the way of others'."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip() == "True"


def _verify_ca() -> bool:
    return _prints_true(
        """
        from types import SimpleNamespace
        from ironic.conf import CONF
        from ironic.drivers.utils import get_verify_ca
        from oslo_config.cfg import NoSuchOptError

        CONF([], project="ironic", default_config_files=[])
        get_verify_ca(SimpleNamespace(driver="redfish"), None)
        try:
            get_verify_ca(SimpleNamespace(driver="of-acme"), None)
        except NoSuchOptError:
            print(True)
        """
    )


def _profiles_without_owner() -> bool:
    return _prints_true(
        """
        from cyborg import objects

        objects.register_all()

        from cyborg.api.controllers.v2 import device_profiles
        from cyborg.common.exception import InvalidParameterValue

        def post(trait):
            group = {"resources:VGPU": "1", f"trait:{trait}": "required"}
            controller = device_profiles.DeviceProfilesController()
            controller._validate_post_request({"name": "a", "groups": [group]})

        post("CUSTOM_A")
        try:
            post("OWNER_CYBORG")
        except InvalidParameterValue:
            print(True)
        """
    )


_REPRODUCERS = {
    "profiles-without-owner": _profiles_without_owner,
    "verify-ca-of-other-drivers": _verify_ca,
}


@pytest.mark.parametrize(
    "bug",
    [
        each
        for each in BUGS
        if each.project in IN_SERVICES and not each.other_test
    ],
    ids=lambda each: each.name,
)
def test_bug_is_there(bug: Bug) -> None:
    bug.check(is_there=_REPRODUCERS[bug.name]())
