# SPDX-License-Identifier: Apache-2.0

"""Nova's filters that ask about the deployment, on aggregates in a real
database and networks of a fake Neutron.

Nova's own functions run, with its own AggregateList, models, SQL and Neutron
API. Fake is what cannot run here: the client of Neutron below that API, and
the resource providers of Neutron's segments in Placement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import nova.conf
from nova import context as nova_context
from nova import exception
from nova.db.api import models
from nova.network import constants, neutron
from nova.objects import aggregate as nova_aggregate
from nova.scheduler import request_filter
from nova.scheduler.client import report
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from os_prefilter import Request
from os_prefilter.nova.activation import STAYS_WITH_NOVA
from tests.against_nova.becomes import FAILED, REFUSED, Answer, Required

_ENABLED = {
    "limit_tenants_to_placement_aggregate": True,
    "enable_isolated_aggregate_filtering": True,
    "query_placement_for_routed_network_aggregates": True,
}


_TABLES = (models.AggregateHost.__table__, models.AggregateMetadata.__table__)


class Port(NamedTuple):
    network_id: str
    subnet_id: str | None = None
    vnic_type: str = "normal"


class Deployment(NamedTuple):
    aggregates: Sequence[Mapping[str, Any]] = ()
    """As our fact has them."""
    segments: Mapping[str, Mapping[str, Sequence[str]]] = {}
    """Network -> subnet with a segment -> aggregates of the segment's
    provider, as our fact has them.
    """
    ports: Mapping[str, Port] = {}


class NovaFilter:
    """Nova's filter of the same purpose as ours, in one deployment."""

    def __init__(
        self,
        name: str,
        deployment: Deployment,
        *,
        tenants_need_one: bool = False,
    ) -> None:
        self.name = name
        self.function = getattr(request_filter, STAYS_WITH_NOVA[name][0])
        self._deployment = deployment
        self._options = {
            **_ENABLED,
            "placement_aggregate_required_for_tenants": tenants_need_one,
        }

    def __call__(self, spec: Any) -> Answer:
        clone = spec.obj_clone()
        try:
            with running(self._deployment, self._options):
                self.function(nova_context.get_admin_context(), clone)
        except exception.RequestFilterFailed:
            return REFUSED
        except (
            AssertionError,
            UnboundLocalError,
            exception.ObjectActionError,
            NotImplementedError,
        ):
            return FAILED
        return added(spec, clone)

    @staticmethod
    def completed(spec: Any) -> Any:
        """Return the request: nothing is missing that these filters read."""
        return spec


def added(before: Any, after: Any) -> frozenset[Required]:
    """Return the aggregates and traits that a request spec has more than
    before.
    """
    return _required(after) - _required(before)


def _required(spec: Any) -> frozenset[Required]:
    destination = Request(spec).destination
    required = {
        ",".join(sorted(set(each.split(","))))
        for each in destination.aggregates or ()
    }
    return frozenset(
        {("root", trait, True) for trait in spec.root_required}
        | {("member_of", each, True) for each in required}
        | {
            ("member_of", each, False)
            for each in destination.forbidden_aggregates or ()
        }
    )


@contextmanager
def running(
    deployment: Deployment, options: Mapping[str, bool] = _ENABLED
) -> Iterator[None]:
    conf, engine = (
        nova.conf.CONF,
        create_engine("sqlite://", poolclass=StaticPool),
    )
    models.BASE.metadata.create_all(
        engine, [models.Aggregate.__table__, *_TABLES]
    )
    with ExitStack() as stack, Session(engine) as session:
        _fill(session, deployment.aggregates)
        for name in (
            "_get_by_metadata_from_db",
            "_get_non_matching_by_metadata_keys_from_db",
        ):
            # Nova's own query, without its global connection.
            query = getattr(nova_aggregate, name).__wrapped__

            def run(
                _context: Any, *args: Any, query: Any = query, **named: Any
            ) -> Any:
                return query(SimpleNamespace(session=session), *args, **named)

            stack.enter_context(mock.patch.object(nova_aggregate, name, run))
        client = _Neutron(deployment)
        stack.enter_context(
            mock.patch.object(neutron, "get_client", return_value=client)
        )
        placement = SimpleNamespace(
            _get_provider_aggregates=client.aggregates_of
        )
        stack.enter_context(
            mock.patch.object(
                report, "report_client_singleton", return_value=placement
            )
        )
        for name, value in options.items():
            conf.set_override(name, value, "scheduler")
            stack.callback(conf.clear_override, name, "scheduler")
        yield
    engine.dispose()


def _fill(session: Session, aggregates: Sequence[Mapping[str, Any]]) -> None:
    for number, each in enumerate(aggregates, 1):
        session.add(
            models.Aggregate(id=number, uuid=each["uuid"], name=each["name"])
        )
        for key, value in each["metadata"].items():
            session.add(
                models.AggregateMetadata(
                    aggregate_id=number, key=key, value=value
                )
            )
    session.commit()


class _Neutron:
    """What Nova's Neutron API calls of neutronclient, and the providers of
    segments: each subnet has its own.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._segments = deployment.segments
        self._ports = deployment.ports

    def list_extensions(self) -> dict[str, Any]:
        return {
            "extensions": [
                {"alias": constants.SEGMENT, "name": constants.SEGMENT}
            ]
        }

    def list_subnets(self, network_id: str, **_fields: Any) -> dict[str, Any]:
        # And one that has no segment.
        segments = [
            {"segment_id": f"of {subnet}"}
            for subnet in self._segments.get(network_id, ())
        ]
        return {"subnets": [*segments, {"segment_id": None}]}

    def show_subnet(self, subnet_id: str) -> dict[str, Any]:
        known = any(
            subnet_id in subnets for subnets in self._segments.values()
        )
        return {"subnet": {"segment_id": f"of {subnet_id}" if known else None}}

    def show_port(self, port_id: str, **_fields: Any) -> dict[str, Any]:
        port = self._ports[port_id]
        fixed_ips = [{"subnet_id": port.subnet_id}] if port.subnet_id else []
        return {
            "port": {
                "network_id": port.network_id,
                "fixed_ips": fixed_ips,
                "binding:vnic_type": port.vnic_type,
            }
        }

    def aggregates_of(self, _context: Any, segment: str) -> Any:
        found = (
            subnets[segment[3:]]
            for subnets in self._segments.values()
            if segment[3:] in subnets
        )
        return SimpleNamespace(aggregates=set(next(found)))
