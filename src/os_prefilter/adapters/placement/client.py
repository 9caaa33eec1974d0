# SPDX-License-Identifier: Apache-2.0

"""Client of the Placement API: plain values, one request a method, no retries.

Only names of providers are cached.

It works over any ``keystoneauth1.adapter.Adapter``: of a live cloud, or of
:mod:`os_prefilter_tools.adapters.embedded`. Source of what is sent and
expected: the Placement API reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote as quote_url
from uuid import UUID

from keystoneauth1 import exceptions
from keystoneauth1.adapter import Adapter

from os_prefilter.adapters.login import advice_on
from os_prefilter.common import errors
from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.placement_values import HOST_CLASSES
from os_prefilter.common.quoting import escape_line, quote
from os_prefilter.common.trait_names import CUSTOM_PREFIX, is_trait_name
from os_prefilter.hosts.marker_traits import WANTED, keys_in

# The first that has "in:" in the traits that allocation candidates require.
MICROVERSION = "1.39"
TIMEOUT = 60.0

# Names that are read one by one: the list of 50,000 providers is 39 MB.
_FEW = 5

_SHARING = "MISC_SHARES_VIA_AGGREGATE"
# The beginning of an object with one list, perhaps an empty one; and what is
# between two items, or after the last one.
_LIST = re.compile(r'\s*\{\s*"(\w+)"\s*:\s*\[\s*\]?')
_NEXT = re.compile(r"\s*(?:,\s*|\])")
_NO_SUCH_TRAIT = re.compile(r"No such trait(?:\(s\))?:? ([A-Z0-9_, ]+)")
_BAD_REQUEST, _NOT_FOUND, _CONFLICT = 400, 404, 409


AllocationRequest = Mapping[str, Any]
"""A possible allocation for a request, as Placement has it.

