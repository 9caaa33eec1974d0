"""The cloud, once for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.with_nova.process.cloud import Cloud
from tests.with_nova.process.databases import databases
from tests.with_nova.process.services import urls


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    rabbitmq, mariadb = urls()
    with pytest.MonkeyPatch.context() as environment, databases(mariadb) as ours:
        environment.setenv("no_proxy", "127.0.0.1")
        cloud = Cloud(tmp_path_factory.mktemp("cloud"), rabbitmq, ours)
        with cloud.running():
            yield cloud
