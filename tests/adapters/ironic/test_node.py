# SPDX-License-Identifier: Apache-2.0

"""The adapter without an Ironic: no response, or one of another service. With
a real one: tests/services/ironic.
"""

from __future__ import annotations

import socket
from itertools import product

import pytest

from os_prefilter.adapters.ironic.errors import IronicUnavailable
from os_prefilter.adapters.ironic.node import IronicNode
from os_prefilter.adapters.ironic.traits import TraitPlan
from os_prefilter.common.errors import IronicError
from tests.services.ironic.ironics import connect

NODE = "6d85703a-565d-469a-96ce-30b6de53079d"


def test_refused_connection_and_silent_server_raise_ironic_unavailable() -> (
    None
):
    """A port that was open a moment ago; a connection that the kernel accepts
    and that is then silent.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(
            IronicUnavailable, match="did not respond to GET /v1"
        ):
            IronicNode.of(
                connect(f"http://127.0.0.1:{port}", timeout=0.2), NODE
            )
    with pytest.raises(
        IronicUnavailable, match="Check that the service runs and is reachable"
    ) as raised:
        IronicNode.of(connect(f"http://127.0.0.1:{port}"), NODE)
    assert isinstance(raised.value, IronicError)
    assert str(raised.value).isprintable()


def test_trait_plan_records_a_trait_before_adding_it_and_removes_only_recorded_ones() -> (
    None
):
    """All cases of one trait: on the node or not, noted or not, reported True,
    False or not at all.
    """
    sets = (frozenset[str](), frozenset(("CUSTOM_A",)))
    for present, noted, traits in product(
        sets, sets, ({}, {"CUSTOM_A": True}, {"CUSTOM_A": False})
    ):
        plan = TraitPlan(present, noted, traits)
        after = (present | plan.added) - plan.removed
        assert plan.removed <= noted
        assert plan.added <= plan.noted_before & plan.noted_after
        assert noted <= plan.noted_before
        assert noted & after <= plan.noted_after
        again = TraitPlan(after, plan.noted_after, traits)
        assert (again.added, again.removed) == (frozenset(), frozenset())
        assert again.noted_before == again.noted_after == again.noted
