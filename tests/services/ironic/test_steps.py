"""Steps on nodes of a real Ironic: the BIOS setting is really changed, or it is said why not."""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from openstack import utils

from os_prefilter.adapters.ironic.errors import (
    IronicRefused,
    IronicTooOld,
    NodeNotReady,
    OutcomeUnknown,
    StepsFailed,
    UnknownNode,
)
from os_prefilter.adapters.ironic.node import IronicNode
from tests.services.ironic.bios import FAILS, HOLDS
from tests.services.ironic.ironics import LOGICAL_PROC, Ironic, connect
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


def touch_after_some_reads(file: Path) -> Callable[[str, str], None]:
    """Return what a proxy calls before each request; it lets the machine go on once some were made."""
    reads: list[str] = []

    def go_on(_method: str, path: str) -> None:
        reads.append(path)
        if len(reads) > 4:
            file.touch()

    return go_on


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
        assert "it is in maintenance ('smoke'). Fix the reason, then: openstack baremetal node" in told

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
        proxy.before = touch_after_some_reads(file)
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

    def test_setting_that_is_so_already_is_waited_for_until_the_service_has_ended(
        self, ironic: Ironic, proxy: Proxy, tmp_path: Path
    ) -> None:
        """Ironic reads the settings after each step: they are as asked, and the node is not active yet."""
        node, file = ironic.node("active"), tmp_path / "go on"
        steps = setting() + setting(HOLDS, str(file))
        with pytest.raises(OutcomeUnknown):
            IronicNode(ironic.baremetal, node).service(steps, timeout=0.1)
        assert until(lambda: ironic.bios(node)["LogicalProc"] == "Disabled", lambda: "not read")
        there = IronicNode(connect(proxy.url).baremetal, node)
        with pytest.raises(NodeNotReady, match="'servicing'.*'bios.apply_configuration.*not known to be there for"):
            there.service([], timeout=TIMEOUT, settings={"LogicalProc": "Enabled"})
        proxy.before = touch_after_some_reads(file)
        there.service([], timeout=TIMEOUT, settings={"LogicalProc": "Disabled"})
        assert proxy.sent == []
        assert ironic.show(node)["provision_state"] == "active"


_DISABLED: Mapping[bool, tuple[Any, ...]] = {True: (setting(),), False: ([], {"LogicalProc": "Disabled"})}
"""By a step, and where no step is needed: the steps, and what else the node must have."""


