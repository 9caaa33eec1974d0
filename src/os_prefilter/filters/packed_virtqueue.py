# SPDX-License-Identifier: Apache-2.0

"""Packed virtqueues (``hw_virtio_packed_ring``)."""

from os_prefilter.request.requirements import Requirements
from os_prefilter.request.row_requirements import require_rows
from os_prefilter.request.values import rows_of
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.options import Options


def packed_virtqueue(request: Request, *, options: Options) -> Requirements:
    """Require COMPUTE_NET_VIRTIO_PACKED where packed virtqueues are on.

    Flavor or image switches them on.
    """
    return require_rows(request, rows_of(request, "packed_virtqueue"), options)
