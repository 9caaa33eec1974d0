# SPDX-License-Identifier: Apache-2.0

"""The client alone, against answers made up here: what each kind of failure
becomes. The real one: test_embedded.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from typing import Any, Union

import pytest
import requests
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.common.errors import (
    PlacementRefused,
    PlacementUnavailable,
    UnknownTraits,
)
from tests.support.loopback import Call, Reply, serving
from tests.support.placements import response_of

Answer = Union[tuple[int, object], Exception]


class Recorded(requests.adapters.BaseAdapter):
    def __init__(self, answer: Callable[[str, str], Answer]) -> None:
        super().__init__()
        self.answer = answer
        self.sent: list[tuple[str, str]] = []
        self.timeouts: set[object] = set()
        self.headers: Mapping[str, Any] = {}

    def send(  # type: ignore[override]
        self, request: requests.PreparedRequest, **options: Any
    ) -> requests.Response:
        self.sent.append((str(request.method), request.path_url))
        self.timeouts.add(options["timeout"])
        self.headers = request.headers
        answer = self.answer(*self.sent[-1])
        if isinstance(answer, Exception):
            raise answer
        response = response_of(answer)
        response.url, response.request = str(request.url), request
        return response

    def close(self) -> None:
        pass


def client_of(
    answer: Callable[[str, str], Answer] | Answer, **options: Any
) -> tuple[PlacementClient, Recorded]:
    transport = Recorded(
        answer if callable(answer) else lambda _method, _url: answer
    )
    http = requests.Session()
    http.mount("http://", transport)
    session = Session(
        auth=Token("http://placement.invalid/placement", "t"), session=http
    )
    return (
        PlacementClient(Adapter(session, service_type="placement"), **options),
        transport,
    )


def errors(*details: str) -> dict[str, object]:
    return {"errors": [{"detail": detail} for detail in details]}


UNAVAILABLE: list[tuple[Answer, str]] = [
    (
        requests.exceptions.ConnectionError("no route\nto host"),
        "no route to host",
    ),
    (requests.exceptions.Timeout("slow"), "timed out"),
    (requests.exceptions.SSLError("bad certificate"), "bad certificate"),
    ((500, errors("database gone")), "status 500, 'database gone'"),
    ((503, b"<html>Service\x1b[2J Unavailable</html>"), "status 503"),
    ((200, b"<html>Welcome</html>"), "not a JSON object but '<html>Welcome"),
    ((200, b""), "not that of a Placement"),
    ((200, [1]), "not a JSON object but a list"),
    ((200, {"versions": []}), "not that of a Placement"),
    (
        (200, {"allocation_requests": 3, "provider_summaries": {}}),
        "not that of a Placement",
    ),
    (
        (
            200,
            {
                "allocation_requests": [{"allocations": {"a": {}}}],
                "provider_summaries": {"a": 1},
            },
        ),
        "not that of a",
    ),
]


@pytest.mark.parametrize(("answer", "says"), UNAVAILABLE)
def test_transport_failure_or_unusable_response_raises_placement_unavailable(
    answer: Answer, says: str
) -> None:
    client, _ = client_of(answer)
    with pytest.raises(PlacementUnavailable) as raised:
        client.allocation_candidates("resources=VCPU:1")
    assert says in str(raised.value)
    assert "GET /allocation_candidates" in str(raised.value)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("detail", "names"),
    [
        (
            "Invalid: No such trait(s): CUSTOM_B, CUSTOM_A.",
            ["CUSTOM_A", "CUSTOM_B"],
        ),
        ("No such trait HW_X", ["HW_X"]),
    ],
)
def test_status_400_for_missing_traits_raises_unknown_traits_with_their_names(
    detail: str, names: list[str]
) -> None:
    client, _ = client_of((400, errors(detail)))
    with pytest.raises(UnknownTraits) as raised:
        client.allocation_candidates("resources=VCPU:1")
    assert raised.value.traits == names


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        ((400, errors("bad query")), "bad query"),
        ((403, b"go\naway"), "go away"),
        ((404, b""), "no explanation"),
        (
            (406, errors("Unacceptable version header: 1.39")),
            "Unacceptable version header: 1.39",
        ),
        (
            (409, errors("No such trait(s): CUSTOM_A.")),
            "No such trait(s): CUSTOM_A.",
        ),
    ],
)
def test_other_client_errors_are_placement_refused(
    answer: tuple[int, object], detail: str
) -> None:
    client, _ = client_of(answer)
    with pytest.raises(PlacementRefused) as raised:
        client.allocation_candidates("resources=VCPU:1")
    assert (raised.value.status, raised.value.detail) == (answer[0], detail)
    _, _, words = str(raised.value).partition(f"with status {answer[0]}: ")
    advice = (
        ". Use a user with a role that Placement's policy allows this: by"
        " default admin or service."
    )
    advice += (
        " The token must be for a project, not a domain or the system: log in"
        " with project_name."
    )
    assert words == detail + (advice if answer[0] == 403 else "")


def test_long_explanation_of_a_client_error_is_cut_in_the_message() -> None:
    with pytest.raises(PlacementRefused, match=r"x\.\.\.$") as raised:
        client_of((404, b"<html>" + b"x" * 100_000))[0].allocation_candidates(
            "resources=VCPU:1"
        )
    assert len(str(raised.value)) < 1000


def test_microversion_and_timeout_are_sent() -> None:
    client, transport = client_of((200, {"traits": ["A"]}), timeout=7)
    assert client.traits() == {"A"}
    assert transport.headers["OpenStack-API-Version"] == "placement 1.39"
    assert transport.timeouts == {7}


def test_provider_names_are_read_again_only_for_an_unknown_provider() -> None:
    roots, listed = ["a"], ["a", "b"]

    def answer(_method: str, url: str) -> Answer:
        if "resource_providers" in url:
            return 200, {
                "resource_providers": [
                    {"uuid": rp, "name": f"host-{rp}"} for rp in listed
                ]
            }
        summaries = {
            rp: {"root_provider_uuid": rp, "traits": [], "resources": {}}
            for rp in roots
        }
        candidates = [
            {"allocations": dict.fromkeys([rp], "resources")} for rp in roots
        ]
        return 200, {
            "allocation_requests": candidates,
            "provider_summaries": summaries,
        }

    client, transport = client_of(answer)
    for now, hosts, reads in (
        (["a"], ("host-a",), 1),
        (["b", "a"], ("host-a", "host-b"), 1),
        (["c"], ("c",), 2),
    ):
        roots[:] = now
        assert client.allocation_candidates("").hosts == hosts
        assert (
            sum("resource_providers" in url for _, url in transport.sent)
            == reads
        )
    listed.append("d")
    roots[:] = ["d"]
    assert client.allocation_candidates("").hosts == ("host-d",)


@pytest.mark.parametrize(
    ("number", "lists"), [(0, 0), (5, 0), (6, 1), (1000, 1)]
)
def test_names_of_a_few_providers_are_read_without_listing_all(
    number: int, lists: int
) -> None:
    """The list of 50,000 providers is 39 MB."""
    uuids = [f"rp-{each}" for each in range(number)]

    def answer(_method: str, url: str) -> Answer:
        some = [url.partition("uuid=")[2]] if "uuid=" in url else uuids
        return 200, {
            "resource_providers": [
                {"uuid": each, "name": f"name of {each}"} for each in some
            ]
        }

    client, transport = client_of(answer)
    for _ in range(2):
        assert client.names_of(uuids) == {
            each: f"name of {each}" for each in uuids
        }
        assert [url for _, url in transport.sent].count(
            "/placement/resource_providers"
        ) == lists
    assert len(transport.sent) == (lists or number)


def _row(number: int) -> dict[str, object]:
    return {
        "uuid": f"00000000-0000-0000-0000-{number:012}",
        "name": f'host-"]{number},',
        "generation": number,
        "parent_provider_uuid": None,
        "links": [{}],
    }


def test_providers_are_read_one_by_one_whatever_the_spaces() -> None:
    for number in (0, 1, 3):
        document = {
            "resource_providers": [_row(each) for each in range(number)]
        }
        for spaces in (None, 2):
            found = client_of(
                (200, f"\n{json.dumps(document, indent=spaces)} \n".encode())
            )[0].providers()
            assert [each.name for each in found] == [
                f'host-"]{each},' for each in range(number)
            ]


@pytest.mark.parametrize(
    "body",
    [
        b'{"resource_providers": [',
        b'{"resource_providers": [%s',
        b'{"resource_providers": [%s]',
        b'{"resource_providers": [%s,]}',
        b'{"resource_providers": [%s %s]}',
        b'{"resource_providers": [%s], "more": 1}',
        b'{"resource_providers": {}}',
        b'{"traits": [%s]}',
        b'{"resource_providers": [1]}',
        b'{"resource_providers": [%s]} {}',
        b"\xff",
    ],
)
def test_list_of_providers_that_is_not_whole_is_no_list(body: bytes) -> None:
    row = json.dumps(_row(1)).encode()
    with pytest.raises(PlacementUnavailable, match="not that of a Placement"):
        client_of((200, body.replace(b"%s", row)))[0].providers()


def test_compressed_responses_are_asked_for_and_read() -> None:
    """Of 50,000 hosts, Placement's list has 40 MB, and 1.4 compressed."""

    def answer(call: Call) -> Reply:
        assert "gzip" in call.headers["Accept-Encoding"]
        body = gzip.compress(
            json.dumps({"resource_providers": [_row(7)]}).encode()
        )
        return Reply(
            200,
            body,
            {"Content-Type": "application/json", "Content-Encoding": "gzip"},
        )

    with serving(answer) as url:
        adapter = Adapter(
            Session(auth=Token(url, "t")), service_type="placement"
        )
        assert [
            each.generation for each in PlacementClient(adapter).providers()
        ] == [7]
