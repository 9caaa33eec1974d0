# SPDX-License-Identifier: Apache-2.0

"""The cloud, once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.cloud.cloud import Cloud, cloud_running


@pytest.fixture(scope="session")
def whole_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_running(tmp_path_factory.mktemp("cloud")) as running:
        yield running


@pytest.fixture
def cloud(
    whole_cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cloud]:
    """Return the cloud, whose clouds.yaml commands find; what a test did to
    its requests is undone.
    """
    for name, value in whole_cloud.environment.items():
        monkeypatch.setenv(name, value)
    yield whole_cloud
    whole_cloud.forget()
