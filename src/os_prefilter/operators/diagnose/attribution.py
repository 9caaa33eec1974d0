"""Who asked for each condition of a query, and because of what."""

from collections.abc import Iterable
from typing import NamedTuple

from os_prefilter.common.quoting import escape_line
from os_prefilter.filters.nova_translation import BY_REQUEST
from os_prefilter.pipeline.decision import Decision
from os_prefilter.request.demand import AGGREGATE, POLICY, RESOURCE, TRAIT, Condition, condition_of
from os_prefilter.request.extra_specs import resource_key
from os_prefilter.request.requirements import ROOT, Requirement
from os_prefilter.request.view import Request

_FIELDS = {
    "VCPU": "flavor vcpus",
    "PCPU": "flavor vcpus, and CPUs of its own",
    "MEMORY_MB": "flavor ram",
    "DISK_GB": "flavor disk, ephemeral and swap",
    "MEM_ENCRYPTION_CONTEXT": "memory encryption",
}


class Attribution(NamedTuple):
    """Who asked for something, and because of what."""

    by: str
    """A request filter, or ``request`` for what the request states itself."""
    because: str


class Attributions:
    """Finds them for one request."""

    def __init__(self, request: Request, stated: Iterable[Requirement], decision: Decision) -> None:
        """Take a request as it was before the pipeline was applied to it, and what it stated then.

        :param stated: :func:`os_prefilter.filters.nova_translation.stated_requirements` of the request
        """
        self._request = request
        self._traits: dict[Condition, Attribution] = {}
        # What the request states comes first: it stays when the filter is switched off.
        for item in (*stated, *decision.requirements):
            self._traits.setdefault(condition_of(item), Attribution(item.filter, escape_line(item.source)))

    def of(self, condition: Condition) -> Attribution:
        """Return who asked for a condition; of groups that are alike, for the first."""
        first, *alike = condition.scope.split(",")
        found = self._of_one_group(condition._replace(scope=first))
        return found._replace(because=f"{found.because} and {len(alike)} alike") if alike else found

    def _of_one_group(self, condition: Condition) -> Attribution:
        if condition.kind == TRAIT:
            known = self._traits.get(condition)
            return known or Attribution(BY_REQUEST, f"the request group {escape_line(condition.scope)}")
        return Attribution(BY_REQUEST, escape_line(self._because(condition)))

    def _because(self, condition: Condition) -> str:
        if condition.kind == POLICY:
            return "flavor extra spec group_policy=isolate"
        if condition.scope in self._request.requested_groups:
            return f"request group {condition.scope}"
        if condition.kind == RESOURCE:
            return self._resource(condition.names[0], condition.suffix)
        if condition.kind == AGGREGATE:
            return "the availability zone, tenant or image that aggregates are for" if condition.wanted else "isolation"
        return "same_subtree of the request" if condition.scope == ROOT else "the host that the request names"

    def _resource(self, name: str, suffix: str) -> str:
        groups = self._request.flavor_groups
        for each in (suffix, ""):
            if each in groups and name in groups[each].resources:
                return f"flavor extra spec {resource_key(name, each)}"
        return _FIELDS.get(name, "flavor and image")
