"""Who asks for something that makes no sense is told so, by Nova's API."""

import pytest
from nova.tests.functional.api.client import OpenStackApiException

from tests.novas.functional.cloud import Cloud


def test_the_user_reads_why_a_request_was_rejected(cloud: Cloud) -> None:
    server = cloud.server({"hw_machine_type": "isapc", "hw_viommu_model": "intel"})

    assert (server.status, server.host, server.attempts) == ("ERROR", None, ())
    reason = "image property hw_viommu_model=intel is impossible with image property hw_machine_type=isapc"
    assert reason in server.fault


def test_nova_api_refuses_a_flavor_with_an_invalid_deploy_config(cloud: Cloud) -> None:
    with pytest.raises(OpenStackApiException) as caught:
        cloud.flavor({"deploy-config:hyperthreading": "sometimes"})

    assert caught.value.response.status_code == 400
    assert "not one of: enabled, disabled" in caught.value.response.json()["badRequest"]["message"]
