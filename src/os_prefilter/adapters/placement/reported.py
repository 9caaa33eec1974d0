"""What the hosts of a live cloud report, as far as a pipeline must know it."""

from functools import cached_property

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.owner_coverage import OwnerCoverage
from os_prefilter.adapters.placement.report_coverage import AnswerCoverage
from os_prefilter.pipeline.report_gates import Coverage


class LiveReported:
    """The same questions as to a :class:`os_prefilter.fleet.model.Fleet`, in two or three requests.

    :param client: of a Placement with microversion 1.22

    Each question raises :class:`os_prefilter.errors.PlacementError` if Placement does not answer.
    """

    def __init__(self, client: PlacementClient) -> None:
        self._client = client

    @cached_property
    def traits(self) -> frozenset[str]:
        """Each trait that any provider has."""
        return self._client.traits_in_use()

    def every_compute_has(self, trait: str) -> bool:
        """Whether every compute node has ``trait``, and there is one."""
        return OwnerCoverage(self._client, trait)()

    def coverage(self) -> Coverage:
        """Return which compute nodes have said whether they can; it takes more requests while some have not."""
        return AnswerCoverage(self._client)()
