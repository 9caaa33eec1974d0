"""Having Ironic run steps on a node: while it is deployed, or later, as a service to a node that is active.

Source: Ironic's API reference (change node provision state), its ``common/states.py`` and ``conductor/steps.py``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from os_prefilter.adapters.ironic_api import (
    Node,
    asking,
    bios_settings,
    exceptions,
    is_locked,
    need,
    one_short_line,
    read,
)
from os_prefilter.adapters.ironic_errors import IronicUnavailable, NodeNotReady, OutcomeUnknown, StepsFailed
from os_prefilter.errors import IronicError
from os_prefilter.reporters.ironic_steps import bios_changes
from os_prefilter.texts import shown

Step = Mapping[str, Any]
"""``interface``, ``step`` and ``args``; for a deployment with a ``priority`` as well."""

LOCK_TIMEOUT = 60.0
"""Seconds in which a lock that somebody else holds should end: Ironic takes one for a moment now and then."""


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
    lock_timeout: float = LOCK_TIMEOUT


def run(baremetal: Any, name: str, task: Task) -> None:
    """Have steps run, and wait until they have.

    The errors are those of :meth:`os_prefilter.adapters.ironic.IronicNode.deploy`.

    :param name: the node's name or UUID
    """
    node = read(baremetal, name)
    if node.provision_state in task.kind.under_way:
        _check_same_steps(node, task)
        check_instance(node, task)
    else:
        need(baremetal, task.kind.microversion, f"run the steps of {task.kind.what}")
        _wait_for_lock(baremetal, node, min(task.timeout, task.lock_timeout))
        _check_ready(node, task)
        _begin(baremetal, node, task)
    _wait(baremetal, node, task)
    _check_applied(baremetal, node, task)


def _wait_for_lock(baremetal: Any, node: Node, timeout: float) -> None:
    """Wait until nobody holds the node's lock; the node is then what it is afterwards."""
    if not is_locked(node):
        return
    try:
        with asking("GET /v1/nodes/ID", str(node.id)), _resource_errors():
            node.wait_for_reservation(baremetal, timeout=timeout)
    except _TimeoutError as error:
        raise NodeNotReady(
            str(node.id),
            f"the conductor {shown(node.reservation)} has kept it locked for {timeout:.0f} seconds",
            "Try again when what it does has ended; if that conductor is dead, Ironic's administrator must free it.",
        ) from error


def _check_ready(node: Node, task: Task) -> None:
    """Check all that can be known before anything is changed.

    :raises NodeNotReady: the node is not ready
    """
    kind, state = task.kind, node.provision_state
    if node.is_maintenance:
        raise NodeNotReady(
            str(node.id),
            f"it is in maintenance ({one_short_line(node.maintenance_reason)})",
            f"Mend what the reason says, then: openstack baremetal node maintenance unset {node.id}.",
        )
    if state not in (kind.start, kind.failed):
        raise NodeNotReady(
            str(node.id),
            f"it is in the provision state {shown(state)}, and {kind.what} begins in {shown(kind.start)}",
            "Choose another node, or wait for what is under way." if kind is DEPLOY else "Wait until it is active.",
        )
    check_instance(node, task)


def check_instance(node: Node, task: Task) -> None:
    """Check that the node belongs to the instance that the task names.

    :raises NodeNotReady: it does not
    """
    kind, instance, owner = task.kind, task.instance, node.instance_id
    if owner == instance or (instance is None and kind is SERVICE):
        return
    belongs = f"it belongs to the instance {shown(owner)}" if owner else "it belongs to no instance"
    raise NodeNotReady(
        str(node.id),
        belongs if instance is None else f"{belongs}, not to {shown(instance)}",
        "Choose another node." if kind is DEPLOY else "Find out where the instance is now.",
    )


def _check_same_steps(node: Node, task: Task) -> None:
    """Check that what is under way is what was asked for: a first try, whose caller did not see its end.

    :raises NodeNotReady: it is something else, or cannot be seen
    """
    recorded = node.driver_internal_info or {}
    known = [_essence(step) for key in task.kind.recorded for step in recorded.get(key) or ()]
    if task.steps and all(_essence(step) in known for step in task.steps):
        return
    raise NodeNotReady(
        str(node.id),
        f"it is in the provision state {shown(node.provision_state)}, and not known to be there for the same steps",
        "Wait until that has ended, then run it again.",
    )


def _essence(step: Any) -> object:
    return (step.get("interface"), step.get("step"), step.get("args") or {}) if isinstance(step, Mapping) else None


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
        raise


def _wait(baremetal: Any, node: Node, task: Task) -> None:
    try:
        with asking("GET /v1/nodes/ID", str(node.id)), _resource_errors():
            node.wait_for_provision_state(baremetal, "active", timeout=task.timeout)
    except _FailureError as error:
        raise StepsFailed(
            str(node.id),
            f"it is in the provision state {shown(node.provision_state)} ({one_short_line(node.last_error)})",
            "Mend what that says, then run it again; Ironic may have put the node into maintenance.",
        ) from error
    except _TimeoutError as error:
        reason = f"after {task.timeout:.0f} seconds it is in the provision state {shown(node.provision_state)}"
        raise OutcomeUnknown(str(node.id), task.kind.what, reason) from error
    except IronicError as error:
        raise OutcomeUnknown(str(node.id), task.kind.what, getattr(error, "reason", str(error))) from error


class _FailureError(Exception):
    """The SDK saw the node fail."""


class _TimeoutError(Exception):
    """The SDK has waited long enough."""


@contextmanager
def _resource_errors() -> Iterator[None]:
    """Tell what became of the node from what became of the request."""
    try:
        yield
    except exceptions.ResourceTimeout as error:
        raise _TimeoutError from error
    except exceptions.ResourceFailure as error:
        raise _FailureError from error


def _check_applied(baremetal: Any, node: Node, task: Task) -> None:
    """Check that the BIOS settings are what the steps should have made them.

    Ironic skips without a word a step that the node's interface does not have for this purpose.

    :raises StepsFailed: one is not
    """
    # Of two such steps, which only services may have, the later counts.
    wanted = bios_changes(task.steps)
    if not wanted:
        return
    try:
        found = {each.get("name"): each.get("value") for each in bios_settings(baremetal, node)}
    except IronicError as error:
        raise OutcomeUnknown(str(node.id), task.kind.what, getattr(error, "reason", str(error))) from error
    for name, value in wanted.items():
        if name not in found or str(found[name]).lower() != str(value).lower():
            state = f"is {shown(found[name])}" if name in found else "is not shown by Ironic"
            raise StepsFailed(
                str(node.id),
                f"Ironic ended {task.kind.what} without an error, but the BIOS setting {shown(name)} {state}, not "
                f"{shown(value)}",
                f"Ironic skips steps that the node's bios_interface {shown(node.bios_interface)} does not have for "
                "this purpose: see whether it has them, and whether it reads the settings back.",
            )
