# SPDX-License-Identifier: Apache-2.0

"""Placement's API: resource providers and their traits."""

from os_prefilter.adapters.placement.client import PlacementClient

__all__ = ["PlacementClient"]
