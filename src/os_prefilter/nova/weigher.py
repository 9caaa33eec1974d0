# SPDX-License-Identifier: Apache-2.0

"""Weigher for ``[filter_scheduler] weight_classes``: preferred traits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import nova.conf
from nova.scheduler import utils, weights

from os_prefilter.nova.scheduling import CPU_FITS, PREFERRED_SHARES
from os_prefilter.service.conf import GROUP, register_opts


class PreferredTraits(weights.BaseHostWeigher):  # type: ignore[misc]
    """Weigher: hosts with the traits that a request prefers weigh more.

    The weight is the share of the preferred traits that the host has, from 0.0
    to 1.0. It is 0.0 for all hosts where the request prefers none, where it is
    not known which hosts have them, and where :func:`activate` was not called.

    At a live migration, hosts with the CPU traits of the server's present host
    weigh more, by an option of its own, and half as much if they have more.
    """

    # The weight is normalized already: that all hosts lack one of two traits
    # does not make the other count twice.
    minval, maxval = 0.0, 1.0

    def __init__(self) -> None:
        register_opts(nova.conf.CONF)

    def weigh_objects(
        self, weighed_obj_list: Iterable[Any], weight_properties: Any
    ) -> list[float]:
        """Return the weights, multiplied already: two options multiply them.

        Nova's own method cuts them at ``maxval``.
        """
        return [
            self._weigh_object(each.obj, weight_properties)
            for each in weighed_obj_list
        ]

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        options = nova.conf.CONF[GROUP]
        name = "preferred_weight_multiplier"
        # Metadata of the host's aggregates overrides the option.
        multiplier = utils.get_weight_multiplier(obj, name, options[name])
        shares = PREFERRED_SHARES.get(weight_properties, {})
        weight = float(multiplier) * shares.get(obj.uuid, 0.0)
        fits = CPU_FITS.get(weight_properties, {})
        cpu_multiplier = float(options.live_migration_cpu_weight_multiplier)
        return weight + cpu_multiplier * fits.get(obj.uuid, 0.0)
