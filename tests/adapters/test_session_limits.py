# SPDX-License-Identifier: Apache-2.0

"""Responses and logins end, whatever comes or does not come; no secret follows
a redirect to another origin.
"""

from __future__ import annotations

import gzip
import io
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import requests
from keystoneauth1 import exceptions
from keystoneauth1.identity import generic
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token
from requests.adapters import HTTPAdapter

from os_prefilter.adapters import session_limits
from os_prefilter.adapters.nova_conf import load_conf
from os_prefilter.adapters.placement.from_conf import client_from
from os_prefilter.adapters.session_limits import limit
from os_prefilter.common.errors import ConfigurationError
from os_prefilter.common.threads import start_thread
from os_prefilter_agent import agent
from os_prefilter_agent.adapters.connection import log_in
from os_prefilter_agent.agent import Watch
from os_prefilter_agent.cli import context
from os_prefilter_tools.cli.main import main
from tests.faults.watched import Host
from tests.support.logins import Logins
from tests.support.loopback import Call, Reply, serving
from tests.support.placements import nova_conf

PASSWORD = "secret-of-the-operator"  # noqa: S105 - what must not go elsewhere
# Seconds after which something hangs: no answer here takes one.
FOREVER = 60


def session_at(url: str, timeout: float = 60, auth: Any = None) -> Session:
    session = Session(auth=auth or Token(url, "token"), timeout=timeout)
    session.session.trust_env = False
    limit(session)
    return session


@contextmanager
def endless(seconds: float, *, headers_only: bool = False) -> Iterator[str]:
    """Serve a response that never ends: a space each so many seconds, or no
    byte at all.
    """
    over = threading.Event()

    def pieces() -> Iterator[bytes]:
        while not over.wait(seconds):
            yield b" " * 100

    def answer(_call: Call) -> Reply | None:
        if headers_only:
            over.wait(FOREVER)
            return None
        return Reply(200, pieces(), {"Content-Type": "application/json"})

    with serving(answer, at_end=over.set) as url:
        yield url


def test_endless_response_times_out_and_one_that_is_too_long_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with endless(0.001) as url, pytest.raises(exceptions.ConnectTimeout):
        session_at(url, 0.2).get(url)
    monkeypatch.setattr(session_limits, "MOST_BYTES", 5000)
    bodies = iter((b"x" * 5000, b"x" * 5001))
    with serving(lambda _call: Reply(200, next(bodies), {})) as url:
        assert len(session_at(url).get(url).content) == 5000
        with pytest.raises(
            exceptions.ConnectFailure, match="longer than 5000 bytes"
        ):
            session_at(url).get(url)


# The first alarm may come while the session of the round is collected, where
# Python ignores it; the next one ends the command.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "headers_only", [False, True], ids=["trickles", "says nothing"]
)
def test_command_and_round_of_the_agent_end_although_placement_never_does(
    headers_only: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    caplog: Any,
) -> None:
    """Each byte comes within the timeout of the client."""
    conf = tmp_path / "nova.conf"
    with endless(0.05, headers_only=headers_only) as url:
        conf.write_text(nova_conf(url))
        client = client_from(load_conf(str(conf)), conf)
        monkeypatch.setattr(agent, "REPORT_TIMEOUT", 0.3)
        watch = Watch(Host(), lambda _facts: str(client.traits()), 1.0)
        with caplog.at_level(logging.INFO, agent.LOG.name):
            start_thread(watch.round, "a round").result(FOREVER)
        (line,) = (
            record.getMessage()
            for record in caplog.records
            if record.name == agent.LOG.name
        )
        assert "the report has not ended in 0.3 seconds" in line
        monkeypatch.setattr(context, "TIMEOUT", 0.3)
        argv = [
            "capabilities",
            "report",
            "--driver",
            "fake",
            "--config-file",
            str(conf),
            "--provider",
            "kvm-1",
        ]
        assert main(argv) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "was ended after 0.3 seconds" in line


def test_complete_responses_and_streams_pass_through_unchanged() -> None:
    """Status, headers, compressed and empty bodies; errors of the connection;
    what is read as a stream.
    """

    def answer(call: Call) -> Reply | None:
        if call.path == "/lost":
            return None
        if call.path == "/packed":
            return Reply(
                200, gzip.compress(b'{"a": 1}'), {"Content-Encoding": "gzip"}
            )
        return (
            Reply(204, b"", {})
            if call.path == "/empty"
            else Reply(404, b"not here", {"X-A": "b"})
        )

    with serving(answer) as url:
        session = session_at(url)
        limit(session)
        http: requests.Session = session.session
        assert (
            len(http.hooks["response"]),
            http.get(f"{url}/packed", timeout=60).json(),
        ) == (1, {"a": 1})
        assert (
            http.get(f"{url}/empty", timeout=60).content,
            http.get(url, timeout=(60, 60)).text,
        ) == (b"", "not here")
        assert (
            http.get(url, timeout=60).status_code,
            http.get(url, timeout=60).headers["X-A"],
        ) == (404, "b")
        assert (
            b"".join(http.get(url, timeout=60, stream=True).iter_content(3))
            == b"not here"
        )
        assert http.get(url, timeout=None).text == "not here"
        with pytest.raises(requests.ConnectionError):
            http.get(f"{url}/lost", timeout=60)


def login_at(url: str) -> Session:
    """Return a session that logs in with a password at a Keystone."""
    domains: dict[str, Any] = {
        "user_domain_id": "default",
        "project_domain_id": "default",
    }
    login: dict[str, Any] = {
        "username": "operator",
        "password": PASSWORD,
        "project_name": "project",
    }
    return session_at(
        url, auth=generic.Password(auth_url=f"{url}/v3", **login, **domains)
    )


