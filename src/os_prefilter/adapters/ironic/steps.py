"""Having Ironic run steps on a node: while it is deployed, or later, as a service to a node that is active.

Source: Ironic's API reference (change node provision state), its ``common/states.py`` and ``conductor/steps.py``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from os_prefilter.adapters.ironic.api import (
    Node,
    asking,
    bios_settings,
    exceptions,
    is_locked,
    need,
    one_short_line,
    read,
    utils,
    visible,
)
from os_prefilter.adapters.ironic.errors import (
    IronicRefused,
    IronicUnavailable,
    NodeNotReady,
    OutcomeUnknown,
    StepsFailed,
)
from os_prefilter.common.quoting import quote
from os_prefilter.errors import IronicError
from os_prefilter.hosts.drivers.ironic_steps import bios_changes
from os_prefilter.vocabulary.config_templates import BIOS_STEP

Step = Mapping[str, Any]
"""``interface``, ``step`` and ``args``; for a deployment with a ``priority`` as well."""

LOCK_TIMEOUT = 60.0
"""Seconds in which a lock that somebody else holds should end: Ironic takes one for a moment now and then."""

_END = "active"
"""The provision state in which deployments and services end."""


@dataclass(frozen=True)
class Kind:
    """A way to have steps run."""

    what: str
    verb: str
    microversion: str
    start: str
    """The provision state in which it begins."""
    failed: str
    """The one after it failed; it can begin there again."""
    under_way: frozenset[str]
    recorded: tuple[str, ...]
    """Where in ``driver_internal_info`` the steps are, while they run."""


DEPLOY = Kind(
    what="the deployment",
    verb="active",
    microversion="1.69",
    start="available",
    failed="deploy failed",
    under_way=frozenset(("deploying", "wait call-back", "deploy hold")),
    recorded=("user_deploy_steps", "deploy_steps"),
)
SERVICE = Kind(
    what="the service",
    verb="service",
    microversion="1.87",
    start="active",
    failed="service failed",
    under_way=frozenset(("servicing", "service wait", "service hold")),
    recorded=("service_steps",),
)


@dataclass(frozen=True)
class Task:
    """Steps to be run on a node."""

    kind: Kind
    steps: Sequence[Step]
    timeout: float
    """Seconds until they should have ended."""
    instance: str | None = None
    """The UUID of the instance that the node should belong to."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """BIOS settings that the node should have at the end beside those that the steps change."""
    lock_timeout: float = LOCK_TIMEOUT

    @property
    def wanted(self) -> Mapping[str, str]:
        """All BIOS settings that the node should have at the end."""
        # Of two steps that change the same setting, which only services may have, the later counts.
        return {**self.settings, **bios_changes(self.steps)}


def run(baremetal: Any, name: str, task: Task) -> None:
    """Have steps run, wait until they have, and check what the node is then; a service without steps is checked alone.

    The errors are those of :meth:`os_prefilter.adapters.ironic.node.IronicNode.deploy`.

    :param name: the node's name or UUID
    """
    node = read(baremetal, name)
    begun = True
    if node.provision_state in task.kind.under_way:
        _check_maintenance(node, task.kind)
        _check_same_steps(baremetal, node, task)
        check_instance(node, task)
    else:
        check_ready(baremetal, node, task)
        begun = bool(task.steps) or task.kind is DEPLOY
        if begun:
            _begin(baremetal, node, task)
    if begun:
        _wait(baremetal, node, task)
    _check_end(baremetal, node, task, begun=begun)


def check_ready(baremetal: Any, node: Node, task: Task) -> None:
    """Check all that can be known before anything is changed.

    :raises NodeNotReady: the node is not ready
    """
    kind = task.kind
    need(baremetal, kind.microversion, f"run the steps of {kind.what}")
    _check_startable(node, kind)
    _wait_for_lock(baremetal, node, min(task.timeout, task.lock_timeout))
    # The lock may have been that of what changed it.
    _check_startable(node, kind)
    check_instance(node, task)


def _wait_for_lock(baremetal: Any, node: Node, timeout: float) -> None:
    """Wait until the node is not locked; the node is then what it is afterwards.

    :raises NodeNotReady: it stays locked
    """
    if not is_locked(node):
        return
    try:
        with asking("GET /v1/nodes/ID", str(node.id)):
            _fetch_until(baremetal, node, timeout, lambda: not is_locked(node))
    except _TimeoutError as error:
        raise NodeNotReady(
            str(node.id),
            f"the conductor {quote(node.reservation)} has kept it locked for {timeout:.0f} seconds",
            "Try again when what it does has ended; if that conductor is dead, Ironic's administrator must free it.",
        ) from error


def _check_maintenance(node: Node, kind: Kind) -> None:
    """Check that the node is not in maintenance.

    :raises NodeNotReady: it is
    """
    if node.is_maintenance:
        raise NodeNotReady(str(node.id), _maintenance(node, kind), _leave_maintenance(node))


def _maintenance(node: Node, kind: Kind) -> str:
    # The state tells whether it is in maintenance because a step has failed.
    state = f" and {_state(node)}" if node.provision_state in (kind.failed, *kind.under_way) else ""
    return f"it is in maintenance ({one_short_line(node.maintenance_reason)}){state}"


def _leave_maintenance(node: Node) -> str:
    return f"Mend what the reason says, then: openstack baremetal node maintenance unset {node.id}."


def _state(node: Node) -> str:
    changed = re.sub(r"\.[0-9]+", "", str(node.updated_at or ""))
    last = f" (Ironic last changed it at {quote(changed)})" if changed else ""
    return f"in the provision state {quote(node.provision_state)}{last}"


def _check_startable(node: Node, kind: Kind) -> None:
    """Check that the node is in a state in which steps may begin.

    :raises NodeNotReady: it is not
    """
    _check_maintenance(node, kind)
    if node.provision_state not in (kind.start, kind.failed):
        raise _not_startable(node, kind)


def _not_startable(node: Node, kind: Kind) -> NodeNotReady:
    return NodeNotReady(
        str(node.id),
        f"it is {_state(node)}, and {kind.what} begins in {quote(kind.start)}",
        "Choose another node, or wait for what is under way."
        if kind is DEPLOY
        else "Run it again when the node is active.",
    )


def check_instance(node: Node, task: Task) -> None:
    """Check that the node belongs to the instance that the task names.

    :raises NodeNotReady: it does not
    """
    kind, instance, owner = task.kind, task.instance, node.instance_id
    if owner == instance or (instance is None and kind is SERVICE):
        return
    belongs = f"it belongs to the instance {quote(owner)}" if owner else "it belongs to no instance"
    raise NodeNotReady(
        str(node.id),
        belongs if instance is None else f"{belongs}, not to {quote(instance)}",
        "Choose another node." if kind is DEPLOY else "Find out where the instance is now.",
    )


def _check_same_steps(baremetal: Any, node: Node, task: Task) -> None:
    """Check that what is under way is what was asked for: a first try, whose caller did not see its end.

    It is if each step of the task is recorded, and the BIOS settings become those of the task.

    :raises NodeNotReady: it is something else, or cannot be seen
    """
    info = node.driver_internal_info or {}
    recorded = [step for key in task.kind.recorded for step in info.get(key) or () if isinstance(step, Mapping)]
    changes = bios_changes(recorded)
    others = [step for step in task.steps if (step.get("interface"), step.get("step")) != BIOS_STEP]
    known = list(map(_essence, recorded))
    if (others or changes.keys() & task.wanted.keys()) and all(_essence(step) in known for step in others):
        # What is under way may have been begun with the settings alone that differed then.
        after = {**_shown_settings(baremetal, node), **changes}
        if not _first_difference(after, task.wanted):
            return
    running = ", ".join(f"{step.get('interface')}.{step.get('step')}" for step in recorded)
    raise NodeNotReady(
        str(node.id),
        f"it is {_state(node)}, {f'running {quote(running, 200)}, ' if running else ''}and not known to be there for "
        "the same steps",
        "Wait until that has ended, then run it again.",
    )


def _essence(step: Step) -> object:
    return step.get("interface"), step.get("step"), step.get("args") or {}


def _begin(baremetal: Any, node: Node, task: Task) -> None:
    body: dict[str, Any] = {"deploy_steps": [dict(step) for step in task.steps]}
    if task.kind is SERVICE:
        # They run in their order, and a priority is refused.
        names = ("interface", "step", "args")
        body = {"service_steps": [{name: step[name] for name in names if name in step} for step in task.steps]}
    try:
        with asking("PUT /v1/nodes/ID/states/provision", str(node.id)):
            node.set_provision_state(baremetal, task.kind.verb, **body)
    except IronicError as error:
        # It may have come to Ironic before the connection broke; and once it has, the SDK reads the node.
        if isinstance(error, IronicUnavailable) or getattr(error.__cause__, "method", "") == "GET":
            raise OutcomeUnknown(str(node.id), task.kind.what, getattr(error, "reason", str(error))) from error
        if isinstance(error, IronicRefused):
            # Another request may have been faster: its state says more than Ironic's words.
            _check_startable(read(baremetal, str(node.id)), task.kind)
        raise


def _wait(baremetal: Any, node: Node, task: Task) -> None:
    """Wait until the steps have ended.

    :raises StepsFailed: they ended, and the node is not active
    :raises OutcomeUnknown: Ironic does not answer any more, or the timeout has passed
    """
    try:
        with asking("GET /v1/nodes/ID", str(node.id)):
            _fetch_until(baremetal, node, task.timeout, lambda: node.provision_state not in task.kind.under_way)
    except _TimeoutError as error:
        reason = f"after {task.timeout:.0f} seconds it is in the provision state {quote(node.provision_state)}"
        raise OutcomeUnknown(str(node.id), task.kind.what, reason) from error
    except IronicError as error:
        raise OutcomeUnknown(str(node.id), task.kind.what, getattr(error, "reason", str(error))) from error
    if node.provision_state != _END:
        raise StepsFailed(
            str(node.id),
            f"it is in the provision state {quote(node.provision_state)}"
            + (f" ({one_short_line(node.last_error)})" if node.last_error else ""),
            "Mend what that says, then run it again; Ironic may have put the node into maintenance.",
        )


class _TimeoutError(Exception):
    """The node did not become what it should in time."""


def _fetch_until(baremetal: Any, node: Node, timeout: float, reached: Callable[[], bool]) -> None:
    """Read the node again and again until ``reached``.

    :raises _TimeoutError: it was not in time
    """
    try:
        for _ in utils.iterate_timeout(timeout, "the node"):
            node.fetch(baremetal)
            if reached():
                return
    except exceptions.ResourceTimeout as error:
        raise _TimeoutError from error


def _check_end(baremetal: Any, node: Node, task: Task, *, begun: bool) -> None:
    """Check that the node is active, out of maintenance, unlocked, without an error, and has its BIOS settings.

    Ironic skips without a word a step that the node's interface does not have for this purpose; and an operator, or
    another run, may have changed the node since.

    :param begun: whether the steps were begun, now or by an earlier run
    :raises StepsFailed: it is not so, and steps were begun
    :raises NodeNotReady: it is not so, and none were
    :raises OutcomeUnknown: steps were begun, and Ironic does not answer, or the node stays locked
    """
    try:
        found = _settled(baremetal, node, task)
    except IronicError as error:
        if not begun:
            raise
        raise OutcomeUnknown(str(node.id), task.kind.what, getattr(error, "reason", str(error))) from error
    difference = _first_difference(found, task.wanted)
    ended = f"Ironic ended {task.kind.what} without an error, but " if begun else ""
    failure = StepsFailed if begun else NodeNotReady
    if node.is_maintenance:
        raise failure(str(node.id), ended + _maintenance(node, task.kind), _leave_maintenance(node))
    if node.provision_state != _END:
        advice = "Run it again when the node is active; openstack baremetal node show says what is done to it."
        if "failed" in str(node.provision_state):
            advice = (
                f"Mend what failed, make the node active (openstack baremetal node abort {node.id}), and run it again."
            )
        raise failure(str(node.id), f"{ended}it is {_state(node)}", advice)
    if (begun or task.wanted) and visible(node.last_error):
        # Ironic clears it when steps begin. A failed service that is aborted makes the node active again.
        reason = f"its last error is {one_short_line(node.last_error)}, and Ironic may show old BIOS settings of it"
        raise failure(str(node.id), reason, "Mend what that says, then run it again.")
    if difference:
        name = quote(difference)
        state = f"is {quote(found[difference])}" if difference in found else "is not shown by Ironic"
        raise failure(
            str(node.id),
            f"{ended}the BIOS setting {name} {state}, not {quote(task.wanted[difference])}",
            "Run it again if the node was changed otherwise in between. Ironic skips steps that the node's "
            f"bios_interface {quote(node.bios_interface)} does not have for this purpose: see whether it has them, and "
            "whether it reads the settings back.",
        )


def _settled(baremetal: Any, node: Node, task: Task) -> Mapping[str, object]:
    """Return the BIOS settings as Ironic shows them, and read the node, while nothing is done to it.

    :raises NodeNotReady: it stays locked, or goes on changing
    """
    timeout = min(task.timeout, task.lock_timeout)
    with suppress(exceptions.ResourceTimeout):
        for _ in utils.iterate_timeout(timeout, "the node"):
            if node.provision_state == _END:
                _wait_for_lock(baremetal, node, timeout)
            before = _version(node)
            found = _shown_settings(baremetal, node) if task.wanted else {}
            with asking("GET /v1/nodes/ID", str(node.id)):
                node.fetch(baremetal)
            if node.provision_state != _END or (_version(node) == before and not is_locked(node)):
                return found
    reason = f"something has gone on changing it for {timeout:.0f} seconds"
    raise NodeNotReady(str(node.id), reason, "Try again when that has ended.")


def _version(node: Node) -> object:
    return node.provision_state, node.updated_at


def _shown_settings(baremetal: Any, node: Node) -> dict[str, object]:
    return {str(each.get("name")): each.get("value") for each in bios_settings(baremetal, node)}


def _first_difference(found: Mapping[str, object], wanted: Mapping[str, str]) -> str:
    """Return the name of a BIOS setting that is not as wanted; empty if there is none."""
    for name, value in wanted.items():
        if name not in found or str(found[name]).lower() != str(value).lower():
            return name
    return ""
