# SPDX-License-Identifier: Apache-2.0

"""Our filters by aggregates and networks require what Nova's do, but for the
listed differences, exactly.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from nova import objects
from nova.context import get_admin_context
from nova.scheduler.utils import ResourceRequest

from os_prefilter import Flavor, NetworkRequest, Options, RequestSpec
from os_prefilter.common.errors import ContradictingAggregates, RequestRejected
from os_prefilter.nova.activation import STAYS_WITH_NOVA
from os_prefilter.service import Service
from tests.against_nova.becomes import FAILED, REFUSED, Answer
from tests.against_nova.differences import AGGREGATE_DIFFERENCES, QUERY
from tests.against_nova.nova import NovaCode, our_query
from tests.against_nova.novas_deployment import (
    Deployment,
    NovaFilter,
    Port,
    added,
    running,
)
from tests.against_nova.requests import PORT, request_specs
from tests.conftest import times
from tests.support.nova_objects import nova_spec

_GENERATED = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
_UUIDS = tuple(
    f"{digit * 8}-{digit * 4}-4{digit * 3}-8{digit * 3}-{digit * 12}"
    for digit in "34567"
)
_ZONES = ("north", "south", "North", "a b", "x,y")
_TENANTS = ("p1", "p2", "p1,p2")
_TRAITS = (
    "CUSTOM_RAID",
    "HW_CPU_X86_AVX2",
    "HW_CPU_HYPERTHREADING",
    "CUSTOM_NONE",
    "",
)
_NETWORKS, _SUBNETS = (
    ("net-1", "net-2", "net-3"),
    ("sub-1", "sub-2", "sub-3", "sub-4"),
)
_PORTS = tuple(f"{PORT[:-1]}{number}" for number in range(4))
_BY_AGGREGATES = (
    "availability_zone",
    "tenant_isolation",
    "isolated_aggregates",
)

_METADATA = st.dictionaries(
    st.sampled_from(
        [
            "availability_zone",
            "filter_tenant_id",
            "filter_tenant_id_2",
            "filter_tenant_id:x",
            "tenant_id",
            "other",
        ]
    ),
    st.sampled_from([*_ZONES, *_TENANTS, ""]),
    max_size=4,
)
_REQUIRED = st.dictionaries(
    st.sampled_from([f"trait:{each}" for each in _TRAITS]),
    st.sampled_from(["required", "forbidden", "x"]),
    max_size=2,
)


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    """Return aggregates with metadata, networks with segments, and ports."""
    aggregates = [
        {
            "uuid": uuid,
            "name": f"n{number}",
            "metadata": draw(_METADATA) | draw(_REQUIRED),
        }
        for number, uuid in enumerate(
            draw(st.lists(st.sampled_from(_UUIDS), unique=True))
        )
    ]
    segments: dict[str, dict[str, list[str]]] = {}
    for subnet in _SUBNETS:
        network = draw(st.sampled_from(_NETWORKS[:2]))
        some = draw(st.lists(st.sampled_from(_UUIDS), unique=True, max_size=3))
        # One without aggregates refuses the request; rarely, or it would
        # refuse nearly all.
        segments.setdefault(network, {})[subnet] = some or draw(
            st.sampled_from([[], [_UUIDS[0]], [_UUIDS[1]]])
        )
    subnets = st.sampled_from([None, *_SUBNETS, "flat"])
    types = st.sampled_from(["normal", "direct", "remote-managed"])
    ports = {
        each: Port(
            draw(st.sampled_from(_NETWORKS)), draw(subnets), draw(types)
        )
        for each in _PORTS
    }
    return Deployment(aggregates, segments, ports)


@st.composite
def requests(draw: st.DrawFn) -> Any:
    """Return a request of Nova's, with a project, a zone and networks; or some
    of them null or unset.
    """
    spec = draw(request_specs())
    if draw(st.integers(0, 9)):
        spec.project_id = draw(st.sampled_from([*_TENANTS, "p3", "", None]))
    if draw(st.integers(0, 9)):
        spec.availability_zone = draw(
            st.sampled_from([*_ZONES, "nowhere", "", None])
        )
    if draw(st.integers(0, 9)):
        ids = st.sampled_from([*_NETWORKS, "auto", None])
        pairs = draw(
            st.lists(
                st.tuples(ids, st.sampled_from([*_PORTS, None])), max_size=3
            )
        )
        some = [
            objects.NetworkRequest(network_id=network, port_id=port)
            for network, port in pairs
        ]
        spec.requested_networks = objects.NetworkRequestList(objects=some)
    return spec


def pipeline(
    deployment: Deployment, *names: str, tenants_need_one: bool = False
) -> Service:
    facts = {
        "aggregates": lambda _context: deployment.aggregates,
        "networks": lambda _context: deployment.segments,
    }
    return Service.from_names(
        *names,
        options=Options(tenant_aggregate_required=tenants_need_one),
        facts=facts,
    )


def ours(
    name: str,
    deployment: Deployment,
    spec: Any,
    *,
    tenants_need_one: bool = False,
) -> Answer:
    """Return what our filter adds to a copy of the request.

    For the filters about networks that is a request spec of ours: what a
    service knows of ports has no place in Nova's.
    """
    some = pipeline(deployment, name, tenants_need_one=tenants_need_one)
    clone = spec.obj_clone()
    if name in ("routed_networks", "remote_managed_ports"):
        clone = RequestSpec(
            Flavor(1, 512), requested_networks=_resolved(spec, deployment)
        )
    try:
        some.apply(clone)
    except RequestRejected:
        return REFUSED
    # Also for a request spec of ours, which has none of the aggregates that
    # Nova's may require already.
    return added(spec, clone)


def _resolved(spec: Any, deployment: Deployment) -> list[NetworkRequest]:
    """Return the networks and ports of a request as a service finds them in
    Neutron.
    """
    requested = []
    for each in (
        spec.requested_networks if "requested_networks" in spec else ()
    ):
        if each.port_id:
            port = deployment.ports[each.port_id]
            requested.append(
                NetworkRequest(
                    port.network_id,
                    each.port_id,
                    port.subnet_id,
                    port.vnic_type,
                )
            )
        else:
            requested.append(NetworkRequest(each.network_id))
    return requested


def expected(
    name: str,
    deployment: Deployment,
    spec: Any,
    *,
    tenants_need_one: bool = False,
) -> Answer:
    """Return what we must answer: what Nova does, and then each difference."""
    code = NovaFilter(name, deployment, tenants_need_one=tenants_need_one)
    answer = code(spec)
    for difference in AGGREGATE_DIFFERENCES:
        if name in difference.of:
            answer = difference.becomes(answer, spec, code)
    return answer


@pytest.mark.parametrize("name", STAYS_WITH_NOVA)
@settings(_GENERATED, max_examples=times(20))
@given(data=st.data())
def test_filter_requires_what_novas_does_except_for_the_listed_differences(
    name: str, data: st.DataObject
) -> None:
    """Also where each tenant needs an aggregate, and is refused without
    one.
    """
    deployment, spec = data.draw(deployments()), data.draw(requests())
    need = name == "tenant_isolation" and data.draw(st.booleans())
    assume(has_query(spec))
    answer, novas = (
        each(name, deployment, spec, tenants_need_one=need)
        for each in (ours, expected)
    )
    assert answer == novas


@settings(_GENERATED, max_examples=times(15))
@given(deployments(), requests())
def test_filters_together_give_novas_query(
    deployment: Deployment, spec: Any
) -> None:
    """Written to Nova's own object, in Nova's own form; where no host can be
    left, ours says so before.
    """
    assume(has_query(spec))
    assume(
        "availability_zone" in spec
        and "project_id" in spec
        and spec.project_id
    )
    # Nova's isolate_aggregates takes amounts of 0 out of the request's own
    # groups, and the query then refuses them.
    groups = (
        spec.requested_resources if "requested_resources" in spec else None
    )
    assume(all(all(group.resources.values()) for group in groups or ()))
    novas, our = spec.obj_clone(), spec.obj_clone()
    with running(deployment):
        for name in _BY_AGGREGATES:
            NovaFilter(name, deployment).function(get_admin_context(), novas)
    try:
        pipeline(deployment, *_BY_AGGREGATES).apply(our)
    except ContradictingAggregates:
        destination = novas.requested_destination
        assert any(
            set(each.split(",")) <= destination.forbidden_aggregates
            for each in destination.aggregates
        )
    else:
        assert query(our) == query(novas)


def has_query(spec: Any) -> bool:
    """Whether both have a query for the request: what one refuses gets
    nowhere, and test_difference compares that.
    """
    return {NovaCode(QUERY)(spec), our_query(spec)}.isdisjoint(
        (REFUSED, FAILED)
    )


def query(spec: Any) -> set[tuple[str, str]]:
    return set(
        parse_qsl(ResourceRequest.from_request_spec(spec).to_querystring())
    )


def example() -> Any:
    """Return a request of Nova's for a project, in a zone, with one port."""
    port = objects.NetworkRequest(network_id=None, port_id=_PORTS[0])
    networks = objects.NetworkRequestList(objects=[port])
    return nova_spec(
        is_bfv=False,
        project_id="p1",
        availability_zone="north",
        requested_networks=networks,
    )


_METADATA_OF_ALL = {
    "availability_zone": "north",
    "filter_tenant_id": "p1",
    "trait:CUSTOM_RAID": "required",
}
_SMALL = Deployment(
    [{"uuid": _UUIDS[0], "name": "rack", "metadata": _METADATA_OF_ALL}],
    {"net-1": {"sub-1": [_UUIDS[1]]}},
    {_PORTS[0]: Port("net-1", "sub-1", "remote-managed")},
)


def test_each_filter_requires_something_and_each_listed_difference_is_shown_by_its_example() -> (
    None
):
    """Else equality would prove nothing; an entry that no longer holds must
    go.
    """
    for name in STAYS_WITH_NOVA:
        answer = ours(name, _SMALL, example())
        assert (
            answer
            == expected(name, _SMALL, example())
            == NovaFilter(name, _SMALL)(example())
        )
        assert len(answer) == 1
    for difference in AGGREGATE_DIFFERENCES:
        spec = example()
        difference.change(spec)
        for name in difference.of:
            answer = ours(name, _SMALL, spec)
            assert answer == expected(name, _SMALL, spec)
            assert answer != NovaFilter(name, _SMALL)(spec)
