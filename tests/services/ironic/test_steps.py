"""Steps on nodes of a real Ironic: the BIOS setting is really changed, or it is said why not."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openstack import utils

from os_prefilter.adapters.ironic import IronicNode
from os_prefilter.adapters.ironic_errors import (
    IronicRefused,
    IronicTooOld,
    NodeNotReady,
    OutcomeUnknown,
    StepsFailed,
    UnknownNode,
)
from tests.services.ironic.bios import FAILS, HOLDS
from tests.services.ironic.ironics import Ironic, connect
from tests.services.ironic.proxy import LOST, Proxy
from tests.support.programs import until

TIMEOUT = 100.0
INSTANCE = "1bd4d4e1-6c70-4d5a-8e8a-5ab8fd0a2c6b"
Act = Callable[..., None]
KINDS = ("deploy", "service")
STARTS = {"deploy": "available", "service": "active"}
RUNNING = {"deploy": "deploying", "service": "servicing"}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the SDK look more often than each two seconds."""
    monkeypatch.setattr("openstack.utils.iterate_timeout", partial(utils.iterate_timeout, wait=0.05))


def setting(name: str = "LogicalProc", value: str = "Disabled", *more: tuple[str, str]) -> list[dict[str, Any]]:
    """Return the step that changes BIOS settings."""
    settings = [{"name": each, "value": to} for each, to in ((name, value), *more)]
    return [{"interface": "bios", "step": "apply_configuration", "args": {"settings": settings}, "priority": 150}]


def act(kind: str, baremetal: Any, node: str, **options: Any) -> Act:
    act: Act = getattr(IronicNode(baremetal, node, **options), kind)
    return act


@pytest.mark.parametrize("kind", KINDS)
def test_bios_setting_is_changed_on_the_machine_and_the_node_ends_active(ironic: Ironic, kind: str) -> None:
    node = ironic.node(STARTS[kind])
    act(kind, ironic.baremetal, node)(setting(), timeout=TIMEOUT)
    assert ironic.show(node)["provision_state"] == "active"
    assert ironic.bios(node)["LogicalProc"] == ironic.machine(node)["LogicalProc"] == "Disabled"


def test_service_steps_toggle_a_bios_setting_under_an_existing_instance(ironic: Ironic) -> None:
    node = ironic.node("active", instance_uuid=INSTANCE)
    there = IronicNode(ironic.baremetal, node)
    for value in ("Disabled", "Enabled"):
        there.service(setting(value=value), timeout=TIMEOUT, instance=INSTANCE)
        assert ironic.machine(node)["LogicalProc"] == value
        assert ironic.show(node)["instance_uuid"] == INSTANCE


def test_last_service_step_wins_and_duplicate_deploy_steps_are_refused(ironic: Ironic) -> None:
    """Ironic runs them in their order; in a deployment it refuses the second."""
    steps = setting(value="Disabled") + setting(value="Enabled") + setting(value="Disabled")
    node = ironic.node("active")
    IronicNode(ironic.baremetal, node).service(steps, timeout=TIMEOUT)
    assert ironic.machine(node)["LogicalProc"] == "Disabled"
    node = ironic.node("available")
    with pytest.raises(IronicRefused, match="Duplicate deploy steps for bios.apply_configuration"):
        IronicNode(ironic.baremetal, node).deploy(steps, timeout=TIMEOUT)
    assert ironic.show(node)["provision_state"] == "available"


