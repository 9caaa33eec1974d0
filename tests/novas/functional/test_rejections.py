"""Who asks for something that makes no sense is told so, by Nova's API."""

from collections.abc import Mapping

import pytest
from nova.tests.functional.api.client import OpenStackApiException

from tests.novas.functional.cloud import Cloud


@pytest.mark.parametrize(
    ("properties", "extra_specs", "reason"),
    [
        (
            {"hw_machine_type": "abacus"},
            {},
            "image property hw_machine_type has the unknown value 'abacus'",
        ),
        (
            {"hw_usb_model": "nec-xhci"},
            {"hw:usb_model": "qemu-xhci"},
            "image property hw_usb_model=nec-xhci and flavor extra spec hw:usb_model=qemu-xhci contradict each other",
        ),
        (
            {"hw_machine_type": "isapc", "hw_viommu_model": "intel"},
            {},
            "image property hw_viommu_model=intel is impossible with image property hw_machine_type=isapc",
        ),
    ],
    ids=["unknown value", "flavor and image", "impossible combination"],
)
def test_the_user_reads_why_a_request_was_rejected(
    cloud: Cloud, properties: Mapping[str, str], extra_specs: Mapping[str, str], reason: str
) -> None:
    server = cloud.server(properties, extra_specs)

    assert (server.status, server.host, server.attempts) == ("ERROR", None, ())
    assert reason in server.fault


def test_nova_api_refuses_a_flavor_with_an_invalid_deploy_config(cloud: Cloud) -> None:
    with pytest.raises(OpenStackApiException) as caught:
        cloud.flavor({"deploy-config:hyperthreading": "sometimes"})

    assert caught.value.response.status_code == 400
    assert "not one of: enabled, disabled" in caught.value.response.json()["badRequest"]["message"]
