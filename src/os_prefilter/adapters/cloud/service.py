"""Asking the services of a cloud, and what each kind of failure becomes.

The services' own JSON is read, not openstacksdk's objects: those rename some image properties and convert values of
others, and what a tenant wrote decides where a server may go. The SDK finds the endpoints and the tokens.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from keystoneauth1.exceptions import ClientException
from openstack.exceptions import SDKException

from os_prefilter.common.quoting import describe_error, quote
from os_prefilter.errors import PrefilterError

_NAMES = {"image": "Glance", "compute": "Nova", "block_storage": "Cinder"}
_TEXT_LENGTH = 300


class CloudError(PrefilterError):
    """A service of the cloud did not do what was asked."""

    def __init__(self, what: str, reason: str, advice: str, status: int = 0) -> None:
        self.status = status
        """The HTTP status of the answer; 0 if there was none."""
        super().__init__(f"{what}: {reason}. {advice}")


class Service:
    """One service of a cloud: questions with a JSON object for an answer.

    :param connection: an ``openstack.connection.Connection``
    :param kind: ``image``, ``compute`` or ``block_storage``
    """

    def __init__(self, connection: Any, kind: str) -> None:
        self._connection = connection
        self._kind = kind
        self._name = _NAMES[kind]

    def get(self, path: str, microversion: str | None = None) -> Mapping[str, Any]:
        """Send a GET; return the JSON object that comes back.

        :param path: below the endpoint, with its query
        :raises CloudError: no answer, another status than 200, or no JSON object
        """
        what = f"{self._name}, GET {path.partition('?')[0]}"
        try:
            adapter = getattr(self._connection, self._kind)
            response = adapter.request(path, "GET", microversion=microversion, raise_exc=False)
        except (SDKException, ClientException, OSError, ValueError, TypeError) as error:
            advice = "Check that the service runs and is reachable, and what clouds.yaml says of it."
            raise CloudError(what, describe_error(error).rstrip("."), advice) from error
        if response.status_code != 200:  # noqa: PLR2004
            raise _refused(what, response)
        try:
            answer = response.json()
        except (ValueError, RecursionError):
            answer = response.text
        if not isinstance(answer, dict):
            raise unexpected(what, answer)
        return answer

    def rows(self, path: str, name: str, microversion: str | None = None) -> Iterator[Any]:
        """Yield the rows of a listing, page after page, as they come.

        :param path: of the listing, with its query
        :param name: of the list in the answer
        :raises CloudError: as :meth:`get`, also if a page leads to itself
        """
        base, _, query = path.partition("?")
        seen = set()
        while query not in seen:
            seen.add(query)
            answer = self.get(f"{base}?{query}" if query else base, microversion)
            rows = answer.get(name)
            if not isinstance(rows, list):
                raise unexpected(f"{self._name}, GET {base}", rows)
            yield from rows
            following = _next(answer, name)
            if not following or not rows:
                return
            # Only the marker is taken over: a front end may have another path than the service believes.
            marker = dict(parse_qsl(urlsplit(following).query)).get("marker", "")
            query = urlencode({**dict(parse_qsl(query)), "marker": marker})
        advice = "Check what stands between this machine and the service."
        raise CloudError(f"{self._name}, GET {base}", "the next page is one that was read already", advice)


def unexpected(what: str, found: object) -> CloudError:
    """Return the error for an answer that is not one of the service."""
    return CloudError(what, f"the answer is not that of the service but {quote(found)}", "Check what answers there.")


def _next(answer: Mapping[str, Any], name: str) -> str:
    """Return the URL of the next page: as Glance says it, or as Nova does; empty for the last page."""
    following = answer.get("next")
    for link in answer.get(f"{name}_links") or ():
        if isinstance(link, dict) and link.get("rel") == "next":
            following = link.get("href")
    return following if isinstance(following, str) else ""


def _refused(what: str, response: Any) -> CloudError:
    status = response.status_code
    text = " ".join(response.text[: 10 * _TEXT_LENGTH].split())
    advice = {
        401: "Check the user and the password of the cloud.",
        403: "Use a user with the roles that the documentation lists under 'A live cloud'.",
        404: "Check that it exists in this cloud, and that the user may see it.",
        406: "This needs a newer version of the service.",
    }.get(status, "Try again, or look into the log of the service.")
    return CloudError(what, f"status {status}, {quote(text, _TEXT_LENGTH)}", advice, status)