def test_empty_step_list_deploys_a_node_but_starts_no_service(ironic: Ironic, proxy: Proxy) -> None:
    node = ironic.node("available")
    there = IronicNode(connect(proxy.url).baremetal, node)
    there.deploy([], timeout=TIMEOUT)
    assert ironic.show(node)["provision_state"] == "active"
    proxy.sent.clear()
    there.service([], timeout=TIMEOUT)
    assert proxy.sent == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        (setting(FAILS, "the battery\n is \x1b[31mempty"), "the battery is"),
        (setting(value="Maybe"), "BIOS setting LogicalProc: Maybe is not one of Enabled, Disabled"),
        (setting("SystemModelName", "R770"), "it is read-only"),
        (setting("NoSuchSetting", "1"), "the machine has none of that name"),
    ],
)
def test_failed_step_is_reported_with_its_reason_and_can_be_retried(
    ironic: Ironic, kind: str, steps: list[Any], reason: str
) -> None:
    node = ironic.node(STARTS[kind])
    with pytest.raises(StepsFailed, match=f"{kind} failed.*{reason}") as raised:
        act(kind, ironic.baremetal, node)(steps, timeout=TIMEOUT)
    assert str(raised.value).isprintable()
    assert ironic.machine(node)["LogicalProc"] == "Enabled"
    if kind == "service":
        # Ironic does this; an operator must have a look.
        with pytest.raises(NodeNotReady, match="in maintenance .*failed step.*maintenance unset"):
            act(kind, ironic.baremetal, node)(setting(), timeout=TIMEOUT)
        ironic.send("DELETE", f"/v1/nodes/{node}/maintenance")
    act(kind, ironic.baremetal, node)(setting(), timeout=TIMEOUT)
    assert ironic.machine(node)["LogicalProc"] == "Disabled"


def test_step_silently_skipped_by_ironic_raises_steps_failed(ironic: Ironic) -> None:
    """Its own fake BIOS has the step, but not for deployments; the node goes active, unchanged."""
    node = ironic.node("available", bios_interface="fake")
    with pytest.raises(StepsFailed, match="the BIOS setting 'LogicalProc' is 'Enabled', not 'Disabled'. .*'fake'"):
        IronicNode(ironic.baremetal, node).deploy(setting(), timeout=TIMEOUT)
    assert ironic.show(node)["provision_state"] == "active"


def test_bios_setting_that_ironic_does_not_show_is_not_assumed_changed(ironic: Ironic) -> None:
    node = ironic.node("available", bios=[], bios_interface="fake")
    with pytest.raises(StepsFailed, match="'LogicalProc' is not shown by Ironic, not 'Disabled'"):
        IronicNode(ironic.baremetal, node).deploy(setting(), timeout=TIMEOUT)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "step",
    [
        {"interface": "toaster", "step": "apply_configuration", "args": {}, "priority": 150},
        {"interface": "bios", "step": "", "args": {}, "priority": 150},
        {"interface": "bios", "step": "apply_configuration", "args": [], "priority": 150},
    ],
)
def test_malformed_steps_are_refused_and_the_node_state_is_unchanged(ironic: Ironic, kind: str, step: Any) -> None:
    node = ironic.node(STARTS[kind])
    with pytest.raises(IronicRefused, match="PUT /v1/nodes/ID/states/provision with status 400"):
        act(kind, ironic.baremetal, node)([step], timeout=TIMEOUT)
    assert ironic.show(node)["provision_state"] == STARTS[kind]