With a consumer, it is the body of a claim.
"""


@dataclass(frozen=True, slots=True)
class AllocationCandidates:
    """Allocation candidates of one query as Placement has them, by UUID."""

    allocation_requests: tuple[AllocationRequest, ...]
    provider_summaries: Mapping[str, Any]
    """UUID of a provider -> its resources, traits, parent and root."""
    by_host: Mapping[str, tuple[AllocationRequest, ...]]
    """UUID of the root provider of a host -> its allocation requests.

    In Nova it is that of the compute node.
    """


@dataclass(frozen=True, slots=True)
class Candidates:
    """The allocation candidates of one query, with the names of providers.

    ``hosts`` are the names of root providers, sorted; a provider that only
    shares its resources with others is no host. ``providers`` has, for each
    host, the sorted names of all providers that some candidate takes resources
    from. ``count`` is the number of allocation requests, the combinations that
    Placement found.
    """

    hosts: tuple[str, ...]
    providers: Mapping[str, tuple[str, ...]]
    count: int


class ResourceProvider(NamedTuple):
    """A resource provider in a listing.

    Each write of its traits or inventories raises its generation.
    """

    uuid: str
    name: str
    generation: int
    parent: str = ""
    """UUID of its parent; empty for the root of a tree."""


class PlacementClient:
    """Requests of this library to Placement.

    Each method raises
    :class:`~os_prefilter.common.errors.PlacementUnavailable` where Placement
    does not respond, or not as Placement does,
    :class:`~os_prefilter.common.errors.PlacementRefused` where it refuses a
    request, and :class:`~os_prefilter.common.errors.UnknownTraits` where the
    request names traits that it does not have.

    :param adapter: knows the endpoint and how to authenticate
    :param microversion: sent with each request
    :param timeout: seconds to wait for the connection, and for each part of
        the response
    """

    def __init__(
        self,
        adapter: Adapter,
        *,
        microversion: str = MICROVERSION,
        timeout: float = TIMEOUT,
    ) -> None:
        self._adapter = adapter
        self._microversion = microversion
        self._timeout = timeout
        self._names: dict[str, str] = {}

    def allocation_candidates(self, query: str) -> Candidates:
        """Return the names of the hosts that can serve a request.

        :param query: the urlencoded query string, without the question mark
        """
        found = self.candidates(query)
        used: dict[str, set[str]] = {}
        for root, requests in found.by_host.items():
            used[root] = set().union(
                *(each["allocations"] for each in requests)
            )
        names = self.names_of(set(used).union(*used.values()))
        by_name = {}
        for root, providers in used.items():
            by_name[names[root]] = tuple(sorted(names[rp] for rp in providers))
        return Candidates(
            tuple(sorted(by_name)),
            dict(sorted(by_name.items())),
            len(found.allocation_requests),
        )

    def candidates(self, query: str) -> AllocationCandidates:
        """Return the allocation candidates of a query, without names.

        It takes one request to Placement.

        :param query: the urlencoded query string, without the question mark
        """
        document = self.request("GET", f"/allocation_candidates?{query}")
        with check_response("GET /allocation_candidates"):
            found = tuple(document["allocation_requests"])
            summaries = document["provider_summaries"]
            return AllocationCandidates(
                found, summaries, _by_host(found, summaries)
            )

    def claim(
        self,
        consumer: str,
        candidate: AllocationRequest,
        *,
        project_id: str,
        user_id: str,
    ) -> bool:
        """Claim a candidate for a consumer that has no allocation yet.

        :return: whether its resources were still free

        :param consumer: the UUID of the server
        """
        body = {**candidate, "project_id": project_id, "user_id": user_id}
        # As of a consumer that does not exist, and of an instance, as Nova's.
        body |= {"consumer_generation": None, "consumer_type": "INSTANCE"}
        try:
            self.request(
                "PUT", f"/allocations/{quote_url(consumer, safe='')}", body
            )
        except errors.PlacementRefused as error:
            # No other candidate helps a server that has resources already.
            if (
                error.status == _CONFLICT
                and "consumer generation conflict" not in error.detail
            ):
                return False
            raise
        return True

    def names_of(self, uuids: Iterable[str]) -> Mapping[str, str]:
        """Return UUID -> name of providers; the UUID for one that is gone.

        A few names that are not known yet take a request each, more take one
        request for the whole fleet.
        """
        uuids = set(uuids)
        missing = sorted(uuids - self._names.keys())
        queries = (
            [f"?uuid={each}" for each in missing]
            if len(missing) <= _FEW
            else [""]
        )
        for query in queries:
            rows = self.get_list(
                f"/resource_providers{query}", "resource_providers"
            )
            found = {each["uuid"]: each["name"] for each in rows}
            # The list of the whole fleet replaces what is cached.
            self._names = {**self._names, **found} if query else found
        return {rp: self._names.get(rp, rp) for rp in uuids}

    def get_list(self, url: str, name: str) -> list[Any]:
        """Return a list in the response to a GET.

        :param name: ``traits`` or ``resource_providers``
        """
        document = self.request("GET", url)
        with check_response(f"GET {url.partition('?')[0]}"):
            return _list_in(document, name)

    def newest_microversion(self) -> str:
        """Return the newest microversion of Placement, such as ``1.39``."""
        # An older Placement refuses any request with the client's own.
        document = PlacementClient(
            self._adapter, microversion="1.0", timeout=self._timeout
        ).request("GET", "/")
        with check_response("GET /"):
            version, *_ = document["versions"]
            _, minor = str(version["max_version"]).split(".")
            return f"1.{int(minor)}"

    def traits(self) -> frozenset[str]:
        """Return each trait that this Placement has, standard or custom."""
        return frozenset(self.get_list("/traits", "traits"))

    def traits_in_use(self) -> frozenset[str]:
        """Return each trait that any resource provider has."""
        return frozenset(self.get_list("/traits?associated=true", "traits"))

    def wanted(self) -> frozenset[str]:
        """Return the keys of the traits that schedulers want.

        See :mod:`os_prefilter.hosts.marker_traits`.
        """
        return keys_in(
            WANTED,
            self.get_list(f"/traits?name=startswith:{WANTED}", "traits"),
        )

    def custom_traits(self) -> frozenset[str]:
        """Return each ``CUSTOM_`` trait that this Placement has."""
        return frozenset(
            self.get_list(f"/traits?name=startswith:{CUSTOM_PREFIX}", "traits")
        )

    def ensure_traits(self, names: Iterable[str]) -> tuple[str, ...]:
        """Create the ``CUSTOM_`` traits that Placement does not have yet.

        Nothing is created when a standard trait is missing.

        :return: the traits that were created, sorted
        :raises UnknownTraits: a standard trait is missing; only a newer
            os-traits in Placement brings it
        """
        names = frozenset(names)
        missing = sorted(names - self.traits()) if names else []
        if standard := [
            name for name in missing if not name.startswith(CUSTOM_PREFIX)
        ]:
            raise errors.UnknownTraits(standard)
        for name in missing:
            self.create_trait(name)
        return tuple(missing)

    def create_trait(self, name: str) -> None:
        """Create a ``CUSTOM_`` trait; one that exists already stays."""
        self.request("PUT", f"/traits/{name}")

    def delete_trait(self, name: str) -> None:
        """Delete a ``CUSTOM_`` trait, unless a provider has it."""
        try:
            self.request("DELETE", f"/traits/{name}")
        except errors.PlacementRefused as error:
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise

    def providers(self, query: str = "") -> tuple[ResourceProvider, ...]:
        """Return the resource providers of a query, in any order.

        Without a query, these are all.
        """
        return tuple(self.each_provider(query))

    def each_provider(self, query: str = "") -> Iterator[ResourceProvider]:
        """Yield the resource providers of a query, one after the other.

        The response may have 40 MB.
        """
        response = self._response(
            "GET", f"/resource_providers?{query}".rstrip("?")
        )
        with check_response("GET /resource_providers"):
            for row in _rows(response.content, "resource_providers"):
                if not _is_provider(row):
                    raise TypeError("it is no list of providers")
                parent = row["parent_provider_uuid"]
                # UUIDs become part of a URL.
                uuid = str(UUID(row["uuid"]))
                above = str(UUID(parent)) if parent else ""
                yield ResourceProvider(
                    uuid, row["name"], _generation(row["generation"]), above
                )

    def provider_named(self, name: str) -> ResourceProvider:
        """Return the resource provider with a name.

        :raises UnknownProvider: there is none
        """
        for provider in self.providers(f"name={quote_url(name, safe='')}"):
            if provider.name == name:
                return provider
        raise errors.UnknownProvider(name)

    def provider_traits(self, uuid: str) -> tuple[int, frozenset[str]]:
        """Return the generation and the traits of a resource provider.

        :raises UnknownProvider: there is none with this UUID
        """
        document = self._request_provider("GET", uuid, "traits")
        with check_response("GET /resource_providers/.../traits"):
            generation = _generation(document["resource_provider_generation"])
            return generation, frozenset(_list_in(document, "traits"))

    def set_provider_traits(
        self, uuid: str, generation: int, traits: Iterable[str]
    ) -> int:
        """Replace all traits of a provider; return its new generation.

        :param generation: of the read that ``traits`` come from
        :raises GenerationConflict: the provider has another generation by now;
            nothing was written
        :raises UnknownProvider: there is none with this UUID
        :raises UnknownTraits: some of the traits do not exist; nothing was
            written
        """
        body = {
            "resource_provider_generation": generation,
            "traits": sorted(traits),
        }
        document = self._request_provider("PUT", uuid, "traits", body)
        with check_response("PUT /resource_providers/.../traits"):
            return _generation(document["resource_provider_generation"])

    def provider_resource_classes(self, uuid: str) -> frozenset[str]:
        """Return the resource classes in the inventories of a provider.

        :raises UnknownProvider: there is none with this UUID
        """
        document = self._request_provider("GET", uuid, "inventories")
        with check_response("GET /resource_providers/.../inventories"):
            return frozenset(document["inventories"].keys())

    def request(self, method: str, url: str, body: object = None) -> Any:
        """Send one request; return the JSON object of the response, if any.

        :raises UnknownTraits: status 400, and the response names traits that
            do not exist
        :raises PlacementRefused: any other status from 300 to 499
        :raises PlacementUnavailable: no response in time, status 500 and
            above, or one that is no JSON object
        """
        response = self._response(method, url, body)
        if not response.content:
            return None
        try:
            document = response.json()
        except (ValueError, RecursionError):
            document = response.text
        if not isinstance(document, dict):
            problem = (
                f"the response is not a JSON object but {quote(document)}"
            )
            raise errors.PlacementUnavailable(
                f"{method} {url.partition('?')[0]}", problem
            )
        return document

    def _response(self, method: str, url: str, body: object = None) -> Any:
        what = f"{method} {url.partition('?')[0]}"
        try:
            response = self._adapter.request(
                url,
                method,
                headers={"Accept": "application/json"},
                microversion=self._microversion,
                microversion_service_type="placement",
                raise_exc=False,
                timeout=self._timeout,
                json=body,
            )
        except (exceptions.ClientException, OSError, ValueError) as error:
            # OSError: the file of the certificate authority cannot be read,
            # for one; ValueError: no URL.
            reason = escape_line(" ".join(str(error).split()).rstrip("."))
            raise errors.PlacementUnavailable(
                what, reason or type(error).__name__
            ) from error
        status = response.status_code
        if status >= 300:  # noqa: PLR2004
            detail = _detail(response)
            if status >= 500:  # noqa: PLR2004
                raise errors.PlacementUnavailable(
                    what, f"status {status}, {quote(detail)}"
                )
            if status == _BAD_REQUEST and (
                match := _NO_SUCH_TRAIT.search(detail)
            ):
                raise errors.UnknownTraits(re.findall(r"\w+", match[1]))
            roles = (
                "Use a user with a role that Placement's policy allows this:"
                " by default admin or service."
            )
            raise errors.PlacementRefused(
                what, status, detail, advice_on(status, roles)
            )
        return response

    def _request_provider(
        self, method: str, uuid: str, part: str, body: object = None
    ) -> Any:
        try:
            return self.request(
                method, f"/resource_providers/{uuid}/{part}", body
            )
        except errors.PlacementRefused as error:
            if error.status == _NOT_FOUND:
                raise errors.UnknownProvider(uuid) from error
            if error.status == _CONFLICT:
                raise errors.GenerationConflict(uuid) from error
            raise


@contextmanager
def check_response(what: str) -> Iterator[None]:
    """Treat an error in reading a response as an unavailable Placement.

    A member that is missing or has another type is not a response of
    Placement.
    """
    try:
        yield
    except (
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
        RecursionError,
    ) as error:
        found = escape_line(f"{type(error).__name__} {str(error)[:200]}")
        raise errors.PlacementUnavailable(
            what, f"the response is not that of a Placement ({found})"
        ) from error


def _by_host(
    found: Iterable[AllocationRequest], summaries: Mapping[str, Any]
) -> dict[str, tuple[AllocationRequest, ...]]:
    """Return the allocation requests by root provider of the host.

    Where one takes resources from several trees, a provider that only shares
    its resources is not the host.
    """
    computing = {
        each["root_provider_uuid"]
        for each in summaries.values()
        if "COMPUTE_NODE" in each["traits"]
        or not set(HOST_CLASSES).isdisjoint(each["resources"])
    }
    by_root: dict[str, list[AllocationRequest]] = {}
    for each in found:
        roots = {
            summaries[rp]["root_provider_uuid"]
            for rp in frozenset(each["allocations"])
        }
        if len(roots) > 1:
            roots = {
                root
                for root in roots
                if root in computing
                or _SHARING not in summaries[root]["traits"]
            }
        for root in sorted(roots):
            by_root.setdefault(root, []).append(each)
    return {root: tuple(some) for root, some in by_root.items()}


def _detail(response: Any) -> str:
    """Return the reason in an error response, on one line.

    It is the details of its JSON errors, or the start of its text.
    """
    try:
        text = "; ".join(
            str(error["detail"]) for error in response.json()["errors"]
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        text = response.text
    text = "".join(c if c.isprintable() else " " for c in text[:10_000])
    return " ".join(text.split()) or "no explanation"


def _list_in(document: Mapping[str, Any], name: str) -> list[Any]:
    """Return a list of traits or of providers, after a strict check.

    A trait that is not read is gone after the next write.
    """
    found: list[Any] = document[name]
    is_one = is_trait_name if name == "traits" else _is_provider
    if not isinstance(found, list) or not all(map(is_one, found)):
        raise TypeError(f"{name} is not a list of {name}")
    return found


def _rows(content: bytes, name: str) -> Iterator[Any]:
    """Yield the items of the only list in a JSON object.

    All at once would take five times the memory.
    """
    text, parse = content.decode(), json.JSONDecoder().raw_decode
    begin = _LIST.match(text)
    if not begin or begin[1] != name:
        raise ValueError(f"it does not begin with a list of {name}")
    end = begin.end()
    while text[end - 1] != "]":
        row, end = parse(text, end)
        yield row
        separator = _NEXT.match(text, end)
        if not separator:
            raise ValueError(f"a row of {name} is not followed by another one")
        end = separator.end()
    if text[end:].strip() != "}":
        raise ValueError(f"the list of {name} is not all of it")


def _is_provider(row: object) -> bool:
    return isinstance(row, dict) and all(
        isinstance(row.get(name), str) for name in ("uuid", "name")
    )


def _generation(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{quote(value)} is not a generation")
    return value
