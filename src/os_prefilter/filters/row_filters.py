# SPDX-License-Identifier: Apache-2.0

"""Filters that require rows of the vocabulary, or one trait, alone.

Which rows each requires, the rows say (``required_by``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import os_traits

from os_prefilter.request.filter_contract import NOTHING_SPECIAL, Declaration
from os_prefilter.request.requirements import Requirements, forbid
from os_prefilter.request.row_requirements import require_rows
from os_prefilter.request.values import rows_of
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import HPET
from os_prefilter.vocabulary.options import Options


def _require_rows_of(
    name: str, summary: str, declaration: Declaration = NOTHING_SPECIAL
) -> Callable[..., Requirements]:
    # One pipeline has one.
    @lru_cache(maxsize=16)
    def with_declared(options: Options) -> Options:
        # Enabling a filter says that hosts report the traits that it declares,
        # whatever reported_traits says.
        traits = tuple(declaration.traits(options))
        if not traits:
            return options
        reported = (*options.reported_traits, *traits)
        return replace(options, reported_traits=reported)

    def require(request: Request, *, options: Options) -> Requirements:
        rows = rows_of(request, name)
        return require_rows(request, rows, with_declared(options))

    require.__name__ = name
    require.__doc__ = summary
    return declaration(require)


accelerators = _require_rows_of(
    "accelerators",
    "Require COMPUTE_ACCELERATORS where the flavor names a device profile.",
)
ephemeral_encryption = _require_rows_of(
    "ephemeral_encryption",
    "Require encryption of ephemeral disks, and its format if one is named.",
)
# By the spec support-hpet-on-guest and the decision on traits as
# configuration. A request names the property hw_time_hpet ("explicit config,
# implicit trait") or the trait itself: in the image, in the flavor or in one
# of its groups that describes the host. Guest settings switch the timer on for
# both; Nova's own driver reads the property alone. In the group of a GPU, the
# trait would be one of the GPU.
hpet = _require_rows_of(
    "hpet",
    "Require the trait of the timer on the host.",
    Declaration(traits=lambda _options: (HPET,)),
)
image_type = _require_rows_of(
    "image_type",
    "Require COMPUTE_IMAGE_TYPE_*: the image's disk format.",
)
packed_virtqueue = _require_rows_of(
    "packed_virtqueue",
    "Require COMPUTE_NET_VIRTIO_PACKED where packed virtqueues are on.",
)
sound_model = _require_rows_of(
    "sound_model",
    "Require the sound model of hw_sound_model or hw:sound_model.",
    # The filter image_metadata includes it.
    Declaration(by_default=False),
)
tpm_secret_security = _require_rows_of(
    "tpm_secret_security",
    "Require hw:tpm_secret_security where an emulated TPM is requested.",
)

_NOT_DISABLED = forbid(
    os_traits.COMPUTE_STATUS_DISABLED,
    "every request: no disabled compute service",
)


# Not a row: no value of a request decides, and no driver reports the trait.
@Declaration(
    only_new=True,
    other_traits=lambda _options: (os_traits.COMPUTE_STATUS_DISABLED,),
)
def compute_status(request: Request) -> Requirements:  # noqa: ARG001
    """Forbid COMPUTE_STATUS_DISABLED: hosts with a disabled compute service.

    Nova puts the trait on their provider.
    """
    return _NOT_DISABLED
