"""A thin client of the Placement API: one method a question, no retries, no state but a cache of provider names.

It works over any ``keystoneauth1.adapter.Adapter``: of a live cloud, or of :mod:`os_prefilter.adapters.embedded`.
Source of what is sent and expected: the Placement API reference.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from keystoneauth1 import exceptions
from keystoneauth1.adapter import Adapter

from os_prefilter.common.quoting import escape_line, quote
from os_prefilter.errors import PlacementRefused, PlacementUnavailable, UnknownTraits
from os_prefilter.vocabulary.model import is_trait_name
from os_prefilter.vocabulary.resource_classes import HOST_CLASSES

# The first that has "in:" in the traits that allocation candidates require.
MICROVERSION = "1.39"
TIMEOUT = 60.0
# uWSGI refuses requests above 4,096 bytes; the endpoint's own path and the headers need room too.
MAX_QUERY = 2_500

_SHARING = "MISC_SHARES_VIA_AGGREGATE"
_NO_SUCH_TRAIT = re.compile(r"No such trait(?:\(s\))?:? ([A-Z0-9_, ]+)")


@dataclass(frozen=True, slots=True)
class Candidates:
    """What Placement answered to one query.

    ``hosts`` are the names of root providers, sorted; a provider that only shares its resources with others is no host.
    ``providers`` has, for each host, the sorted names of all providers that some candidate takes resources from.
    ``count`` is the number of allocation requests, the combinations that Placement found.
    """

    hosts: tuple[str, ...]
    providers: Mapping[str, tuple[str, ...]]
    count: int


class PlacementClient:
    """Questions and answers in plain values; each failure is a :class:`os_prefilter.errors.PlacementError`.

    :param adapter: knows the endpoint and how to authenticate
    :param microversion: sent with each request
    :param timeout: seconds to wait for the connection, and for each part of the answer
    """

    def __init__(self, adapter: Adapter, *, microversion: str = MICROVERSION, timeout: float = TIMEOUT) -> None:
        self._adapter = adapter
        self._microversion = microversion
        self._timeout = timeout
        self._names: dict[str, str] = {}

    def allocation_candidates(self, query: str) -> Candidates:
        """Ask which hosts could serve a request.

        :param query: the urlencoded query string, without the question mark
        :raises UnknownTraits: the query names traits that this Placement does not have
        :raises PlacementRefused: the query is malformed
        :raises PlacementUnavailable: no answer, or not the answer of a Placement
        """
        what = "GET /allocation_candidates"
        answer = self.request("GET", f"/allocation_candidates?{query}")
        with expected(what):
            used = [frozenset(request["allocations"]) for request in answer["allocation_requests"]]
            by_root = _by_host(used, answer["provider_summaries"])
        names = self._provider_names({*by_root, *(rp for used_by in by_root.values() for rp in used_by)})
        found = {names[root]: tuple(sorted(names[rp] for rp in used_by)) for root, used_by in by_root.items()}
        hosts = tuple(sorted(found))
        return Candidates(hosts, {host: found[host] for host in hosts}, len(used))

    def has_provider(self, query: str) -> bool:
        """Ask whether any resource provider is as a query says.

        :param query: the urlencoded query string of ``GET /resource_providers``, without the question mark
        :raises UnknownTraits: the query names traits that this Placement does not have
        :raises PlacementRefused: the query is malformed
        :raises PlacementUnavailable: no answer, or not the answer of a Placement
        """
        return bool(self.listed(f"/resource_providers?{query}", "resource_providers"))

    def listed(self, url: str, name: str) -> list[Any]:
        """Return the list that the answer to a GET has under a name: traits, or resource_providers.

        :raises UnknownTraits: the query names traits that this Placement does not have
        :raises PlacementRefused: the query is malformed
        :raises PlacementUnavailable: no answer, or not the answer of a Placement
        """
        answer = self.request("GET", url)
        with expected(f"GET {url.partition('?')[0]}"):
            found: list[Any] = answer[name]
            is_one = is_trait_name if name == "traits" else _is_provider
            if not isinstance(found, list) or not all(map(is_one, found)):
                raise TypeError(f"{name} is no list of what it should be")
            return found

    def traits(self) -> frozenset[str]:
        """Return each trait that this Placement has, standard or custom."""
        return frozenset(self.listed("/traits", "traits"))

    def traits_in_use(self) -> frozenset[str]:
        """Return each trait that any resource provider has."""
        return frozenset(self.listed("/traits?associated=true", "traits"))

    def ensure_traits(self, names: Iterable[str]) -> tuple[str, ...]:
        """Create those of the ``CUSTOM_`` traits that Placement does not have yet.

        Nothing is created when a standard trait is missing.

        :return: the traits that were created, sorted
        :raises UnknownTraits: a standard trait is missing; only a newer os-traits beside Placement brings it
        """
        missing = set(names)
        for chunk in _chunks(sorted(missing)):
            missing.difference_update(self.listed(f"/traits?name=in:{chunk}", "traits"))
        standard = {name for name in missing if not name.startswith("CUSTOM_")}
        if standard:
            raise UnknownTraits(standard)
        for name in sorted(missing):
            self.create_trait(name)
        return tuple(sorted(missing))

    def custom_traits(self) -> frozenset[str]:
        """Return each ``CUSTOM_`` trait that this Placement has."""
        return frozenset(self.listed("/traits?name=startswith:CUSTOM_", "traits"))

    def create_trait(self, name: str) -> None:
        """Create a ``CUSTOM_`` trait; one that exists already stays."""
        self.request("PUT", f"/traits/{name}")

    def request(self, method: str, url: str, body: object = None) -> Any:
        """Send one request; return the JSON object that came back, or None if nothing did.

        :raises UnknownTraits: status 400, and the answer names traits that do not exist
        :raises PlacementRefused: any other status from 300 to 499
        :raises PlacementUnavailable: no answer in time, status 500 and above, or an answer that is no JSON object
        """
        what = f"{method} {url.partition('?')[0]}"
        extra = {} if body is None else {"json": body}
        try:
            response = self._adapter.request(
                url,
                method,
                headers={"Accept": "application/json"},
                microversion=self._microversion,
                microversion_service_type="placement",
                raise_exc=False,
                timeout=self._timeout,
                **extra,
            )
        except (exceptions.ClientException, OSError) as error:
            # OSError: the file of the certificate authority cannot be read, for one.
            reason = escape_line(" ".join(str(error).split()).rstrip("."))
            raise PlacementUnavailable(what, reason or type(error).__name__) from error
        status = response.status_code
        if status >= 500:  # noqa: PLR2004
            raise PlacementUnavailable(what, f"status {status}, {quote(_detail(response))}")
        if status >= 300:  # noqa: PLR2004
            raise _refusal(what, status, _detail(response))
        return _object(what, response) if response.content else None

    def _provider_names(self, uuids: set[str]) -> Mapping[str, str]:
        """Return uuid -> name. One request for the whole fleet, and again only when a provider is new.

        The alternatives cost one request a host.
        """
        if not uuids <= self._names.keys():
            providers = self.listed("/resource_providers", "resource_providers")
            with expected("GET /resource_providers"):
                self._names = {rp["uuid"]: rp["name"] for rp in providers}
        # A provider deleted between the two requests has no name any more.
        return {rp: self._names.get(rp, rp) for rp in uuids}


def _by_host(used: list[frozenset[str]], summaries: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the providers that candidates take resources from, by the root provider of the host.

    Where a candidate takes something from several trees, those that only share their resources are not the host.
    """
    computing = {
        each["root_provider_uuid"]
        for each in summaries.values()
        if "COMPUTE_NODE" in each["traits"] or not set(HOST_CLASSES).isdisjoint(each["resources"])
    }
    by_root: dict[str, set[str]] = {}
    for providers in used:
        roots = {summaries[rp]["root_provider_uuid"] for rp in providers}
        if len(roots) > 1:
            roots = {root for root in roots if root in computing or _SHARING not in summaries[root]["traits"]}
        for root in roots:
            by_root.setdefault(root, set()).update(providers)
    return by_root


