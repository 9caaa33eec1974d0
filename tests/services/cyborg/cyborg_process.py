# SPDX-License-Identifier: Apache-2.0

"""A program whose forks are Cyborg: agent, conductor and API in one process.

It imports Cyborg once. For each line of standard input, the folder of a
``cyborg.conf`` and a port, it forks: the fork connects to that port of
loopback, and answers commands, a line of JSON each, until the connection is
closed or the fork is killed. Cyborg's code runs unchanged, as its
configuration says.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

# It chooses the backend of oslo.service, so it comes before the services.
import cyborg.cmd  # noqa: F401
from cyborg import privsep
from cyborg.agent import manager as _agent  # noqa: F401 - before the forks
from cyborg.api.app import load_app
from cyborg.common import constants
from cyborg.common.service import RPCService, prepare_service
from cyborg.conductor import manager as _conductor  # noqa: F401
from cyborg.context import get_admin_context
from cyborg.db.migration import create_schema
from oslo_privsep.priv_context import Method


class Silent(WSGIRequestHandler):
    """Requests to Cyborg's API, without a line on standard error for each."""

    def log_message(self, *_args: Any) -> None:
        pass


class Cyborg:
    """The services of Cyborg on one host; its methods are the commands."""

    def __init__(self, folder: Path) -> None:
        prepare_service(["cyborg", "--config-file", f"{folder}/cyborg.conf"])
        # As its agent does with sudo, when it runs lspci.
        privsep.sys_admin_pctxt.start(Method.FORK)

    def create_schema(self) -> None:
        # Not "upgrade": cyborg-dbsync 17.0.0 cannot upgrade on SQLite, which
        # has no ALTER COLUMN (migration 589ff20545b7).
        create_schema()

    def start(self) -> None:
        conductor = RPCService(
            "cyborg.conductor.manager",
            "ConductorManager",
            constants.CONDUCTOR_TOPIC,
        )
        conductor.start()
        # Not started: its timer would report at a time of its own.
        self._agent = RPCService(
            "cyborg.agent.manager", "AgentManager", constants.AGENT_TOPIC
        )

    def report(self) -> None:
        """Do what the agent does each minute."""
        self._agent.manager.update_available_resource(get_admin_context())

    def serve_api(self) -> str:
        """Serve the API on a loopback port; return its URL."""
        server = make_server("127.0.0.1", 0, load_app(), handler_class=Silent)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/accelerator/v2"


def live(folder: Path, port: int) -> None:
    """Be Cyborg until the connection is closed."""
    cyborg = Cyborg(folder)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        stream = connection.makefile("rw")
        print(json.dumps(os.getpid()), file=stream, flush=True)
        for line in stream:
            result = getattr(cyborg, json.loads(line))()
            print(json.dumps(result), file=stream, flush=True)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # It has imported all.
    sys.stdout.write("\n")
    sys.stdout.flush()
    for line in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                folder, port = json.loads(line)
                live(Path(folder), port)
            except Exception:
                traceback.print_exc()
                raise
            finally:
                # Its threads do not end by themselves.
                os._exit(0)


if __name__ == "__main__":
    main()
