"""The Ironic, once for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.ironic_proxy import Proxy, proxied
from tests.ironics import Ironic, ironic_running


@pytest.fixture(scope="session")
def ironic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    with ironic_running(tmp_path_factory.mktemp("ironic")) as running:
        yield running


@pytest.fixture
def proxy(ironic: Ironic) -> Iterator[Proxy]:
    with proxied(ironic.url) as between:
        yield between
