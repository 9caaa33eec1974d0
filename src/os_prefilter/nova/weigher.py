# SPDX-License-Identifier: Apache-2.0

"""Weigher for ``[filter_scheduler] weight_classes``: preferred traits."""

from typing import Any

import nova.conf
from nova.scheduler import utils, weights

from os_prefilter.nova.scheduling import PREFERRED_SHARES
from os_prefilter.service.conf import GROUP, register_opts


class PreferredTraits(weights.BaseHostWeigher):  # type: ignore[misc]
    """Weigher: hosts with the traits that a request prefers weigh more.

    The weight is the share of the preferred traits that the host has, from 0.0
    to 1.0. It is 0.0 for all hosts where the request prefers none, where it is
    not known which hosts have them, and where :func:`activate` was not called.
    """

    # The weight is normalized already: that all hosts lack one of two traits
    # does not make the other count twice.
    minval, maxval = 0.0, 1.0

    def __init__(self) -> None:
        register_opts(nova.conf.CONF)

    def weight_multiplier(self, host_state: Any) -> float:
        """Return the option, or what metadata of the host's aggregates has.

        The key is the option's name; the lowest of several values counts.
        """
        name = "preferred_weight_multiplier"
        return float(
            utils.get_weight_multiplier(
                host_state, name, nova.conf.CONF[GROUP][name]
            )
        )

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        shares = PREFERRED_SHARES.get(weight_properties, {})
        return shares.get(obj.uuid, 0.0)
