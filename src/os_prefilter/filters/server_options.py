# SPDX-License-Identifier: Apache-2.0

"""Tags, trusted certificates, volumes and shares of a server.

nova-compute refuses what its driver cannot do when it builds the server, and
Nova does not try another host.
"""

from __future__ import annotations

import os_traits

from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.requirements import (
    NOTHING,
    Note,
    Requirements,
    require,
)
from os_prefilter.request.view import SERVER_OPTIONS, Request

_TAGGING = os_traits.COMPUTE_DEVICE_TAGGING
_CERTS = os_traits.COMPUTE_TRUSTED_CERTS
_MULTIATTACH = os_traits.COMPUTE_VOLUME_MULTI_ATTACH
_VIRTIO_FS = os_traits.COMPUTE_STORAGE_VIRTIO_FS
_SHARED_MEMORY = os_traits.COMPUTE_MEM_BACKING_FILE

_NOT_KNOWN = Requirements(
    notes=(
        Note(
            "tags, trusted certificates, volumes and shares",
            "could not be read: not required",
        ),
    )
)


@Declaration(
    other_traits=lambda _options: (
        _TAGGING,
        _CERTS,
        _MULTIATTACH,
        _VIRTIO_FS,
        _SHARED_MEMORY,
    ),
    reads=(SERVER_OPTIONS,),
)
def server_options(request: Request) -> Requirements:
    """Require what the API was asked for in addition to image and flavor.

    Nova's own drivers report the traits.
    """
    asked = request.server_options
    result = _NOT_KNOWN if asked.not_known else NOTHING
    if asked.trusted_certs:
        result += _need(_CERTS, "trusted certificates")
    if request.is_rebuild:
        # The server has the others on its host already; certificates come
        # with the new image.
        return result
    if asked.nic_tag:
        result += _need(_TAGGING, "a NIC with a tag")
    if asked.block_device_tag:
        result += _need(_TAGGING, "a block device with a tag")
    if asked.multiattach:
        result += _need(_MULTIATTACH, "a multi-attach volume")
    if asked.shares:
        result += _need(_VIRTIO_FS, "a share")
        # virtiofs works on memory that guest and host share: a file, or pages
        # of a size that the flavor names. Nova attaches a share under the same
        # condition (check_shares_supported in nova/virt/hardware.py).
        if "hw:mem_page_size" not in request.extra_specs:
            result += _need(_SHARED_MEMORY, "a share")
    return result


def _need(trait: str, what: str) -> Requirements:
    return require(trait, what, properties=(what,))
