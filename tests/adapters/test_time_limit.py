"""Answers and logins end in time, whatever comes or does not come; no secret follows a redirect to another origin."""

import gzip
import io
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from unittest import mock

import pytest
import requests
from keystoneauth1 import exceptions
from keystoneauth1.identity import generic
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token
from requests.adapters import HTTPAdapter

from os_prefilter.adapters import time_limit
from os_prefilter.adapters.time_limit import WholeAnswers, limit
from os_prefilter.common.threads import start_thread
from tests.support.logins import Logins
from tests.support.loopback import Call, Reply, serving


def session_of(timeout: float | None) -> requests.Session:
    session = Session(auth=Token("http://unused.invalid", "admin"), timeout=timeout)
    session.session.trust_env = False
    limit(session)
    http: requests.Session = session.session
    return http


@contextmanager
def trickling(start: bytes, piece: bytes) -> Iterator[str]:
    """Serve one connection: a start, and then pieces for ever."""
    over = threading.Event()

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(start)
            while not over.wait(0.01):
                try:
                    connection.sendall(piece)
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        over.set()
        thread.join(60)


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Header: ", b"a"),
    ],
    ids=["no length", "length", "chunks", "header"],
)
def test_trickling_response_times_out_as_a_whole_and_ends_its_reader(
    start: bytes, piece: bytes, request: pytest.FixtureRequest
) -> None:
    """Each part comes in time; the whole does not. A service that asks each minute piles up no threads."""
    with trickling(start, piece) as url:
        with pytest.raises(requests.ReadTimeout, match="has not ended in 1 seconds"):
            session_of(None).get(url, timeout=0.5)
        if "header" in request.node.callspec.id:
            # Without a response there is nothing to shut: its thread ends with the headers.
            return
        for reading in [each for each in threading.enumerate() if each.name == f"response of {url}/"]:
            reading.join(30)
            assert not reading.is_alive()


def test_response_above_the_size_limit_raises_connection_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "MOST_BYTES", 5000)
    bodies = iter((b"x" * 5000, b"x" * 5001))
    with serving(lambda _call: Reply(200, next(bodies), {})) as url:
        http = session_of(60)
        assert len(http.get(url, timeout=60).content) == 5000
        with pytest.raises(requests.ConnectionError, match="longer than 5000 bytes"):
            http.get(url, timeout=60)


def test_complete_responses_and_streams_pass_through_unchanged() -> None:
    """Status, headers, compressed and empty bodies; errors of the connection; what is read as a stream."""

    def answer(call: Call) -> Reply | None:
        if call.path == "/lost":
            return None
        if call.path == "/packed":
            return Reply(200, gzip.compress(b'{"a": 1}'), {"Content-Encoding": "gzip"})
        return Reply(204, b"", {}) if call.path == "/empty" else Reply(404, b"not here", {"X-A": "b"})

    with serving(answer) as url:
        http = session_of(60)
        assert http.get(f"{url}/packed", timeout=60).json() == {"a": 1}
        assert (http.get(f"{url}/empty", timeout=60).content, http.get(url, timeout=(60, 60)).text) == (b"", "not here")
        assert (http.get(url, timeout=60).status_code, http.get(url, timeout=60).headers["X-A"]) == (404, "b")
        assert b"".join(http.get(url, timeout=60, stream=True).iter_content(3)) == b"not here"
        assert http.get(url, timeout=None).text == "not here"
        with pytest.raises(requests.ConnectionError):
            http.get(f"{url}/lost", timeout=60)


def test_file_upload_has_no_deadline() -> None:
    """The session may be that of a client which uploads images."""
    transport = mock.Mock(spec=HTTPAdapter)
    request = requests.Request("PUT", "http://127.0.0.1:1/", data=io.BytesIO(b"an image")).prepare()
    WholeAnswers(transport).send(request, timeout=1)
    transport.send.assert_called_once_with(request, timeout=1)


def test_response_without_a_readable_body_is_returned_unchanged() -> None:
    """Transports of other libraries may answer so."""
    response = requests.Response()
    transport = mock.Mock(spec=HTTPAdapter, send=mock.Mock(return_value=response))
    request = requests.Request("GET", "http://127.0.0.1:1/").prepare()
    assert WholeAnswers(transport).send(request, timeout=60) is response


def test_limiting_a_session_twice_wraps_its_adapter_once() -> None:
    session = Session()
    limit(session)
    first = session.session.get_adapter("https://")
    limit(session)
    assert session.session.get_adapter("https://") is first


def login_at(url: str) -> Session:
    """Return a session that logs in with a password at a Keystone."""
    auth = generic.Password(
        auth_url=f"{url}/v3",
        username="operator",
        password="secret-of-the-operator",  # noqa: S106 - what must not go elsewhere
        project_name="project",
        user_domain_id="default",
        project_domain_id="default",
    )
    session = Session(auth=auth, timeout=60)
    session.session.trust_env = False
    limit(session)
    return session


class Keystone:
    """A Keystone that answers, or refuses what ``refuses`` says."""

    def __init__(self) -> None:
        self._logins = Logins()
        self._logins.catalog = {"placement": "http://placement.invalid"}
        self.refuses: tuple[str, ...] = ()
        """HTTP methods."""

    def __call__(self, call: Call) -> Reply:
        if call.method in self.refuses:
            return Reply(401, b'{"error": {"code": 401, "message": "no", "title": "Unauthorized"}}', {})
        status, document = self._logins.answer(call.method, call.path)
        headers = {"Content-Type": "application/json", "X-Subject-Token": "token"}
        return Reply(status, json.dumps(document).encode(), headers)

    @contextmanager
    def served(self) -> Iterator[str]:
        with serving(self) as self._logins.url:
            yield self._logins.url


