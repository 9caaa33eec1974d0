"""Which compute nodes have said whether they can, asked of Placement: what filters wait for."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

import os_traits

from os_prefilter.adapters.placement.client import PlacementClient, expected
from os_prefilter.pipeline.report_gates import GATES, Coverage, Silent
from os_prefilter.vocabulary import REPORTED
from os_prefilter.vocabulary.model import Trait

_ALL = frozenset(gate.answers for gate in GATES) | {frozenset((REPORTED,))}


class AnswerCoverage:
    """The fact ``answers``, for ``Pipeline.from_conf(conf, facts={"answers": AnswerCoverage(...)})``.

    Two requests once every compute node was reported; before that one more for each row of the vocabulary.

    :param client: of a Placement with microversion 1.22
    """

    def __init__(self, client: PlacementClient) -> None:
        self._client = client

    def __call__(self, _context: Any = None) -> Coverage:
        """Ask Placement.

        :raises os_prefilter.errors.PlacementError: if Placement does not say.
        """
        in_use = self._client.traits_in_use()
        # Each answer is REPORTED or something else beside it, so that nobody is silent where all have REPORTED.
        unreported = self._silent((REPORTED,), in_use)
        asked = {frozenset((REPORTED,)) & in_use: unreported}
        silent = {}
        for answers in _ALL:
            # A trait that nobody has need not be excluded, and Placement refuses one that it does not know.
            wanted = answers & in_use
            if unreported.number and wanted not in asked:
                asked[wanted] = self._silent(wanted, in_use)
            silent[answers] = asked[wanted] if unreported.number else unreported
        return Coverage(silent, os_traits.COMPUTE_NODE in in_use, in_use)

    def _silent(self, answers: Iterable[Trait], in_use: frozenset[str]) -> Silent:
        """Ask for the compute nodes that have none of ``answers``."""
        without = sorted(f"!{trait}" for trait in answers if trait in in_use)
        query = urlencode({"required": ",".join((os_traits.COMPUTE_NODE, *without))})
        found = self._client.listed(f"/resource_providers?{query}", "resource_providers")
        with expected("GET /resource_providers"):
            return Silent.of(str(each["name"]) for each in found)
