# SPDX-License-Identifier: Apache-2.0

"""Plugin of the openstack client: ``openstack prefilter ...``.

The client imports this module at each start, finds the commands under the
entry point group ``openstack.prefilter.v1``, and requires the four names and
the two functions below (osc-lib's documentation, "Plugins").
"""

from __future__ import annotations

import argparse
from typing import Any

API_NAME = "prefilter"
API_VERSION_OPTION = "os_prefilter_api_version"
API_VERSIONS = ("1",)
DEFAULT_API_VERSION = "1"


def make_client(instance: Any) -> Any:
    """Return the client's connection; the plugin has no service of its own."""
    return instance.sdk_connection


def build_option_parser(
    parser: argparse.ArgumentParser,
) -> argparse.ArgumentParser:
    """Return the parser as it is: there is only one version."""
    return parser
