# SPDX-License-Identifier: Apache-2.0

"""All that schedulers could want, and the markers of a host that has reported
it.
"""

from __future__ import annotations

from os_prefilter.hosts.marker_traits import REPORTED, names_with, trait_groups
from os_prefilter.vocabulary import opt_in_traits
from os_prefilter.vocabulary.config_templates import BUNDLED

EVERY_GROUP = trait_groups(BUNDLED)
EVERY_KEY = frozenset(key for group in EVERY_GROUP for key in group.keys)
ALL_REPORTED = frozenset(names_with(REPORTED, EVERY_KEY))
CUSTOM_TRAITS = frozenset(
    trait for trait in opt_in_traits() if trait.startswith("CUSTOM_")
)


def marker_of(*traits: str) -> str:
    """Return the report marker of a host that has reported the groups of these
    traits.
    """
    (name,) = names_with(
        REPORTED,
        {
            min(group.keys)
            for group in EVERY_GROUP
            if not group.traits.isdisjoint(traits)
        },
    )
    return name
