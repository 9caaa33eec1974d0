# SPDX-License-Identifier: Apache-2.0

"""Steps on nodes of a real Ironic: the BIOS setting is really changed, or it
is said why not.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from os_prefilter.adapters.ironic.errors import (
    IronicRefused,
    NodeNotReady,
    OutcomeUnknown,
    StepsFailed,
    UnknownNode,
)
from os_prefilter.adapters.ironic.node import IronicNode
from tests.services.ironic.bios import FAILS, HOLDS
from tests.services.ironic.ironics import (
    LOGICAL_PROC,
    Ironic,
    connect,
    service_of,
    setting,
)
from tests.services.recorder import LOST, Recorder
from tests.support.programs import until

TIMEOUT = 100.0
INSTANCE, ANOTHER = (
    "1bd4d4e1-6c70-4d5a-8e8a-5ab8fd0a2c6b",
    "2bd4d4e1-6c70-4d5a-8e8a-5ab8fd0a2c6b",
)
DISABLED = setting()


def run(
    ironic: Ironic | Recorder,
    node: str,
    steps: list[Any] = DISABLED,
    **options: Any,
) -> None:
    """Service a node with steps; the client waits a moment for a lock."""
    there = IronicNode(
        connect(ironic.url).baremetal,
        node,
        lock_timeout=options.pop("lock_timeout", 60.0),
    )
    there.task(steps, **{"timeout": TIMEOUT, **options}).run()


@pytest.fixture
def go_on(tmp_path: Path) -> Path:
    """Return the file that lets a held machine go on."""
    return tmp_path / "go on"


def held(file: Path, value: str = "Disabled") -> list[Any]:
    """Return a step that changes the setting, and goes on until the file
    exists.
    """
    return setting("LogicalProc", value, (HOLDS, str(file)))


def test_service_steps_toggle_a_bios_setting_under_an_existing_instance(
    ironic: Ironic,
) -> None:
    """Of several steps the last one wins."""
    node = ironic.node("active", instance_uuid=INSTANCE)
    for steps, value in (
        (DISABLED, "Disabled"),
        (DISABLED + setting(value="Enabled"), "Enabled"),
    ):
        run(ironic, node, steps, instance=INSTANCE)
        assert (
            ironic.bios(node)["LogicalProc"]
            == ironic.machine(node)["LogicalProc"]
            == value
        )
        shown = ironic.show(node)
        assert (shown["instance_uuid"], shown["provision_state"]) == (
            INSTANCE,
            "active",
        )


def test_failed_step_is_reported_with_its_reason_and_can_be_retried(
    ironic: Ironic,
) -> None:
    node = ironic.node("active")
    with pytest.raises(
        StepsFailed, match="service failed.*the battery is"
    ) as raised:
        run(ironic, node, setting(FAILS, "the battery\n is \x1b[31mempty"))
    assert str(raised.value).isprintable()
    assert ironic.machine(node)["LogicalProc"] == "Enabled"
    # Ironic does this; an operator must have a look.
    with pytest.raises(
        NodeNotReady, match="in maintenance .*failed step.*maintenance unset"
    ):
        run(ironic, node)
    ironic.set_maintenance(node)
    run(ironic, node)
    assert ironic.machine(node)["LogicalProc"] == "Disabled"


def test_malformed_steps_are_refused_and_the_node_state_is_unchanged(
    ironic: Ironic,
) -> None:
    node = ironic.node("active")
    malformed: list[dict[str, Any]] = [{"interface": "toaster"}, {"args": []}]
    for wrong in malformed:
        with pytest.raises(
            IronicRefused,
            match="PUT /v1/nodes/ID/states/provision with status 400",
        ):
            run(ironic, node, [{**DISABLED[0], **wrong}])
    assert ironic.show(node)["provision_state"] == "active"


_NOT_READY: list[tuple[Mapping[str, Any], str]] = [
    (
        {"state": "available"},
        "it is in the provision state 'available'.*begins in 'active'",
    ),
    ({}, f"it belongs to no instance, not to '{INSTANCE}'"),
    ({"instance_uuid": ANOTHER}, "it belongs to the instance '2bd4"),
]


def test_node_that_is_not_ready_is_refused_and_no_request_writes(
    ironic: Ironic, proxy: Recorder
) -> None:
    for fields, reason in _NOT_READY:
        node = ironic.node(**{"state": "active", **fields})
        with pytest.raises(NodeNotReady, match=reason):
            run(proxy, node, instance=INSTANCE)
    assert proxy.written == []


def test_locked_or_unknown_node_or_one_in_maintenance_is_refused(
    ironic: Ironic, proxy: Recorder
) -> None:
    node = ironic.node("active")
    ironic.set_column(node, "reservation", "another-conductor")
    with pytest.raises(
        NodeNotReady,
        match="the conductor 'another-conductor' has kept it locked",
    ):
        run(proxy, node, lock_timeout=0.1)
    ironic.set_column(node, "reservation", None)
    ironic.set_maintenance(node, "smoke\n\x07")
    with pytest.raises(
        NodeNotReady,
        match=(
            r"it is in maintenance \('smoke'\). Fix the reason, then:"
            r" openstack"
        ),
    ):
        run(proxy, node)
    with pytest.raises(UnknownNode):
        run(proxy, "no-such-node")
    assert proxy.written == []


def test_ironic_too_old_for_the_steps_is_refused(
    ironic: Ironic, proxy: Recorder
) -> None:
    """What it answers here is what an older one answers when it is asked for
    its versions.
    """
    links = [{"rel": "self", "href": f"{proxy.url}/v1/"}]
    version = {
        "id": "v1",
        "status": "CURRENT",
        "min_version": "1.1",
        "version": "1.86",
        "links": links,
    }
    answer = {
        "id": "v1",
        "version": version,
        "versions": [version],
        "default_version": version,
        "links": links,
    }
    proxy.before = lambda _method, path: (
        (200, answer) if path.rstrip("/") in ("", "/v1") else None
    )
    with pytest.raises(NodeNotReady, match="does not offer its API 1.87"):
        run(proxy, ironic.node("active"))
    assert proxy.written == []


def test_steps_wait_for_a_briefly_locked_node(
    ironic: Ironic, proxy: Recorder
) -> None:
    node = ironic.node("active")
    ironic.set_column(node, "reservation", "another-conductor")
    reads: list[str] = []

    def let_go(_method: str, path: str) -> None:
        reads.append(path)
        if (
            len(
                [
                    each
                    for each in reads
                    if each.startswith(f"/v1/nodes/{node}")
                ]
            )
            == 2
        ):
            ironic.set_column(node, "reservation", None)

    proxy.before = let_go
    run(proxy, node)
    assert ironic.machine(node)["LogicalProc"] == "Disabled"


def test_steps_under_way_are_not_begun_a_second_time(
    ironic: Ironic, proxy: Recorder, go_on: Path
) -> None:
    """Whatever became of the caller of the first try."""
    node = ironic.node("active")
    with pytest.raises(
        OutcomeUnknown, match="'servicing'. It is safe to run it again"
    ):
        run(ironic, node, held(go_on), timeout=0.1)
    for steps in (held(go_on), DISABLED, []):
        with pytest.raises(
            NodeNotReady,
            match=(
                "it is in the provision state 'servicing'.*Run it again when"
                " the node"
            ),
        ):
            run(proxy, node, steps, settings={"LogicalProc": "Disabled"})
    assert proxy.written == []
    go_on.touch()
    ironic.wait_for(node, "active")
    run(proxy, node, [], settings={"LogicalProc": "Disabled"})


@pytest.mark.parametrize(
    "begun", [True, False], ids=["by a step", "without a step"]
)
def test_node_that_is_changed_before_the_end_is_an_error(
    ironic: Ironic, proxy: Recorder, begun: bool
) -> None:
    """Ironic reads no BIOS settings when a service is aborted: it goes on
    showing those of before.
    """
    node = ironic.node("active", bios=[{**LOGICAL_PROC, "value": "Disabled"}])
    waiting = [True]

    def fail(method: str, path: str) -> None:
        if method == "GET" and "/bios" in path and waiting:
            waiting.clear()
            steps = service_of(
                setting("LogicalProc", "Enabled", (FAILS, "no power"))
            )
            ironic.begin(node, "service", service_steps=steps)
            ironic.wait_for(node, "service failed")
            ironic.set_maintenance(node)
            ironic.provision(node, "abort")

    proxy.after = fail
    error = StepsFailed if begun else NodeNotReady
    with pytest.raises(error, match="its last error is 'By request.*aborted'"):
        run(
            proxy,
            node,
            DISABLED if begun else [],
            settings={"LogicalProc": "Disabled"},
        )


def test_node_in_maintenance_at_the_end_is_an_error(
    ironic: Ironic, proxy: Recorder
) -> None:
    node = ironic.node("active")
    proxy.after = lambda _method, path: (
        ironic.set_maintenance(node, "smoke") if "/bios" in path else None
    )
    with pytest.raises(
        StepsFailed,
        match=r"without an error, but it is in maintenance \('smoke'\)",
    ):
        run(proxy, node)


def test_setting_that_needed_no_step_is_checked_as_well(
    ironic: Ironic,
) -> None:
    with pytest.raises(
        StepsFailed, match="'SystemModelName' is 'R660', not 'R770'"
    ):
        run(
            ironic, ironic.node("active"), settings={"SystemModelName": "R770"}
        )


def test_fields_that_the_user_may_not_see_are_no_errors_and_no_locks(
    ironic: Ironic, proxy: Recorder
) -> None:
    node = ironic.node("active")
    hidden = (
        "** Redacted - requires baremetal:node:get:last_error permission. **"
    )
    answer = {**ironic.show(node), "last_error": hidden, "reservation": hidden}
    proxy.before = lambda _method, path: (
        (200, answer) if path.endswith(node) else None
    )
    assert (
        IronicNode(connect(proxy.url).baremetal, node).facts().bios_may_differ
        is False
    )
    run(proxy, node, [], settings={"LogicalProc": "Enabled"})


@pytest.mark.parametrize(
    ("column", "value", "match"),
    [
        # Ironic itself decides, and says so with status 400, or 409.
        (
            "provision_state",
            "service wait",
            "'service wait'.*Run it again when the node is active",
        ),
        (
            "reservation",
            "another-conductor",
            "is locked by host another-conductor.*Try again",
        ),
    ],
)
def test_request_refused_because_another_was_faster_names_the_state(
    ironic: Ironic, proxy: Recorder, column: str, value: str, match: str
) -> None:
    """Between the look at the node and the request."""
    node = ironic.node("active")
    proxy.before = lambda method, _path: (
        ironic.set_column(node, column, value) if method == "PUT" else None
    )
    there = IronicNode(
        connect(proxy.url, baremetal_status_code_retries=0).baremetal, node
    )
    with pytest.raises(NodeNotReady, match=match):
        there.task(DISABLED, timeout=TIMEOUT).run()


@pytest.mark.parametrize(
    "done", [False, True], ids=["request lost", "answer lost"]
)
def test_lost_connection_raises_outcome_unknown_and_a_retry_is_safe(
    ironic: Ironic, proxy: Recorder, *, done: bool
) -> None:
    node = ironic.node("active")
    setattr(
        proxy,
        "after" if done else "before",
        lambda method, _path: LOST if method == "PUT" else None,
    )
    with pytest.raises(OutcomeUnknown, match="It is safe to run it again"):
        run(proxy, node)
    proxy.before = proxy.after = lambda _method, _path: None
    assert until(
        lambda: ironic.show(node)["provision_state"] == "active",
        lambda: "still under way",
    )
    run(proxy, node)
    assert ironic.machine(node)["LogicalProc"] == "Disabled"


@pytest.mark.parametrize("failure", [LOST, (404, {})])
def test_ironic_failing_midway_raises_outcome_unknown_and_a_retry_succeeds(
    ironic: Ironic, proxy: Recorder, failure: Any
) -> None:
    node = ironic.node("active")
    begun = threading.Event()

    def down(method: str, _path: str) -> Any:
        if begun.is_set():
            return failure
        if method == "PUT":
            begun.set()
        return None

    proxy.before = down
    with pytest.raises(OutcomeUnknown):
        run(proxy, node)
    proxy.before = lambda _method, _path: None
    ironic.wait_for(node, "active")
    run(proxy, node)
    assert ironic.machine(node)["LogicalProc"] == "Disabled"
