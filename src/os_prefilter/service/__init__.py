# SPDX-License-Identifier: Apache-2.0

"""Additions of a service to the pipeline: options, facts of the deployment,
gates, metrics, history, reasons.
"""

from os_prefilter.service.service import Service

__all__ = ["Service"]
