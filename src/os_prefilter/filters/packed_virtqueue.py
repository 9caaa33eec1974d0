"""Packed virtqueues (``hw_virtio_packed_ring``)."""

from os_prefilter.asking import ask, questions_of
from os_prefilter.options import Options
from os_prefilter.request import Request
from os_prefilter.requirements import Requirements

_QUESTIONS = questions_of("packed_virtqueue")


def packed_virtqueue(request: Request, *, options: Options) -> Requirements:
    """Require COMPUTE_NET_VIRTIO_PACKED where flavor or image switches packed virtqueues on."""
    return ask(request, _QUESTIONS, options)
