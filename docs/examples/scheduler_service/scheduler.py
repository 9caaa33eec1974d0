"""A small scheduler: asked over HTTP for an image and a flavor, it answers
with the hosts that can, or with the reason.

It listens on loopback only and has no authentication.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from wsgiref.simple_server import make_server

from oslo_config import cfg
from oslo_log import log as logging

from os_prefilter import allocation_candidates_query
from os_prefilter.adapters.from_json import request_spec_from
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.facts import CloudPlacement
from os_prefilter.common.errors import (
    ConfigurationError,
    DocumentError,
    PlacementUnavailable,
    PrefilterError,
    RequestRejected,
)
from os_prefilter.documents.strict_json import parse_json
from os_prefilter.service import Service
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.fleet.reader import example_fleet

LOG = logging.getLogger("scheduler")
LARGEST_REQUEST = 1_000_000
# Another service reads them from Neutron: by network and subnet, the host
# aggregates of the subnet's segment.
NETWORKS = {
    "b4c1f1f0-9f0e-4d0b-8a57-3a2b6d1c7e10": {
        "0d9e6a34-5c1b-4f7e-9a68-7b2f1c3d8e52": [
            "1033faf3-2238-52d3-98b2-a1d3762f5977"
        ]
    }
}
OPTIONS = [
    cfg.PortOpt(
        "port",
        default=8080,
        help="The port on loopback; 0 for any that is free.",
    )
]


def load_service(
    conf: cfg.ConfigOpts, placement: PlacementClient, fleet: Fleet
) -> Service:
    """Return the filters that the configuration enables, with what they may
    need to know of the deployment.
    """
    # Another service reads them from its database and from Neutron.
    facts = {
        "aggregates": lambda _context: fleet.aggregates.values(),
        "networks": lambda _context: NETWORKS,
    }
    return Service.from_conf(conf, facts, placement=CloudPlacement(placement))


def schedule(
    body: bytes, service: Service, placement: PlacementClient
) -> tuple[str, Mapping[str, object]]:
    """Return the status and the answer to a request: the hosts that can, or
    why there are none.
    """
    try:
        request_spec = request_spec_from(
            parse_json(body, "request"), "request"
        )
        decision = service.apply(request_spec)
        hosts = placement.allocation_candidates(
            allocation_candidates_query(request_spec)
        ).hosts
        if not hosts:
            reason = service.reason(decision, request_spec)
            if reason.is_public:
                raise reason
    except DocumentError as error:
        return "400 Bad Request", {"error": str(error)}
    except RequestRejected as error:
        return "422 Unprocessable Entity", {"error": str(error)}
    except PlacementUnavailable as error:
        LOG.error("%s", error)  # noqa: TRY400 - it is one line, and no traceback says more
        return "503 Service Unavailable", {
            "error": "Placement does not respond; try again later."
        }
    except PrefilterError:
        # Not the user's fault. The request is not scheduled: without the
        # filter it would go to hosts that cannot.
        LOG.exception("A request was not scheduled.")
        return "500 Internal Server Error", {
            "error": "The log of the scheduler says why."
        }
    required = [
        str(each) for each in (*decision.requirements, *decision.aggregates)
    ]
    return "200 OK", {"hosts": list(hosts), "required": required}


def application(
    service: Service,
    placement: PlacementClient,
    environ: Mapping[str, Any],
    start_response: Callable[..., object],
) -> Iterable[bytes]:
    """Answer ``POST /hosts``, whose body is
    ``{"image": {...}, "flavor": {...}}``.
    """
    if (environ["REQUEST_METHOD"], environ["PATH_INFO"]) == ("POST", "/hosts"):
        length = environ.get("CONTENT_LENGTH", "")
        size = int(length) if length.isdecimal() else 0
        status, answer = schedule(
            environ["wsgi.input"].read(min(size, LARGEST_REQUEST)),
            service,
            placement,
        )
    else:
        status, answer = (
            "404 Not Found",
            {"error": "There is POST /hosts, and nothing else."},
        )
    start_response(status, [("Content-Type", "application/json")])
    return [json.dumps(answer, indent=2).encode() + b"\n"]


def main() -> None:
    """Serve until it is ended; a wrong configuration ends it at once, in one
    line.
    """
    conf = cfg.ConfigOpts()
    logging.register_options(conf)
    conf.register_opts(OPTIONS, group="scheduler")
    fleet = example_fleet()
    with EmbeddedPlacement(fleet) as embedded, suppress(KeyboardInterrupt):
        try:
            conf(project="scheduler")
            logging.setup(conf, "scheduler")
            service = load_service(conf, embedded.client, fleet)
            port = conf.scheduler.port
        except (cfg.Error, ConfigurationError) as error:
            sys.exit(f"scheduler: {error}")
        with make_server(
            "127.0.0.1", port, partial(application, service, embedded.client)
        ) as server:
            LOG.info("Listening on http://127.0.0.1:%d", server.server_port)
            server.serve_forever()


if __name__ == "__main__":
    main()
