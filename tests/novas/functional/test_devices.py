"""With the library, a server starts on the first host that tries it: network cards, screens, disks."""

import pytest

from tests.novas.functional.cloud import Cloud
from tests.novas.functional.images import DEVICES, Asked, hosts_for, possible


@pytest.mark.parametrize("asked", possible(DEVICES), ids="-".join)
def test_server_with_a_device_starts_on_the_first_host_tried(cloud: Cloud, asked: Asked) -> None:
    name, value, disk_format = asked
    server = cloud.server({name: value}, disk_format=disk_format)

    best = hosts_for(asked)[0]
    assert (server.status, server.host, server.attempts, server.fault) == ("ACTIVE", best, (best,), "")
