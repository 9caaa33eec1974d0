# SPDX-License-Identifier: Apache-2.0

"""Routed networks: hosts reach a segment of each requested network.

Neutron mirrors each segment of a routed network as a host aggregate. Its UUID
is among the aggregates of the segment's resource provider in Placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from os_prefilter.common.errors import NoAggregate, UnusableFact
from os_prefilter.common.placement_values import is_uuid
from os_prefilter.common.quoting import quote
from os_prefilter.request.filter_contract import UNKNOWN, Declaration
from os_prefilter.request.requirements import (
    NOTHING,
    Note,
    Requirements,
    require_aggregates,
)
from os_prefilter.request.spec import NetworkRequest
from os_prefilter.request.view import Request

FACT = "networks"
"""The name of the fact."""

_ADVICE = "Correct what the service passes as facts={'networks': callable}."
_NO_SEGMENT = (
    "Ask the operator to check the segment's resource provider in Placement."
)


@dataclass(frozen=True)
class RoutedNetworks:
    """Aggregates of the segments of routed networks.

    The value of the fact ``networks``.
    """

    networks: Mapping[str, Mapping[str, tuple[str, ...]]] = field(
        default_factory=dict
    )
    """Network -> subnet -> the aggregates of the subnet's segment."""
    subnets: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict, compare=False
    )
    """Subnet -> the aggregates of its segment."""

    def __repr__(self) -> str:
        return (
            f"<{len(self.networks)} routed networks with {len(self.subnets)}"
            " subnets>"
        )

    @classmethod
    def of(cls, networks: Any) -> RoutedNetworks:
        """Return the networks that a service gives.

        :param networks: a mapping of the UUID of each network that has
            segments to a mapping of the UUID of each of its subnets that has
            one to the UUIDs of the aggregates of the segment's resource
            provider; or what this returned before
        :raises UnusableFact: if it is not known, or malformed
        """
        if isinstance(networks, cls):
            return networks
        if networks is None or networks is UNKNOWN:
            raise UnusableFact(
                FACT,
                "is not known yet",
                "Check the warning in the log about reading it.",
            )
        _check(
            isinstance(networks, Mapping), networks, "a mapping of networks"
        )
        found: dict[str, Mapping[str, tuple[str, ...]]] = {}
        subnets: dict[str, tuple[str, ...]] = {}
        for network, segments in networks.items():
            _check(
                isinstance(segments, Mapping),
                segments,
                f"a mapping of subnets, at the network {quote(network)}",
            )
            for subnet, aggregates in segments.items():
                is_sequence = isinstance(
                    aggregates, Iterable
                ) and not isinstance(aggregates, (str, bytes, Mapping))
                _check(
                    is_sequence,
                    aggregates,
                    f"aggregates, at the subnet {quote(subnet)}",
                )
                subnets[subnet] = tuple(aggregates)
                for uuid in subnets[subnet]:
                    _check(
                        is_uuid(uuid),
                        uuid,
                        "the UUID of an aggregate, at the subnet"
                        f" {quote(subnet)}",
                    )
            found[network] = MappingProxyType(
                {subnet: subnets[subnet] for subnet in segments}
            )
        return cls(MappingProxyType(found), MappingProxyType(subnets))


def _check(is_valid: bool, value: object, expected: str) -> None:  # noqa: FBT001
    if not is_valid:
        raise UnusableFact(
            FACT, f"has {quote(value)}, not {expected}", _ADVICE
        )


@Declaration(by_default=False, takes_unknown=True, reads=("networks",))
def routed_networks(request: Request, *, networks: Any) -> Requirements:
    """Require a host that reaches a segment of each requested network.

    Of each routed network that the user named.
    """
    requested = request.networks
    if not requested:
        return NOTHING
    known = RoutedNetworks.of(networks)
    result = NOTHING
    for each in requested:
        result += _of_network(each, known)
    return result


def _of_network(each: NetworkRequest, known: RoutedNetworks) -> Requirements:
    if each.subnet_id:
        what = f"subnet {quote(each.subnet_id)}"
        segments = [known.subnets.get(each.subnet_id)]
    elif each.network_id:
        what = f"network {quote(each.network_id)}"
        segments = list(known.networks.get(each.network_id, {}).values())
    elif each.port_id:
        reason = (
            "the request spec has neither its network nor its subnet: not"
            " required"
        )
        return Requirements(
            notes=(Note(f"port {quote(each.port_id)}", reason, warn=True),)
        )
    else:
        return NOTHING
    if () in segments:
        raise NoAggregate(f"Aggregates not found for the {what}", _NO_SEGMENT)
    aggregates = {uuid for segment in segments for uuid in segment or ()}
    # Without segments every host reaches it.
    return require_aggregates(aggregates, what) if aggregates else NOTHING
