# SPDX-License-Identifier: Apache-2.0

"""Filters that require rows of the vocabulary, or one trait, alone."""

import os_traits

from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.requirements import Requirements, forbid
from os_prefilter.request.row_requirements import require_rows
from os_prefilter.request.values import rows_of
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.options import Options


def accelerators(request: Request, *, options: Options) -> Requirements:
    """Require COMPUTE_ACCELERATORS where the flavor names a device profile.

    Hosts whose compute service can attach accelerators have it.
    """
    return require_rows(request, rows_of(request, "accelerators"), options)


_ANSWER = forbid(
    os_traits.COMPUTE_STATUS_DISABLED,
    "every request: no disabled compute service",
)


@Declaration(
    only_new=True,
    other_traits=lambda _options: (os_traits.COMPUTE_STATUS_DISABLED,),
)
def compute_status(request: Request) -> Requirements:  # noqa: ARG001
    """Forbid COMPUTE_STATUS_DISABLED: hosts with a disabled compute service.

    Nova puts the trait on their provider.
    """
    return _ANSWER


def ephemeral_encryption(
    request: Request, *, options: Options
) -> Requirements:
    """Require encryption of ephemeral disks, and its format if one is named.

    A format alone requires nothing, as in Nova.
    """
    return require_rows(
        request, rows_of(request, "ephemeral_encryption"), options
    )


def image_type(request: Request, *, options: Options) -> Requirements:
    """Require COMPUTE_IMAGE_TYPE_*: the image's disk format.

    Nothing when booting from a volume, where the host reads no image.
    """
    return require_rows(request, rows_of(request, "image_type"), options)


def packed_virtqueue(request: Request, *, options: Options) -> Requirements:
    """Require COMPUTE_NET_VIRTIO_PACKED where packed virtqueues are on.

    Flavor or image switches them on.
    """
    return require_rows(request, rows_of(request, "packed_virtqueue"), options)


# The filter image_metadata includes it.
@Declaration(by_default=False)
def sound_model(request: Request, *, options: Options) -> Requirements:
    """Require the sound model of hw_sound_model or hw:sound_model.

    Nova's filter knows virtio only.
    """
    return require_rows(request, rows_of(request, "sound_model"), options)


def tpm_secret_security(request: Request, *, options: Options) -> Requirements:
    """Require hw:tpm_secret_security where an emulated TPM is requested.

    By default it is "user".
    """
    return require_rows(
        request, rows_of(request, "tpm_secret_security"), options
    )