@pytest.mark.parametrize("ask", ["token", "endpoint"])
def test_login_ends_where_keystone_refuses_version_discovery_and_works_once_it_does_not(
    ask: str,
) -> None:
    """Keystoneauth would wait for its own lock, and so would whatever logs in
    after that (ADR 0010).
    """
    logins = Logins()
    logins.catalog = {"placement": "http://placement.invalid"}
    refused = {"GET", "POST"}

    def answer(call: Call) -> Reply:
        if call.method in refused:
            return Reply(
                401,
                b'{"error": {"code": 401, "message": "no", "title":'
                b' "Unauthorized"}}',
                {},
            )
        status, document = logins.answer(call.method, call.path)
        headers = {
            "Content-Type": "application/json",
            "X-Subject-Token": "token",
        }
        return Reply(status, json.dumps(document).encode(), headers)

    with serving(answer) as logins.url:
        session = login_at(logins.url)

        def log_in() -> object:
            return (
                session.get_token()
                if ask == "token"
                else session.get_endpoint(service_type="placement")
            )

        for _ in range(2):
            with pytest.raises(exceptions.Unauthorized) as caught:
                start_thread(log_in, "a login").result(FOREVER)
            assert PASSWORD not in str(caught.value)
        # The version is that of the URL, as keystoneauth means it.
        refused.remove("POST")
        assert (
            start_thread(login_at(logins.url).get_token, "a login").result(
                FOREVER
            )
            == "token"
        )
        refused.clear()
        start_thread(log_in, "a login").result(FOREVER)
        assert session.get_token() == "token"


@pytest.mark.parametrize("headers", [{}, {"X-Subject-Token": "t"}])
@pytest.mark.parametrize("token", [None, [], {}, {"expires_at": "no"}])
def test_token_that_cannot_be_read_is_an_error_of_the_login(
    token: Any, headers: dict[str, str]
) -> None:
    """Of a Keystone that does not respond as Keystone does."""
    body = json.dumps({"token": token}).encode()
    failed = pytest.raises(
        ConfigurationError, match="the login at Keystone failed"
    )
    with (
        serving(lambda _call: Reply(201, body, headers)) as url,
        failed as caught,
    ):
        log_in(login_at(url), "mine")
    assert PASSWORD not in str(caught.value)


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[Call]]]:
    """Return the port of another server, and the requests that came there."""
    came: list[Call] = []

    def answer(call: Call) -> Reply:
        came.append(call)
        return Reply(200, b"{}", {})

    with serving(answer) as url:
        yield url.rpartition(":")[2], came


TARGETS = (
    "http://localhost:{port}/x",
    "//localhost:{port}/x",
    "http://localhost:{port}\\@127.0.0.1:1/x",
    "//127.0.0.1:{port}/x",
    "https://127.0.0.1:{port}/x",
    "http://127.0.0.1/x",
    "http://[/x",
)


def test_token_and_password_follow_no_redirect_to_another_origin(
    elsewhere: tuple[str, list[Call]],
) -> None:
    port, came = elsewhere
    replies: list[Reply] = []
    refused = "is a redirect to '.*: to another scheme, host or port"
    with serving(lambda _call: replies[-1]) as url:
        session = session_at(url)
        for status in (301, 303, 307):
            for to in TARGETS:
                replies.append(
                    Reply(status, b"", {"Location": to.format(port=port)})
                )
                with pytest.raises(
                    exceptions.ClientException, match=refused
                ) as caught:
                    session.get(f"{url}/resource_providers")
                assert "'token'" not in str(caught.value)
        replies.append(
            Reply(
                307,
                b"",
                {"Location": f"http://127.0.0.1:{port}/v3/auth/tokens"},
            )
        )
        with pytest.raises(
            exceptions.ClientException, match=refused
        ) as caught:
            login_at(url).get_token()
    assert PASSWORD not in str(caught.value)
    assert came == []


@pytest.mark.parametrize(
    ("before", "after", "is_followed"),
    [
        ("https://a.test/x", "https://A.test:443/y", True),
        ("http://a.test:80/x", "http://a.test/y", True),
        ("https://a.test/x", "http://a.test/y", False),
        ("http://a.test/x", "https://a.test/y", False),
        ("https://a.test/x", "https://a.test:8443/y", False),
    ],
)
def test_default_port_is_a_port_and_a_change_of_the_scheme_is_refused(
    before: str, after: str, is_followed: bool
) -> None:
    """``https`` to ``http`` on the same host and port would send the token as
    clear text.
    """
    sent, tokens = [], []

    class Redirecting(HTTPAdapter):
        def send(
            self,
            request: requests.PreparedRequest,
            *_args: object,
            **_options: object,
        ) -> requests.Response:
            sent.append(request.url)
            tokens.append(request.headers["X-Auth-Token"])
            response = requests.Response()
            response.status_code = 200 if sent[1:] else 302
            response.headers["Location"] = after
            response.raw, response.request, response.url = (
                io.BytesIO(b"{}"),
                request,
                str(request.url),
            )
            return response

    session = session_at(before)
    for scheme in ("http://", "https://"):
        session.session.mount(scheme, Redirecting())
    with (
        nullcontext()
        if is_followed
        else pytest.raises(
            exceptions.ClientException, match="is a redirect to"
        )
    ):
        session.get(before)
    assert (len(sent), tokens) == (1 + is_followed, ["token"] * len(sent))
