# SPDX-License-Identifier: Apache-2.0

"""Have Ironic run steps on an active node, as a service.

Source: Ironic's API reference (change node provision state), its
``common/states.py`` and ``conductor/steps.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from openstack import exceptions, utils
from openstack.baremetal.v1.node import Node

from os_prefilter.adapters.ironic import errors
from os_prefilter.adapters.ironic.api import (
    bios_settings,
    convert_errors,
    one_short_line,
    visible,
)
from os_prefilter.common.errors import DocumentError, IronicError, ProbeFailed
from os_prefilter.common.quoting import quote
from os_prefilter.hosts.drivers.ironic_facts import (
    BiosSetting,
    BiosValue,
    bios_from,
)
from os_prefilter.hosts.drivers.ironic_steps import bios_changes

ServiceStep = Mapping[str, Any]
"""``interface``, ``step`` and ``args``; others are not sent."""

LOCK_TIMEOUT = 60.0
"""Seconds to wait for the lock of a node, which Ironic often takes briefly."""

_ACTIVE, _FAILED = "active", "service failed"
"""The provision states in which a service begins; it ends in the first one."""
# The first that services a node in use: to deploy or clean it again would
# destroy its disks.
_MICROVERSION = "1.87"
_UNDER_WAY = frozenset(("servicing", "service wait", "service hold"))


@dataclass(frozen=True)
class Task:
    """Steps to run on a node.

    The methods raise ``NodeNotReady``, ``IronicRefused``, ``UnknownNode`` or
    another ``IronicError`` as long as nothing was changed: the node is in
    another state, in maintenance, locked, or another instance's, the API of
    Ironic is older than 1.87, or Ironic does not accept the steps, or does not
    respond.
    """

    baremetal: Any
    node: Node
    steps: Sequence[ServiceStep] = ()
    timeout: float = LOCK_TIMEOUT
    """Seconds until they should have ended."""
    instance: str | None = None
    """The UUID of the instance that the node should belong to."""
    settings: Mapping[str, BiosValue] = field(default_factory=dict)
    """BIOS settings to check at the end, besides those of the steps."""
    lock_timeout: float = LOCK_TIMEOUT

    @property
    def wanted(self) -> Mapping[str, BiosValue]:
        """All BIOS settings that the node should have at the end."""
        # If two steps change the same setting, the later one counts.
        return {**self.settings, **bios_changes(self.steps)}

    def run(self) -> None:
        """Run the steps, wait until the node is ``active`` again, check it.

        The node must be ``active``, or ``service failed`` after a first try.
        Without steps, it is checked that the node is ``active`` and has the
        settings; what is not as it should be is then a ``NodeNotReady``.

        :raises StepsFailed: a step failed, or the node is not active, in
            maintenance, or has not the BIOS settings that it should when they
            have ended
        :raises OutcomeUnknown: Ironic did not respond any more, or ``timeout``
            has passed
        """
        self.check_ready()
        if self.steps:
            self._begin()
            self._wait()
        self._check_end()

    def check_ready(self) -> None:
        """Check all that can be known before anything is changed."""
        with convert_errors("GET /v1", str(self.node.id)):
            supported = utils.supports_microversion(
                self.baremetal, _MICROVERSION
            )
        if not supported:
            reason = (
                f"Ironic does not offer its API {_MICROVERSION}, which runs"
                " the steps of a service"
            )
            raise self._not_ready(
                reason,
                "Upgrade Ironic, or do not pin its API, or the client's,"
                " below it.",
            )
        self._check_startable()
        self._wait_for_lock(min(self.timeout, self.lock_timeout))
        # The holder of the lock may have changed it.
        self._check_startable()
        owner = self.node.instance_id
        if self.instance not in (None, owner):
            belongs = (
                f"it belongs to the instance {quote(owner)}"
                if owner
                else "it belongs to no instance"
            )
            raise self._not_ready(
                f"{belongs}, not to {quote(self.instance)}",
                "Find out where the instance is now.",
            )

    def _not_ready(self, reason: str, advice: str) -> errors.NodeNotReady:
        return errors.NodeNotReady(str(self.node.id), reason, advice)

    def _outcome_unknown(
        self, reason: str | IronicError
    ) -> errors.OutcomeUnknown:
        advice = (
            "It is safe to run it again: what is still under way is not begun"
            " a second time."
        )
        return errors.OutcomeUnknown(
            str(self.node.id), str(getattr(reason, "reason", reason)), advice
        )

    def _wait_for_lock(self, timeout: float) -> None:
        """Wait until the node is not locked, and keep what it then is."""

        def is_free() -> bool:
            # As far as the user may see that.
            return not visible(self.node.reservation)

        if not is_free() and not self._fetch_until(timeout, is_free):
            raise self._not_ready(
                f"the conductor {quote(self.node.reservation)} has kept it"
                f" locked for {timeout:.0f} seconds",
                "Try again when it has ended; if that conductor is dead,"
                " Ironic's administrator must free the node.",
            )

    def _fetch(self) -> None:
        with convert_errors("GET /v1/nodes/ID", str(self.node.id)):
            self.node.fetch(self.baremetal)

    def _fetch_until(
        self, timeout: float, reached: Callable[[], bool]
    ) -> bool:
        """Read the node until ``reached`` holds; return False if too late."""
        with suppress(exceptions.ResourceTimeout):
            for _ in utils.iterate_timeout(timeout, "the node"):
                self._fetch()
                if reached():
                    return True
        return False

    def _check_maintenance(
        self,
        failure: type[
            errors.NodeNotReady | errors.StepsFailed
        ] = errors.NodeNotReady,
        ended: str = "",
    ) -> None:
        if self.node.is_maintenance:
            # The state shows whether it is in maintenance because a step has
            # failed.
            is_ours = self.node.provision_state in (_FAILED, *_UNDER_WAY)
            state = f" and {self._describe_state()}" if is_ours else ""
            advice = (
                "Fix the reason, then: openstack baremetal node maintenance"
                f" unset {self.node.id}."
            )
            reason = one_short_line(self.node.maintenance_reason)
            raise failure(
                str(self.node.id),
                f"{ended}it is in maintenance ({reason}){state}",
                advice,
            )

    def _describe_state(self) -> str:
        return f"in the provision state {quote(self.node.provision_state)}"

    def _check_startable(self) -> None:
        """Check that the node is in a state in which steps may begin."""
        self._check_maintenance()
        if self.node.provision_state not in (_ACTIVE, _FAILED):
            reason = (
                f"it is {self._describe_state()}, and the service begins in"
                f" {quote(_ACTIVE)}"
            )
            raise self._not_ready(
                reason, "Run it again when the node is active."
            )

    def _begin(self) -> None:
        # They run in their order, and Ironic refuses a priority.
        names = ("interface", "step", "args")
        steps = [
            {name: step[name] for name in names if name in step}
            for step in self.steps
        ]
        try:
            with convert_errors(
                "PUT /v1/nodes/ID/states/provision", str(self.node.id)
            ):
                self.node.set_provision_state(
                    self.baremetal, "service", service_steps=steps
                )
        except IronicError as error:
            # Ironic may have begun before the connection broke; and once it
            # has, the SDK reads the node.
            if (
                isinstance(error, errors.IronicUnavailable)
                or getattr(error.__cause__, "method", "") == "GET"
            ):
                raise self._outcome_unknown(error) from error
            if isinstance(error, errors.IronicRefused):
                # Another request may have been faster: the node's state says
                # more than Ironic's words.
                self._fetch()
                self._check_startable()
            raise

    def _wait(self) -> None:
        """Wait until the steps have ended."""
        try:
            has_ended = self._fetch_until(
                self.timeout,
                lambda: self.node.provision_state not in _UNDER_WAY,
            )
        except IronicError as error:
            raise self._outcome_unknown(error) from error
        state = f"it is {self._describe_state()}"
        if not has_ended:
            raise self._outcome_unknown(
                f"after {self.timeout:.0f} seconds {state}"
            )
        if self.node.provision_state != _ACTIVE:
            reason = (
                f" ({one_short_line(self.node.last_error)})"
                if self.node.last_error
                else ""
            )
            advice = (
                "Fix the cause, then run it again; Ironic may have put the"
                " node into maintenance."
            )
            raise errors.StepsFailed(str(self.node.id), state + reason, advice)

    def _check_end(self) -> None:
        """Check that the node is active, without error, with its settings.

        It must not be in maintenance either.

        An operator, or another run, may have changed the node since.
        """
        node, begun = self.node, bool(self.steps)
        try:
            found = self._read_settings() if self.wanted else {}
            # After them: what has changed the settings since has left its
            # state.
            self._fetch()
        except IronicError as error:
            if not begun:
                raise
            raise self._outcome_unknown(error) from error
        ended = (
            "Ironic ended the service without an error, but " if begun else ""
        )
        failure = errors.StepsFailed if begun else errors.NodeNotReady
        self._check_maintenance(failure, ended)
        if node.provision_state != _ACTIVE:
            advice = (
                "Run it again when the node is active; openstack baremetal"
                " node show says what is done to it."
            )
            raise failure(
                str(node.id), f"{ended}it is {self._describe_state()}", advice
            )
        if (begun or self.wanted) and visible(node.last_error):
            # Ironic clears it when steps begin. A failed service that is
            # aborted makes the node active again.
            reason = (
                f"its last error is {one_short_line(node.last_error)}, and"
                " Ironic may show old BIOS settings of it"
            )
            raise failure(
                str(node.id), reason, "Fix the error, then run it again."
            )
        if difference := self._first_difference(found):
            shown = "is not shown by Ironic"
            if difference in found:
                shown = f"is {quote(found[difference].current)}"
            raise failure(
                str(node.id),
                f"{ended}the BIOS setting {quote(difference)} {shown}, not"
                f" {quote(self.wanted[difference])}",
                "Run it again if the node was changed otherwise in between,"
                " and check that its bios_interface"
                f" {quote(node.bios_interface)} reads the settings back.",
            )

    def _read_settings(self) -> dict[str, BiosSetting]:
        try:
            return bios_from(bios_settings(self.baremetal, self.node))
        except DocumentError as error:
            raise ProbeFailed(
                "GET /v1/nodes/ID/bios",
                str(error),
                "Check which service responds as Ironic.",
            ) from error

    def _first_difference(self, found: Mapping[str, BiosSetting]) -> str:
        """Return the name of the first differing setting; empty if none."""
        missing = BiosSetting()
        for name, value in self.wanted.items():
            if not found.get(name, missing).has(value):
                return name
        return ""
