"""The plugin of the openstack client: ``openstack prefilter ...`` has the commands of ``os-prefilter``.

The client imports this module at each start, finds the commands under the entry point group ``openstack.prefilter.v1``,
and asks for the four names and the two functions below (osc-lib's documentation, "Plugins").
"""

import argparse
from typing import Any

API_NAME = "prefilter"
API_VERSION_OPTION = "os_prefilter_api_version"
API_VERSIONS = ("1",)
DEFAULT_API_VERSION = "1"


def make_client(instance: Any) -> Any:
    """Return the client's connection: there is no service of our own to talk to."""
    return instance.sdk_connection


def build_option_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add no option to the client's own: there is one version."""
    return parser
