# SPDX-License-Identifier: Apache-2.0

"""The errors of requests to Ironic.

::

    IronicError
    |-- IronicUnavailable   no response, or a server error
    |-- IronicRefused       it responded with a client error
    |-- UnknownNode         there is no node of that name or UUID
    |-- NodeNotReady        wrong state, locked, in maintenance, API too
    |                       old, too many traits: nothing was changed
    |-- StepsFailed         the steps on a node ended, and not as they should
    `-- OutcomeUnknown      something was begun on a node, and it is not known
                            how it ended

Ironic's own words, which may have a tenant's in them, come through
:func:`os_prefilter.common.quoting.quote`.
"""

from __future__ import annotations

from os_prefilter.common.errors import IronicError
from os_prefilter.common.quoting import quote


class IronicUnavailable(IronicError):
    """Ironic did not respond, or responded with a server error."""

    def __init__(self, what: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"Ironic did not respond to {what}: {reason}. Check that the"
            " service runs and is reachable, then try again."
        )


class IronicRefused(IronicError):
    """Ironic responded with a client error."""

    def __init__(self, what: str, status: int, detail: str) -> None:
        super().__init__(
            f"Ironic refused {what} with status {status}: {detail}"
        )


class UnknownNode(IronicError):
    """Ironic has no such node, or none that this user may see."""

    def __init__(self, node: str) -> None:
        super().__init__(
            f"Ironic has no node {quote(node, 200)}. Name one that 'openstack"
            " baremetal node list' shows, and check that the user may see it."
        )


class NodeError(IronicError):
    """Base of the errors about one node."""

    problem = ""

    def __init__(self, node: str, reason: str, advice: str) -> None:
        self.reason = reason
        super().__init__(
            f"{self.problem.format(quote(node, 200))}: {reason}. {advice}"
        )


class NodeNotReady(NodeError):
    """A node cannot be changed in its state; nothing was changed."""

    problem = "The node {} was not changed"


class StepsFailed(NodeError):
    """The steps of a node ended without all that they should have done."""

    problem = "The steps on the node {} failed"


class OutcomeUnknown(NodeError):
    """It is unknown how an operation on a node ended; the cause is chained."""

    problem = "It is not known whether the service on the node {} has ended"
