# SPDX-License-Identifier: Apache-2.0

"""The cloud, once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.mariadb.databases import databases
from tests.services.nova.api import Api, api_running
from tests.services.nova.cloud import Cloud
from tests.support.programs import urls


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    rabbitmq, mariadb = urls()
    with (
        pytest.MonkeyPatch.context() as environment,
        databases(mariadb) as ours,
    ):
        environment.setenv("no_proxy", "127.0.0.1")
        cloud = Cloud(tmp_path_factory.mktemp("cloud"), rabbitmq, ours)
        with cloud.running():
            yield cloud


@pytest.fixture(scope="module")
def api(
    cloud: Cloud, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    with api_running(cloud, tmp_path_factory.mktemp("api")) as api:
        yield api
