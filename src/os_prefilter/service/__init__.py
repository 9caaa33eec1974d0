# SPDX-License-Identifier: Apache-2.0

"""The pipeline as a service: options, facts, gates, metrics, history."""

from os_prefilter.service.service import Service

__all__ = ["Service"]
