# SPDX-License-Identifier: Apache-2.0

"""Nova's own client of Placement, and locks, in the process that uses them."""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import Any

from nova.scheduler.client import report

_PROCESS = "process"
_owner_of_connections = [os.getpid()]


class ReportClientAdapter:
    """Nova's client of Placement with the method of a keystoneauth adapter."""

    def request(
        self, url: str, method: str, *, microversion: str, **_options: object
    ) -> Any:
        """Get a URL, or create a trait; return any response, also an error.

        It comes after at most Nova's own timeout.
        """
        forget_inherited_connections()
        client = report.report_client_singleton()
        if method == "PUT":
            return client.put(url, None, version=microversion)
        return client.get(url, version=microversion)


ADAPTER: Any = ReportClientAdapter()


def forget_inherited_connections() -> None:
    """Close the connections to Placement that this process has inherited.

    This is before the first request, ours or Nova's. nova-scheduler asks
    Placement for its versions before it forks its workers. If the connection
    is still open then, all of them write to it, and one reads the response to
    another one's request (seen with Nova 34).
    """
    if _owner_of_connections[0] == os.getpid():
        return
    with lock_of(_PROCESS):
        # Another thread may have closed them meanwhile.
        if _owner_of_connections[0] != os.getpid():
            http = http_session()
            if http is not None:
                http.close()
            _owner_of_connections[0] = os.getpid()


def http_session() -> Any:
    """Return the ``requests.Session`` of Nova's client of Placement, or None.

    The client makes it when it is first used.
    """
    client = getattr(report.report_client_singleton(), "_client", None)
    session = getattr(client, "session", None)
    return getattr(session, "session", None)


@cache
def lock_of(_name: str) -> threading.Lock:
    """Return the lock of a connection, made when it is first needed.

    Eventlet has replaced the class then: a lock that is made at the import of
    this module hangs a thread of Nova 27.
    """
    return threading.Lock()
