#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""The cloud, once for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.services.cloud.cloud import Cloud, cloud_running


@pytest.fixture(scope="session")
def whole_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_running(tmp_path_factory.mktemp("cloud")) as running:
        yield running


@pytest.fixture
def cloud(whole_cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """Return the cloud, whose clouds.yaml commands find; what a test did to its requests is undone."""
    for name, value in whole_cloud.environment.items():
        monkeypatch.setenv(name, value)
    yield whole_cloud
    whole_cloud.forget()
