# SPDX-License-Identifier: Apache-2.0

"""Requests to the services of a cloud, with one error for failures.

The services' own JSON is read, not openstacksdk's objects: those rename some
image properties and convert the values of others, and the tenant's spelling
decides where a server may go. The SDK finds endpoints and tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from keystoneauth1.exceptions import ClientException
from openstack.exceptions import SDKException

from os_prefilter.adapters.cloud_service import SERVICES, CloudError, proxy_of
from os_prefilter.adapters.login import advice_on
from os_prefilter.common.quoting import describe_error, quote

_TEXT_LENGTH = 300
_OK, _NOT_FOUND = 200, 404
_WRITTEN = frozenset((200, 201, 204))
_ADVICE = {
    404: "Check that it exists in this cloud, and that the user may see it.",
    406: "This needs a newer version of the service.",
}


class CloudService:
    """One service of a cloud.

    :param connection: an ``openstack.connection.Connection``
    :param kind: a key of ``SERVICES``
    """

    def __init__(self, connection: Any, kind: str) -> None:
        self._connection = connection
        self._kind = kind
        self._name = SERVICES[kind]

    def get(
        self, path: str, microversion: str | None = None
    ) -> Mapping[str, Any]:
        """Send a GET; return the JSON object of the response.

        :param path: below the endpoint, with its query
        :raises CloudError: no response, a status other than 200, or no JSON
            object
        """
        response = self._request("GET", path, {_OK}, microversion=microversion)
        try:
            document = response.json()
        except (ValueError, RecursionError):
            document = response.text
        if not isinstance(document, dict):
            raise unexpected(
                f"{self._name}, GET {path.partition('?')[0]}", document
            )
        return document

    def send(self, method: str, path: str, body: object) -> None:
        """Send a request that changes something.

        :param body: sent as JSON, if it is not None
        :raises CloudError: no response, or a status that does not mean success
        """
        self._request(method, path, _WRITTEN, json=body)

    def _request(
        self, method: str, path: str, good: Collection[int], **options: Any
    ) -> Any:
        what = f"{self._name}, {method} {path.partition('?')[0]}"
        try:
            # Else Glance's errors are HTML.
            response = proxy_of(self._connection, self._kind).request(
                path,
                method,
                raise_exc=False,
                headers={"Accept": "application/json"},
                **options,
            )
        except (
            SDKException,
            ClientException,
            OSError,
            ValueError,
            TypeError,
        ) as error:
            advice = (
                "Check that the service runs and is reachable, and its"
                " settings in clouds.yaml."
            )
            raise CloudError(
                what, describe_error(error).rstrip("."), advice
            ) from error
        status = response.status_code
        if status not in good:
            text = " ".join(response.text[: 10 * _TEXT_LENGTH].split())
            roles = (
                "Use a user with the roles that the documentation lists under"
                " 'A live cloud'."
            )
            advice = advice_on(status, roles) or _ADVICE.get(
                status, "Try again, or read the log of the service."
            )
            raise CloudError(
                what,
                f"status {status}, {quote(text, _TEXT_LENGTH)}",
                advice,
                status,
            )
        return response

    def find(
        self, path: str, microversion: str | None = None
    ) -> Mapping[str, Any] | None:
        """Send a GET as :meth:`get`; return None for status 404."""
        try:
            return self.get(path, microversion)
        except CloudError as error:
            if error.status != _NOT_FOUND:
                raise
            return None

    def rows(
        self, path: str, name: str, microversion: str | None = None
    ) -> Iterator[Any]:
        """Yield the rows of a listing, each page when it is needed.

        :param path: of the listing, with its query
        :param name: of the list in the response
        :raises CloudError: as :meth:`get`, and if a page leads to itself
        """
        base, _, query = path.partition("?")
        seen = set()
        while query not in seen:
            seen.add(query)
            page = self.get(f"{base}?{query}", microversion)
            rows = page.get(name)
            if not isinstance(rows, list):
                raise unexpected(f"{self._name}, GET {base}", rows)
            yield from rows
            # Glance has the URL of the next page, and Nova a list of links.
            links = [
                each
                for each in page.get(f"{name}_links") or ()
                if isinstance(each, dict)
            ]
            following = next(
                (
                    each.get("href")
                    for each in links
                    if each.get("rel") == "next"
                ),
                page.get("next"),
            )
            if not isinstance(following, str) or not following or not rows:
                return
            # Only the marker: a front end may have another path than the
            # service believes.
            marker = dict(parse_qsl(urlsplit(following).query)).get(
                "marker", ""
            )
            # A parameter may be there several times, as Neutron's fields.
            others = [
                (name, value)
                for name, value in parse_qsl(query)
                if name != "marker"
            ]
            query = urlencode([*others, ("marker", marker)])
        advice = "Check the proxies between this machine and the service."
        raise CloudError(
            f"{self._name}, GET {base}",
            "the next page is one that was read already",
            advice,
        )


def unexpected(what: str, found: object) -> CloudError:
    """Return the error for a response that the service cannot have sent."""
    return CloudError(
        what,
        f"the response is not that of the service but {quote(found)}",
        "Check which service responds at its endpoint.",
    )
