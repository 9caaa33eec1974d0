# SPDX-License-Identifier: Apache-2.0

"""Placement's API: resource providers, their traits, and a fleet read from
it.
"""

from os_prefilter.adapters.placement.client import PlacementClient

__all__ = ["PlacementClient"]
