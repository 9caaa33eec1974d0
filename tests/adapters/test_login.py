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

"""A Keystone that does not answer as Keystone does, at the login of a cloud."""

import json
from typing import Any

import pytest
from keystoneauth1.identity.v3 import Password
from keystoneauth1.session import Session

from os_prefilter.common.errors import ConfigurationError
from os_prefilter_tools.adapters.cloud.connection import log_in
from tests.support.loopback import Call, Reply, serving


@pytest.mark.parametrize("headers", [{}, {"X-Subject-Token": "t"}])
@pytest.mark.parametrize("token", [None, [], {}, {"expires_at": "no"}])
def test_token_that_cannot_be_read_is_an_error_of_the_login(token: Any, headers: dict[str, str]) -> None:
    def answer(_call: Call) -> Reply:
        return Reply(201, json.dumps({"token": token}).encode(), headers)

    with serving(answer) as url:
        options: dict[str, Any] = {"username": "u", "password": "hunter2", "user_domain_name": "d", "project_name": "p"}
        auth = Password(f"{url}/v3", **options)
        session = Session(auth=auth)
        session.session.trust_env = False
        with pytest.raises(ConfigurationError, match="the login at Keystone failed") as caught:
            log_in(session, "mine")
    assert "hunter2" not in str(caught.value)
