"""tpm_secret_security: only with an emulated TPM, "user" by default."""

from collections.abc import Callable

import pytest

from tests.conftest import asked_by, spec_of


def _trait(name: str) -> tuple[str, bool, str]:
    return (f"COMPUTE_SECURITY_TPM_SECRET_SECURITY_{name}", True, "root")


@pytest.mark.parametrize(
    ("properties", "extra_specs", "expected"),
    [
        ({}, {}, []),
        ({}, {"hw:tpm_secret_security": "host"}, []),
        ({}, {"hw:tpm_model": "tpm-crb"}, []),
        ({}, {"hw:tpm_version": "2.0"}, [_trait("USER")]),
        ({"hw_tpm_version": "1.2"}, {}, [_trait("USER")]),
        ({"hw_tpm_version": "2.0"}, {"hw:tpm_secret_security": "host"}, [_trait("HOST")]),
        ({"hw_tpm_version": "2.0"}, {"hw:tpm_secret_security": "deployment"}, [_trait("DEPLOYMENT")]),
        ({"hw_tpm_version": "3.0"}, {}, []),
    ],
)
def test_secret_security_trait_is_required_only_with_an_emulated_tpm(
    properties: dict[str, object], extra_specs: dict[str, str], expected: list[object]
) -> None:
    assert asked_by("tpm_secret_security", spec_of(properties, extra_specs)) == expected


def test_only_hosts_with_the_secret_security_mode_remain(hosts: Callable[..., tuple[str, ...]]) -> None:
    found = hosts(spec_of(extra_specs={"hw:tpm_version": "2.0"}), "tpm_secret_security")
    assert "kvm-new-1" in found
    assert "vmware-1" not in found
