# SPDX-License-Identifier: Apache-2.0

"""Everything that imports Nova: the parts that run inside its processes.

nova.conf names :func:`activate` in ``[filter_scheduler] available_filters``,
and :class:`PreferredTraits` in ``weight_classes``. They are imported when they
are first used: nova-api loads
:mod:`os_prefilter.nova.extra_spec_validators` from this package, and must not
load what only nova-scheduler needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from os_prefilter.nova.activation import activate
    from os_prefilter.nova.weigher import PreferredTraits

__all__ = ["PreferredTraits", "activate"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    try:
        from os_prefilter.nova import activation, weigher  # noqa: PLC0415
    except ImportError as problem:
        # Of Nova it may lack what another release has; other packages say
        # what is wrong with them.
        if not (problem.name or "").startswith("nova."):
            raise
        from os_prefilter.adapters.nova_conf import (  # noqa: PLC0415
            incompatible_nova,
        )

        raise ImportError(incompatible_nova(problem)) from problem
    return {
        "PreferredTraits": weigher.PreferredTraits,
        "activate": activation.activate,
    }[name]
