"""Packed virtqueues (``hw_virtio_packed_ring``)."""

from os_prefilter.asking import ask, questions_of
from os_prefilter.options import Options
from os_prefilter.request import Request
from os_prefilter.requirements import Requirements


def packed_virtqueue(request: Request, *, options: Options) -> Requirements:
    """Require COMPUTE_NET_VIRTIO_PACKED where flavor or image switches packed virtqueues on."""
    return ask(request, questions_of("packed_virtqueue"), options)
