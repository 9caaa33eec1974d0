"""A real Glance and a real Nova API from the package index, as programs on SQLite, beside a Placement of the tests.

All listen on loopback ports alone and believe each token (:mod:`tests.services.cloud.serve`). There is no compute
and no message queue: servers are never built, but Nova's API knows them.
"""

import socket
import sqlite3
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from tests.support.programs import Program, running, until

_FILTER = """
[filter:authtoken]
paste.filter_factory = tests.services.cloud.serve:trusting
"""

_GLANCE_CONF = """
[DEFAULT]
enabled_backends = files:file
worker_self_reference_url = http://127.0.0.1:1
api_limit_max = 3
log_file = {folder}/glance-own.log
[database]
connection = sqlite:///{folder}/glance.sqlite
[glance_store]
default_backend = files
[files]
filesystem_store_datadir = {folder}/images
[os_glance_staging_store]
filesystem_store_datadir = {folder}/staging
[os_glance_tasks_store]
filesystem_store_datadir = {folder}/tasks
[image_cache]
image_cache_dir = {folder}/image-cache
[oslo_concurrency]
lock_path = {folder}/locks
[paste_deploy]
flavor = keystone
config_file = {folder}/glance-api-paste.ini
"""

_NOVA_CONF = """
[DEFAULT]
host = api
state_path = {folder}
transport_url = fake:/
[api]
max_limit = 3
[api_database]
connection = sqlite:///{folder}/nova_api.sqlite
[database]
connection = sqlite:///{folder}/{cell}.sqlite
[glance]
endpoint_override = {glance}
[cinder]
endpoint_template = {others}/v3/%(project_id)s
auth_type = none
[neutron]
endpoint_override = {others}
auth_type = none
endpoint = {others}
[oslo_concurrency]
lock_path = {folder}/locks
[placement]
auth_type = admin_token
endpoint_override = http://127.0.0.1:1
endpoint = http://127.0.0.1:1
token = admin
[wsgi]
api_paste_config = {folder}/api-paste.ini
"""


@dataclass
class Service:
    """A program that answers at a URL."""

    url: str
    program: Program


def send(method: str, url: str, body: object = None, **headers: str) -> Any:
    """Send a request as an administrator; return the JSON that comes back."""
    with requests.Session() as http:
        http.trust_env = False
        response = http.request(method, url, json=body, headers={"X-Auth-Token": "admin", **headers}, timeout=60)
    assert response.ok, response.text
    return response.json() if response.content else None


@contextmanager
def glance(folder: Path) -> Iterator[Service]:
    """Run a Glance while the context lasts."""
    for name in ("images", "staging", "tasks", "image-cache"):
        (folder / name).mkdir()
    (folder / "glance-api.conf").write_text(_GLANCE_CONF.format(folder=folder), encoding="utf-8")
    (folder / "glance-api-paste.ini").write_text(_trusting("glance/glance-api-paste.ini"), encoding="utf-8")
    argv = ["glance-manage", "--config-file", str(folder / "glance-api.conf"), "db", "sync"]
    with running(argv, folder, "glance-manage") as schema:
        schema.succeed()
    with program_serving("glance.wsgi.api", folder, "glance", {"OS_GLANCE_CONFIG_DIR": str(folder)}) as service:
        yield service


@contextmanager
def nova(folder: Path, glance_url: str, others_url: str) -> Iterator[Service]:
    """Run Nova's API while the context lasts."""
    (folder / "api-paste.ini").write_text(_trusting("nova/api-paste.ini"), encoding="utf-8")
    for name, cell in (("nova.conf", "nova_cell1"), ("nova-cell0.conf", "nova_cell0")):
        text = _NOVA_CONF.format(folder=folder, cell=cell, glance=glance_url, others=others_url)
        (folder / name).write_text(text, encoding="utf-8")
    with _managing(folder, "api_db", "sync") as one, _managing(folder, "db", "sync", "--local_cell") as other:
        one.succeed()
        other.succeed()
    # The schema takes Nova half a minute.
    with (
        closing(sqlite3.connect(folder / "nova_cell1.sqlite")) as one,
        closing(sqlite3.connect(folder / "nova_cell0.sqlite")) as other,
    ):
        one.backup(other)
    _manage(folder, "cell_v2", "map_cell0", "--database_connection", f"sqlite:///{folder}/nova_cell0.sqlite")
    _manage(folder, "cell_v2", "create_cell", "--name", "cell1")
    with program_serving("nova.wsgi.osapi_compute", folder, "nova", {"OS_NOVA_CONFIG_DIR": str(folder)}) as service:
        yield service


def _managing(folder: Path, *argv: str) -> AbstractContextManager[Program]:
    return running(["nova-manage", "--config-file", str(folder / "nova.conf"), *argv], folder, "-".join(argv[:2]))


def _manage(folder: Path, *argv: str) -> None:
    with _managing(folder, *argv) as program:
        program.succeed()


@contextmanager
def program_serving(application: str, folder: Path, name: str, environment: Mapping[str, str]) -> Iterator[Service]:
    """Serve a WSGI application, by the name of its module, in a program of its own while the context lasts."""
    root = str(Path(__file__).parents[3])
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    argv = ["python", "-m", "tests.services.cloud.serve", application, str(port)]
    with running(argv, folder, name, {**environment, "PYTHONPATH": root}) as program:
        until(lambda: _answers(url, program), lambda: f"{name} does not answer:\n{program.log[-5000:]}")
        yield Service(url, program)


def _answers(url: str, program: Program) -> bool:
    assert program.processes(), f"it ended:\n{program.log[-5000:]}"
    try:
        with requests.Session() as http:
            http.trust_env = False
            http.get(url, timeout=60)
    except requests.ConnectionError:
        return False
    return True


def free_port() -> int:
    """Return a port on which nothing listens now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _trusting(paste: str) -> str:
    """Return a service's own Paste file with our middleware for Keystone's."""
    text = Path(sysconfig.get_path("data"), "etc", paste).read_text(encoding="utf-8")
    before, middle, after = text.partition("[filter:authtoken]")
    assert middle
    _, _, rest = after.partition("\n[")
    return before + _FILTER + ("\n[" + rest if rest else "")