class TestEnd:
    """A return without an error: the node is active, out of maintenance, unlocked, and has the BIOS settings."""

    def service(self, proxy: Proxy, node: str, steps: list[Any], settings: Mapping[str, str] | None = None) -> None:
        IronicNode(connect(proxy.url).baremetal, node).service(steps, timeout=TIMEOUT, settings=settings)

    @pytest.fixture
    def after_bios_is_read(self, proxy: Proxy) -> Callable[[Callable[[], object]], None]:
        """Return a function that has something done once, after the BIOS settings were read."""

        def do(act: Callable[[], object]) -> None:
            waiting = [act]

            def done(method: str, path: str) -> None:
                if method == "GET" and "/bios" in path and waiting:
                    waiting.pop()()

            proxy.after = done

        return do

    @pytest.mark.parametrize("begun", [True, False])
    def test_setting_changed_after_it_was_read_is_an_error(
        self, ironic: Ironic, proxy: Proxy, after_bios_is_read: Any, *, begun: bool
    ) -> None:
        """By the time it would say that all is as asked, another run has ended with another value."""
        node = ironic.node("active", bios=[{**LOGICAL_PROC, "value": "Enabled" if begun else "Disabled"}])
        back = {"target": "service", "service_steps": _for_service(setting(value="Enabled"))}

        def change() -> None:
            ironic.send("PUT", f"/v1/nodes/{node}/states/provision", back)
            ironic.wait_for(node, "active")

        after_bios_is_read(change)
        with pytest.raises(StepsFailed if begun else NodeNotReady, match="'LogicalProc' is 'Enabled', not 'Disabled'"):
            self.service(proxy, node, *_DISABLED[begun])
        assert ironic.machine(node)["LogicalProc"] == "Enabled"

    @pytest.mark.parametrize("begun", [True, False])
    def test_service_begun_by_another_after_the_reading_is_an_error(
        self, ironic: Ironic, proxy: Proxy, after_bios_is_read: Any, tmp_path: Path, *, begun: bool
    ) -> None:
        node, file = (
            ironic.node("active", bios=[{**LOGICAL_PROC, "value": "Enabled" if begun else "Disabled"}]),
            tmp_path / "go on",
        )
        steps = _for_service(setting("LogicalProc", "Enabled", (HOLDS, str(file))))
        after_bios_is_read(
            lambda: ironic.send(
                "PUT", f"/v1/nodes/{node}/states/provision", {"target": "service", "service_steps": steps}
            )
        )
        with pytest.raises(StepsFailed if begun else NodeNotReady, match="'servicing'.*Run it again when the node is"):
            self.service(proxy, node, *_DISABLED[begun])
        file.touch()
        ironic.wait_for(node, "active")

    def test_node_put_into_maintenance_meanwhile_is_an_error(
        self, ironic: Ironic, proxy: Proxy, after_bios_is_read: Any
    ) -> None:
        node = ironic.node("active")
        after_bios_is_read(lambda: ironic.send("PUT", f"/v1/nodes/{node}/maintenance", {"reason": "smoke"}))
        with pytest.raises(StepsFailed, match=r"without an error, but it is in maintenance \('smoke'\)"):
            self.service(proxy, node, setting())

    def test_node_that_stays_locked_at_the_end_is_an_unknown_outcome(
        self, ironic: Ironic, proxy: Proxy, after_bios_is_read: Any
    ) -> None:
        node = ironic.node("active")
        after_bios_is_read(lambda: ironic.set_column(node, "reservation", "another-conductor"))
        there = IronicNode(connect(proxy.url).baremetal, node, lock_timeout=0.5)
        with pytest.raises(OutcomeUnknown, match="'another-conductor' has kept it locked"):
            there.service(setting(), timeout=TIMEOUT)

    @pytest.mark.parametrize("begun", [True, False])
    def test_node_active_again_after_an_abort_is_an_error(
        self, ironic: Ironic, proxy: Proxy, after_bios_is_read: Any, *, begun: bool
    ) -> None:
        """Ironic reads no BIOS settings then: it goes on showing those of before."""
        node = ironic.node("active", bios=[{**LOGICAL_PROC, "value": "Disabled"}])
        steps = _for_service(setting("LogicalProc", "Enabled", (FAILS, "no power")))

        def fail() -> None:
            ironic.send("PUT", f"/v1/nodes/{node}/states/provision", {"target": "service", "service_steps": steps})
            ironic.wait_for(node, "service failed")
            ironic.send("DELETE", f"/v1/nodes/{node}/maintenance")
            ironic.send("PUT", f"/v1/nodes/{node}/states/provision", {"target": "abort"})
            ironic.wait_for(node, "active")

        after_bios_is_read(fail)
        with pytest.raises(StepsFailed if begun else NodeNotReady, match="its last error is 'By request.*aborted'"):
            self.service(proxy, node, *_DISABLED[begun])
        assert (ironic.bios(node)["LogicalProc"], ironic.machine(node)["LogicalProc"]) == ("Disabled", "Enabled")

    def test_setting_that_needed_no_step_is_checked_as_well(self, ironic: Ironic, proxy: Proxy) -> None:
        node = ironic.node("active")
        with pytest.raises(StepsFailed, match="'SystemModelName' is 'R660', not 'R770'"):
            self.service(proxy, node, setting(), settings={"SystemModelName": "R770"})

    def test_node_taken_out_of_the_service_ends_the_wait(self, ironic: Ironic, proxy: Proxy, tmp_path: Path) -> None:
        node, file = ironic.node("active"), tmp_path / "go on"

        def take(method: str, _path: str) -> None:
            if method == "PUT":
                ironic.set_column(node, "provision_state", "deleting")

        proxy.after = take
        with pytest.raises(StepsFailed, match="it is in the provision state 'deleting'"):
            self.service(proxy, node, setting("LogicalProc", "Disabled", (HOLDS, str(file))))
        file.touch()
        ironic.wait_for(node, "active")


def test_fields_that_the_user_may_not_see_are_no_errors_and_no_locks(ironic: Ironic, proxy: Proxy) -> None:
    node = ironic.node("active")
    hidden = "** Redacted - requires baremetal:node:get:last_error permission. **"
    answer = {**ironic.show(node), "last_error": hidden, "reservation": hidden}
    proxy.before = lambda _method, path: (200, answer) if path.endswith(node) else None
    there = IronicNode(connect(proxy.url).baremetal, node)
    assert there.facts().bios_may_differ is False
    there.service([], timeout=TIMEOUT, settings={"LogicalProc": "Enabled"})


def test_request_refused_because_another_was_faster_names_the_state(ironic: Ironic, proxy: Proxy) -> None:
    """Between the look at the node and the request: Ironic itself decides, and says so with status 400."""
    node = ironic.node("active")

    def faster(method: str, _path: str) -> None:
        if method == "PUT":
            ironic.set_column(node, "provision_state", "service wait")

    proxy.before = faster
    with pytest.raises(NodeNotReady, match="'service wait'.*Run it again when the node is active"):
        IronicNode(connect(proxy.url).baremetal, node).service(setting(), timeout=TIMEOUT)


def test_request_refused_because_the_node_is_locked_raises_node_not_ready(ironic: Ironic, proxy: Proxy) -> None:
    node = ironic.node("active")
    proxy.before = lambda method, _path: (
        ironic.set_column(node, "reservation", "another-conductor") if method == "PUT" else None
    )
    there = IronicNode(connect(proxy.url, baremetal_status_code_retries=0).baremetal, node)
    with pytest.raises(NodeNotReady, match="is locked by host another-conductor.*Try again"):
        there.service(setting(), timeout=TIMEOUT)


def _for_service(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: step[name] for name in ("interface", "step", "args")} for step in steps]


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