# Seconds after which something hangs: no answer here takes one.
FOREVER = 60


@pytest.mark.parametrize("ask", ["token", "endpoint"])
def test_login_ends_where_keystone_refuses_version_discovery_and_works_once_it_does_not(ask: str) -> None:
    """Keystoneauth would wait for its own lock, and so would whatever logs in after that (ADR 0015)."""
    keystone = Keystone()
    with keystone.served() as url:
        session = login_at(url)

        def log_in() -> object:
            if ask == "token":
                return session.get_token()
            return session.get_endpoint(service_type="placement")

        keystone.refuses = ("GET", "POST")
        for _ in range(2):
            with pytest.raises(exceptions.Unauthorized):
                start_thread(log_in, "a login").result(FOREVER)
        keystone.refuses = ()
        start_thread(log_in, "a login").result(FOREVER)
        assert session.get_token() == "token"


def test_login_works_where_keystone_refuses_nothing_but_version_discovery() -> None:
    """The version is that of the URL, as keystoneauth means it."""
    keystone = Keystone()
    keystone.refuses = ("GET",)
    with keystone.served() as url:
        assert start_thread(login_at(url).get_token, "a login").result(FOREVER) == "token"


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[Call]]]:
    """Return the port of another server, and the requests that came there."""
    came: list[Call] = []

    def answer(call: Call) -> Reply:
        came.append(call)
        return Reply(200, b"{}", {})

    with serving(answer) as url:
        yield url.rpartition(":")[2], came


@pytest.mark.parametrize("status", [301, 302, 303, 305, 307, 308])
@pytest.mark.parametrize(
    "to",
    [
        "http://localhost:{port}/x",
        "//localhost:{port}/x",
        "http://localhost:{port}\\@127.0.0.1:1/x",
        "http://127.0.0.1:{port}/x",
        "//127.0.0.1:{port}/x",
        "https://127.0.0.1:{port}/x",
        "https://127.0.0.1/x",
        "http://127.0.0.1/x",
        "http://127.0.0.1:99999/x",
        "http://[/x",
    ],
)
def test_token_follows_no_redirect_to_another_origin(status: int, to: str, elsewhere: tuple[str, list[Call]]) -> None:
    port, came = elsewhere
    with serving(lambda _call: Reply(status, b"", {"Location": to.format(port=port)})) as url:
        session = Session(auth=Token(url, "token"), timeout=60)
        session.session.trust_env = False
        limit(session)
        with pytest.raises(exceptions.ClientException, match="is a redirect to '.*: to another scheme, host or port"):
            session.get(f"{url}/resource_providers")
    assert came == []


def test_password_follows_no_redirect_of_a_login(elsewhere: tuple[str, list[Call]]) -> None:
    port, came = elsewhere
    location = f"http://127.0.0.1:{port}/v3/auth/tokens"
    with (
        serving(lambda _call: Reply(307, b"", {"Location": location})) as url,
        pytest.raises(exceptions.ClientException, match="is a redirect to"),
    ):
        login_at(url).get_token()
    assert came == []


@pytest.mark.parametrize("to", ["{url}/b", "/b"])
def test_redirect_within_an_origin_is_followed_with_the_token(to: str) -> None:
    seen: list[tuple[str, str | None]] = []

    def answer(call: Call) -> Reply:
        seen.append((call.path, call.headers["X-Auth-Token"]))
        return Reply(200, b"{}", {}) if call.path == "/b" else Reply(302, b"", {"Location": to.format(url=url)})

    with serving(answer) as url:
        response = session_of(60).get(f"{url}/a", headers={"X-Auth-Token": "token"}, timeout=60)
    assert response.status_code == 200
    assert seen == [("/a", "token"), ("/b", "token")]


@pytest.mark.parametrize(
    ("before", "after", "is_followed"),
    [
        ("https://a.test/x", "https://A.test:443/y", True),
        ("http://a.test:80/x", "http://a.test/y", True),
        ("https://a.test/x", "http://a.test/y", False),
        ("https://a.test:5000/x", "http://a.test:5000/y", False),
        ("http://a.test/x", "https://a.test/y", False),
        ("https://a.test/x", "https://a.test:8443/y", False),
        ("https://a.test:8443/x", "https://a.test/y", False),
    ],
)
def test_default_port_is_a_port_and_a_change_of_the_scheme_is_refused(
    before: str, after: str, is_followed: bool
) -> None:
    """``https`` to ``http`` on the same host and port would send the token as clear text."""
    sent = []

    class Redirecting(HTTPAdapter):
        def send(self, request: requests.PreparedRequest, *_args: object, **_options: object) -> requests.Response:
            sent.append(request.url)
            response = requests.Response()
            response.status_code = 200 if sent[1:] else 302
            response.headers["Location"] = after
            response.raw, response.request, response.url = io.BytesIO(b"{}"), request, str(request.url)
            return response

    session = Session(auth=Token(before, "token"), timeout=60)
    for scheme in ("http://", "https://"):
        session.session.mount(scheme, Redirecting())
    limit(session)
    with nullcontext() if is_followed else pytest.raises(exceptions.ClientException, match="is a redirect to"):
        session.get(before)
    assert len(sent) == 1 + is_followed