class TestBeforeAnythingIsChanged:
    """A node that is not ready is refused, and no request writes."""

    def refused(self, ironic: Ironic, proxy: Proxy, kind: str, node: str, **options: Any) -> str:
        there = act(kind, connect(proxy.url).baremetal, node, lock_timeout=0.1)
        with pytest.raises(NodeNotReady) as raised:
            there(setting(), timeout=TIMEOUT, **options)
        assert proxy.sent == []
        assert ironic.machine(node)["LogicalProc"] == "Enabled"
        return str(raised.value)

    @pytest.mark.parametrize(
        ("kind", "state"), [("deploy", "active"), ("deploy", "manageable"), ("service", "available")]
    )
    def test_node_in_the_wrong_provision_state_is_refused(
        self, ironic: Ironic, proxy: Proxy, kind: str, state: str
    ) -> None:
        told = self.refused(ironic, proxy, kind, ironic.node(state))
        assert f"it is in the provision state '{state}'" in told
        assert f"begins in '{STARTS[kind]}'" in told

    @pytest.mark.parametrize("kind", KINDS)
    def test_node_in_maintenance_is_refused(self, ironic: Ironic, proxy: Proxy, kind: str) -> None:
        node = ironic.node(STARTS[kind])
        ironic.send("PUT", f"/v1/nodes/{node}/maintenance", {"reason": "smoke\n\x07"})
        told = self.refused(ironic, proxy, kind, node)
        assert "it is in maintenance ('smoke'). Mend what the reason says, then: openstack baremetal node" in told

    @pytest.mark.parametrize("kind", KINDS)
    def test_locked_node_is_refused(self, ironic: Ironic, proxy: Proxy, kind: str) -> None:
        node = ironic.node(STARTS[kind])
        ironic.set_column(node, "reservation", "another-conductor")
        assert "the conductor 'another-conductor' has kept it locked" in self.refused(ironic, proxy, kind, node)

    def test_node_with_an_unexpected_instance_is_refused(self, ironic: Ironic, proxy: Proxy) -> None:
        node = ironic.node("available", instance_uuid=INSTANCE.replace("1", "2"))
        assert "it belongs to the instance '2bd4" in self.refused(ironic, proxy, "deploy", node)

    @pytest.mark.parametrize("kind", KINDS)
    def test_node_without_the_expected_instance_is_refused(self, ironic: Ironic, proxy: Proxy, kind: str) -> None:
        node = ironic.node(STARTS[kind])
        told = self.refused(ironic, proxy, kind, node, instance=INSTANCE)
        assert f"it belongs to no instance, not to '{INSTANCE}'" in told
        node = ironic.node(STARTS[kind], instance_uuid=INSTANCE.replace("1", "3" if kind == "deploy" else "4"))
        told = self.refused(ironic, proxy, kind, node, instance=INSTANCE)
        assert "it belongs to the instance '" in told

    @pytest.mark.parametrize(("kind", "last"), [("deploy", "1.68"), ("service", "1.86")])
    def test_ironic_too_old_for_the_steps_is_refused(self, ironic: Ironic, proxy: Proxy, kind: str, last: str) -> None:
        """What it answers here is what an older one answers when it is asked for its versions."""
        node = ironic.node(STARTS[kind])
        proxy.before = lambda method, path: (
            (200, _versions(proxy.url, last)) if path.rstrip("/") in ("", "/v1") else None
        )
        there = act(kind, connect(proxy.url).baremetal, node)
        with pytest.raises(IronicTooOld, match=f"needs its API 1.{int(last[2:]) + 1} or later"):
            there(setting(), timeout=TIMEOUT)
        assert proxy.sent == []

    @pytest.mark.parametrize("kind", KINDS)
    def test_missing_node_raises_unknown_node(self, ironic: Ironic, kind: str) -> None:
        with pytest.raises(UnknownNode):
            act(kind, ironic.baremetal, "no-such-node")(setting(), timeout=TIMEOUT)


def _versions(url: str, last: str) -> dict[str, object]:
    version = {
        "id": "v1",
        "status": "CURRENT",
        "min_version": "1.1",
        "version": last,
        "links": [{"rel": "self", "href": f"{url}/v1/"}],
    }
    return {
        "id": "v1",
        "version": version,
        "versions": [version],
        "default_version": version,
        "links": version["links"],
    }


def test_steps_wait_for_a_briefly_locked_node(ironic: Ironic, proxy: Proxy) -> None:
    node = ironic.node("active")
    ironic.set_column(node, "reservation", "another-conductor")
    reads: list[str] = []

    def let_go(_method: str, path: str) -> None:
        reads.append(path)
        if len([each for each in reads if each.startswith(f"/v1/nodes/{node}")]) == 2:
            ironic.set_column(node, "reservation", None)

    proxy.before = let_go
    IronicNode(connect(proxy.url).baremetal, node).service(setting(), timeout=TIMEOUT)
    assert ironic.machine(node)["LogicalProc"] == "Disabled"


