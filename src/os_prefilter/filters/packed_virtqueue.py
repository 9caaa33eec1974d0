"""Packed virtqueues (``hw_virtio_packed_ring``)."""

from os_prefilter.asking import ask
from os_prefilter.options import Options
from os_prefilter.request import Request
from os_prefilter.requirements import Requirements
from os_prefilter.vocabulary import rows_asked_by

_ROWS = rows_asked_by("packed_virtqueue")


def packed_virtqueue(request: Request, *, options: Options) -> Requirements:
    """Require COMPUTE_NET_VIRTIO_PACKED where flavor or image switches packed virtqueues on."""
    return ask(request, _ROWS, options)
