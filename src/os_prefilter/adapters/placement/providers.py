"""Resource providers of Placement: their trees, traits and resource classes, in plain values."""

from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import quote as quote_url
from uuid import UUID

from os_prefilter.adapters.placement.client import PlacementClient, expected
from os_prefilter.common.quoting import quote
from os_prefilter.errors import GenerationConflict, PlacementRefused, UnknownProvider
from os_prefilter.vocabulary.model import is_trait_name


class ResourceProvider(NamedTuple):
    """A resource provider as a listing shows it; each write of its traits or inventories raises its generation."""

    uuid: str
    name: str
    generation: int
    parent: str = ""
    """The UUID of its parent; empty for the root of a tree."""


class ResourceProviders:
    """Questions about resource providers, and the one write: one request each, no retries, no state.

    Each method raises :class:`os_prefilter.errors.PlacementUnavailable` and
    :class:`os_prefilter.errors.PlacementRefused` as :meth:`PlacementClient.request` does.
    """

    def __init__(self, client: PlacementClient) -> None:
        self._client = client

    def named(self, name: str) -> ResourceProvider:
        """Return the resource provider of a name.

        :raises UnknownProvider: there is none
        """
        for provider in self._providers(f"name={quote_url(name, safe='')}"):
            if provider.name == name:
                return provider
        raise UnknownProvider(name)

    def all(self) -> tuple[ResourceProvider, ...]:
        """Return all resource providers, in any order."""
        return self._providers()

    def tree(self, uuid: str) -> tuple[ResourceProvider, ...]:
        """Return all resource providers of the tree that one belongs to, in any order; none if there is no such one."""
        return self._providers(f"in_tree={uuid}")

    def traits(self, uuid: str) -> tuple[int, frozenset[str]]:
        """Return the generation and the traits of a resource provider.

        :raises UnknownProvider: there is none of that UUID
        """
        answer = self._of_provider("GET", uuid, "traits")
        with expected("GET /resource_providers/.../traits"):
            return _generation(answer), _traits(answer["traits"])

    def set_traits(self, uuid: str, generation: int, traits: Iterable[str]) -> int:
        """Replace all traits of a resource provider at once; return its new generation.

        :param generation: of the read that ``traits`` come from
        :raises GenerationConflict: the provider has another generation by now; nothing was written
        :raises UnknownProvider: there is none of that UUID
        :raises UnknownTraits: some of the traits do not exist; nothing was written
        """
        body = {"resource_provider_generation": generation, "traits": sorted(traits)}
        answer = self._of_provider("PUT", uuid, "traits", body)
        with expected("PUT /resource_providers/.../traits"):
            return _generation(answer)

    def resource_classes(self, uuid: str) -> frozenset[str]:
        """Return the resource classes that a resource provider has an inventory of.

        :raises UnknownProvider: there is none of that UUID
        """
        answer = self._of_provider("GET", uuid, "inventories")
        with expected("GET /resource_providers/.../inventories"):
            return frozenset(answer["inventories"].keys())

    def _providers(self, query: str = "") -> tuple[ResourceProvider, ...]:
        rows = self._client.listed(f"/resource_providers?{query}".rstrip("?"), "resource_providers")
        with expected("GET /resource_providers"):
            return tuple(map(_provider, rows))

    def _of_provider(self, method: str, uuid: str, part: str, body: object = None) -> Any:
        try:
            return self._client.request(method, f"/resource_providers/{uuid}/{part}", body)
        except PlacementRefused as error:
            if error.status == 404:  # noqa: PLR2004
                raise UnknownProvider(uuid) from error
            if error.status == 409:  # noqa: PLR2004
                raise GenerationConflict(uuid) from error
            raise


def _provider(row: Any) -> ResourceProvider:
    parent = row["parent_provider_uuid"]
    # UUIDs become part of a URL.
    return ResourceProvider(
        str(UUID(row["uuid"])), str(row["name"]), _integer(row["generation"]), str(UUID(parent)) if parent else ""
    )


def _generation(answer: Any) -> int:
    return _integer(answer["resource_provider_generation"])


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{quote(value)} is not a generation")
    return value


def _traits(names: Any) -> frozenset[str]:
    """Read a list of traits strictly: what is not read here is gone after the next write."""
    if not isinstance(names, list) or not all(map(is_trait_name, names)):
        raise TypeError(f"{quote(names)} is not a list of traits")
    return frozenset(names)
