"""Have Ironic run steps on a node: while it is deployed, or later, as a service on an active node.

Source: Ironic's API reference (change node provision state), its ``common/states.py`` and ``conductor/steps.py``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from openstack import exceptions, utils
from openstack.baremetal.v1.node import Node

from os_prefilter.adapters.ironic.api import (
    bios_settings,
    convert_errors,
    is_locked,
    need,
    one_short_line,
    read,
    visible,
)
from os_prefilter.adapters.ironic.errors import (
    IronicRefused,
    IronicUnavailable,
    NodeNotReady,
    OutcomeUnknown,
    StepsFailed,
)
from os_prefilter.common.errors import IronicError
from os_prefilter.common.quoting import quote
from os_prefilter.hosts.drivers.ironic_steps import bios_changes
from os_prefilter.vocabulary.config_templates import BIOS_STEP

Step = Mapping[str, Any]
"""``interface``, ``step`` and ``args``; for a deployment with a ``priority`` as well."""

LOCK_TIMEOUT = 60.0
"""Seconds to wait for the lock of a node: Ironic takes one for a moment now and then."""

_END = "active"
"""The provision state in which deployments and services end."""


@dataclass(frozen=True)
class SettingKind:
    """A way to run steps."""

    what: str
    verb: str
    microversion: str
    start: str
    """The provision state in which it begins."""
    failed: str
    """The provision state after a failure; it can begin there again."""
    under_way: frozenset[str]
    recorded: tuple[str, ...]
    """The keys of ``driver_internal_info`` that hold the steps while they run."""
    advice: str
    """The advice for a node in another state."""


DEPLOY = SettingKind(
    what="the deployment",
    verb="active",
    microversion="1.69",
    start="available",
    failed="deploy failed",
    under_way=frozenset(("deploying", "wait call-back", "deploy hold")),
    recorded=("user_deploy_steps", "deploy_steps"),
    advice="Choose another node, or wait for what is under way.",
)
SERVICE = SettingKind(
    what="the service",
    verb="service",
    microversion="1.87",
    start="active",
    failed="service failed",
    under_way=frozenset(("servicing", "service wait", "service hold")),
    recorded=("service_steps",),
    advice="Run it again when the node is active.",
)


@dataclass(frozen=True)
class Task:
    """Steps to run on a node; each method raises the errors of ``IronicNode.deploy``."""

    baremetal: Any
    node: Node
    kind: SettingKind
    steps: Sequence[Step] = ()
    timeout: float = LOCK_TIMEOUT
    """Seconds until they should have ended."""
    instance: str | None = None
    """The UUID of the instance that the node should belong to."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """BIOS settings that the node should have at the end, beside the ones that the steps change."""
    lock_timeout: float = LOCK_TIMEOUT

    @property
    def wanted(self) -> Mapping[str, str]:
        """All BIOS settings that the node should have at the end."""
        # If two steps change the same setting, which only services may have, the later one counts.
        return {**self.settings, **bios_changes(self.steps)}

    def run(self) -> None:
        """Run the steps, wait for their end, and check the node; without steps, a service only checks the node."""
        begun = True
        if self.node.provision_state in self.kind.under_way:
            self._check_maintenance()
            self._check_same_steps()
            self.check_instance()
        else:
            self.check_ready()
            begun = bool(self.steps) or self.kind is DEPLOY
            if begun:
                self._begin()
        if begun:
            self._wait()
        self._check_end(begun=begun)

    def check_ready(self) -> None:
        """Check all that can be known before anything is changed."""
        need(self.baremetal, self.kind.microversion, f"run the steps of {self.kind.what}")
        self._check_startable()
        self._wait_for_lock(min(self.timeout, self.lock_timeout))
        # The holder of the lock may have changed it.
        self._check_startable()
        self.check_instance()

    def check_instance(self) -> None:
        """Check that the node belongs to the instance that the task names."""
        instance, owner = self.instance, self.node.instance_id
        if owner == instance or (instance is None and self.kind is SERVICE):
            return
        belongs = f"it belongs to the instance {quote(owner)}" if owner else "it belongs to no instance"
        raise self._not_ready(
            belongs if instance is None else f"{belongs}, not to {quote(instance)}",
            "Choose another node." if self.kind is DEPLOY else "Find out where the instance is now.",
        )

    def _not_ready(self, reason: str, advice: str) -> NodeNotReady:
        return NodeNotReady(str(self.node.id), reason, advice)

    def _outcome_unknown(self, reason: str | IronicError) -> OutcomeUnknown:
        return OutcomeUnknown(str(self.node.id), self.kind.what, str(getattr(reason, "reason", reason)))

    def _wait_for_lock(self, timeout: float) -> None:
        """Wait until the node is not locked; the node is then what it is afterwards."""
        if is_locked(self.node) and not self._fetch_until(timeout, lambda: not is_locked(self.node)):
            raise self._not_ready(
                f"the conductor {quote(self.node.reservation)} has kept it locked for {timeout:.0f} seconds",
                "Try again when it has ended; if that conductor is dead, Ironic's administrator must free the node.",
            )

    def _fetch(self) -> None:
        with convert_errors("GET /v1/nodes/ID", str(self.node.id)):
            self.node.fetch(self.baremetal)

    def _fetch_until(self, timeout: float, reached: Callable[[], bool]) -> bool:
        """Read the node repeatedly; return False if ``reached`` did not hold in time."""
        with suppress(exceptions.ResourceTimeout):
            for _ in utils.iterate_timeout(timeout, "the node"):
                self._fetch()
                if reached():
                    return True
        return False

    def _check_maintenance(self) -> None:
        if self.node.is_maintenance:
            raise self._not_ready(self._describe_maintenance(), self._leave_maintenance)

    def _describe_maintenance(self) -> str:
        # The state tells whether it is in maintenance because a step has failed.
        is_ours = self.node.provision_state in (self.kind.failed, *self.kind.under_way)
        state = f" and {self._describe_state()}" if is_ours else ""
        return f"it is in maintenance ({one_short_line(self.node.maintenance_reason)}){state}"

    @property
    def _leave_maintenance(self) -> str:
        return f"Fix the reason, then: openstack baremetal node maintenance unset {self.node.id}."

    def _describe_state(self) -> str:
        changed = re.sub(r"\.[0-9]+", "", str(self.node.updated_at or ""))
        last = f" (Ironic last changed it at {quote(changed)})" if changed else ""
        return f"in the provision state {quote(self.node.provision_state)}{last}"

    def _check_startable(self) -> None:
        """Check that the node is in a state in which steps may begin."""
        self._check_maintenance()
        kind = self.kind
        if self.node.provision_state not in (kind.start, kind.failed):
            reason = f"it is {self._describe_state()}, and {kind.what} begins in {quote(kind.start)}"
            raise self._not_ready(reason, kind.advice)

    def _check_same_steps(self) -> None:
        """Check that what is under way is this task: a first try whose caller did not see its end.

        It is if each step of the task is recorded, and the BIOS settings become those of the task.
        """
        info = self.node.driver_internal_info or {}
        recorded = [step for key in self.kind.recorded for step in info.get(key) or () if isinstance(step, Mapping)]
        changes = bios_changes(recorded)
        others = [step for step in self.steps if (step.get("interface"), step.get("step")) != BIOS_STEP]
        known = list(map(_essence, recorded))
        has_ours = bool(others or changes.keys() & self.wanted.keys()) and all(
            _essence(each) in known for each in others
        )
        # The first try may have changed only the settings that differed then.
        if has_ours and not self._first_difference({**self._read_settings(), **changes}):
            return
        running = ", ".join(f"{step.get('interface')}.{step.get('step')}" for step in recorded)
        raise self._not_ready(
            f"it is {self._describe_state()}, {f'running {quote(running, 200)}, ' if running else ''}and not known to "
            "be there for the same steps",
            "Wait until that has ended, then run it again.",
        )

    def _begin(self) -> None:
        body: dict[str, Any] = {"deploy_steps": [dict(step) for step in self.steps]}
        if self.kind is SERVICE:
            # They run in their order, and Ironic refuses a priority.
            names = ("interface", "step", "args")
            body = {"service_steps": [{name: step[name] for name in names if name in step} for step in self.steps]}
        try:
            with convert_errors("PUT /v1/nodes/ID/states/provision", str(self.node.id)):
                self.node.set_provision_state(self.baremetal, self.kind.verb, **body)
        except IronicError as error:
            # Ironic may have begun before the connection broke; and once it has, the SDK reads the node.
            if isinstance(error, IronicUnavailable) or getattr(error.__cause__, "method", "") == "GET":
                raise self._outcome_unknown(error) from error
            if isinstance(error, IronicRefused):
                # Another request may have been faster: the node's state says more than Ironic's words.
                Task(self.baremetal, read(self.baremetal, str(self.node.id)), self.kind)._check_startable()  # noqa: SLF001
            raise

    def _wait(self) -> None:
        """Wait until the steps have ended."""
        try:
            has_ended = self._fetch_until(self.timeout, lambda: self.node.provision_state not in self.kind.under_way)
        except IronicError as error:
            raise self._outcome_unknown(error) from error
        state = f"it is in the provision state {quote(self.node.provision_state)}"
        if not has_ended:
            raise self._outcome_unknown(f"after {self.timeout:.0f} seconds {state}")
        if self.node.provision_state != _END:
            reason = f" ({one_short_line(self.node.last_error)})" if self.node.last_error else ""
            advice = "Fix the cause, then run it again; Ironic may have put the node into maintenance."
            raise StepsFailed(str(self.node.id), state + reason, advice)

    def _check_end(self, *, begun: bool) -> None:
        """Check that the node is active, out of maintenance, unlocked, without an error, and has its BIOS settings.

        Ironic silently skips a step that the node's interface does not have for this purpose; and an operator, or
        another run, may have changed the node since.

        :param begun: whether the steps were begun, now or by an earlier run: then a failure is ``StepsFailed``
        """
        node = self.node
        try:
            found = self._wait_until_settled()
        except IronicError as error:
            if not begun:
                raise
            raise self._outcome_unknown(error) from error
        ended = f"Ironic ended {self.kind.what} without an error, but " if begun else ""
        failure = StepsFailed if begun else NodeNotReady
        if node.is_maintenance:
            raise failure(str(node.id), ended + self._describe_maintenance(), self._leave_maintenance)
        if node.provision_state != _END:
            advice = "Run it again when the node is active; openstack baremetal node show says what is done to it."
            if "failed" in str(node.provision_state):
                make_active = f"make the node active (openstack baremetal node abort {node.id})"
                advice = f"Fix the failure, {make_active}, and run it again."
            raise failure(str(node.id), f"{ended}it is {self._describe_state()}", advice)
        if (begun or self.wanted) and visible(node.last_error):
            # Ironic clears it when steps begin. A failed service that is aborted makes the node active again.
            reason = f"its last error is {one_short_line(node.last_error)}, and Ironic may show old BIOS settings of it"
            raise failure(str(node.id), reason, "Fix the error, then run it again.")
        if difference := self._first_difference(found):
            shown = f"is {quote(found[difference])}" if difference in found else "is not shown by Ironic"
            raise failure(
                str(node.id),
                f"{ended}the BIOS setting {quote(difference)} {shown}, not {quote(self.wanted[difference])}",
                "Run it again if the node was changed otherwise in between. Ironic skips steps that the node's "
                f"bios_interface {quote(node.bios_interface)} does not have for this purpose: check that it has them, "
                "and that it reads the settings back.",
            )

    def _wait_until_settled(self) -> Mapping[str, object]:
        """Return the BIOS settings as Ironic shows them, and read the node, while nothing is done to it."""
        node, timeout = self.node, min(self.timeout, self.lock_timeout)
        with suppress(exceptions.ResourceTimeout):
            for _ in utils.iterate_timeout(timeout, "the node"):
                if node.provision_state == _END:
                    self._wait_for_lock(timeout)
                before = node.provision_state, node.updated_at
                found = self._read_settings() if self.wanted else {}
                self._fetch()
                is_same = (node.provision_state, node.updated_at) == before
                if node.provision_state != _END or (is_same and not is_locked(node)):
                    return found
        reason = f"something has kept changing it for {timeout:.0f} seconds"
        raise self._not_ready(reason, "Try again when that has ended.")

    def _read_settings(self) -> dict[str, object]:
        return {str(each.get("name")): each.get("value") for each in bios_settings(self.baremetal, self.node)}

    def _first_difference(self, found: Mapping[str, object]) -> str:
        """Return the name of a BIOS setting that is not as wanted; empty if there is none."""
        for name, value in self.wanted.items():
            if name not in found or str(found[name]).lower() != str(value).lower():
                return name
        return ""


def _essence(step: Step) -> object:
    return step.get("interface"), step.get("step"), step.get("args") or {}
