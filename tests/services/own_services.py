"""A libvirtd and a MariaDB of a test's own, which it may kill; each on a socket in a folder of its own."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.leftovers import FOLDER
from tests.support.programs import until

PASSWORD = "of-tests"  # noqa: S105 - on loopback, for as long as the test


def needs(*programs: str) -> pytest.MarkDecorator:
    """Return a mark: skip where a program is not installed; in CI it must be."""
    missing = [program for program in ("setpriv", *programs) if not shutil.which(program)]
    if "libvirtd" in programs and not find_spec("libvirt"):
        missing.append("libvirt-python")
    return pytest.mark.skipif(bool(missing) and not os.environ.get("CI"), reason=f"it needs {', '.join(missing)}")


class Service:
    """A program that can be killed, stopped and started again on what it has left behind.

    :param answers: whether it does its work
    """

    def __init__(
        self, folder: Path, command: Sequence[str], answers: Callable[[], bool], environment: dict[str, str]
    ) -> None:
        self.folder = folder
        self._command = command
        self._answers = answers
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._command],  # noqa: S607 - on the PATH
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
        """Let it hang."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def _log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")[-3000:]


@contextmanager
def folder_of(user: str) -> Iterator[Path]:
    """Yield a folder that belongs to a user, if this one may give it away; pytest's are for this one alone."""
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
    return [f"--reuid={number.pw_uid}", f"--regid={number.pw_gid if group is None else group}", "--clear-groups"]


@contextmanager
def own_libvirtd() -> Iterator[tuple[Service, str]]:
    """Yield a libvirtd for the guests of one user, and its URI; the machine's own is not touched."""
    with folder_of("nobody") as folder:
        conf, path = folder / "libvirtd.conf", folder / "libvirt-sock"
        conf.write_text(f'unix_sock_dir = "{folder}"\n', encoding="utf-8")
        names = ("HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
        # Where its QEMU may not open /dev/kvm, each question takes seconds.
        kvm = Path("/dev/kvm")
        command = [*_as_user("nobody", kvm.stat().st_gid if kvm.exists() else None), "libvirtd", "-f", str(conf)]
        command += ["--pid-file", str(folder / "pid")]
        service = Service(folder, command, lambda: _listens(str(path)), dict.fromkeys(names, str(folder)))
        try:
            service.start()
            yield service, f"qemu+unix:///session?socket={path}"
        finally:
            service.kill()


@contextmanager
def own_mariadb() -> Iterator[tuple[Service, str]]:
    """Yield a MariaDB with an empty database for Placement, and the URL of that."""
    with folder_of("mysql") as folder:
        user = _as_user("mysql")
        data = f"--datadir={folder / 'data'}"
        install = ["setpriv", *user, "mariadb-install-db", "--no-defaults", data, "--skip-test-db"]
        subprocess.run(install, check=True, capture_output=True, timeout=600)
        sql = folder / "init.sql"
        sql.write_text(
            "CREATE DATABASE IF NOT EXISTS placement;\n"
            f"CREATE USER IF NOT EXISTS placement@localhost IDENTIFIED BY '{PASSWORD}';\n"
            "GRANT ALL ON placement.* TO placement@localhost;\n",
            encoding="utf-8",
        )
        command = [*user, "mariadbd", "--no-defaults", data, f"--init-file={sql}", "--skip-networking"]
        path = folder / "socket"
        command += [f"--socket={path}", f"--pid-file={folder / 'pid'}"]
        # What was committed survives the end of the process, not that of the machine.
        command += ["--skip-name-resolve", "--skip-log-bin", "--innodb-flush-log-at-trx-commit=2"]
        service = Service(folder, command, lambda: _listens(str(path)), {})
        try:
            service.start()
            yield service, f"mysql+pymysql://placement:{PASSWORD}@localhost/placement?unix_socket={path}"
        finally:
            service.kill()


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(path) == 0
