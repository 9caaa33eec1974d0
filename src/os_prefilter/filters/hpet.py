# SPDX-License-Identifier: Apache-2.0

"""The High Precision Event Timer.

By the spec support-hpet-on-guest and the decision on traits as configuration.

A request names the property ``hw_time_hpet`` ("explicit config, implicit
trait") or the trait itself: in the image, in the flavor or in one of its
groups that describes the host. Guest settings switch the timer on for both;
Nova's own driver reads the property alone. In the group of a GPU, the trait
would be one of the GPU. Enabling this filter says that hosts report the
trait, and its qualified ones for guests of an emulated architecture, whatever
``reported_traits`` says.
"""

from dataclasses import replace
from functools import lru_cache

from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.requirements import Requirements
from os_prefilter.request.row_requirements import require_rows
from os_prefilter.request.values import rows_of
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import HPET, QUALIFIED
from os_prefilter.vocabulary.options import Options

_TRAITS = (
    HPET,
    *(
        qualified
        for (trait, _), qualified in QUALIFIED.items()
        if trait == HPET
    ),
)


# One pipeline has one.
@lru_cache(maxsize=16)
def _with_hpet(options: Options) -> Options:
    return replace(
        options, reported_traits=(*options.reported_traits, *_TRAITS)
    )


@Declaration(
    traits=lambda options: filter(_with_hpet(options).reports, _TRAITS)
)
def hpet(request: Request, *, options: Options) -> Requirements:
    """Require the trait of the timer on the host.

    :raises FlavorImageConflict: if it is both required and forbidden.
    """
    return require_rows(request, rows_of(request, "hpet"), _with_hpet(options))
