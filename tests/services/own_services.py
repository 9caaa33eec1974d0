# SPDX-License-Identifier: Apache-2.0

"""A libvirtd, a MariaDB and a memcached of a test's own, which it may kill.

The first two listen on a socket in a folder of their own, the last one on
loopback.
"""

from __future__ import annotations

import json
import os
import pickle
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from math import inf
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

import pytest

from tests.support.leftovers import FOLDER
from tests.support.processes import free_port
from tests.support.programs import until

PASSWORD = "of-tests"  # noqa: S105 - on loopback, for as long as the test


def needs(*programs: str) -> pytest.MarkDecorator:
    """Return a mark: skip where a program is not installed; in CI it must
    be.
    """
    missing = [
        program
        for program in ("setpriv", *programs)
        if not shutil.which(program)
    ]
    if "libvirtd" in programs and not find_spec("libvirt"):
        missing.append("libvirt-python")
    return pytest.mark.skipif(
        bool(missing) and not os.environ.get("CI"),
        reason=f"it needs {', '.join(missing)}",
    )


class Service:
    """A program that can be killed, stopped and started again on what it has
    left behind.

    :param answers: whether it does its work
    """

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        answers: Callable[[], bool],
        environment: dict[str, str],
    ) -> None:
        self.folder = folder
        self._command = command
        self._answers = answers
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = process = subprocess.Popen(
                [  # noqa: S607 - on the PATH
                    "setpriv",
                    "--pdeathsig",
                    "KILL",
                    *self._command,
                ],
                stdout=log,
                stderr=log,
                env=self._environment,
            )

        def is_up() -> bool:
            assert process.poll() is None, self._log()
            return self._answers()

        until(is_up, self._log)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self._process:
            self._process.kill()
            self._process.wait(60)

    def stop(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def _log(self) -> str:
        return (self.folder / "log").read_text(
            encoding="utf-8", errors="replace"
        )[-3000:]


class Outages:
    """What is away: from when to when, and what brings it back."""

    def __init__(self) -> None:
        self.of: dict[str | int, list[list[float]]] = {}
        """Name or process -> the times from and to which it was away."""
        self._due: dict[str, tuple[float, Callable[[], object]]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._due

    def begin(
        self,
        name: str,
        seconds: float,
        undo: Callable[[], object],
        subject: str | int = "",
    ) -> None:
        """Note that something is away, and for how long.

        :param subject: what is away, if that is not its name
        """
        away = [time.monotonic(), inf]
        self.of.setdefault(subject or name, []).append(away)
        self._due[name] = (
            away[0] + seconds,
            lambda: (undo(), away.__setitem__(1, time.monotonic())),
        )

    def end(self, *, everything: bool = False) -> None:
        """Bring back what is due, in this thread: with it ends what it
        starts.
        """
        for name, (due, back) in [*self._due.items()]:
            if everything or time.monotonic() >= due:
                del self._due[name]
                back()

    def seconds(self, subject: str | int, since: float, to: float) -> float:
        """Return for how long something was away in a time."""
        return sum(
            max(0.0, min(to, end) - max(since, begin))
            for begin, end in self.of.get(subject, ())
        )


@contextmanager
def folder_of(user: str) -> Iterator[Path]:
    """Yield a folder that belongs to a user, if this one may give it away;
    pytest's are for this one alone.
    """
    folder = Path(tempfile.mkdtemp(dir=os.environ[FOLDER]))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, user)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as_user(user: str, group: int | None = None) -> list[str]:
    """Return how root runs a command as another user."""
    if os.geteuid() != 0:
        return []
    number = pwd.getpwnam(user)
    return [
        f"--reuid={number.pw_uid}",
        f"--regid={number.pw_gid if group is None else group}",
        "--clear-groups",
    ]


@contextmanager
def own_libvirtd() -> Iterator[tuple[Service, str]]:
    """Yield a libvirtd for the guests of one user, and its URI; the machine's
    own is not touched.
    """
    with folder_of("nobody") as folder:
        conf, path = folder / "libvirtd.conf", folder / "libvirt-sock"
        conf.write_text(f'unix_sock_dir = "{folder}"\n', encoding="utf-8")
        names = (
            "HOME",
            "XDG_RUNTIME_DIR",
            "XDG_CONFIG_HOME",
            "XDG_CACHE_HOME",
            "XDG_DATA_HOME",
        )
        # Where its QEMU may not open /dev/kvm, each question takes seconds.
        kvm = Path("/dev/kvm")
        command = [
            *_as_user("nobody", kvm.stat().st_gid if kvm.exists() else None),
            "libvirtd",
            "-f",
            str(conf),
        ]
        command += ["--pid-file", str(folder / "pid")]
        service = Service(
            folder,
            command,
            lambda: _listens(str(path)),
            dict.fromkeys(names, str(folder)),
        )
        try:
            service.start()
            yield service, f"qemu+unix:///session?socket={path}"
        finally:
            service.kill()


@contextmanager
def own_mariadb() -> Iterator[tuple[Service, str]]:
    """Yield a MariaDB with an empty database for Placement, and the URL of
    that.
    """
    with folder_of("mysql") as folder:
        user = _as_user("mysql")
        data = f"--datadir={folder / 'data'}"
        install = [
            "setpriv",
            *user,
            "mariadb-install-db",
            "--no-defaults",
            data,
            "--skip-test-db",
        ]
        subprocess.run(install, check=True, capture_output=True, timeout=600)
        sql = folder / "init.sql"
        sql.write_text(
            "CREATE DATABASE IF NOT EXISTS placement;\nCREATE USER IF NOT"
            f" EXISTS placement@localhost IDENTIFIED BY '{PASSWORD}';\nGRANT"
            " ALL ON placement.* TO placement@localhost;\n",
            encoding="utf-8",
        )
        command = [
            *user,
            "mariadbd",
            "--no-defaults",
            data,
            f"--init-file={sql}",
            "--skip-networking",
        ]
        path = folder / "socket"
        command += [f"--socket={path}", f"--pid-file={folder / 'pid'}"]
        # What was committed survives the end of the process, not that of the
        # machine.
        command += [
            "--skip-name-resolve",
            "--skip-log-bin",
            "--innodb-flush-log-at-trx-commit=2",
        ]
        service = Service(folder, command, lambda: _listens(str(path)), {})
        try:
            service.start()
            yield (
                service,
                f"mysql+pymysql://placement:{PASSWORD}@localhost/placement?unix_socket={path}",
            )
        finally:
            service.kill()


class _Raw:
    @staticmethod
    def serialize(_key: bytes, value: tuple[bytes, int]) -> tuple[bytes, int]:
        return value

    @staticmethod
    def deserialize(
        _key: bytes, value: bytes, flags: int
    ) -> tuple[bytes, int]:
        return value, flags


class Memcached(Service):
    """A memcached of oslo.cache, which keeps its port when it is started
    again.
    """

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        command = [
            "memcached",
            f"--port={self.port}",
            "--listen=127.0.0.1",
            "--memory-limit=16",
        ]
        super().__init__(
            folder,
            [*_as_user("nobody"), *command],
            lambda: listens_on(self.port),
            {},
        )

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Yield a client, which ends with an error where memcached does not
        answer.
        """
        from pymemcache.client.base import (  # noqa: PLC0415 - other users of this module need no pymemcache
            Client,
        )

        with closing(
            Client(
                ("127.0.0.1", self.port),
                serde=_Raw(),
                connect_timeout=1,
                timeout=1,
            )
        ) as client:
            yield client

    def fill(self, rng: Random) -> int:
        """Put something wrong in the place of each value; return how many
        there were.
        """
        with self.client() as client:
            listed = client.raw_command(
                "lru_crawler metadump all", b"END\r\n"
            ).decode()
            keys = [unquote(key) for key in re.findall(r"key=(\S+)", listed)]
            found = {key: value for key in keys if (value := client.get(key))}
            for key, value in found.items():
                client.set(key, _wrong(value, rng))
        return len(found)


def _wrong(found: tuple[bytes, int], rng: Random) -> tuple[bytes, int]:
    """Return what a value of dogpile.cache could be by mistake: with a payload
    of bytes, perhaps of compressed JSON.
    """
    value, flags = found
    entry: dict[str, Any] = {}
    payload, packed = value, None
    # What is there may be wrong already.
    with suppress(Exception):
        packed = pickle.loads(value)  # noqa: S301 - of the test's own memcached
        payload = bytes(packed.payload)
        entry = dict(json.loads(zlib.decompress(payload)))
    text = rng.choice(['{"a": [1]}', "null", "[]", '"x"', "{"])
    documents = [
        {**entry, "at": float(entry.get("at", 0)) - 3600},
        {**entry, "value": rng.choice([None, "x", [], {"a": 1}])},
        {"version": 99, "data": entry},
    ]
    end = rng.randrange(len(payload) + 1)
    payloads: list[Any] = [
        zlib.compress(json.dumps(each).encode()) for each in documents
    ]
    payloads += [
        payload[:end],
        payload[:end] + rng.randbytes(9),
        zlib.compress(text.encode()),
        text,
        {"a": 1},
        None,
    ]
    chosen = rng.choice(payloads)
    if (
        packed is None
        or not hasattr(packed, "_replace")
        or rng.random() < 1 / 4
    ):
        return rng.choice(
            [
                (value[: rng.randrange(len(value) + 1)], flags),
                (text.encode(), 0),
                (value, flags ^ 3),
            ]
        )
    return pickle.dumps(packed._replace(payload=chosen)), flags


@contextmanager
def own_memcached() -> Iterator[Memcached]:
    with folder_of("nobody") as folder:
        service = Memcached(folder)
        try:
            service.start()
            yield service
        finally:
            service.kill()


def listens_on(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0
