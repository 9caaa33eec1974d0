"""The Ironic, once for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.services.ironic.ironics import Ironic, ironic_running
from tests.services.ironic.proxy import Proxy, proxied


@pytest.fixture(scope="session")
def ironic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    with ironic_running(tmp_path_factory.mktemp("ironic")) as running:
        yield running


@pytest.fixture
def proxy(ironic: Ironic) -> Iterator[Proxy]:
    with proxied(ironic.url) as between:
        yield between
