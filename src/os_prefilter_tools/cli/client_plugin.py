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

"""Plugin of the openstack client, with the commands of ``os-prefilter`` as ``openstack prefilter ...``.

The client imports this module at each start, finds the commands under the entry point group ``openstack.prefilter.v1``,
and requires the four names and the two functions below (osc-lib's documentation, "Plugins").
"""

import argparse
from typing import Any

API_NAME = "prefilter"
API_VERSION_OPTION = "os_prefilter_api_version"
API_VERSIONS = ("1",)
DEFAULT_API_VERSION = "1"


def make_client(instance: Any) -> Any:
    """Return the client's connection; the plugin has no service of its own."""
    return instance.sdk_connection


def build_option_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Return the client's parser without a new option; there is only one version."""
    return parser
