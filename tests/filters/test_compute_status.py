"""compute_status: no disabled compute service, for any request."""

from collections.abc import Callable

from tests.conftest import asked_by, spec_of


def test_every_request_forbids_disabled_compute_services() -> None:
    assert asked_by("compute_status", spec_of()) == [("COMPUTE_STATUS_DISABLED", False, "root")]


def test_disabled_host_is_excluded(hosts: Callable[..., tuple[str, ...]]) -> None:
    assert set(hosts(spec_of())) - set(hosts(spec_of(), "compute_status")) == {"kvm-old-3"}