class TestRunAgain:
    """While the first try is under way, whatever became of its caller."""

    @pytest.fixture
    def begun(self, ironic: Ironic, tmp_path: Path) -> Callable[[str], tuple[str, Path, list[Any]]]:
        """Return a function that has steps begun which go on until a file exists: the node, the file, the steps."""

        def begin(kind: str) -> tuple[str, Path, list[Any]]:
            node, file = ironic.node(STARTS[kind]), tmp_path / "go on"
            steps = setting("LogicalProc", "Disabled", (HOLDS, str(file)))
            with pytest.raises(OutcomeUnknown, match=f"'{RUNNING[kind]}'. It is safe to run it again"):
                act(kind, ironic.baremetal, node)(steps, timeout=0.1)
            return node, file, steps

        return begin

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_same_steps_are_waited_for_and_not_begun_twice(
        self, ironic: Ironic, proxy: Proxy, begun: Callable[[str], tuple[str, Path, list[Any]]], kind: str
    ) -> None:
        node, file, steps = begun(kind)
        reads: list[str] = []

        def go_on(_method: str, path: str) -> None:
            reads.append(path)
            if len(reads) > 4:
                file.touch()

        proxy.before = go_on
        # The machine has no setting of that name to read back: nothing but the one that matters is checked.
        with pytest.raises(StepsFailed, match=f"{HOLDS}' is not shown by Ironic"):
            act(kind, connect(proxy.url).baremetal, node)(steps, timeout=TIMEOUT)
        assert proxy.sent == []
        assert ironic.machine(node)["LogicalProc"] == "Disabled"

    @pytest.mark.parametrize("kind", KINDS)
    def test_other_steps_are_refused_while_the_first_are_running(
        self, ironic: Ironic, proxy: Proxy, begun: Callable[[str], tuple[str, Path, list[Any]]], kind: str
    ) -> None:
        node, file, _steps = begun(kind)
        there = act(kind, connect(proxy.url).baremetal, node)
        for others in (setting(value="Enabled"), [*setting(), {"interface": "raid", "step": "x", "args": {}}]):
            with pytest.raises(
                NodeNotReady, match="not known to be there for the same steps. Wait until that has ended"
            ):
                there(others, timeout=TIMEOUT)
        assert proxy.sent == []
        file.touch()
        ironic.wait_for(node, "active")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("done", [False, True], ids=["request lost", "answer lost"])
def test_lost_connection_raises_outcome_unknown_and_a_retry_is_safe(
    ironic: Ironic, proxy: Proxy, kind: str, *, done: bool
) -> None:
    node = ironic.node(STARTS[kind])
    setattr(proxy, "after" if done else "before", lambda method, _path: LOST if method == "PUT" else None)
    there = act(kind, connect(proxy.url).baremetal, node)
    with pytest.raises(OutcomeUnknown, match="It is safe to run it again"):
        there(setting(), timeout=TIMEOUT)
    proxy.before = proxy.after = lambda _method, _path: None
    ended = until(lambda: ironic.show(node)["provision_state"] in ("active", STARTS[kind]), lambda: "still under way")
    assert ended
    if done and kind == "deploy":
        ironic.wait_for(node, "active")
        with pytest.raises(NodeNotReady, match="'active'"):
            there(setting(), timeout=TIMEOUT)
    else:
        there(setting(), timeout=TIMEOUT)
    assert ironic.machine(node)["LogicalProc"] == "Disabled"


@pytest.mark.parametrize("failure", [LOST, (500, {}), (404, {})])
def test_ironic_failing_midway_raises_outcome_unknown_and_a_retry_succeeds(
    ironic: Ironic, proxy: Proxy, failure: Any
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
    there = IronicNode(connect(proxy.url).baremetal, node)
    with pytest.raises(OutcomeUnknown):
        there.service(setting(), timeout=TIMEOUT)
    proxy.before = lambda _method, _path: None
    ironic.wait_for(node, "active")
    there.service(setting(), timeout=TIMEOUT)
    assert ironic.machine(node)["LogicalProc"] == "Disabled"


def test_slow_ironic_raises_outcome_unknown_after_the_timeout(ironic: Ironic, proxy: Proxy) -> None:
    node = ironic.node("active")
    go_on = threading.Event()

    def slow(method: str, _path: str) -> None:
        if method == "PUT":
            go_on.wait(TIMEOUT)

    proxy.before = slow
    try:
        with pytest.raises(OutcomeUnknown, match="timed out"):
            IronicNode(connect(proxy.url, timeout=1).baremetal, node).service(setting(), timeout=TIMEOUT)
    finally:
        go_on.set()
