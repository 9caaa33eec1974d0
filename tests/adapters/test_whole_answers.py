"""An answer must end in time: bodies and headers that trickle, bodies without an end; the others are as they were."""

import gzip
import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
import requests
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token
from requests.adapters import HTTPAdapter

from os_prefilter.adapters import whole_answers
from os_prefilter.adapters.whole_answers import WholeAnswers, limit
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


TRICKLES = [
    (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", b" "),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
]
BODIES = ["no length", "length", "chunks"]


@pytest.mark.parametrize(
    ("start", "piece"), [*TRICKLES, (b"HTTP/1.1 200 OK\r\nX-Header: ", b"a")], ids=[*BODIES, "header"]
)
def test_trickling_response_times_out_as_a_whole(start: bytes, piece: bytes) -> None:
    """Each part comes in time; the whole does not."""
    with (
        trickling(start, piece) as url,
        pytest.raises(requests.ReadTimeout, match="has not ended in 1 seconds"),
    ):
        session_of(None).get(url, timeout=0.5)


@pytest.mark.parametrize(("start", "piece"), TRICKLES, ids=BODIES)
def test_reader_thread_ends_after_the_response_timed_out(start: bytes, piece: bytes) -> None:
    """The thread ends while the other side still sends: a service that asks each minute piles up none."""
    with trickling(start, piece) as url:
        with pytest.raises(requests.ReadTimeout, match="has not ended"):
            session_of(None).get(url, timeout=0.2)
        for reading in [each for each in threading.enumerate() if each.name == f"answer of {url}/"]:
            reading.join(30)
            assert not reading.is_alive()


def test_response_above_the_size_limit_raises_connection_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_answers, "MOST_BYTES", 5000)
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
