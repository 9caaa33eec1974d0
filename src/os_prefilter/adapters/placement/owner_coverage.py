"""Whether all compute nodes have the owner trait in Placement: a gate for the filter ``owner`` without a version."""

from typing import Any
from urllib.parse import urlencode

import os_traits

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.errors import UnknownTraits


class OwnerCoverage:
    """The fact ``owner_coverage``, for ``Pipeline.from_conf(conf, facts={"owner_coverage": OwnerCoverage(...)})``.

    Not covered: an old compute is left, there is no compute node at all, or Placement does not know the trait. The last
    two are no reason to enforce anything: the first compute node may be an old one.

    :param client: of a Placement with microversion 1.22
    :param owner_trait: the trait that the compute nodes must have
    """

    def __init__(self, client: PlacementClient, owner_trait: str = os_traits.OWNER_NOVA) -> None:
        self._client = client
        without = {"required": f"{os_traits.COMPUTE_NODE},!{owner_trait}"}
        self._without = f"/resource_providers?{urlencode(without)}"
        self._compute_nodes_exist = False

    def __call__(self, _context: Any = None) -> bool:
        """Return whether there are compute nodes, and each has the owner trait.

        One request; one more until compute nodes were seen once.

        :raises os_prefilter.errors.PlacementError: if Placement does not say.
        """
        try:
            if self._client.listed(self._without, "resource_providers"):
                self._compute_nodes_exist = True
                return False
        except UnknownTraits:
            return False
        if not self._compute_nodes_exist:
            # Who has the trait does not matter, only whether anybody does: the answer is as short for any fleet.
            in_use = f"/traits?associated=true&name=in:{os_traits.COMPUTE_NODE}"
            self._compute_nodes_exist = bool(self._client.listed(in_use, "traits"))
        return self._compute_nodes_exist
