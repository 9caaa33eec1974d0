# SPDX-License-Identifier: Apache-2.0

"""The filters of this package conform to what is asked of those of others; the
reporters: tests/property.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from os_prefilter import NetworkRequest, ServerOptions
from os_prefilter.service.loading import NAMESPACE
from os_prefilter_tools.testing import filter_conformance, request_of
from tests.support.pages import installed_by_us
from tests.support.rule_texts import rule, rules_of

_WINDOWS = rule(
    "windows",
    "{image_property: os_distro, is: windows}",
    ["CUSTOM_LICENSED"],
    ["CUSTOM_SPARE"],
)
_TPM = {"hw:tpm_version": "2.0", "hw:tpm_secret_security": "host"}
_RACK = {"uuid": "33333333-3333-4333-8333-333333333333", "name": "rack"}
_ZONE = {
    **_RACK,
    "metadata": {
        "availability_zone": "north",
        "filter_tenant_id": "p",
        "trait:CUSTOM_A": "required",
    },
}
_NETWORKS = {"network": {"subnet": [_RACK["uuid"]]}}
_PORT = NetworkRequest("network", "port", "subnet", "remote-managed")
_NEEDS: MappingProxyType[str, dict[str, Any]] = MappingProxyType(
    {
        "availability_zone": {
            "facts": {"aggregates": (_ZONE,)},
            "asks": request_of(availability_zone="north"),
        },
        "isolated_aggregates": {
            "facts": {"aggregates": (_ZONE,)},
            "asks": request_of(),
        },
        "tenant_isolation": {
            "facts": {"aggregates": (_ZONE,)},
            "asks": request_of(project_id="p"),
        },
        "routed_networks": {
            "facts": {"networks": _NETWORKS},
            "asks": request_of(requested_networks=[_PORT]),
        },
        "remote_managed_ports": {
            "asks": request_of(requested_networks=[_PORT])
        },
        "noop": {"never_asks": True},
        "owner": {
            "facts": {"owner_is_reported": True},
            "asks": request_of({}, {"resources:VGPU": "1"}),
        },
        "preferences": {
            "asks": request_of(
                {},
                {
                    "trait:CUSTOM_A": "preferred",
                    "preferred_trait:CUSTOM_B": "true",
                },
            )
        },
        "rules": {
            "facts": {"rules": rules_of(_WINDOWS)},
            "asks": request_of({"os_distro": "windows"}),
        },
        "server_options": {
            "asks": request_of(server_options=ServerOptions(shares=True))
        },
        "tpm_secret_security": {"asks": request_of({}, _TPM)},
    }
)

for _name in installed_by_us(NAMESPACE):
    globals()[f"Test_{_name}"] = filter_conformance(
        _name, **_NEEDS.get(_name, {})
    )