def _refusal(what: str, status: int, detail: str) -> UnknownTraits | PlacementRefused:
    match = _NO_SUCH_TRAIT.search(detail) if status == 400 else None  # noqa: PLR2004
    if match:
        return UnknownTraits(name.strip() for name in match[1].split(",") if name.strip())
    return PlacementRefused(what, status, detail)


def _detail(response: Any) -> str:
    """Return what an error answer says: its JSON errors' details, or the start of its text, on one line."""
    try:
        text = "; ".join(str(error["detail"]) for error in response.json()["errors"])
    except (ValueError, KeyError, TypeError, RecursionError):
        text = response.text
    text = "".join(c if c.isprintable() else " " for c in text[:10_000])
    return " ".join(text.split()) or "no explanation"


def _is_provider(row: object) -> bool:
    return isinstance(row, dict) and all(isinstance(row.get(name), str) for name in ("uuid", "name"))


def _object(what: str, response: Any) -> Any:
    try:
        answer = response.json()
    except (ValueError, RecursionError) as error:
        raise PlacementUnavailable(what, f"the answer is not JSON but {quote(response.text)}") from error
    if not isinstance(answer, dict):
        raise PlacementUnavailable(what, f"the answer is not a JSON object but {quote(answer)}")
    return answer


@contextmanager
def expected(what: str) -> Iterator[None]:
    """Read an answer; what is not there, or of another type, says that this is not the answer of a Placement."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        found = escape_line(f"{type(error).__name__} {str(error)[:200]}")
        raise PlacementUnavailable(what, f"the answer is not that of a Placement ({found})") from error


def _chunks(names: Iterable[str]) -> Iterator[str]:
    """Join names with commas into pieces that fit into a URL."""
    piece = ""
    for name in names:
        if piece and len(piece) + len(name) >= MAX_QUERY:
            yield piece
            piece = ""
        piece += f",{name}" if piece else name
    if piece:
        yield piece
